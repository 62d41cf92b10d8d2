"""Which stored runs an exhibit reads, and the intervals around their means, against numbers worked
out by hand here.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import with_constants
from made_up_runs import Numbers, made_up_run, quick, stored

from cascadetta_lib.data.streams import Domain
from study.exhibits.kit.captions import count_of_seeds
from study.exhibits.kit.exhibit import EXHIBITS
from study.exhibits.kit.intervals import (
    Estimate,
    bootstrap,
    interval_over_images,
    mean_with_interval,
    paired,
)
from study.exhibits.kit.points import Point, main_points, points_for
from study.exhibits.kit.stored_runs import Runs, weights_of
from study.exhibits.kit.tables import errors_less, metrics_by_label
from study.provenance import NetworkOrigin
from study.requests import code_of_run
from study.settings import Settings, SettingsError
from study.store import Run
from study.study import Study

SETTINGS = quick(
    image_methods=("adabn", "tent", "cascade"), image_stream=("fog", "snow"), seeds=(0, 1)
)


def runs_of(
    errors: dict[tuple[str, int], Any], settings: Settings = SETTINGS, count: int = 10
) -> list[Run]:
    """A run for each method and seed, with these errors in the batches of each domain."""
    study = Study(settings)
    every = errors.items()
    return [
        made_up_run(study.at_seed(seed), name, Numbers(wrong, count=count))
        for (name, seed), wrong in every
    ]


@pytest.fixture
def runs() -> Runs:
    return stored(
        SETTINGS, runs_of({("tent", 0): (6, 0), ("tent", 1): (7, 0), ("cascade", 0): (2, 0)})
    )


def test_a_row_is_a_run_with_its_numbers(runs: Runs) -> None:
    frame = runs.frame(main_points(SETTINGS, "image"))
    tent = ["Tent", "tent", "meta"]
    ours = ["Cascade", "cascade", "meta"]
    assert frame[["label", "method", "objective", "seed"]].to_numpy().tolist() == [
        [*tent, 0],
        [*tent, 1],
        [*ours, 0],
    ]
    # 6, 7 and 2 of 20 examples; A 0.5; R(T_2|T_1:2) 0.5 less the source's 0.4, and less 0.5 of a
    # model adapted alone.
    assert frame["E"].tolist() == pytest.approx([30, 35, 10]) and frame[
        "A"
    ].tolist() == pytest.approx([50, 50, 50])
    assert frame["F"].tolist() == pytest.approx([0, 0, 0]) and frame[
        "F_unadapted"
    ].tolist() == pytest.approx([10] * 3)


def test_a_change_is_a_column_and_part_of_what_is_found(runs: Runs) -> None:
    small = Point("tent", None, {"batch_size": 5}, "batch 5")
    assert runs.frame([small]).empty and "batch_size" in runs.frame([small])
    more = made_up_run(runs.study.varied(batch_size=5), "tent", Numbers((1, 1)))
    found = stored(SETTINGS, [*runs.stored, more]).frame([small])
    assert found["batch_size"].tolist() == [5] and found["E"].tolist() == pytest.approx([10])


def test_what_is_missing_is_named(runs: Runs) -> None:
    points = main_points(SETTINGS, "image")
    assert runs.missing(points[1:2], (0, 1)) == [] == runs.missing(points[2:], (0,))
    (line,) = runs.missing(points, (0, 1))
    assert (
        line == "Partial: 3 of 6 runs are missing, such as AdaBN (seed 0), AdaBN (seed 1), Cascade "
        "(seed 1)."
    )
    assert "none of its 2 runs" in runs.missing(points[:1], (0, 1))[0]
    assert "Not asked for" in runs.missing([], (0,))[0]
    without_f = [made_up_run(runs.study.varied(forward_transfer=False), "adabn", Numbers((1, 1)))]
    (line,) = stored(SETTINGS, [*runs.stored, *without_f]).missing(points, (0, 1))
    assert line.startswith(
        "Partial: 3 of 6 runs are missing or incomplete (stored, but without F: 1), "
        "such as AdaBN (seed 0)"
    )


def test_a_run_without_its_transfer_is_read_and_said_to_be_partial() -> None:
    made = made_up_run(Study(SETTINGS).varied(forward_transfer=False), "tent", Numbers((6, 0)))
    run = replace(made, accuracies=made.accuracies.query("kind == 'stream'"))
    runs = stored(SETTINGS, [run])
    points = points_for(["tent"])
    row = runs.frame(points).iloc[0]
    assert row["E"] == pytest.approx(30) and row["A"] == pytest.approx(50) and math.isnan(row["F"])
    (line,) = runs.missing(points, (0,))
    assert line.startswith(
        "Partial: 1 of 1 runs are missing or incomplete (stored, but without F: 1)"
    )
    assert runs.missing(points_for(["tent"], [{"forward_transfer": False}]), (0,)) == []


def test_another_seed_is_read_and_an_older_state_of_the_data_is_not(runs: Runs) -> None:
    run = runs.stored[0]
    seventh = made_up_run(runs.study.at_seed(7), "tent", Numbers())
    stale = replace(
        run,
        provenance=replace(
            run.provenance, fingerprint="f" * 16, finished="2020-01-01T00:00:00+00:00"
        ),
    )
    found = stored(SETTINGS, [*runs.stored, seventh, stale]).frame(
        main_points(SETTINGS, "image")[1:2]
    )
    assert found["seed"].tolist() == [0, 1, 7] and found["run"].iloc[0] is run
    states: list[dict[str, Any]] = [{"fingerprint": "f" * 16}, {"domain_source": "the archive"}]
    for changed in states:
        made_by = replace(run.provenance, finished="2027-01-01T00:00:00+00:00", **changed)
        newer = replace(run, provenance=made_by)
        found = stored(SETTINGS, [*runs.stored, newer]).frame(main_points(SETTINGS, "image")[1:2])
        assert found["run"].tolist() == [newer], (
            "the other seeds are on data that has changed since"
        )


def test_a_pre_training_without_a_network_has_no_runs() -> None:
    settings = quick(image_weights="shipped", image_dataset="cifar10", image_methods=("tent",))
    assert stored(settings, []).frame([Point("tent", "ttt")], seeds=(12345,)).empty


def test_a_shipped_networks_history_is_that_of_runs_from_its_weights_alone() -> None:
    settings = quick(image_weights="shipped", image_dataset="cifar10", image_methods=("tent",))
    run = made_up_run(Study(settings), "tent", Numbers())
    other = run.request.checkpoint.model_copy(update={"weights": "folder:0123456789ab"})
    brought = replace(run, request=run.request.model_copy(update={"checkpoint": other}))
    runs = stored(settings, [run, brought])
    assert runs.history(run) is not None and runs.history(brought) is None


def test_students_interval_by_hand() -> None:
    found = mean_with_interval([20.0, 25.0, 30.0])
    # For two degrees of freedom t is 4.3027; the standard error is 5/√3.
    assert (found.mean, found.n) == (25, 3) and found.high - 25 == pytest.approx(
        4.3027 * 5 / 3**0.5, rel=1e-4
    )
    # Half the interval is 12.4, which supports no decimal.
    assert str(found) == "25 [13, 37] (3 seeds)"
    assert math.isnan(mean_with_interval([1.0]).low)
    assert str(mean_with_interval([-1.0])) == "−1.0 (1 seed)"
    assert str(mean_with_interval([20.0, 25.0, 30.0], "orders")) == "25 [13, 37] (3 orders)"
    assert Estimate(1, 0, 2, 9, "batches").interval == "[0.0, 2.0]"


def by_method(runs: Iterable[Run], settings: Settings = SETTINGS) -> list[pd.DataFrame]:
    frame = stored(settings, runs).frame(main_points(settings, "image"))
    return [frame[frame["method"] == name] for name in ("cascade", "tent")]


def test_a_paired_difference_takes_the_seeds_of_both() -> None:
    wrong = {("cascade", seed): (2, 0) for seed in (0, 1, 2)} | {
        ("tent", seed): (6 + seed, 0) for seed in (0, 1, 3)
    }
    found = paired(*by_method(runs_of(wrong)))
    assert found is not None and (found.mean, found.n) == (pytest.approx(22.5), 2)
    assert paired(*by_method(runs_of({("cascade", 0): (2, 0), ("tent", 1): (2, 0)}))) is None


def test_the_bootstrap_draws_batches_within_domains() -> None:
    few = bootstrap(*by_method(runs_of({("cascade", 0): (2, 0), ("tent", 0): (4, 2)})))
    assert few is not None and few.mean == pytest.approx(20) and np.isnan(few.low), (
        "two batches have no interval"
    )
    equal = bootstrap(*by_method(runs_of({("cascade", 0): (2, 0) * 5, ("tent", 0): (4, 2) * 5})))
    # Every batch has two errors more: whatever is drawn, 20 points.
    assert equal is not None and (equal.mean, equal.low, equal.high) == pytest.approx((20, 20, 20))
    cascade, tent = np.random.default_rng(0).binomial(10, 0.3, size=(2, 2, 400))
    found = bootstrap(*by_method(runs_of({("cascade", 0): cascade, ("tent", 0): tent})))
    assert found is not None and found.n == 800
    # 8,000 independent differences of variance 2·0.3·0.7: a standard error of 0.72 points.
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.72, rel=0.15)
    # Two domains with the errors of the same images are no more than one.
    found = bootstrap(*by_method(runs_of({("cascade", 0): cascade[0], ("tent", 0): tent[0]})))
    assert found is not None and found.high - found.low == pytest.approx(
        2 * 1.96 * 0.72 * 2**0.5, rel=0.15
    )
    assert bootstrap(*by_method(runs_of({("cascade", 0): (2, 0), ("tent", 1): (2, 0)}))) is None


def test_domains_of_other_examples_are_drawn_apart() -> None:
    errors = np.random.default_rng(0).binomial(10, 0.3, size=(2, 400))
    widths = {}
    for modality in ("text", "speech"):
        study = Study(quick(), modality)  # type: ignore[arg-type]
        made = [made_up_run(study, "tent", Numbers(each, count=10)) for each in errors]
        found = bootstrap(*(pd.DataFrame({"seed": [0], "run": [run]}) for run in made))
        assert found is not None
        widths[modality] = (found.high - found.low) * len(study.stream) ** 0.5
    # Of speech all domains hold the same utterances: as many as one domain has, so that no root of
    # their number is won.
    one = 2 * 1.96 * 100 * (2 * 0.3 * 0.7 / 4000) ** 0.5
    assert widths["text"] == pytest.approx(one, rel=0.15)
    assert widths["speech"] == pytest.approx(
        one * len(Study(quick(), "speech").stream) ** 0.5, rel=0.15
    )


def test_batches_next_to_each_other_that_err_alike_are_not_so_many_batches() -> None:
    """400 batches in runs of eight equal ones, drawn in blocks of ∛400 = 7, and the same ones
    shuffled.
    """
    runs = np.random.default_rng(0).binomial(10, 0.3, size=50).repeat(8)
    widths = []
    for errors in (runs, np.random.default_rng(1).permutation(runs)):
        found = bootstrap(*by_method(runs_of({("cascade", 0): [0] * 400, ("tent", 0): errors})))
        assert found is not None
        widths.append(found.high - found.low)
    # Batches k < 7 apart are in one block 7 − k times of 7 and in one run 8 − k times of 8: a
    # variance of 5, not of 1.
    variance = 1 + 2 * sum((1 - k / 7) * (1 - k / 8) for k in range(1, 7))
    assert variance == pytest.approx(5) and widths[0] / widths[1] == pytest.approx(
        variance**0.5, rel=0.2
    )


def test_an_order_of_its_own_in_each_domain_has_no_interval_over_batches() -> None:
    settings = quick(image_methods=("tent", "cascade"), image_stream="correlated")
    made = runs_of({("cascade", 0): (2,) * 10, ("tent", 0): (3,) * 10}, settings)
    found = bootstrap(*by_method(made, settings))
    assert (
        found is not None
        and found.mean == pytest.approx(10)
        and math.isnan(found.low)
        and math.isnan(found.high)
    )


def test_versions_of_an_image_in_a_long_stream_are_no_more_images() -> None:
    settings = quick(
        image_dataset="cifar10_sample:x", image_methods=("tent", "cascade"), image_stream=("fog",)
    )
    wrong = np.random.default_rng(0).binomial(32, 0.3, size=(2, 31))
    intervals = []
    of_errors = []
    for versions in (1, 4):
        repeated = {
            (name, 0): np.tile(each, versions)
            for name, each in zip(("cascade", "tent"), wrong, strict=True)
        }
        frames = by_method(runs_of(repeated, settings, count=32), settings)
        intervals.append(bootstrap(*frames))
        of_errors.append(interval_over_images(frames[1]))
    assert (
        intervals[0] == intervals[1]
        and intervals[0] is not None
        and intervals[0].high > intervals[0].low
    )
    assert of_errors[0] == of_errors[1]
    # Of 992 independent errors of variance 0.3·0.7: a standard error of 1.46 points.
    low, high = of_errors[0]
    assert high - low == pytest.approx(2 * 1.96 * 1.46, rel=0.3)


def test_errors_are_subtracted_seed_by_seed() -> None:
    wrong = {("cascade", 0): (2, 0), ("tent", 0): (6, 0), ("tent", 1): (0, 0), ("tent", 2): (0, 0)}
    cascade, tent = by_method(runs_of(wrong))
    assert errors_less(cascade, tent).to_dict() == {
        "fog": pytest.approx(-20),
        "snow": pytest.approx(-20),
    }
    assert errors_less(cascade, tent[tent["seed"] > 0]).empty


def test_what_is_made_is_found(tmp_path: object) -> None:
    small = {
        "image_train_size": 200,
        "image_training_epochs": 1,
        "image_ablation_test_size": 4,
        "image_ablation_batch_sizes": (2,),
    }
    settings = quick(image_methods=("adabn", "tent"), results_folder=str(tmp_path), **small)
    study = Study(settings)
    made = EXHIBITS["batch_size"].make(study)
    found = Runs.of_settings(settings).frame(EXHIBITS["batch_size"].points(settings))
    assert [run.request for run in found["run"]] == [run.request for run in made] and len(made) == 2
    assert EXHIBITS["cascade_parts"].make(study) == [], "the profile has no cascade"
    history = Runs.of_settings(settings).histories(found)
    assert set(history["label"]) == {"AdaBN", "Tent"} and history["classes"].eq(10).all()


# ---------------------------------------------------------------- what may be compared


def table_of(runs: Runs) -> pd.DataFrame:
    """E, A, F and n by label."""
    return metrics_by_label(runs.frame(main_points(runs.settings, "image")))


def test_a_table_compares_over_the_seeds_that_its_rows_share() -> None:
    """At seed 3, which the cascade lacks, all networks are worse."""
    wrong = {("adabn", 0): 4, ("adabn", 1): 4, ("tent", 0): 2, ("tent", 1): 2, ("tent", 3): 9}
    wrong |= {("adabn", 3): 9, ("cascade", 0): 2, ("cascade", 1): 2}
    made = runs_of({key: (errors, 0) for key, errors in wrong.items()})
    found = table_of(stored(SETTINGS, [run for run in made if run.method != "ttt"]))
    assert found["n"].tolist() == ["3", "3", "2"], "seed 3 is that of two rows of three"
    assert found.loc["Cascade", "E"] == "10.00 ± 0.00 †"
    without = [run for run in made if (run.method, run.seed) != ("adabn", 3)]
    found = table_of(stored(SETTINGS, without))
    assert found["n"].tolist() == ["2", "2", "2"], "seed 3 is Tent's alone"
    assert found["E"].tolist() == ["20.00 ± 0.00", "10.00 ± 0.00", "10.00 ± 0.00"]


def asked_for(**changes: Any) -> Callable[[Run], Run]:
    """The same run under another request."""
    return lambda run: replace(run, request=run.request.model_copy(update=changes))


def trained_as(**changes: Any) -> Callable[[Run], Run]:
    """The same run from another network."""

    def change(run: Run) -> Run:
        checkpoint = run.request.checkpoint.model_copy(update=changes)
        return asked_for(checkpoint=checkpoint)(run)

    return change


def made_by(**changes: Any) -> Callable[[Run], Run]:
    """The same run with another provenance."""
    return lambda run: replace(run, provenance=replace(run.provenance, **changes))


UNLIKE: dict[str, Callable[[Run], Run]] = {
    "size of the batches": asked_for(batch_size=8),
    "images of each domain": asked_for(test_size=7),
    "order of prediction": asked_for(predict="before"),
    "learning rate": asked_for(online_learning_rate=0.1),
    "optimiser": asked_for(online_optimizer="adam"),
    "memory of statistics": asked_for(statistics_memory=8),
    "diversity": asked_for(online_diversity=1.0),
    "order of the examples": asked_for(order="mixed"),
    "seed of the order": asked_for(order_seed=3),
    "severity": asked_for(stream=(Domain("fog", 3), Domain("snow", 3))),
    "domains in another order": asked_for(stream=(Domain("snow", 5), Domain("fog", 5))),
    "a reset at each domain": asked_for(reset_each=True),
    "a reset at an alarm": asked_for(on_alarm="reset"),
    "pre-training": trained_as(objective="erm"),
    "a network from elsewhere": trained_as(weights="shipped:1a2b3c4d5e6f"),
    "folder of the data": trained_as(dataset="npz:0123456789ab:digits"),
    "cut of the source": trained_as(options={"train_size": 7}),
    "content of the data": made_by(fingerprint="f" * 16),
    "source of the domains": made_by(domain_source="an archive"),
    "a later seed on other data": made_by(fingerprint="f" * 16, finished="2027"),
}
"""What the run of one seed differs in from those beside it."""


@pytest.mark.parametrize("name", UNLIKE)
def test_a_mean_is_never_over_runs_that_are_unlike(name: str) -> None:
    wrong = {("adabn", 0): (4, 0), ("adabn", 1): (4, 0), ("tent", 0): (2, 0)}
    (unlike,) = runs_of({("tent", 1): (9, 9)})
    found = table_of(stored(SETTINGS, [*runs_of(wrong), UNLIKE[name](unlike)]))
    assert str(found.loc["Tent", "E"]).startswith(("10.0", "90.0")), "of one of the two alone"
    assert found.loc["Tent", "n"] == "1"


def test_what_is_marked_is_never_in_bold() -> None:
    wrong = {(name, seed): (4, 0) for name in ("adabn", "tent") for seed in (0, 1)}
    runs = stored(SETTINGS, runs_of(wrong | {("cascade", 0): (1, 0)}))
    shown = EXHIBITS["main_image"].show(runs)
    (domains,) = [part for part in shown.parts if part.name == "image-domains"]
    assert domains.content.loc[("Cascade", "ours"), "E"] == "5.0 †"
    assert domains.content.loc[("Tent", "ours"), "E"] == "**20.0**"
    said = shown.caption(domains)
    assert "other seeds or in other orders" in said and "below" not in said, "no table need follow"


def test_one_network_counts_once_however_many_seeds_ran_on_it() -> None:
    made = runs_of({("tent", 0): (4, 0), ("tent", 1): (4, 0), ("cascade", 0): (2, 0)})
    made += runs_of({("cascade", 1): (2, 0)})
    brought = [
        replace(
            run,
            request=run.request.model_copy(
                update={
                    "checkpoint": run.request.checkpoint.model_copy(update={"weights": "mine:1"})
                }
            ),
            provenance=replace(run.provenance, network=NetworkOrigin("mine:1", "1" * 64)),
        )
        for run in made
    ]
    own, same = (pd.DataFrame(frame_of(each)) for each in (made, brought))
    assert own.groupby("method")["network"].nunique().tolist() == [2, 2]
    assert same.groupby("method")["network"].nunique().tolist() == [1, 1]
    first, second = (same[same["method"] == name] for name in ("cascade", "tent"))
    difference = paired(first, second)
    assert difference is not None and (difference.mean, difference.n) == (pytest.approx(10), 1)
    assert difference.interval == "–" and metrics_by_label(same)["n"].tolist() == ["1", "1"]
    assert count_of_seeds(brought) == "n = 1 network, at 2 seeds"
    # Rows of 1 seed and network, of 2 seeds on 1 network, and of 2 on 2.
    [first_made, second_made] = [run for run in made if run.method == "cascade"]
    [first_tent, _] = [run for run in made if run.method == "tent"]
    of_tent = [run for run in brought if run.method == "tent"]
    assert count_of_seeds([first_tent, first_made, second_made]) == "n = 1–2 seeds"
    shared = [
        replace(run, request=run.request.model_copy(update={"online_learning_rate": 0.5}))
        for run in of_tent
    ]
    assert count_of_seeds([first_tent, first_made, second_made, *shared]) == (
        "n = 1–2 networks, at 1–2 seeds"
    )


def frame_of(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """The rows of a frame of these runs, whatever their settings."""
    return [
        {
            "label": run.method,
            "method": run.method,
            "seed": run.seed,
            "network": weights_of(run),
            "current": Runs.of_settings(SETTINGS).is_current(run),
            "E": mean_error(run),
            **dict.fromkeys(("A", "F", "F_final", "F_unadapted"), 1.0),
            "run": run,
        }
        for run in runs
    ]


def mean_error(run: Run) -> float:
    return 100 * float(run.batches["errors"].sum() / run.batches["count"].sum())


def test_equal_differences_have_no_spread_known() -> None:
    found = mean_with_interval([0.5, 0.5, 0.5])
    assert math.isnan(found.low) and found.interval == "no spread known" and found.n == 3


def test_two_methods_with_one_label_are_refused() -> None:
    told = r"tent and eata have the same label 'Tent'"
    with with_constants("eata", label="Tent"):
        with pytest.raises(SettingsError, match=told):
            quick(image_methods=("tent", "eata"))
        with pytest.raises(ValueError, match=told):
            stored(SETTINGS, []).frame(points_for(["tent", "eata"]))


@pytest.mark.parametrize(
    "names", [("my pets", "my-pets"), ("a+b", "a-b"), ("pets.", "pets"), ("Pets", "pets")]
)
def test_two_datasets_that_would_write_one_file_are_refused(names: tuple[str, str]) -> None:
    with pytest.raises(SettingsError, match="would both be called"):
        quick(image_dataset=[f"npz:x/{names[0]}", f"npz:y/{names[1]}"])


def test_several_data_and_codes_under_one_name_are_said() -> None:
    (run,) = runs_of({("tent", 0): (4, 0)})
    today = replace(run, provenance=replace(run.provenance, code=code_of_run(run.request)))
    old_code = replace(run, provenance=replace(run.provenance, code="0" * 8, finished="2027"))
    elsewhere = replace(today.provenance, fingerprint="f" * 16, finished="2025")
    old_data = replace(today, provenance=elsewhere)
    points = points_for(["tent"])
    runs = stored(SETTINGS, [today, old_code, old_data])
    assert runs.frame(points)["run"].tolist() == [today], "today's code, not the newest"
    data, code = runs.aside(points)
    assert "have changed" in data and "1 stored runs" in data and "f" * 16 in data
    assert "Several states of the code" in code and "Tent" in code
    assert stored(SETTINGS, [today]).aside(points) == []
    (line,) = stored(SETTINGS, [old_code]).aside(points)
    assert "earlier state of the code (method, evaluator, data or training)" in line
    assert line in EXHIBITS["main_image"].show(stored(SETTINGS, [old_code])).lines


def test_a_row_of_an_earlier_code_is_marked() -> None:
    tent, cascade = runs_of({("tent", 0): (4, 0), ("cascade", 0): (2, 0)})
    today = replace(tent, provenance=replace(tent.provenance, code=code_of_run(tent.request)))
    found = table_of(stored(SETTINGS, [today, cascade]))
    assert found["E"].tolist() == ["20.0", "10.0 †"]
