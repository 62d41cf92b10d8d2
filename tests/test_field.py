"""The field: rates chosen on the source, one line a method, and what a step costs."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from made_up_runs import Numbers, made_up_runs, points_of, quick, stored
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from torch import Tensor, nn

from cascadetta_lib.data.corruptions import HELD_OUT_CORRUPTIONS
from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.data.streams import Domain
from cascadetta_lib.evaluation.cost import batches_along, cost
from cascadetta_lib.methods import METHODS
from cascadetta_lib.models import ImageNetwork, build_network
from study.exhibits.beyond.field import standing_figure
from study.exhibits.kit.exhibit import EXHIBITS
from study.exhibits.kit.rate_choice import keep_choice
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.kit.style import colour
from study.requests import code_of_run
from study.settings import Settings

NAMES = ["adabn", "tent", "eata", "cascade"]


def world(method: str, objective: str, changes: dict[str, Any], seed: int) -> Numbers:
    """Of 10 images EATA gets 2 wrong, the others 4; one more at a batch of 1. On the source the
    rate 0.01 is better.
    """
    if changes.get("stream") == HELD_OUT_CORRUPTIONS:
        return Numbers((5 if changes["online_learning_rate"] == 0.001 else 4, 0))
    return Numbers(((2 if method == "eata" else 4) + (changes.get("batch_size") == 1), 0), 0.6, 0.5)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    sizes = {
        "image_ablation_test_size": 16,
        "image_comparison_test_size": 32,
        "image_comparison_batch_sizes": [16, 1],
    }
    changes = {"image_methods": NAMES, "image_choice_learning_rates": [0.001, 0.01]}
    return quick(
        seeds=[0, 1], results_folder=str(tmp_path_factory.mktemp("results")), **changes, **sizes
    )


@pytest.fixture(scope="module")
def runs(settings: Settings) -> Runs:
    found = made_up_runs(settings, world, points_of(settings, ["choice"]), [0])
    keep_choice(stored(settings, found))
    found += made_up_runs(settings, world, points_of(settings, ["field"]), [0, 1])
    return stored(settings, found)


def test_every_method_has_the_rate_that_the_source_chose_and_the_same_settings(
    settings: Settings, runs: Runs
) -> None:
    points = EXHIBITS["field"].points(settings)
    rates = {(point.method, point.changes["online_learning_rate"]) for point in points}
    assert rates == {("adabn", 0.001), ("tent", 0.01), ("eata", 0.01), ("cascade", 0.01)}
    of_each = {name: {point.variant for point in points if point.method == name} for name in NAMES}
    expected = {"", "gradual", "mixed", "correlated", "batch 16", "batch 1"}
    assert all(of_each[name] == expected for name in NAMES)


def test_of_equal_errors_the_smallest_rate_is_chosen_and_bold(
    settings: Settings, tmp_path: Path
) -> None:
    elsewhere = settings.model_copy(update={"results_folder": str(tmp_path)})

    def equal(method: str, objective: str, changes: dict[str, Any], seed: int) -> Numbers:
        return Numbers((4, 0), 0.6, 0.5)

    found = stored(elsewhere, made_up_runs(elsewhere, equal, points_of(elsewhere, ["choice"]), [0]))
    keep_choice(found)
    [part] = EXHIBITS["choice"].show(found).parts
    assert isinstance(part, Part)
    assert part.content.loc["Tent", "0.001"].startswith("**")
    assert not part.content.loc["Tent", "0.01"].startswith("**")
    rates = {point.changes["online_learning_rate"] for point in EXHIBITS["field"].points(elsewhere)}
    assert rates == {0.001}


def test_what_waits_for_its_rate_is_named(settings: Settings, tmp_path: Path) -> None:
    elsewhere = settings.model_copy(update={"results_folder": str(tmp_path)})
    others = made_up_runs(elsewhere, world, points_of(elsewhere, ["field"]), [0, 1])
    for made in ([], others):
        told = EXHIBITS["field"].show(stored(elsewhere, made)).lines[-1]
        assert told == "No rate is chosen yet for Tent, EATA, Cascade: run the exhibit `choice`."
    tent_alone = elsewhere.vary("image", {"methods": ["tent"]})
    for name in ("field", "comparison"):
        [line] = EXHIBITS[name].show(stored(tent_alone, [])).lines
        assert line == "No rate is chosen yet for Tent: run the exhibit `choice`."


def test_a_rate_that_an_earlier_code_chose_is_told(settings: Settings, tmp_path: Path) -> None:
    elsewhere = settings.model_copy(update={"results_folder": str(tmp_path)})
    found = []
    for run in made_up_runs(elsewhere, world, points_of(elsewhere, ["choice"]), [0]):
        code = "earlier" if run.method == "tent" else code_of_run(run.request)
        found.append(replace(run, provenance=replace(run.provenance, code=code)))
    keep_choice(stored(elsewhere, found))
    [line] = [
        line for line in EXHIBITS["field"].show(stored(elsewhere, [])).lines if "earlier" in line
    ]
    assert "the rates of Tent; run the exhibit `choice` to choose them again" in line


def test_one_rate_leaves_nothing_to_choose() -> None:
    settings = quick(image_methods=NAMES, image_choice_learning_rates=[0.003])
    points = EXHIBITS["field"].points(settings)
    adapting = [point for point in points if METHODS[point.method].adapts]
    assert {point.method for point in points} == set(NAMES)
    assert {point.changes["online_learning_rate"] for point in adapting} == {0.003}


def test_tables_and_differences(runs: Runs) -> None:
    shown = {part.name: part.content for part in EXHIBITS["field"].show(runs).parts}
    table, of_settings, less = (
        shown[name] for name in ("field", "field-settings", "field-differences")
    )
    assert (
        all(isinstance(each, pd.DataFrame) for each in (table, of_settings, less))
        and "field-figure" in shown
    )
    assert table.index[0] == "EATA" and table.loc["EATA", "E"] == "10.00 ± 0.00"
    costs = ["rate", "work, in forward passes", "extra memory, relative to the network"]
    assert table.loc["Tent", costs].tolist() == ["0.01", "3.00", "0.50"]
    assert of_settings.loc["Tent", ["instantaneous", "batch 1"]].tolist() == [
        "20.00 ± 0.00",
        "25.00 ± 0.00",
    ]
    assert less.loc["EATA − Cascade", "difference of E (points)"] == "−10.0"


def test_no_error_is_cut(settings: Settings, runs: Runs) -> None:
    frame = runs.frame(
        [point for point in EXHIBITS["field"].points(settings) if point.label in ("Tent", "EATA")]
    )
    frame["E"] = frame["E"].mask(frame["method"] == "tent", 20.0 + 40 * frame["seed"])
    parts = EXHIBITS["field"].parts(frame, runs)
    (drawn,) = [part.content for part in parts if getattr(part, "name", "") == "field-figure"]
    assert isinstance(drawn, Figure)
    low, high = drawn.axes[0].get_xlim()
    assert low < 10 and high > 40, "EATA's and Tent's means"


def test_a_variant_of_the_cascade_has_the_colour_of_other_figures() -> None:
    names = ["tent", "cascade", "cascade_same_weights"]
    shown = pd.DataFrame({"method": names, "E": 20.0, "work": 3.0}).assign(low=19.0, high=21.0)
    error = standing_figure(shown).axes[0]
    dots = error.collections[-1].get_facecolor()
    assert [tuple(each) for each in dots[1:]] == [to_rgba(colour(name)) for name in names[1:]]
    assert tuple(dots[0]) == to_rgba("0.45")


@pytest.mark.parametrize(("work", "most"), [(38.0, 50.0), (96.0, 124.8)])
def test_the_axis_reaches_the_method_that_works_most(work: float, most: float) -> None:
    names = ["tent", "memo"]
    shown = pd.DataFrame({"method": names, "E": 20.0, "work": [3.0, work]})
    axes = standing_figure(shown.assign(low=19.0, high=21.0)).axes[1]
    assert axes.get_xlim() == pytest.approx((0.7, most))


def test_the_figure_explains_its_bars_where_no_rate_was_chosen(tmp_path: Path) -> None:
    """The sentence on the rates took the place of that on the bars."""

    def of_twelve_batches(method: str, *asked: Any) -> Numbers:
        return Numbers((2 if method == "eata" else 4,) * 12)

    settings = quick(
        image_methods=NAMES, image_choice_learning_rates=[0.001], results_folder=str(tmp_path)
    )
    made = made_up_runs(settings, of_twelve_batches, points_of(settings, ["field"]), [0])
    parts = EXHIBITS["field"].show(stored(settings, made)).parts
    (figure,) = [part for part in parts if part.name == "field-figure"]
    assert "Bars: the 95 % interval" in figure.note
    assert "Rates were not chosen" in figure.note


def test_the_time_is_that_of_the_fastest_domain(settings: Settings, runs: Runs) -> None:
    """What else a machine does adds to other domains, and to other runs."""
    frame = runs.frame(
        [point for point in EXHIBITS["field"].points(settings) if point.label == "Tent"]
    )
    slow, fast = frame["run"]
    hurried = fast.batches.assign(
        seconds=[0.02 if step == 3 else 0.9 for step in fast.batches["step"]]
    )
    frame["run"] = [slow, replace(fast, batches=hurried)]
    parts = EXHIBITS["field"].parts(frame, runs)
    table = next(part.content for part in parts if isinstance(part, Part) and part.name == "field")
    assert isinstance(table, pd.DataFrame) and table.loc["Tent", "ms an image"] == "2.00", (
        "0.02 s for 10 images"
    )


def test_cost_counts_passes_and_what_is_kept(images: Tensor) -> None:
    model = build_network(ImageNetwork(depth=8, width=8), classes=10, seed=0)
    size = sum(value.numel() for value in model.state_dict().values())
    assert cost(METHODS["erm"](model), [images]) == {"work": 1, "memory": 0}
    tent = METHODS["tent"](model)
    before = tent(images)
    found = cost(tent, [images, images])
    assert found["work"] == pytest.approx(3, abs=0.1), (
        "forward, backward to the activations alone, forward"
    )
    assert found["memory"] == sum(p.numel() for p in tent.adapted_parameters()) / size, (
        "SGD's momentum"
    )
    assert torch.equal(tent(images), before), "the method is as it was made"
    assert cost(METHODS["cotta"](model, copies=None), [images])["memory"] > 2, "teacher and anchor"


def test_the_work_of_a_network_without_a_product_is_not_known(images: Tensor) -> None:
    network = nn.Sequential(nn.BatchNorm2d(3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert math.isnan(cost(METHODS["tent"](network), [images])["work"])


def test_what_happens_in_some_steps_alone_is_in_the_cost(dataset: ImageDataset) -> None:
    """RoTTA predicts by its teacher and looks with it; every 64 examples its student learns from
    the teacher.
    """
    model = build_network(ImageNetwork(depth=8, width=8), classes=10, seed=0)
    batches = batches_along([Domain("fog", 5), Domain("snow", 5)], dataset, 8)
    assert [len(batch) for batch in batches] == [22] * 4, "all that there are"
    rotta = METHODS["rotta"](model)
    without, once = (cost(rotta, batches[:count])["work"] for count in (2, 4))
    assert without == pytest.approx(2, abs=0.1) and once > 2.4
