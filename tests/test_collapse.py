"""Why θ_a collapses, choosing on the source, and the comparison, against numbers worked out by hand
here.
"""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from made_up_runs import Numbers, content, made_up_runs, points_of, quick, stored

from cascadetta_lib.data.corruptions import HELD_OUT_CORRUPTIONS
from cascadetta_lib.methods import METHODS
from study.exhibits.beyond.conditions import CANDIDATES
from study.exhibits.kit.exhibit import EXHIBITS
from study.exhibits.kit.rate_choice import (
    CONTROL_NETWORK,
    PLUS,
    PLUS_NETWORK,
    chosen_rate,
    contestants,
    errors_on_source,
    keep_choice,
)
from study.exhibits.kit.stored_runs import Runs
from study.settings import Settings, load_profile
from study.store import Run, Store
from study.study import Study

OF_PLUS = METHODS["cascade_plus"].objective


def world(method: str, objective: str, changes: dict[str, Any], seed: int) -> Numbers:
    """Errors of the ten images in a domain's first batch; E is that many twentieths. On the source
    Tent is best at the small rate and Cascade+ at the large one; on the test domains it is the
    other way round, which must not count."""
    large = changes.get("online_learning_rate") == 0.01
    stream = changes.get("stream")
    better = large == (method == "cascade_plus")
    errors = {"erm": 9, "adabn": 8, "cascade_plus": 3}.get(method, 6) - (
        better == (stream == HELD_OUT_CORRUPTIONS)
    )
    errors -= objective == OF_PLUS and method == "tent"
    errors += {16: 1, 4: 2}.get(changes.get("batch_size"), 0)  # type: ignore[call-overload]
    return Numbers((errors + 2 * (stream == "gradual"), 0), 0.6, 0.5)


class Remembered(Store):
    """A store that has the history of every network."""

    def history(self, run: Run) -> pd.DataFrame:
        """Two epochs, the second kept; what differs between the conditions is the entropy of a."""
        training = run.request.checkpoint.training
        assert training is not None
        rows = {"epoch": [1, 2], "held_out_accuracy": [0.3, 0.5], "entropy_main": [2.0, 1.5]}
        rows |= {
            "entropy_auxiliary": [1.0, 0.25 * training.entropy_weight],
            "entropy_of_mean_auxiliary": [2.0, 1.0],
        }
        rows |= {
            "agreement": [0.1, 0.9],
            "gradient_norm_main": [1.0, 2.0],
            "gradient_norm_self_supervised": [0.5, 0.5],
        }
        return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    sizes = {
        "image_ablation_test_size": 16,
        "image_comparison_test_size": 32,
    }  # Else some points would be the same.
    results = str(tmp_path_factory.mktemp("results"))
    rates = [0.001, 0.01]
    return quick(seeds=[0, 1], image_choice_learning_rates=rates, results_folder=results, **sizes)


@pytest.fixture(scope="module")
def runs(settings: Settings) -> Runs:
    """Every run, where the choice at another seed says the contrary of seed 0's, which must not
    count.
    """
    found = made_up_runs(settings, world, points_of(settings, ["conditions", "choice"]), [0])

    def contrary(method: str, objective: str, changes: dict[str, Any], seed: int) -> Numbers:
        return Numbers((0 if changes.get("online_learning_rate") == 0.01 else 9, 0))

    found += made_up_runs(settings, contrary, points_of(settings, ["choice"]), [1])
    keep_choice(stored(settings, found))
    found += made_up_runs(settings, world, points_of(settings, ["comparison"]), [0, 1])
    made = stored(settings, found)
    made.study.store = Remembered(made.study.store.folder)
    return made


def test_nothing_that_chooses_sees_a_test_domain(settings: Settings) -> None:
    for name in ("conditions", "choice"):
        points = EXHIBITS[name].points(settings)
        assert points and all(
            point.changes["stream"] == HELD_OUT_CORRUPTIONS for point in points
        ), name
        assert EXHIBITS[name].seeds(settings) == (0,)


def test_every_contestant_has_the_same_rates_and_rivals_have_the_same_terms(
    settings: Settings,
) -> None:
    points = pd.DataFrame(
        [(p.label, p.changes["online_learning_rate"]) for p in EXHIBITS["choice"].points(settings)]
    )
    rates = points.groupby(0)[1].agg(tuple)
    by_label = {one.label: one for one in contestants(settings)}
    adapting = {label for label, one in by_label.items() if METHODS[one.method].adapts}
    assert set(rates) == {(0.001, 0.01)} and set(rates.index) == adapting
    plus = METHODS["cascade_plus"]
    alike = {"statistics_memory": plus.memory, "online_diversity": plus.diversity}
    networks = [PLUS_NETWORK, CONTROL_NETWORK]
    assert all(one.changes == alike for one in by_label.values() if one.network in networks)
    same_network = [one for one in by_label.values() if one.network == PLUS_NETWORK]
    assert len(same_network) == 3 and {one.objective for one in same_network} == {OF_PLUS}


def test_conditions(runs: Runs) -> None:
    assert {"meta", OF_PLUS} <= set(CANDIDATES) and not {"ttt", "erm", "both_cross_entropy"} & set(
        CANDIDATES
    )
    cells = content(EXHIBITS["conditions"].show(runs), "conditions")
    assert set(cells.index) > {name.replace("_", " ") for name in CANDIDATES}
    # The kept epoch is the second: 0.25 λ nats, and a quarter of the other gradient's norm.
    assert cells.loc[["λ = 0", "λ = 1"], "entropy of a (nats)"].tolist() == ["0.00", "0.25"]
    assert set(cells["‖∇ENT‖ / ‖∇CE‖ on φ, θ_m"]) == {"0.25"} and set(
        cells["held-out accuracy (share)"]
    ) == {"0.50"}
    # 7 of 20 not adapted; the cascade 5 at the small rate, 6 at the large one.
    row = cells.loc["meta", ["E, not adapted", "E, rate 0.001", "E, rate 0.01"]]
    assert row.tolist() == ["35.0", "25.0", "30.0"] and cells.loc["λ = 0", "E, rate 0.01"] == "–"


class Forgetful(Store):
    """A store that has no trainings."""

    def history(self, run: Run) -> None:
        return None


def test_conditions_whose_trainings_are_gone(runs: Runs) -> None:
    runs.study.store = Forgetful(runs.study.store.folder)
    assert (
        "The trainings of these networks are not on record."
        in EXHIBITS["conditions"].show(runs).lines
    )


def test_without_a_method_that_adapts_there_is_no_choice(tmp_path: Path) -> None:
    settings = quick(image_methods=["erm", "adabn"], results_folder=str(tmp_path))
    assert errors_on_source(Runs.of_settings(settings)).empty
    for name in ("comparison", "field"):
        assert {point.method for point in EXHIBITS[name].points(settings)} == {"erm", "adabn"}


def test_the_rate_of_least_error_on_the_source_is_chosen(settings: Settings, runs: Runs) -> None:
    errors = errors_on_source(runs)
    assert errors.loc["Tent"].to_dict() == {0.001: 25, 0.01: 30}
    assert (
        errors.idxmin(axis=1)[["Tent", PLUS]].tolist() == [0.001, 0.01]
        and "ERM" not in errors.index
    )
    cells = content(EXHIBITS["choice"].show(runs), "choice")
    assert cells.loc["Tent"].tolist() == ["**25.00**", "30.00"] and cells.loc[PLUS].tolist() == [
        "15.00",
        "**10.00**",
    ]
    some = [
        run
        for run in runs.stored
        if not (run.method == "ttt" and run.request.online_learning_rate == 0.001)
    ]
    # A choice among a part of the rates is none.
    labels = errors_on_source(stored(settings, some)).index
    assert "TTT" not in labels and "Tent" in labels


def test_comparison(runs: Runs) -> None:
    cells = content(EXHIBITS["comparison"].show(runs), "comparison")
    # At the chosen rates, on the test domains: Tent 6 of 20, Cascade+ 3.
    expected = ["30.00 ± 0.00", "60.00 ± 0.00", "10.00 ± 0.00", "0.001", "2"]
    assert cells.loc["Tent", ["E", "A", "F (Eq. 2)", "rate", "n"]].tolist() == expected
    assert cells.loc[PLUS, ["E", "rate"]].tolist() == ["15.00 ± 0.00", "0.01"]
    assert cells.loc["Tent on Cascade+'s network", "E"] == "25.00 ± 0.00"
    differences = content(EXHIBITS["comparison"].show(runs), "comparison-differences")
    assert differences.loc[f"Tent − {PLUS}", "difference of E (points)"] == "+15.0"
    holding = content(EXHIBITS["comparison"].show(runs), "comparison-holding")["E (%)"]
    expected = {"batch 128": 15, "batch 16": 20, "batch 4": 25, "gradual": 25}
    assert all(
        holding[f"{PLUS}, {where}"] == f"{error}.00 ± 0.00" for where, error in expected.items()
    )


def test_a_seed_without_a_network_shows_what_is_known_of_the_rates(tmp_path: Path) -> None:
    """The rates are chosen at seed 0; no network of seed 99 is shipped."""
    changes = {"image_choice_learning_rates": [0.001, 0.01], "results_folder": str(tmp_path)}
    settings = load_profile("laptop", changes | {"seeds": [0, 99]})
    found = made_up_runs(settings, world, points_of(settings, ["choice"]), [0])
    keep_choice(stored(settings, found))
    at_99 = Study.without_device(settings, "image").at_seed(99)
    shown = EXHIBITS["comparison"].show(Runs.of(at_99, []))
    assert shown.lines and "No rate is chosen yet" not in " ".join(shown.lines)


def test_the_rate_is_read_from_what_the_choice_kept_and_never_from_runs(
    settings: Settings, runs: Runs, tmp_path: Path
) -> None:
    by_label = {one.label: one for one in contestants(settings)}
    rates = {label: chosen_rate(runs.study, one) for label, one in by_label.items()}
    assert (rates["Tent"], rates[PLUS], rates["ERM"]) == (0.001, 0.01, 0.001)
    elsewhere = settings.model_copy(update={"results_folder": str(tmp_path)})
    assert {point.method for point in EXHIBITS["comparison"].points(elsewhere)} == {"erm", "adabn"}
    another = settings.vary("image", {"choice_size": 7})
    assert chosen_rate(stored(another, []).study, by_label["Tent"]) is None, "another choice"


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"rate": null}'])
def test_a_damaged_choice_is_named(content: str, runs: Runs, tmp_path: Path) -> None:
    for kept in Path(runs.settings.results_folder).glob("choice-*.json"):
        (tmp_path / kept.name).write_text(content)
    settings = runs.settings.model_copy(update={"results_folder": str(tmp_path)})
    study = Study.without_device(settings, "image")
    tent = next(one for one in contestants(settings) if one.label == "Tent")
    with pytest.raises(ValueError, match=r"choice-\w+\.json is damaged: remove it, then run"):
        chosen_rate(study, tent)
