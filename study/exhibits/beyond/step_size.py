"""Beyond the paper: how far each method moves the network's parameters, and its gain over AdaBN."""

import math
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.ticker import FuncFormatter, LogLocator

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.comparable_runs import DAGGER, by_order, cell, comparable, count
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.intervals import mean_with_interval
from study.exhibits.kit.numbers import Rounded, rounded
from study.exhibits.kit.points import Point, long_in_each_order
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.kit.style import WIDTH, legend, line_of
from study.exhibits.kit.tables import errors_less
from study.settings import Settings
from study.store import Run

ADABN = "adabn"
COMPARED = ("tent", "tent_adam", "cascade", "cascade_fixed_classifier", "cascade_same_weights")
OVER = "online_learning_rate"
CORNERS = (((-7, 4), "right"), ((-7, -11), "right"), ((7, -11), "left"), ((7, 4), "left"))
"""Where a rate is written beside its marker: the offset in points, and the alignment. Methods have
different corners, because their markers may nearly coincide. The method that moved least has the
first.
"""
FEW_TICKS = (1, 3)
MANY_TICKS = (1, 2, 3, 5, 7)
"""The ticks of each decade of distances: MANY_TICKS on a short axis, FEW_TICKS on a long one."""
EDGE = 5
"""The number of domains at each end of the stream over which gains are also averaged."""


@exhibit
class StepSize(Exhibit):
    """Compare the distance moved with the gain over AdaBN, for methods along the long stream at
    each learning rate.

    The distance is that of the adapted parameters from the source at the end of the stream.
    """

    name = "step_size"
    place = 122
    label = "beyond: step size"
    title = "Distance moved and gain over AdaBN"
    question = "Is θ_a more than a smaller step?"

    def points(self, settings: Settings) -> list[Point]:
        """Return points along the long stream of AdaBN and of the profile's methods in COMPARED. If
        the profile has the cascade, the cascade with θ_m fixed and the variant without θ_a are
        added.
        """
        methods = list(settings.image.methods)
        if "cascade" in methods:
            methods += ["cascade_fixed_classifier", "cascade_same_weights"]
        names = [ADABN] + [name for name in COMPARED if name in methods]
        return long_in_each_order(settings, names)

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        frame = by_order(frame)
        base = frame[frame["method"] == ADABN]
        moving = frame[frame["method"] != ADABN]
        if base.empty or moving.empty:
            return ["No gain without AdaBN and a method that adapts."]
        moving = moving.sort_values(OVER, kind="stable")
        moving = comparable(moving.assign(**measured(moving["run"])), ("label", OVER))
        rows = [row_of(rows, base) for _, rows in moving.groupby(["label", OVER], sort=False)]
        table = pd.DataFrame(rows).set_index(["method", "rate"])
        orders = {run.request.order_seed for run in frame["run"]}
        over = "networks"
        if len(orders) > 1:
            over = (
                "networks, or, with a single network, over "
                f"{len(orders)} orders of domains and examples"
            )
        note = (
            "Distances are Euclidean, from the source to the end of the stream: of all adapted "
            "parameters, of BatchNorm's scales and shifts, and of θ_m. Entropies (nats) are means "
            "over the stream. A gain is AdaBN's E minus the method's, in points: over all domains, "
            f"over the first {EDGE}, and over the last {EDGE} of the stream. The 95 % interval "
            f"stands in brackets. Spreads are over {over}."
        )
        return [_figure(moving, base), Part("step-size", table, note)]


def measured(runs: pd.Series) -> dict[str, list[float]]:
    """Return columns with a value per run: the distances moved at the end of its stream, and the
    mean entropies along it.
    """
    found: dict[str, list[float]] = {"moved_normalization": [], "moved_others": [], "moved": []}
    found |= {"entropy_main": [], "entropy_auxiliary": []}
    for run in runs:
        last = run.batches.iloc[-1]
        for name in ("moved_normalization", "moved_others"):
            found[name].append(float(last[name]))
        found["moved"].append(math.hypot(last["moved_normalization"], last["moved_others"]))
        for name in ("entropy_main", "entropy_auxiliary"):
            found[name].append(_mean_over_examples(run, name))
    return found


def _mean_over_examples(run: Run, column: str) -> float:
    counts = run.batches["count"]
    return float((run.batches[column] * counts).sum(skipna=False) / counts.sum())


def gains(rows: pd.DataFrame, base: pd.DataFrame) -> pd.DataFrame:
    """Return the gains of `rows` over AdaBN, in points: over all domains, over the first EDGE of
    the stream, and over its last EDGE.

    A gain is AdaBN's E minus that of `rows`. There is a row per network, or per order, that both
    have.

    rows: runs of one method at one rate.
    base: AdaBN's runs.
    """
    found = []
    for seed, each in rows.groupby("seed", sort=False):
        less = -errors_less(each, base[base["seed"] == seed])
        if len(less):
            edges = {"all": less.mean(), "first": less[:EDGE].mean(), "last": less[-EDGE:].mean()}
            found.append({"network": each["network"].iloc[0], **edges})
    columns = ["network", "all", "first", "last"]
    table = pd.DataFrame(found, columns=columns)
    return table.groupby("network", sort=False).mean()


def _gain(values: pd.Series) -> Rounded:
    """Write the mean of gains, with its interval if there is one. Without values it is a dash."""
    if values.empty:
        return rounded(math.nan)
    estimate = mean_with_interval(values)
    mean = estimate.value()
    if math.isnan(estimate.low):
        return mean
    shown = f"{mean} {estimate.interval}"
    return Rounded(shown, f"{mean.full} {estimate.interval.full}")


def row_of(rows: pd.DataFrame, base: pd.DataFrame) -> dict[str, object]:
    """Return the row of a method at a learning rate.

    rows: its runs.
    base: AdaBN's runs.
    """
    gained = gains(rows, base)
    return {
        "method": rows["label"].iloc[0],
        "rate": f"{rows[OVER].iloc[0]:g}",
        "E": cell(rows, "E"),
        "A": cell(rows, "A"),
        "gain": _gain(gained["all"]),
        f"first {EDGE}": _gain(gained["first"]),
        f"last {EDGE}": _gain(gained["last"]),
        "distance": cell(rows, "moved", most=3, alone=3),
        "BatchNorm moved": cell(rows, "moved_normalization", most=3, alone=3),
        "θ_m moved": cell(rows, "moved_others", most=3, alone=3),
        "entropy of z": cell(rows, "entropy_main", most=3, alone=3),
        "entropy of a": cell(rows, "entropy_auxiliary", most=3, alone=3),
        "n": str(count(rows)),
    }


def _figure(moving: pd.DataFrame, base: pd.DataFrame) -> Part:
    """Draw the gain by the distance moved, with a marker per method and learning rate. The rate is
    written beside its marker.
    """
    figure, axes = plt.subplots(figsize=(WIDTH, 3.6))
    beside: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8}
    places = moving.groupby("label")["moved"].mean().rank(method="first").astype(int) - 1
    for label, rows in moving.groupby("label", sort=False):
        method, objective = rows[["method", "objective"]].iloc[0]
        look = line_of(method, objective) | {"ls": "none", "ms": 8, "mew": 1.5}
        by_rate = [at_rate for _, at_rate in rows.groupby(OVER)]
        # Comparable runs come first, because the first marker is the one in the legend.
        by_rate.sort(key=lambda at_rate: at_rate["apart"].any())
        for at_rate in by_rate:
            rate = at_rate[OVER].iloc[0]
            distance = at_rate["moved"].mean()
            gain = gains(at_rate, base)["all"].mean()
            filling = "none" if at_rate["apart"].any() else "full"
            axes.plot(distance, gain, label=str(label), fillstyle=filling, **look)
            offset, align = CORNERS[places[label] % len(CORNERS)]
            shade = look["color"]
            axes.annotate(f"{rate:g}", (distance, gain), offset, ha=align, color=shade, **beside)
    axes.axhline(0, color="0.4", lw=1)
    axes.set(xscale="log", xlabel="distance moved at the end of the stream (logarithmic)")
    axes.set_ylabel(f"gain over {METHODS[ADABN].label} (points of E)")
    axes.margins(x=0.15, y=0.12)
    least, most = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=MANY_TICKS if most < 50 * least else FEW_TICKS))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    legend(figure)
    note = (
        "The learning rate stands beside each marker. The distance is that of all adapted "
        "parameters, the gain is over all domains. If θ_a only made steps smaller, the cascade "
        "would gain as much as the variant without θ_a wherever both have moved as far."
    )
    if moving["apart"].any():
        note += (
            " Hollow: at other seeds or in other orders than most rows, or made by an earlier code "
            f"than today's ({DAGGER} in the table); the gain is over AdaBN in the same orders."
        )
    if moving["seed"].nunique() == 1:
        note += " All gains are of one order, so they differ from means over several."
    return Part("step-size-figure", figure, note)
