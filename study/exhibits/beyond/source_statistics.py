"""Beyond the paper: how much E falls, without learning, if BatchNorm blends the source's statistics
with the batch's.
"""

import math
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from study.exhibits.kit.comparable_runs import cell, comparable, count
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.intervals import interval_over_images
from study.exhibits.kit.numbers import interval, number
from study.exhibits.kit.pairs_of_networks import NETWORKS, objectives_compared
from study.exhibits.kit.points import Point, source_prior_points
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs, by_label
from study.exhibits.kit.style import WIDTH, colour, legend
from study.exhibits.kit.tables import differences
from study.settings import Settings

LEARNING_PRIOR = 32
"""N of the source prior for the methods that learn on a blend."""
BLENDED = {"tent": "tent_source_prior", "cascade": "cascade_source_prior"}
"""Each method that learns, and the same method on a blend of statistics."""
BESIDE = {"tent_source_prior": -2.2, "cascade_source_prior": 2.2}
"""How far each diamond is moved aside, in points of the source's share, so that two at the same
share can be told apart.
"""
OF_BLENDED = {blended: name for name, blended in BLENDED.items()}
NOTE = (
    "The source's statistics count as N examples, so their share is N/(N + n) in a full batch of "
    "n examples. All N that were run are shown, so E at the best N is optimistic. Methods that "
    f"learn have N = {LEARNING_PRIOR}, which was chosen after the first curve was seen."
)


@exhibit
class SourceStatistics(Exhibit):
    name = "source_statistics"
    place = 144
    label = "beyond: statistics"
    title = "What statistics give without learning"
    question = (
        "How much of what learning gains does a share of the source's BatchNorm statistics give?"
    )
    of_several = True

    def points(self, settings: Settings) -> list[Point]:
        """Return points on each network to compare.

        AdaBN, the source prior with each N, and ERM make the curve of a network. Tent and the
        cascade, if the profile has them, run on the batch's statistics and on a blend. The cascade
        runs only on the meta-learned network.
        """
        points = []
        objectives = objectives_compared(settings)
        for objective in objectives:
            network = NETWORKS[objective] if len(objectives) > 1 else ""
            named = ("tent",) if objective == "erm" else ("tent", "cascade")
            learning = [name for name in named if name in settings.image.methods]
            points += source_prior_points(objective, network)
            for name in ("erm", *learning):
                points.append(Point(name, objective, {"statistics_memory": None}, network))
            for name in learning:
                label = f"{Point(name).label}, N = {LEARNING_PRIOR}"
                points.append(_blend(BLENDED[name], objective, LEARNING_PRIOR, network, label))
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        size = frame["run"].iloc[0].request.batch_size
        counts = frame["method"].map({"adabn": 0, "erm": math.inf})
        counts = counts.fillna(frame["statistics_memory"].astype(float))
        frame = frame.assign(
            share=100 * (1 - size / (size + counts)),
            counts=counts,
            learns=frame["method"].isin([*BLENDED, *OF_BLENDED]),
        )
        labels = by_label(comparable(frame))
        rows = {}
        for label, each in labels.items():
            low, high = interval_over_images(each)
            half = (high - low) / 2
            rows[label] = {
                "the source's share (%)": number(each["share"].mean(), 0),
                "E": cell(each, "E", half),
                "95 %, over images": interval(low, high),
                "A": cell(each, "A", half),
                "n": str(count(each)),
            }
        table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
        order = frame.sort_values(["objective", "learns", "share"], kind="stable")["label"].unique()
        return [
            _curves(frame),
            Part("source-statistics", table.loc[order], NOTE),
            *differences("source-statistics-differences", _pairs(frame)),
        ]


def _blend(method: str, objective: str, count: int, network: str, name: str) -> Point:
    """Return a point of a method on a blend, in which the source's statistics count as much as
    `count` examples. `name` replaces the method's label.
    """
    changes = {"statistics_memory": count, "forward_transfer": False}
    return Point(method, objective, changes, network, called=name)


def _pairs(frame: pd.DataFrame) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """Return pairs (base, other) by the name of their difference. `other` is a blend without
    learning; `base` is AdaBN or a method that learns, on the same network.

    A method that learns on a blend is paired only with the blend at the same share.
    """
    pairs = {}
    for _, network in frame.groupby("objective", sort=False):
        blends = network[network["method"] == "source_prior"]
        adabn = network[network["method"] == "adabn"]
        for rival, base in by_label(pd.concat([adabn, network[network["learns"]]])).items():
            others = blends
            if base["method"].iloc[0] in OF_BLENDED:
                others = blends[blends["share"] == base["share"].iloc[0]]
            for label, other in by_label(others).items():
                pairs[f"{label} − {rival}"] = (base, other)
    return pairs


def _draw_curve(axes: Axes, rows: pd.DataFrame, label: str, dash: str) -> None:
    """Draw E by the source's share, with a band for the interval over images and the N of each
    blend.
    """
    if rows.empty:  # Only methods that learn have run.
        return
    points = []
    for (share, examples), each in rows.groupby(["share", "counts"]):
        low, high = interval_over_images(each)
        point = {"share": share, "N": examples, "E": each["E"].mean()}
        points.append(point | {"low": low, "high": high})
    curve = pd.DataFrame(points)
    axes.plot(curve["share"], curve["E"], color="black", ls=dash, marker="o", label=label)
    band: dict[str, Any] = {"color": "0.85", "zorder": 0, "label": "95 %, over images"}
    axes.fill_between(curve["share"], curve["low"], curve["high"], **band)
    look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "ha": "center"}
    blends = curve[curve["N"].between(1, 1e6)]
    for share, examples, error in zip(blends["share"], blends["N"], blends["E"], strict=True):
        axes.annotate(f"N = {examples:g}", (share, error), (0, -11), **look)


def _curves(frame: pd.DataFrame) -> Part | str:
    """Draw a curve per network, a line per method that learns, and a mark per method that learns on
    a blend.

    Only the seeds that all of them have count, because networks of one kind differ by more than the
    curves do. Return a sentence if there is no such seed.
    """
    seeds = [set(each["seed"]) for each in by_label(frame).values()]
    common = set.intersection(*seeds)
    if not common:
        return "No figure: it needs a seed at which every curve, line and mark has a run."
    frame = frame[frame["seed"].isin(common)]
    figure, axes = plt.subplots(figsize=(WIDTH, 3.4))
    for objective, each in frame.groupby("objective", sort=False):
        several = frame["objective"].nunique() > 1
        network = f", {NETWORKS[str(objective)]}" if several else ""
        dash = "--" if objective == "erm" else "-"
        _draw_curve(axes, each[~each["learns"]], f"statistics alone{network}", dash)
        for label, one in by_label(each[each["learns"]]).items():
            method = one["method"].iloc[0]
            error = one["E"].mean()
            shade = colour(OF_BLENDED.get(method, method))
            if method in OF_BLENDED:
                inside = "white" if objective == "erm" else shade
                share = one["share"].iloc[0] + BESIDE[method]
                axes.plot(share, error, "D", color=shade, mfc=inside, label=label, zorder=4)
            else:
                axes.axhline(error, color=shade, ls=dash, label=label)
    axes.set(
        xlabel="the source's share of the statistics (%); 0: AdaBN, 100: ERM",
        ylabel="online error E (%)",
    )
    legend(figure, columns=3)
    told = (
        "The band is the 95 % interval over images, where there is one. It does not decide a "
        "comparison: differences on the same images are known better (last table). Horizontal "
        "lines: methods that learn, without the source's statistics. Where a curve is below a "
        "horizontal line of the same network, statistics alone err less than this method. "
        f"Diamonds: learning on a blend, N = {LEARNING_PRIOR}, drawn a little apart. Dashed lines "
        "and hollow diamonds: the plainly trained network. Seeds that all of these have: "
        f"{', '.join(map(str, sorted(common)))}."
    )
    return Part("source-statistics-figure", figure, told, list(frame["run"]))
