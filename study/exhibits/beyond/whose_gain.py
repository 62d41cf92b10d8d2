"""Whether a gain is the network's, the adaptation's or the optimiser's: every method on a plain and
on a meta-learned network, and the way from the paper's AdaBN row to its own method's."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import Exhibit, Part, exhibit
from study.exhibits.kit.runs import PUBLISHED, Point, Runs, by_label
from study.exhibits.kit.style import WIDTH, colour, number
from study.exhibits.kit.tables import differences, paper_main
from study.exhibits.paper.ablations import sweep_table
from study.settings import Settings

NETWORKS = {"erm": "plainly trained", "meta": "meta-learned"}
"""Pre-trainings and what they are called here."""
ON_BOTH = ("erm", "adabn", "tent", "tent_adam", "cotta")
"""The methods that run on either network; the cascade needs the θ_a of the meta-learned one."""
ADABN, TENT, TENT_ADAM, CASCADE = (
    (name, "meta") for name in ("adabn", "tent", "tent_adam", "cascade")
)
PAIRS = [
    *(((name, "erm"), (name, "meta")) for name in ON_BOTH),
    (ADABN, CASCADE),
    (TENT, CASCADE),
    (TENT, TENT_ADAM),
]
"""The steps of a gain: the network's for each method, then the adaptation's, that of θ_a, the
optimiser's.
"""


@exhibit
class WhoseGain(Exhibit):
    name, place, label, title = (
        "whose_gain",
        142,
        "beyond: whose gain",
        "The network, the adaptation, the optimiser",
    )
    question = (
        "How much of the paper's gain over AdaBN is the pre-training's, and how much "
        "the adaptation's?"
    )
    of_several = True

    def points(self, settings: Settings) -> list[Point]:
        """Without F, since the table has E alone. None of RobustBench's network, which was not
        meta-learned.
        """
        if settings.image.weights.startswith("robustbench:"):
            return []
        pairs = [(name, objective) for objective in networks_of(settings) for name in ON_BOTH] + [
            CASCADE
        ]
        asked = [pair for pair in pairs if pair[0] in settings.image.methods]
        return [Point(label_of(*pair), *pair, {"forward_transfer": False}) for pair in asked]

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        labels = [METHODS[name].label for name in frame["method"]]
        table = sweep_table(
            frame.assign(label=labels, network=frame["objective"].map(NETWORKS)), "network"
        )
        parts, pairs = by_label(frame), [(label_of(*one), label_of(*two)) for one, two in PAIRS]
        found = {
            f"{two} − {one}": (parts[one], parts[two])
            for one, two in pairs
            if {one, two} <= parts.keys()
        }
        note = (
            "E (%) of every method on each network; the authors' release is a meta-learned "
            "one. Where n differs, "
        )
        note += "compare in the table of differences, which is on common seeds."
        paper, size = (
            paper_main(frame["run"].iloc[0]),
            {"test_size": runs.settings.image.long_test_size},
        )
        long = runs.frame(
            [
                replace(point, changes={**point.changes, **size})
                for point in self.points(runs.settings)
            ]
        )
        steps = _steps(long if label_of(*CASCADE) in set(long["label"]) else frame, paper)
        return [
            steps,
            Part("whose-gain", table, note),
            *differences("whose-gain-differences", found),
        ]


def _steps(frame: pd.DataFrame, paper: pd.DataFrame) -> Part | str:
    """A waterfall from the paper's AdaBN row to its own method's: between these two the bar of a
    network or of a method leads from the error before it to its own, and Tent's beside them from
    that of AdaBN on the same network. Only of the seeds that have all of these, since networks of
    one kind differ by as much as the steps. On the long stream of the exhibit `updates` where it
    was run, because drift takes updates."""
    way = [label_of(*one) for one in (("adabn", "erm"), ADABN, CASCADE)]
    tents, base = [label_of(*one) for one in (TENT, TENT_ADAM)], label_of(*ADABN)
    errors = frame.pivot_table("E", "seed", "label")
    errors = errors[[label for label in (*way, *tents) if label in errors]].dropna()
    means, run = errors.mean().dropna(), frame["run"].iloc[0]
    theirs = paper.reindex(["AdaBN", "Cascade", "Tent"], columns=["E"])["E"].dropna()
    theirs = theirs.rename("{}, the paper's row".format)
    first, last = theirs.filter(like="AdaBN"), theirs.filter(like="Cascade")
    fall = pd.concat([first, means[means.index.isin(way)], last])
    bars = pd.concat([fall, means[means.index.isin(tents)], theirs.filter(like="Tent")])
    if not {base, label_of(*CASCADE)} <= set(means.index):
        return "No figure: no seed has AdaBN and the cascade on one network beside all the others."
    before = fall.shift().reindex(bars.index)
    before[means.index.intersection(tents)] = means[base]
    start = before.where(~before.index.isin(theirs.index)).fillna(0)
    figure, axes = plt.subplots(figsize=(WIDTH, 3.6))
    shades = {METHODS[name].label: colour(name) for name in METHODS}
    colours = ["0.75" if name in theirs else shades[name.rsplit(", ", 1)[0]] for name in bars.index]
    axes.bar(
        bars.index.str.replace(", ", ",\n"), bars - start, bottom=start, color=colours, width=0.7
    )
    for place, (name, error) in enumerate(bars.items()):
        step = "" if np.isnan(before[name]) else f"\n({number(error - before[name], 1, sign=True)})"
        axes.annotate(
            f"{number(error, 1)}{step}", (place, max(error, start[name])), ha="center", va="bottom"
        )
    axes.tick_params(axis="x", labelsize=8)
    axes.set(ylabel="online error E (%)", ylim=(0, 1.25 * max(bars.max(), start.max())))
    axes.grid(visible=False)  # The numbers stand above the bars.
    note = (
        f"On {int(run.batches.groupby('step')['count'].sum().max()):,} images a domain; the "
        "tables below are of the "
    )
    note += (
        "profile's own stream. A coloured bar leads from the error before it to the "
        "method's own, which is printed "
    )
    note += (
        "above it; Tent's leads from that of AdaBN on the same network. In brackets: the "
        "step in points. "
    )
    note += "The step to the paper's own row is what ours leave unexplained. " if len(last) else ""
    note += (
        "`updates` has intervals of E. Seeds that have all of these bars: "
        f"{', '.join(map(str, errors.index))}."
    )
    drawn = frame["label"].isin(errors) & frame["seed"].isin(errors.index)
    return Part("whose-gain-figure", figure, note, list(frame[drawn]["run"]))


def networks_of(settings: Settings) -> list[str]:
    """The pre-trainings to compare. A file that holds one network gives the same for every one, so
    it counts once.
    """
    return ["meta"] if settings.image.weights.startswith(PUBLISHED) else [*NETWORKS]


def label_of(method: str, objective: str) -> str:
    """A method on a network."""
    return f"{METHODS[method].label}, {NETWORKS[objective]}"
