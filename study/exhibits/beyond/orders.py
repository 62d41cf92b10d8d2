"""Beyond the paper: one network over several orders of the images and of the domains."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from cascadetta_lib.evaluation.metrics import online_errors
from cascadetta_lib.methods import METHODS
from study.exhibits.kit.compare import by_order, cell, comparable, count
from study.exhibits.kit.exhibit import Exhibit, Part, exhibit
from study.exhibits.kit.intervals import (
    bootstrap,
    interval_over_images,
    paired,
)
from study.exhibits.kit.numbers import Rounded, interval, number, rounded
from study.exhibits.kit.paper_numbers import paper_main
from study.exhibits.kit.points import Point
from study.exhibits.kit.stored_runs import Runs, by_label
from study.exhibits.kit.style import SHORT, colour, name_domains, panels, typeset
from study.exhibits.kit.tables import by_domain, domains_table
from study.settings import Settings

SHOWN = ("adabn", "tent", "cascade")
"""The panels of the figure, from left to right."""
COMPARED = ("erm", "adabn", "source_prior", "tent", "tent_adam", "cascade", "cascade_same_weights")
"""The rows of the table, from the top; those that learn come at a tenth of the rate, too."""
SLOWER = ("tent", "tent_adam", "cascade", "cascade_same_weights")
"""Methods that run at a tenth of the learning rate, too."""
DIAMOND: dict[str, Any] = {"mfc": "white", "mec": "black", "ms": 7, "mew": 1.1, "zorder": 1}
"""How the paper's row is drawn: larger than our dots, and beneath them."""
EDGE = 5
"""Domains at the beginning and at the end of each stream that are compared."""


@exhibit
class Orders(Exhibit):
    """A network along the long stream, with the images and the domains in several orders."""

    name = "orders"
    place = 139
    label = "beyond: orders"
    title = "Over orders of images and domains"
    question = "Does a network give the paper's rows, whatever the order of the stream?"

    def points(self, settings: Settings) -> list[Point]:
        """These methods at each order of the profile, those that learn at a tenth of the rate, too.

        With AdaBN comes the source prior, with the cascade its weights without θ_a.
        """
        asked = set(settings.image.methods)
        if "adabn" in asked:
            asked.add("source_prior")
        if "cascade" in asked:
            asked.add("cascade_same_weights")
        methods = [name for name in COMPARED if name in asked]
        rate = settings.image.online.online_learning_rate
        size = settings.image.exhibits.long_test_size
        points = []
        for order in settings.image.exhibits.long_order_seeds:
            stream: dict[str, Any] = {"test_size": size, "forward_transfer": False}
            if order is not None:  # Else in the profile's own order.
                stream["order_seed"] = order
            points += [Point(name, None, stream) for name in methods]
            slow = stream | {"online_learning_rate": rate / 10}
            points += [
                Point(name, None, slow, variant="a tenth of the rate")
                for name in SLOWER
                if name in methods
            ]
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        frame = comparable(by_order(frame))
        paper = paper_main(frame["run"].iloc[0])
        note = (
            "Each order draws the images and the domains anew; n counts orders. E and A are means "
            "over orders, with one standard deviation. The interval over images, given the "
            "network, has the mean limits of the orders' own."
        )
        gain_note = (
            f"Gains are AdaBN's E less the method's in the same order, in points: over all, the "
            f"first {EDGE} and the last {EDGE} domains of each stream."
        )
        pairs_note = (
            "In points of E. Over orders: Student, given the network. Over test batches: block "
            "bootstrap in each order that both have, and the mean of its limits."
        )
        found: list[Part | str] = [
            _figure(frame, paper),
            Part("orders", orders_table(frame, paper), f"{note} {gain_note}"),
        ]
        differences = _differences(frame)
        if len(differences):
            found.append(Part("orders-differences", differences, pairs_note))
        table = domains_table(frame)
        heads = [head for head in SHORT.values() if head in table]
        table = table[[*heads, *table.columns.difference(heads, sort=False)]]
        return [*found, Part("orders-by-domain", table, "E (%) by domain, means over orders.")]


def orders_table(frame: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Return a row per label: E, A, what it gains on AdaBN, and the paper's E and A."""
    labels = by_label(frame)
    base = labels.get(METHODS["adabn"].label)
    rows = {}
    for label, each in labels.items():
        theirs = paper.reindex(index=[label], columns=["E", "A"]).iloc[0]
        of_orders = [interval_over_images(order) for _, order in each.groupby("seed")]
        low, high = np.mean(of_orders, axis=0)
        half = (high - low) / 2
        overall, first, last = gains(each, base)
        rows[label] = {
            "E": cell(each, "E", half),
            "95 % of E, over images": interval(low, high),
            "A": cell(each, "A", half),
            "gain": rounded(overall, sign=True),
            f"first {EDGE}": rounded(first, sign=True),
            f"last {EDGE}": rounded(last, sign=True),
            "n": str(count(each)),
            "by domain, mean distance": _distance(each, paper, label),
            "the paper's E": number(theirs["E"]),
            "the paper's A": number(theirs["A"]),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


def gains(rows: pd.DataFrame, base: pd.DataFrame | None) -> tuple[float, float, float]:
    """Return AdaBN's E less that of `rows`, in points: over all, the first and the last domains.

    Means over the orders that both have; NaN where they share none, and of AdaBN itself.
    """
    if base is None or rows["method"].iloc[0] == "adabn":
        return math.nan, math.nan, math.nan
    both = rows.merge(base, on="seed")
    if both.empty:
        return math.nan, math.nan, math.nan
    less = [
        100 * (online_errors(other.batches) - online_errors(run.batches)).to_numpy()
        for run, other in zip(both["run_x"], both["run_y"], strict=True)
    ]
    mean = np.mean(less, axis=0)
    return mean.mean(), mean[:EDGE].mean(), mean[-EDGE:].mean()


def _distance(rows: pd.DataFrame, paper: pd.DataFrame, label: str) -> Rounded | str:
    """The mean distance by domain from the paper's row of this label; a dash where it has none."""
    if label not in paper.index:
        return "–"
    errors = by_domain(rows)
    theirs = paper.loc[label].reindex(errors.index)
    return rounded(float(np.nanmean(np.abs((errors - theirs).to_numpy(dtype=float)))))


def _differences(frame: pd.DataFrame) -> pd.DataFrame:
    """Return every label's E less that of each one before it, over the orders that both have."""
    labels = list(by_label(frame).items())
    rows = {}
    for place, (label, other) in enumerate(labels):
        for base_label, base in labels[:place]:
            both = sorted(set(base["seed"]) & set(other["seed"]))
            found = paired(base, other)
            if found is None:
                continue
            limits = []
            for seed in both:
                estimate = bootstrap(base[base["seed"] == seed], other[other["seed"] == seed])
                assert estimate is not None, "both have this order"
                limits.append((estimate.low, estimate.high))
            low, high = np.mean(limits, axis=0)
            mean = found if found.n > 1 else replace(found, low=low, high=high)
            rows[f"{label} − {base_label}"] = {
                "difference of E (points)": mean.value(),
                "95 %, over orders": found.interval,
                "95 %, over test batches": interval(low, high),
                "n": str(found.n),
            }
    columns = ["difference of E (points)", "95 %, over orders", "95 %, over test batches", "n"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return table.rename_axis("difference")


def _figure(frame: pd.DataFrame, paper: pd.DataFrame) -> Part | str:
    """Draw a panel per method: our error by domain, a bar per order, and the paper's row."""
    labels = by_label(frame[frame["method"].isin(SHOWN) & (frame["variant"] == "")])
    if not labels:
        return "No figure without AdaBN, Tent or the cascade."
    figure, grid = panels(len(labels), 2.9, columns=3, sharey=True)
    for axes, (label, each) in zip(grid, labels.items(), strict=True):
        look: dict[str, Any] = {"color": colour(each["method"].iloc[0])}
        if label in paper.index:
            theirs = paper.loc[label]
            axes.plot(theirs.reindex(list(SHORT)).to_numpy(), "D", label="the paper", **DIAMOND)
        for _, order in each.groupby("seed"):
            axes.plot(by_domain(order).reindex(list(SHORT)).to_numpy(), "_", ms=7, **look)
        mean = by_domain(each).reindex(list(SHORT))
        axes.plot(mean.to_numpy(), "o", ms=4, label="run here", **look)
        title = f"{typeset(label)}: {number(each['E'].mean(), 1)} %"
        if label in paper.index:
            title += f"\nthe paper {number(theirs['E'], 1)} %"
        axes.set(title=title)
        axes.margins(y=0.08)  # else the frame cuts a diamond
        name_domains(axes, list(SHORT))
    # Last, since it holds the upper limit, and all panels share the axis.
    grid[0].set_ylim(bottom=0)
    grid[0].set_ylabel("online error (%)")
    grid[0].legend(loc="lower left", fontsize="small")
    note = (
        "Dots: the mean over orders; bars: one order each, where there are several. Diamonds: the "
        "paper's row. Domains stand in the paper's order, which need not be that of the stream, so "
        "no line joins them. In the titles, E."
    )
    return Part("orders-figure", figure, note)
