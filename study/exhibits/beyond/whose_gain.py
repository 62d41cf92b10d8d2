"""Beyond the paper: whether a gain comes from the network, the adaptation or the optimiser.

Methods run on a plainly trained and on a meta-learned network. The figure has a bar per error: the
paper's AdaBN, our AdaBN and cascade, the paper's cascade, then our Tents and the paper's Tent.
"""

from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.numbers import number
from study.exhibits.kit.pairs_of_networks import NETWORKS, objectives_compared
from study.exhibits.kit.paper_numbers import paper_main
from study.exhibits.kit.points import Point
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs, by_label
from study.exhibits.kit.style import WIDTH, colour, typeset
from study.exhibits.kit.sweep import sweep_table
from study.exhibits.kit.tables import differences
from study.settings import Settings

ON_BOTH = ("erm", "adabn", "tent", "tent_adam", "cotta")
"""The methods that run on both networks. The cascade runs only on the meta-learned one, because it
needs the θ_a of that network.
"""


def point(method: str, objective: str) -> Point:
    """Return a point of a method on a network, without F, because the exhibit shows only E."""
    return Point(method, objective, {"forward_transfer": False}, variant=NETWORKS[objective])


PLAIN_ADABN = point("adabn", "erm").label
ADABN = point("adabn", "meta").label
TENT = point("tent", "meta").label
TENT_ADAM = point("tent_adam", "meta").label
CASCADE = point("cascade", "meta").label
PAIRS = [(point(name, "erm").label, point(name, "meta").label) for name in ON_BOTH]
PAIRS += [(ADABN, CASCADE), (TENT, CASCADE), (TENT, TENT_ADAM)]
"""The pairs of labels (base, other) to compare. First comes each method on both networks, for the
gain of the network. Then come AdaBN and the cascade (the adaptation), Tent and the cascade (θ_a),
and Tent with SGD and with Adam (the optimiser).
"""
TABLE_NOTE = (
    "E (%) of every method on each network; the authors' release is a meta-learned one. Two "
    "networks of one kind may differ by as much as two methods. So compare methods in the table of "
    "differences, which takes each difference at the same seed."
)


@exhibit
class WhoseGain(Exhibit):
    name = "whose_gain"
    place = 142
    label = "beyond: whose gain"
    title = "The network, the adaptation, the optimiser"
    question = (
        "How much of the paper's gain over AdaBN comes from pre-training, and how much from "
        "adaptation?"
    )
    of_several = True

    def points(self, settings: Settings) -> list[Point]:
        """Return points of each method on each network. There is no point on RobustBench's network,
        because it was not meta-learned.
        """
        image = settings.image
        if image.weights.kind == "robustbench":
            return []
        methods = [name for name in ON_BOTH if name in image.methods]
        points = [
            point(name, network) for network in objectives_compared(settings) for name in methods
        ]
        if "cascade" in image.methods:
            points.append(point("cascade", "meta"))
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        by_network = frame.assign(
            label=[METHODS[name].label for name in frame["method"]], network_kind=frame["variant"]
        )
        table = sweep_table(by_network, "network_kind")
        labels = by_label(frame)
        found = {
            f"{other} − {base}": (labels[base], labels[other])
            for base, other in PAIRS
            if base in labels and other in labels
        }
        return [
            _steps(self._longest(frame, runs), paper_main(frame["run"].iloc[0])),
            Part("whose-gain", table, TABLE_NOTE),
            *differences("whose-gain-differences", found),
        ]

    def _longest(self, frame: pd.DataFrame, runs: Runs) -> pd.DataFrame:
        """Return the runs on the long stream if the cascade is among them, because drift takes many
        updates. Otherwise return `frame`.
        """
        size = {"test_size": runs.settings.image.exhibits.long_test_size}
        points = self.points(runs.settings)
        points = [replace(one, changes={**one.changes, **size}) for one in points]
        long = runs.frame(points)
        return long if CASCADE in set(long["label"]) else frame


def _steps(frame: pd.DataFrame, paper: pd.DataFrame) -> Part | str:
    """Draw a bar per error: the paper's AdaBN, our AdaBN and cascade, the paper's cascade, then our
    Tents and the paper's Tent.

    Bars begin at 0. The dashed line is AdaBN on the cascade's network. Only seeds that have all of
    our bars count, because networks of one kind differ by as much as the bars do. Return a sentence
    if AdaBN or the cascade has no such seed.
    """
    bars_of_ours = [PLAIN_ADABN, ADABN, CASCADE]
    tents = [TENT, TENT_ADAM]
    errors = frame.pivot_table("E", "seed", "label")
    errors = errors[[label for label in (*bars_of_ours, *tents) if label in errors]].dropna()
    means = errors.mean().dropna()
    if not {ADABN, CASCADE} <= set(means.index):
        return (
            "No figure: it needs runs of AdaBN and of the cascade, and a seed at which every bar "
            "has a run."
        )
    theirs = paper.reindex(["AdaBN", "Cascade", "Tent"], columns=["E"])["E"].dropna()
    theirs.index = [f"{label}, the paper's row" for label in theirs.index]
    bars = pd.concat(
        [
            theirs.reindex(["AdaBN, the paper's row"]).dropna(),
            means[means.index.isin(bars_of_ours)],
            theirs.reindex(["Cascade, the paper's row"]).dropna(),
            means[means.index.isin(tents)],
            theirs.reindex(["Tent, the paper's row"]).dropna(),
        ]
    )
    shades = {label: colour(rows["method"].iloc[0]) for label, rows in by_label(frame).items()}
    colours = [shades.get(str(name), "0.75") for name in bars.index]
    figure, axes = plt.subplots(figsize=(WIDTH, 3.6))
    names = [typeset(str(name)).replace(", ", ",\n") for name in bars.index]
    axes.bar(names, bars, color=colours, width=0.7)
    level: dict[str, Any] = {"color": "0.2", "lw": 1, "ls": "--", "zorder": 3}
    axes.axhline(means[ADABN], label=f"{ADABN}; in brackets: points from it", **level)
    axes.legend(loc="upper left", fontsize=8)
    for place, (name, error) in enumerate(bars.items()):
        text = number(error, 1)
        if name != ADABN:
            text += f"\n({number(error - means[ADABN], 1, sign=True)})"
        axes.annotate(text, (place, max(error, means[ADABN])), ha="center", va="bottom")
    axes.tick_params(axis="x", labelsize=8)
    axes.set(ylabel="online error E (%)", ylim=(0, 1.25 * bars.max()))
    axes.grid(visible=False)  # The numbers stand above the bars.
    count = int(frame["run"].iloc[0].examples_by_domain.max())
    seeds = ", ".join(map(str, errors.index))
    note = (
        f"On {count:,} images per domain; the tables below are of the profile's own stream. Above "
        f"each bar: E, and in brackets the points by which it differs from {ADABN}, the dashed "
        "line. Grey: the paper's rows. `updates` has intervals of E. Seeds that have all of these "
        f"bars: {seeds}."
    )
    return Part("whose-gain-figure", figure, note)
