"""Every exhibit from made-up runs, against numbers worked out by hand here."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from made_up import Numbers, image_runs, made_up_evidence, made_up_run

from cascadetta_lib import diagrams, evidence, exhibits, report
from cascadetta_lib import exhibit as building
from cascadetta_lib.evidence import Evidence, Found
from cascadetta_lib.exhibit import Exhibit
from cascadetta_lib.experiments import EXPERIMENTS, Point, chosen_experiments, extra_objectives, make_runs
from cascadetta_lib.settings import Settings
from cascadetta_lib.study import Run, Study, code_revision

SETTINGS = Settings(
    image_methods=("adabn", "tent", "cotta", "ttt", "cascade"),
    image_batch_sizes=(32, 16),
    image_learning_rates=(0.001, 0.01),
    image_learning_rate_batch_sizes=(16,),
    image_orders=2,
    seeds=(0, 1),
)


def world(method: str, objective: str, changes: dict[str, Any]) -> Numbers:
    """Errors of the ten images in a domain's first batch; E is that many twentieths."""
    errors = {"adabn": 8, "tent": 6, "cotta": 5, "ttt": 4, "cascade": 2}.get(method, 3)
    errors += 2 if changes.get("batch_size") == 16 else 0
    errors += 1 if objective == "multi_task" else 0
    errors += changes.get("severity", 5) - 5 + 3 if "severity" in changes else 0
    errors += 1 if changes.get("online_learning_rate") == 0.01 and method == "cascade" else 0
    errors -= 1 if changes.get("predict") == "before" else 0
    errors += 1 if isinstance(changes.get("stream"), tuple) else 0
    seconds = 6.0 if method == "cotta" else 2.0
    return Numbers(max(errors, 0), accuracy=0.6, alone=0.5, entropies=(1.0, 0.5), seconds=seconds)


@pytest.fixture(scope="module")
def found() -> Evidence:
    return made_up_evidence(SETTINGS, image_runs(SETTINGS, world, EXPERIMENTS, seeds=(0, 1)))


def table(exhibit: Exhibit, name: str) -> pd.DataFrame:
    (content,) = [part.content for part in exhibit.parts if part.name == name]
    assert isinstance(content, pd.DataFrame)
    return content


def exhibit(name: str, found: Evidence) -> Exhibit:
    return exhibits.one_exhibit(name, found, "digits")


def test_batch_sizes(found: Evidence) -> None:
    cells = table(exhibit("batch_sizes", found), "batch-sizes")
    # The cascade: 2/20 at 32 and 4/20 at 16; over the two, 15 ± √50.
    assert cells.loc[("Cascade", "ours")].tolist() == ["10.00 ± 0.00", "20.00 ± 0.00", "15.00 ± 7.07", "2"]
    assert cells.loc[("Cascade", "paper"), ["32", "16"]].tolist() == ["22.99", "24.63"]
    assert cells.loc[("Tent", "paper"), "16"] == "50.28"
    assert ("AdaBN", "ours") not in cells.index, "it adapts nothing"


def test_the_spread_over_batch_sizes_is_that_of_seeds_with_all_of_them(found: Evidence) -> None:
    """The cascade's seed 1 is not there at 16, and errs twice as often at 32."""
    runs = []
    for run in found.stored:
        if run.config.method == "cascade" and run.seed == 1:
            run = replace(run, batches=run.batches.assign(errors=2 * run.batches["errors"]))
            if run.config.batch_size == 16:
                continue
        runs.append(run)
    cells = table(exhibit("batch_sizes", made_up_evidence(SETTINGS, runs)), "batch-sizes")
    assert cells.loc[("Cascade", "ours")].tolist() == ["15.00 ± 7.07", "20.00", "15.00 ± 7.07", "1–2"]


def test_meta_learning(found: Evidence) -> None:
    cells = table(exhibit("meta_learning", found), "meta-learning")
    assert cells.loc[("Cascade", "ours"), "32"] == "10.00 ± 0.00"
    assert cells.loc[("Cascade (multi task)", "ours")].tolist() == ["15.00 ± 0.00", "25.00 ± 0.00", "2"]
    assert cells.loc[("Cascade (multi task)", "paper")].tolist() == ["66.53", "75.88", "–"]
    assert cells.loc[("TTT (meta ttt)", "paper")].tolist() == ["27.93", "28.20", "–"]


def test_severities(found: Evidence) -> None:
    made = exhibit("severities", found)
    assert [part.name for part in made.parts[:4]] == [f"severity-{severity}" for severity in (4, 3, 2, 1)]
    four = table(made, "severity-4")
    # 2 + 4 − 5 + 3 = 4 of 20; A 60 %; F 60 − 50.
    own = four.loc[("Cascade", "ours"), ["E", "A", "F"]]
    assert own.map(report.plain).tolist() == ["20.00 ± 0.00", "60.00 ± 0.00", "10.00 ± 0.00"]
    assert four.loc[("Cascade", "paper"), "E"] == "**19.43**"
    assert table(made, "severity-1").loc[("Cascade", "paper"), "E"] == "**13.01**"


def test_parts_of_the_cascade(found: Evidence) -> None:
    cells = table(exhibit("cascade_parts", found), "cascade-parts")
    assert cells.loc[("Cascade", "ours")].tolist() == [f"{5 * errors}.00 ± 0.00" for errors in (1, 2, 3, 4, 5)] + ["2"]
    assert cells.loc[("Cascade, no θ_a", "ours"), "1"] == "10.00 ± 0.00"
    assert ("Cascade", "paper") not in cells.index, "its numbers are on Tiny-ImageNet-C"
    tiny = [replace(run, provenance=run.provenance | {"compare_with": "Tiny-ImageNet-C"}) for run in found.stored]
    cells = table(exhibit("cascade_parts", made_up_evidence(SETTINGS, tiny)), "cascade-parts")
    assert cells.loc[("Cascade, no θ_a", "paper"), "5"] == "68.09" and cells.loc[("Cascade", "paper"), "1"] == "44.20"
    assert ("Cascade, θ_m fixed", "paper") not in cells.index
    differences = table(exhibit("cascade_parts", found), "cascade-parts-differences")
    # 3 + … against 2 + …: five points at every severity, for both seeds the same.
    assert differences["difference of E (points)"].tolist() == ["+5.00"] * 10


def test_gradual(found: Evidence) -> None:
    made = exhibit("gradual", found)
    cells = table(made, "gradual")
    assert cells.loc[("Cascade", "ours")].tolist() == ["10.00 ± 0.00", "60.00 ± 0.00", "10.00 ± 0.00", "2"]
    assert cells.loc[("Cascade", "paper")].tolist() == ["17.51", "81.19", "-2.40", "–"]
    assert cells.loc[("AdaBN", "ours"), "F"] == "–"
    figure = made.parts[1].content
    assert not isinstance(figure, pd.DataFrame)
    (line,) = [line for line in figure.axes[0].lines if line.get_label() == "Cascade"]
    assert line.get_ydata() == pytest.approx([10.0] * 135)


def test_uncertainty(found: Evidence) -> None:
    run = next(run for run in found.main("image", "digits") if run.config.method == "cascade")
    along = exhibits.within_domains(run)
    # First batches: 2 of 10 wrong at 1.0 nats; second ones: none at 0.5.
    assert along.index.tolist() == [0, 10]
    assert along["error"].tolist() == [20, 0] and along["entropy_auxiliary"].tolist() == [1.0, 0.5]
    points = [each for each in found.experiment("severities", "digits") if each.point.method == "cascade"]
    table_of_seed = exhibits.severity_entropies(points, seed=1)
    # At severity s: s of ten wrong in the first batch, none in the second.
    assert table_of_seed.index.tolist() == [1, 2, 3, 4, 5] and table_of_seed["error"].tolist() == [5, 10, 15, 20, 25]
    assert table_of_seed["entropy_auxiliary"].tolist() == [0.75] * 5
    made = exhibit("uncertainty", found)
    assert table(made, "uncertainty-correlations").loc["Cascade"].tolist() == ["–", "1.00"], "z's entropy never changes"


def test_speed(found: Evidence) -> None:
    cells = table(exhibit("speed", found), "speed").reset_index("device")
    assert cells.loc["CoTTA", ["images a domain", "seconds a domain", "times the cascade's"]].tolist() == [
        "20",
        "6.00",
        "3.0",
    ]
    assert cells.loc["CoTTA"].iloc[-1] == "24 s for 10,000" and cells.loc["Tent"].iloc[-1] == "–"
    assert "CPU" in cells.loc["CoTTA", "device"] and "AdaBN" not in cells.index
    other = [replace(run, provenance=run.provenance | {"device": "a GPU"}) for run in found.stored if run.seed == 1]
    both = made_up_evidence(SETTINGS, [*(run for run in found.stored if run.seed == 0), *other])
    assert table(exhibit("speed", both), "speed").index.get_level_values("device").nunique() == 2


def test_learning_rates(found: Evidence) -> None:
    cells = table(exhibit("learning_rates", found), "learning-rates-best")
    # At batch 16: TTT 6/20 at both rates, the cascade 4/20 and 5/20.
    assert cells.loc[0.001, "batch 16"] == cells.loc[0.01, "batch 16"] == "Cascade"
    numbers = exhibit("learning_rates", found).numbers
    assert numbers is not None
    cascade = numbers[(numbers["method"] == "cascade") & (numbers["online_learning_rate"] == 0.01)]
    assert cascade["E"].tolist() == [25.0, 25.0]


def test_orders_and_predictions(found: Evidence) -> None:
    orders = table(exhibit("orders", found), "orders")
    # The standard order 2/20, two others 3/20.
    assert orders.loc["Cascade", ["orders", "E, standard order"]].tolist() == ["3", "10.00"]
    assert orders.loc["Cascade", "E, all orders"] == "13.33 ± 2.89"
    predictions = table(exhibit("predictions", found), "predictions")
    assert predictions.loc["Cascade"].tolist() == ["10.00 ± 0.00", "5.00 ± 0.00", "2"]
    assert predictions.columns.tolist() == ["after", "before", "n"]


def test_forgetting() -> None:
    settings = Settings(image_methods=("tent",))
    study = Study(settings).varied(**EXPERIMENTS["forgetting"](settings)[0].changes)
    run = made_up_run(study, "tent", Numbers(2))
    rows = [{"step": i, "domain": "", "severity": 5, "after": j, "accuracy": (i + j) / 100} for i in range(15)
            for j in range(1, 16)]  # fmt: skip
    run = replace(run, accuracies=pd.DataFrame(rows))
    made = exhibit("forgetting", made_up_evidence(settings, [run]))
    figure = made.parts[0].content
    assert not isinstance(figure, pd.DataFrame)
    shades = figure.axes[0].images[0].get_array()
    assert shades is not None and shades.shape == (15, 15)
    # Domain 3 after 7 domains, less that after 4: (3 + 7) − (3 + 4).
    assert shades[3, 6] == pytest.approx(3) and shades[3, 3] == 0


def test_theorem_and_collapse(tmp_path: Path) -> None:
    settings = Settings(image_methods=("cascade",), image_batch_sizes=(32,), results_folder=str(tmp_path))
    runs = image_runs(settings, world, ("meta_learning", "severities"), seeds=(0,))
    made = made_up_evidence(settings, runs)
    for run in runs:
        config = run.config.checkpoint
        folder = tmp_path / "checkpoints" / config.key
        folder.mkdir(parents=True, exist_ok=True)
        alive = config.objective == "meta"
        row = {"epoch": 1, "held_out_accuracy": 0.9, "entropy_main": 0.5, "entropy_auxiliary": 1.0 if alive else 0.0}
        row |= {"entropy_of_mean_auxiliary": 2.0 if alive else 0.0, "agreement": 0.8 if alive else 0.1}
        row |= {"gradient_norm_main": 1.0, "gradient_norm_self_supervised": 0.5, "gradient_cosine": 0.25}
        pd.DataFrame([row]).to_csv(folder / "history.csv", index=False)
    theorem = exhibit("theorem", made)
    assert [part.name for part in theorem.parts] == ["theorem-cosine"]
    assert "was not checked" in theorem.lines[-1]
    for run in runs:
        folder = tmp_path / "theorem" / run.config.checkpoint.key
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "theorem.json").write_text(json.dumps({"found": {"error_as_printed": 0.125}}))
    assert table(exhibit("theorem", made), "theorem").loc["meta, seed 0", "error as printed"] == "0.12"
    collapse = exhibit("collapse", made)
    assert [part.name for part in collapse.parts] == ["collapse-training", "collapse-stream"]
    assert any("**meta, seed 0**: θ_a has held" in line for line in collapse.lines)
    assert any("**multi_task, seed 0**: θ_a has **collapsed**" in line for line in collapse.lines)


def test_a_paired_difference_by_hand() -> None:
    settings = Settings(image_methods=("tent", "cascade"), image_stream=("fog", "snow"))
    pairs = {}
    for seed, (tent, cascade) in enumerate([(6, 2), (7, 2), (8, 2)]):
        study = Study(settings.model_copy(update={"seed": seed}))
        pairs[seed] = [made_up_run(study, "tent", Numbers(tent)), made_up_run(study, "cascade", Numbers(cascade))]
    found = evidence.paired_difference([pairs[s][1] for s in pairs], [pairs[s][0] for s in pairs])
    # 20, 25 and 30 points; Student's t for 2 degrees of freedom is 4.3027, the standard error 5/√3.
    assert found is not None and (found.mean, found.n, found.over) == (pytest.approx(25), 3, "seeds")
    assert found.high - found.mean == pytest.approx(4.3027 * 5 / 3**0.5, rel=1e-4)
    one = evidence.paired_difference([pairs[0][1]], [pairs[0][0]])
    # In each domain the two batches differ by 40 and 0 points: variance 800, of the mean 400, of two domains' mean 200.
    assert one is not None and (one.mean, one.n, one.over) == (pytest.approx(20), 4, "batches of one seed")
    assert one.high - one.mean == pytest.approx(1.95996 * 200**0.5, rel=1e-4)
    assert evidence.paired_difference([pairs[0][1]], [pairs[1][0]]) is None
    runs = [run for pair in pairs.values() for run in pair]
    cells = building.differences_table(building.method_pairs(runs))
    assert cells is not None and cells.loc["Tent − Cascade"].tolist() == ["+25.00", "[+12.58, +37.42]", "3 seeds"]


# ---------------------------------------------------------------- missing, partial, foreign


def test_missing_partial_and_foreign_runs_are_told_apart(found: Evidence) -> None:
    whole = found.experiment("predictions", "digits")
    assert evidence.experiment_gaps(SETTINGS, whole) == []
    none = [Found(each.point, []) for each in whole]
    (line,) = evidence.experiment_gaps(SETTINGS, none)
    assert line.startswith("missing: no run") and "05_ablations" in line
    half = [Found(each.point, each.runs[:1]) for each in whole]
    assert evidence.experiment_gaps(SETTINGS, half) == [f"partial: {len(whole)} of {2 * len(whole)} runs are stored"]
    run = whole[0].runs[0]
    assert run.provenance["code_revision"] == code_revision() and evidence.foreign_lines(SETTINGS, [run]) == []
    other = replace(run, provenance=run.provenance | {"profile": "laptop", "code_revision": "0123456789ab"})
    assert evidence.foreign_lines(SETTINGS, [run, other, other]) == [
        "made elsewhere: 2 by code 0123456789ab",
        "made elsewhere: 2 by profile laptop",
    ]
    # A run under other settings is no run of the profile's at all.
    foreign = replace(run, config=run.config.model_copy(update={"online_learning_rate": 0.5}))
    assert made_up_evidence(SETTINGS, [foreign]).experiment("predictions", "digits")[0].runs == []


def test_main_runs_that_are_missing_are_named(found: Evidence) -> None:
    settings = Settings(image_methods=("tent", "cascade"), seeds=(0, 7))
    runs = [run for run in found.main("image", "digits") if run.config.method in settings.image_methods]
    assert evidence.main_gaps(settings, "image", runs) == [
        "partial: tent, seed 7: no run",
        "partial: cascade, seed 7: no run",
    ]
    (line,) = evidence.main_gaps(settings, "text", [])
    assert "missing" in line and "03_adapt_text" in line


def test_a_seed_more_is_picked_up(found: Evidence) -> None:
    more = made_up_run(Study(SETTINGS.model_copy(update={"seed": 7})), "cascade", Numbers(8))
    runs = made_up_evidence(SETTINGS, [*found.stored, more]).main("image", "digits")
    assert sorted(run.seed for run in runs if run.config.method == "cascade") == [0, 1, 7]


def test_an_older_state_of_the_data_is_no_seed_more(found: Evidence) -> None:
    run = found.main("image", "digits")[-1]
    stale = run.config.model_copy(update={"domain_source": "an archive"})
    old = replace(run, config=stale, provenance=run.provenance | {"finished": "2020-01-01T00:00:00+00:00"})
    assert len(made_up_evidence(SETTINGS, [run, old]).main("image", "digits")) == 1


def test_without_runs_every_exhibit_is_a_heading_and_a_reason(tmp_path: Path) -> None:
    settings = Settings(image_dataset=("digits", "cifar100"), results_folder=str(tmp_path))
    made = exhibits.all_exhibits(Evidence(settings))
    assert len(made) == 2 + 4 + 2 * len(exhibits.IMAGE_EXHIBITS)
    for each in made[2:]:
        assert not each.parts and each.lines and f'id="{each.anchor}"' in each.html
        assert "missing" in each.lines[0] or "not made on this dataset" in each.lines[0]
        assert each.save(tmp_path / "figures") == []
    assert len({each.anchor for each in made}) == len(made)


def test_a_profile_of_fewer_methods_says_what_it_does_not_ask_for(tmp_path: Path) -> None:
    settings = Settings(image_methods=("erm",), results_folder=str(tmp_path))
    for name in exhibits.IMAGE_EXHIBITS:
        assert exhibits.one_exhibit(name, Evidence(settings), "digits").lines, name
    assert "not asked for" in exhibits.one_exhibit("batch_sizes", Evidence(settings), "digits").lines[0]


def test_a_partial_grid_is_drawn_whole_and_names_no_winner(found: Evidence) -> None:
    some = [run for run in found.stored if run.config.method != "cascade" or run.config.online_learning_rate == 0.01]
    made = exhibit("learning_rates", made_up_evidence(SETTINGS, some))
    assert table(made, "learning-rates-best")["batch 16"].tolist() == ["–", "Cascade"]
    figure = made.parts[0].content
    assert not isinstance(figure, pd.DataFrame)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["0.001", "0.01"]


def test_points_of_fewer_seeds_are_hollow() -> None:
    rows = [("Tent", "tent", "meta", size, seed, E) for size, seed, E in ((8, 0, 40.0), (8, 1, 44.0), (4, 0, 50.0))]
    rows += [("TTT", "ttt", "ttt", size, 0, 30.0) for size in (8, 4)]
    numbers = pd.DataFrame(rows, columns=["series", "method", "objective", "batch_size", "seed", "E"])
    _, axes = plt.subplots()
    building.sweep_axes(axes, numbers, "batch_size")
    drawn = [
        (line.get_markerfacecolor() == "white", np.asarray(line.get_xydata()).tolist()) for line in axes.get_lines()
    ]
    assert drawn == [
        (False, [[4, 50], [8, 42]]),
        (True, [[4, 50]]),
        (False, [[4, 30], [8, 30]]),
        (True, [[4, 30], [8, 30]]),
        (True, []),
    ]
    assert axes.get_legend_handles_labels()[1] == ["Tent", "TTT", "fewer than 2 seeds"]
    _, axes = plt.subplots()
    building.sweep_axes(axes, numbers[numbers["seed"] == 0], "batch_size")
    assert axes.get_legend_handles_labels()[1] == ["Tent", "TTT"]


def test_exhibits_are_saved_and_say_where_they_come_from(tmp_path: Path, found: Evidence) -> None:
    main = exhibits.main_exhibit(found, "image", "digits")
    names = {path.name for path in main.save(tmp_path)}
    tables = {f"digits-{name}.{suffix}" for name in ("table", "differences") for suffix in ("md", "tex", "csv")}
    assert names == tables | {"digits-metrics.png", "digits-stream.png", "tab-main-result-digits-numbers.csv"}
    assert (tmp_path / "digits-metrics.svg").read_text().startswith("<?xml")
    assert "NOT comparable" in (tmp_path / "digits-metrics.txt").read_text()
    assert "| Cascade | ours | **10.00 ± 0.00** |" in (tmp_path / "digits-table.md").read_text()
    latex = (tmp_path / "digits-table.tex").read_text()
    assert r"\toprule" in latex and r"Cascade & ours & \textbf{10.00 $\pm$ 0.00}" in latex and latex.startswith("% ±")
    assert pd.read_csv(tmp_path / "digits-table.csv")["E"].str.contains("*", regex=False).sum() == 0
    numbers = pd.read_csv(tmp_path / "tab-main-result-digits-numbers.csv")
    assert set(numbers["metric"]) == set(report.METRICS) and set(numbers["seed"]) == {0, 1}
    assert "<b>10.00 ± 0.00</b>" in main.html and "data:image/png;base64," in main.html


def test_every_figure_is_drawn_and_saved(tmp_path: Path, found: Evidence) -> None:
    of_collapse = ("conditions", "candidates", "online_terms", "choice", "comparison")  # see test_collapse.py
    for name in exhibits.IMAGE_EXHIBITS:
        made = exhibit(name, found)
        assert made.parts or name in ("theorem", *of_collapse), name
        assert all(path.exists() for path in made.save(tmp_path))
    assert diagrams.models_figure().axes and diagrams.overview_figure().axes


# ---------------------------------------------------------------- the experiments


def test_experiments_are_made_where_the_paper_has_them() -> None:
    assert chosen_experiments("npz:/somewhere") == list(EXPERIMENTS)
    assert chosen_experiments("cifar100") == [] and chosen_experiments("tiny_imagenet") == ["cascade_parts"]
    settings = Settings()
    assert set(extra_objectives(settings, "digits")) == {"multi_task", "meta_ttt", "meta_no_auxiliary"}
    assert extra_objectives(settings, "tiny_imagenet") == ["meta_no_auxiliary"]


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_point_is_one_that_can_be_asked_for(name: str) -> None:
    settings = Settings()
    points = EXPERIMENTS[name](settings)
    assert len({(p.method, p.objective, repr(p.changes)) for p in points}) == len(points), "no point twice"
    study = Study(settings)
    keys = {study.varied(**point.changes).run_config(point.method, point.objective).key for point in points}
    assert len(keys) == len(points)


def test_an_experiment_of_fewer_methods_has_fewer_points() -> None:
    settings = Settings(image_methods=("erm", "tent"))
    assert EXPERIMENTS["meta_learning"](settings) == EXPERIMENTS["cascade_parts"](settings) == []
    assert {point.method for point in EXPERIMENTS["batch_sizes"](settings)} == {"tent"}
    assert {point.method for point in EXPERIMENTS["severities"](settings)} == {"erm", "tent"}


def test_runs_are_made_and_found_by_the_same_description(tmp_path: Path) -> None:
    settings = Settings(
        image_methods=("adabn", "tent"),
        image_train_size=300,
        image_epochs=1,
        image_ablation_test_size=4,
        results_folder=str(tmp_path),
        figures_folder=str(tmp_path),
    )
    study = Study(settings)
    made = make_runs(study, "predictions")
    found = Evidence(settings).experiment("predictions", "digits")
    assert [each.runs[0].config.key for each in found] == [run.config.key for run in made]
    assert make_runs(study, "cascade_parts") == [], "the profile has no cascade"
    assert [run.config.predict for run in made] == ["after", "before"]
    assert isinstance(found[0].point, Point) and isinstance(found[0].runs[0], Run)
