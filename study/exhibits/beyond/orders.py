"""Beyond the paper: methods on one network, over several orders of the images and domains."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from cascadetta_lib.evaluation.metrics import online_errors
from cascadetta_lib.methods import METHODS
from study.exhibits.kit.captions import order_of
from study.exhibits.kit.comparable_runs import (
    DAGGER,
    by_order,
    cell,
    comparable,
    count,
    shared_seeds,
)
from study.exhibits.kit.distance_from_paper import label_of_paper_row
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.intervals import (
    bootstrap,
    interval_over_images,
    paired,
)
from study.exhibits.kit.numbers import Rounded, interval, number, rounded
from study.exhibits.kit.paper_numbers import paper_main
from study.exhibits.kit.points import Point
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs, by_label
from study.exhibits.kit.style import SHORT, colour, legend, name_domains, panels, typeset
from study.exhibits.kit.tables import by_domain, domains_table
from study.settings import Settings

SLOW = "a tenth of the rate"
FAST = "ten times the rate"
SHOWN = (
    ("adabn", ""),
    ("tent", ""),
    ("cascade", ""),
    ("tent", SLOW),
    ("cascade_same_weights", ""),
    ("cascade_same_weights", SLOW),
)
"""The panels of the figure, row by row: a method and its variant."""
COMPARED = (
    "erm",
    "adabn",
    "source_prior",
    "tent",
    "tent_adam",
    "cotta",
    "cascade",
    "cascade_fixed_classifier",
    "cascade_same_weights",
)
"""The methods of the table, from the top. SLOWER and FASTER name those with rows at other rates."""
MAIN = ("erm", "adabn", "tent", "cascade")
"""The table compares over the orders of these rows. Other rows may have fewer orders."""
SLOWER = ("tent", "tent_adam", "cascade", "cascade_same_weights")
"""The methods that also run at a tenth of the learning rate."""
FASTER = ("tent", "cascade", "cascade_same_weights")
"""The methods that also run at ten times the learning rate."""
TITLE = 34
"""The most letters in a line of a panel's title."""
DIAMOND: dict[str, Any] = {"mfc": "white", "mec": "black", "ms": 5.5, "mew": 0.9, "zorder": 1}
"""How the paper's row is drawn: larger than our dots, and beneath them."""
ADABN: dict[str, Any] = {"color": "0.6", "lw": 0.9, "drawstyle": "steps-mid", "zorder": 1}
"""How AdaBN's mean is drawn if the paper has no row: in steps, because domains are separate."""
EDGE = 5
"""The number of domains at each end of a stream over which gains are also averaged."""


@exhibit
class Orders(Exhibit):
    """Compare methods along the long stream, with the images and the domains in several orders."""

    name = "orders"
    place = 139
    label = "beyond: orders"
    title = "Over orders of images and domains"
    question = "Does a network give the paper's rows, whatever the order of the stream?"

    def points(self, settings: Settings) -> list[Point]:
        """Return points of the profile's methods in COMPARED, in each order of the profile. Methods
        in SLOWER and FASTER also have points at other rates.

        If the profile has AdaBN, the source prior is added. If it has the cascade, the cascade with
        θ_m fixed and the variant without θ_a are added.
        """
        asked = set(settings.image.methods)
        if "adabn" in asked:
            asked.add("source_prior")
        if "cascade" in asked:
            asked |= {"cascade_fixed_classifier", "cascade_same_weights"}
        methods = [name for name in COMPARED if name in asked]
        rate = settings.image.online.online_learning_rate
        size = settings.image.exhibits.long_test_size
        points = []
        for order in settings.image.exhibits.long_order_seeds:
            stream: dict[str, Any] = {"test_size": size, "forward_transfer": False}
            if order is not None:  # None: the profile's own order.
                stream["order_seed"] = order
            points += [Point(name, None, stream) for name in methods]
            for others, variant, other in ((SLOWER, SLOW, rate / 10), (FASTER, FAST, 10 * rate)):
                changes = stream | {"online_learning_rate": other}
                points += [
                    Point(name, None, changes, variant=variant)
                    for name in others
                    if name in methods
                ]
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        frame = by_order(frame)
        rows_of_main = frame["method"].isin(MAIN) & (frame["variant"] == "")
        orders = shared_seeds(frame[rows_of_main]) or None
        frame = comparable(frame, shared=orders)
        paper = paper_main(frame["run"].iloc[0])
        note = (
            "Each order draws the images and the domains anew; n counts orders. E and A are means "
            "over orders, with one standard deviation. The limits of the interval over "
            "images, given the network, are means of the limits in each order."
        )
        gain_note = (
            f"Gains are AdaBN's E minus the method's in the same order, in points: over all "
            f"domains of each stream, over the first {EDGE}, and over the last {EDGE}."
        )
        notes = [note, gain_note]
        if not paper.empty:
            notes.append(
                "The mean distance by domain is between our errors and those in the paper's row: "
                "Tent's for Tent with any optimiser and rate, the cascade's for the cascade and "
                "its variants at any rate."
            )
        table_note = " ".join([*notes, _orders_of_rows_apart(frame)])
        pairs_note = (
            "In points of E. Over orders: Student, given the network. Over test batches: block "
            "bootstrap in each order that both have; the limits are means over these orders."
        )
        found: list[Part | str] = [
            _figure(frame, paper, runs.settings.image.online.online_learning_rate),
            Part("orders", orders_table(frame, paper), table_note),
        ]
        differences = _differences(frame)
        if len(differences):
            found.append(Part("orders-differences", differences, pairs_note))
        table = domains_table(frame, orders)
        heads = [head for head in SHORT.values() if head in table]
        table = table[[*heads, *table.columns.difference(heads, sort=False)]]
        return [*found, Part("orders-by-domain", table, "E (%) by domain, means over orders.")]


def _orders_of_rows_apart(frame: pd.DataFrame) -> str:
    """Return a sentence that lists the orders of each row with †; empty if no row has †."""
    said = []
    for label, rows in by_label(frame[frame["apart"]]).items():
        orders = dict.fromkeys(order_of(run.request) for run in rows["run"])
        said.append(f"{label}: {', '.join(orders)}")
    return f"Orders of the rows with {DAGGER}: {'; '.join(said)}." if said else ""


def orders_table(frame: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Return a row per label: E, A, the gain over AdaBN, and the paper's E and A."""
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
            "by domain, mean distance": _distance(each, paper),
            "the paper's E": number(theirs["E"]),
            "the paper's A": number(theirs["A"]),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


def gains(rows: pd.DataFrame, base: pd.DataFrame | None) -> tuple[float, float, float]:
    """Return the gain of `rows` over AdaBN, in points: over all domains, over the first EDGE of the
    stream, and over its last EDGE.

    A gain is AdaBN's E minus that of `rows`, averaged over the orders that both have. All three are
    NaN if `rows` and `base` share no order, and for AdaBN itself.

    rows: the runs of one label.
    base: AdaBN's runs, or None.
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


def _distance(rows: pd.DataFrame, paper: pd.DataFrame) -> Rounded | str:
    """Return the mean over domains of the absolute difference between our error and the paper's, in
    points. Return a dash if the paper has neither a row of the method nor one of the method of
    which it is a variant.

    rows: the runs of one label.
    """
    row = label_of_paper_row(rows["method"].iloc[0])
    if row not in paper.index:
        return "–"
    errors = by_domain(rows)
    theirs = paper.loc[row].reindex(errors.index)
    return rounded(float(np.nanmean(np.abs((errors - theirs).to_numpy(dtype=float)))))


def _differences(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the difference in E of each pair of labels, with its intervals, over the orders that
    both have.
    """
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


def over_two_lines(label: str) -> str:
    """Break a long label behind its last comma, so that it fits above a panel."""
    name, comma, variant = label.rpartition(", ")
    if len(label) <= TITLE or not comma:
        return label
    return f"{name},\n{variant}"


def _domains_in_order(frame: pd.DataFrame) -> list[str]:
    """Return the names of the domains of all runs: corruptions in the paper's order, then others in
    the order of the streams.
    """
    names = dict.fromkeys(domain.name for run in frame["run"] for domain in run.request.stream)
    others = [name for name in names if name not in SHORT]
    return [*(name for name in SHORT if name in names), *others]


def _figure(frame: pd.DataFrame, paper: pd.DataFrame, rate: float) -> Part | str:
    """Draw a panel for each entry of SHOWN that has runs.

    A panel shows our error by domain, with a tick per order and a dot for their mean. It also shows
    the paper's row. If the paper has no such row, it shows AdaBN's mean over the same orders
    instead. Return a sentence if no entry has runs.

    rate: the profile's learning rate, which runs without a variant have.
    """
    asked = {
        str(rows["label"].iloc[0]): rows
        for method, variant in SHOWN
        if len(rows := frame[(frame["method"] == method) & (frame["variant"] == variant)])
    }
    if not asked:
        return "No figure: it needs runs of AdaBN, Tent or the cascade."
    heads = _domains_in_order(frame)
    adabn = frame[(frame["method"] == "adabn") & (frame["variant"] == "")]
    figure, grid = panels(len(asked), 2.9, columns=3, sharey=True)
    for axes, (label, each) in zip(grid, asked.items(), strict=True):
        look: dict[str, Any] = {"color": colour(each["method"].iloc[0])}
        if label in paper.index:
            theirs = paper.loc[label]
            axes.plot(theirs.reindex(heads).to_numpy(), "D", label="the paper", **DIAMOND)
        elif set(each["seed"]) <= set(adabn["seed"]):
            base = by_domain(adabn[adabn["seed"].isin(each["seed"])]).reindex(heads).to_numpy()
            axes.plot(base, label="AdaBN, mean of the same orders", **ADABN)
        for _, order in each.groupby("seed"):
            errors = by_domain(order).reindex(heads).to_numpy()
            axes.plot(errors, "_", ms=9, **look)
        mean = by_domain(each).reindex(heads).to_numpy()
        axes.plot(mean, "o", ms=3, **look)
        several = "" if count(each) == 1 else "s"
        mark = f" {DAGGER}" if each["apart"].any() else ""
        title = f"{typeset(over_two_lines(label))}\nhere {number(each['E'].mean(), 1)} %{mark}"
        title += f" ({count(each)} order{several})"
        if label in paper.index:
            title += f"\nthe paper {number(theirs['E'], 1)} %"
        axes.set(title=title)
        axes.margins(y=0.1)  # so that the frame does not cut a diamond
        name_domains(axes, heads)
    # The legend shows a tick and a dot in grey, because each panel has its own colour.
    grid[0].plot([], [], "_", ms=9, color="0.3", label="one order")
    grid[0].plot([], [], "o", ms=3, color="0.3", label="mean of the orders")
    # Set last, because it fixes the upper limit of the axis that all panels share.
    grid[0].set_ylim(bottom=0)
    for axes in grid[::3]:
        axes.set_ylabel("online error (%)")
    legend(figure)
    whose = "the paper's order" if set(heads) <= set(SHORT) else "one order in all panels"
    note = (
        f"E by domain at the learning rate {rate:g}, or a tenth of it where the title says so. "
        "Each method has its own optimiser. Each order draws the images and the domains anew. "
        f"Domains stand in {whose}, not in that of the runs, so no line joins the dots."
    )
    if any(each["apart"].any() for each in asked.values()):
        note += f" {DAGGER}: other orders than the rest, so compare it with no other panel."
    return Part("orders-figure", figure, note)
