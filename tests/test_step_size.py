"""Distance moved and gain over AdaBN, where one network ran in several orders."""

from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pytest
from made_up_runs import Numbers, content, made_up_runs, points_of, quick, stored

from study.exhibits import EXHIBITS
from study.settings import Settings

SETTINGS = quick(
    image_dataset="cifar10",
    image_methods=("adabn", "tent"),
    image_ablation_learning_rates=(0.001,),
    image_long_order_seeds=(0, 1, 2),
)
LATER = np.repeat([[0, 0], [1, 1]], [5, 10], axis=0)
"""Whether a domain comes after the first five of fifteen."""


def world(method: str, objective: str, changes: dict[str, Any], seed: int) -> Numbers:
    """Errors of 10: AdaBN 5; Tent 2, 3, 4 by order, and one more after five domains."""
    if method == "adabn":
        return Numbers((5, 5))
    return Numbers(2 + changes["order_seed"] + LATER, moved=(changes["order_seed"], 0.0))


def shown(settings: Settings, orders: tuple[int, ...]) -> Any:
    points = [
        point
        for point in points_of(settings, ["step_size"])
        if point.changes["order_seed"] in orders
    ]
    runs = made_up_runs(settings, world, points, (0,))
    return EXHIBITS["step_size"].show(stored(settings, runs))


def test_spreads_and_intervals_are_over_orders() -> None:
    """The gains are 30, 20 and 10 points at first, 20, 10 and 0 at last."""
    exhibit = shown(SETTINGS, (0, 1, 2))
    row = content(exhibit, "step-size").loc[("Tent", "0.001")]
    half = 4.302653 * 10 / 3**0.5  # Student's, for three values
    assert row["first 5"] == f"+20 [{20 - half:.0f}, {20 + half:.0f}]".replace("-", "−")
    assert str(row["last 5"]).startswith("+10 [")
    assert row["n"] == "3" and row["BatchNorm moved"] == row["distance"] == "1.0 ± 1.0"
    [figure] = [part for part in exhibit.parts if part.name == "step-size-figure"]
    [axes] = figure.content.axes
    tent = axes.lines[0]
    assert list(tent.get_xdata()) == pytest.approx([1]), "0, 1 and 2 by order"
    assert list(tent.get_ydata()) == pytest.approx([(5 * 20 + 10 * 10) / 15])
    assert [text.get_text() for text in axes.texts] == ["0.001"]
    [table] = [part for part in exhibit.parts if part.name == "step-size"]
    assert "over 3 orders" in table.note


def test_what_lacks_an_order_is_drawn_hollow_with_its_gain_in_its_own_orders() -> None:
    """At two rates Tent has three orders, as AdaBN has; at 0.01 it has the second alone."""
    settings = SETTINGS.vary("image", {"ablation_learning_rates": [0.0001, 0.001, 0.01]})
    points = [
        point
        for point in points_of(settings, ["step_size"])
        if point.changes.get("online_learning_rate") != 0.01 or point.changes["order_seed"] == 1
    ]
    runs = made_up_runs(settings, world, points, (0,))
    exhibit = EXHIBITS["step_size"].show(stored(settings, runs))
    [figure] = [part for part in exhibit.parts if part.name == "step-size-figure"]
    markers = figure.content.axes[0].lines[:3]
    styles = [marker.get_fillstyle() for marker in markers]
    assert styles == ["full", "full", "none"], "the legend shows the first"
    assert list(markers[2].get_ydata()) == pytest.approx([(5 * 20 + 10 * 10) / 15])
    assert "Hollow" in figure.note and "†" in figure.note


def test_a_single_order_has_no_interval() -> None:
    row = content(shown(SETTINGS, (1,)), "step-size").loc[("Tent", "0.001")]
    assert row["first 5"] == "+20.0" and row["n"] == "1"
