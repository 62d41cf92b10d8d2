"""The paper's row of Tent, by three baselines."""

from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
import pytest
from made_up_runs import Numbers, content, made_up_runs, points_of, quick, stored

from cascadetta_lib.methods import METHODS
from study.exhibits import EXHIBITS
from study.exhibits.kit.paper_numbers import PAPER_RESULTS
from study.store import Run

SETTINGS = quick(
    image_dataset="cifar10",
    image_methods=("adabn", "tent", "tent_adam"),
    image_ablation_learning_rates=(0.001,),
)
ADABN_ERRS = 30
TENT_ERRS = 40
AUTHORS_ADABN_ERRS = 20


def world(method: str, objective: str, changes: dict[str, Any], seed: int) -> Numbers:
    """Errors of a hundred in every domain."""
    wrong = {"adabn": ADABN_ERRS, "tent": TENT_ERRS}.get(method, 36)
    return Numbers((wrong,), count=100)


def of_the_authors(run: Run) -> Run:
    """A run of AdaBN on the authors' network."""
    checkpoint = run.request.checkpoint.model_copy(update={"weights": "release:0"})
    request = run.request.model_copy(update={"checkpoint": checkpoint})
    batches = run.batches.assign(errors=AUTHORS_ADABN_ERRS)
    return Run(request, batches, run.accuracies, run.provenance)


def papers_row(method: str) -> pd.Series:
    """The paper's errors by domain at severity 5."""
    values = pd.read_csv(PAPER_RESULTS, dtype={"severity": str})
    of_table = values[(values["table"] == "tab:main-result") & (values["method"] == method)]
    rows = of_table[(of_table["dataset"] == "CIFAR-10-C") & (of_table["domain"] != "all")]
    return rows.set_index("domain")["value"]


def test_distances_by_each_baseline() -> None:
    runs = made_up_runs(SETTINGS, world, points_of(SETTINGS, ["tent_row"]), (0,))
    [adabn] = [run for run in runs if run.method == "adabn"]
    shown = EXHIBITS["tent_row"].show(stored(SETTINGS, [*runs, of_the_authors(adabn)]))
    row = content(shown, "tent-row").loc[("Tent", "0.001")]
    tent = papers_row("Tent")
    adabn_row = papers_row("AdaBN").reindex(tent.index)
    gained = TENT_ERRS - ADABN_ERRS
    wanted = [
        np.abs(TENT_ERRS - tent).mean(),
        np.abs(gained - (tent - adabn_row)).mean(),
        np.abs(gained - (tent - AUTHORS_ADABN_ERRS)).mean(),
    ]
    found = [float(cell.strip("*")) for cell in row.iloc[:3]]
    assert found == pytest.approx(wanted, abs=0.051)
    table = content(shown, "tent-row")
    for column in table.columns[:3]:
        bold = [cell for cell in table[column] if cell.startswith("**")]
        assert bold, "the nearest"


def test_without_the_authors_runs_the_third_baseline_is_not_there() -> None:
    runs = made_up_runs(SETTINGS, world, points_of(SETTINGS, ["tent_row"]), (0,))
    table = content(EXHIBITS["tent_row"].show(stored(SETTINGS, runs)), "tent-row")
    assert set(table.iloc[:, 2]) == {"–"}


def test_adabn_alone_is_told() -> None:
    """As in a report after a job that was stopped: AdaBN's runs come first."""
    settings = SETTINGS.vary("image", {"methods": ("erm", "adabn")})
    runs = made_up_runs(settings, world, points_of(settings, ["tent_row"]), (0,))
    shown = EXHIBITS["tent_row"].show(stored(settings, runs))
    assert "No method that minimises entropy has runs." in shown.lines


def test_a_network_of_its_own_is_compared_with_adabn_on_that_network() -> None:
    """The AdaBN of the network without θ_a errs less than that of the others' network."""
    settings = SETTINGS.vary("image", {"methods": ("adabn", "tent", "cascade_no_auxiliary")})
    own = METHODS["cascade_no_auxiliary"].objective

    def by_network(method: str, objective: str, changes: dict[str, Any], seed: int) -> Numbers:
        less = 10 if objective == own else 0
        return Numbers((world(method, objective, changes, seed).errors[0] - less,), count=100)

    points = points_of(settings, ["tent_row"])
    runs = made_up_runs(settings, by_network, points, (0,))
    table = content(EXHIBITS["tent_row"].show(stored(settings, runs)), "tent-row")
    tent = papers_row("Tent")
    gained = (36 - 10) - (ADABN_ERRS - 10)
    wanted = np.abs(gained - (tent - papers_row("AdaBN").reindex(tent.index))).mean()
    found = table.loc[("Cascade, no θ_a", "0.001")]
    assert float(found.iloc[1].strip("*")) == pytest.approx(wanted, abs=0.051)
    on_others = [
        run for run in runs if run.method != "adabn" or run.request.checkpoint.objective != own
    ]
    table = content(EXHIBITS["tent_row"].show(stored(settings, on_others)), "tent-row")
    assert table.loc[("Cascade, no θ_a", "0.001")].tolist()[1:3] == ["–", "–"]
