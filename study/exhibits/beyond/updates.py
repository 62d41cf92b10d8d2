"""Beyond the paper: E and A on the long stream, which has about as many updates as the paper's."""

import matplotlib.pyplot as plt
import pandas as pd

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.comparability import warning
from study.exhibits.kit.distance_from_paper import (
    BESIDE_ITS_ROW,
    INSIDE,
    PAPER_ROWS,
    beside_its_row,
)
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.intervals import image_numbers, paired
from study.exhibits.kit.numbers import number
from study.exhibits.kit.paper_numbers import paper_main
from study.exhibits.kit.points import Point, methods_without, points_for
from study.exhibits.kit.shown import Part, Shown
from study.exhibits.kit.stored_runs import Runs, by_label
from study.exhibits.kit.style import WIDTH, legend, line_of, name_domains
from study.exhibits.kit.style import colour as colour_of
from study.exhibits.kit.tables import by_domain, domains_table, errors_less
from study.settings import Settings

ADABN = METHODS["adabn"].label
LEFT_OUT = ("erm", "cotta", "ttt", "cascade_plus")


@exhibit
class Updates(Exhibit):
    """Show what a long stream changes. On a dataset with fewer images than the paper's, the stream
    repeats each image, with its corruption drawn anew, so that there are nearly as many updates as
    in the paper.
    """

    name = "updates"
    place = 141
    label = "beyond: number of updates"
    title = "What a long stream changes"
    question = "Does a method drift as the updates go on?"

    def points(self, settings: Settings) -> list[Point]:
        """Return points along the long stream.

        If the profile has the cascade, two variants are added: the variant without θ_a, and
        the cascade with Adam, the optimiser that makes Tent drift. On networks that are not
        published, the cascade trained without θ_a is added too.
        """
        methods = methods_without(settings, LEFT_OUT)
        changes = {"test_size": settings.image.exhibits.long_test_size, "forward_transfer": False}
        if "cascade" not in methods:
            return points_for(methods, [changes])
        methods.append("cascade_same_weights")
        if not settings.image.weights.published:
            methods.append("cascade_no_auxiliary")
        points = points_for(list(dict.fromkeys(methods)), [changes])
        with_adam = changes | {"online_optimizer": "adam"}
        return [*points, Point("cascade", None, with_adam, variant="Adam")]

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        run = frame["run"].iloc[0]
        paper = paper_main(run)
        count = int(run.examples_by_domain.max())
        images = image_numbers(run, pd.Series(range(count))).nunique()
        versions = f": {images} in {count // images} versions" if images < count else ""
        note = f"On {count:,} images of each domain{versions}."
        table = beside_its_row(frame, paper, ["E", "A"])
        by_domain_note = (
            "E (%) by domain. If the paper has a row of the method, it stands below ours."
        )
        return [
            _less_adabn(frame, paper, note),
            Part("updates", table, f"{note} {BESIDE_ITS_ROW}"),
            Part("updates-by-domain", domains_table(frame), by_domain_note),
        ]


def answer(shown: Shown) -> list[str]:
    """Return sentences that sum up the exhibit.

    For each method they say whether the paper's error lies in the interval of ours, and how much
    the method gains over AdaBN at the seeds that both have. Then they name the paper's rows that
    the network reproduces. A warning about the runs comes last.

    shown: what `Updates` shows.
    """
    table = next((part.content for part in shown.parts if part.name == "updates"), None)
    if not isinstance(table, pd.DataFrame) or shown.numbers is None:
        return ["No answer: the long stream was not run."]
    told = []
    if INSIDE in table:
        told += _beside_rows(table)
    told += _gains(shown.numbers)
    if INSIDE in table:
        told += _in_short(table, shown.numbers)
    return [*told, f"\n{warning(shown.runs)}"]


def _beside_rows(table: pd.DataFrame) -> list[str]:
    """Return a sentence per method that sets its error beside the paper's."""
    place = {"yes": ", inside", "no": ", outside", "–": ""}
    told = []
    for label, row in table[table["the paper's E"] != "–"].iterrows():
        interval = row["95 % of E, over images"]
        ours = f"{row['E']} %" + ("" if interval == "–" else f" {interval}")
        theirs = row["the paper's E"]
        told.append(
            f"* **{label}** errs on {ours}; the paper's row has {theirs} %"
            f"{place[row[INSIDE]]}; by domain they are {row['by domain, mean distance']} points "
            "apart."
        )
    return told


def _gains(numbers: pd.DataFrame) -> list[str]:
    """Return one sentence with all gains over AdaBN; none if there is no gain to state."""
    labels = by_label(numbers)
    if ADABN not in labels:
        return []
    gains = []
    for label, each in labels.items():
        gain = paired(each, labels[ADABN])
        if label != ADABN and gain is not None:
            gains.append(f"{label} {number(gain.mean, 1, sign=True)}")
    if not gains:
        return []
    return [f"\nWhat each gains on {ADABN}, in points of E, at the same seeds: {', '.join(gains)}."]


def _in_short(table: pd.DataFrame, numbers: pd.DataFrame) -> list[str]:
    """Return one sentence on which of the paper's rows the network reproduces, by E; none if no row
    has an interval.
    """
    is_own = ~numbers["method"].isin(list(PAPER_ROWS)) & (numbers["variant"] == "")
    own = table.loc[table.index.isin(numbers[is_own]["label"]), INSIDE]
    given = ", ".join(own.index[own == "yes"])
    others = ", ".join(own.index[own == "no"])
    if not given and not others:
        return []
    return [
        f"\n**In short**, by E, of the paper's rows this network gives: {given or 'none'}. It does "
        f"not give: {others or 'none'}."
    ]


def _less_adabn(frame: pd.DataFrame, paper: pd.DataFrame, note: str) -> Part | str:
    """Draw the errors by domain, ours and the paper's, minus our AdaBN's. AdaBN learns nothing, so
    it cannot drift.

    If every domain comes once, the top axis counts the batches so far. Return a sentence if AdaBN
    has not run.
    """
    labels = by_label(frame)
    if ADABN not in labels:
        return "No figure: it needs AdaBN, with which the other methods are compared."
    base = by_domain(labels[ADABN])
    figure, axes = plt.subplots(figsize=(WIDTH, 4.2))
    for label, each in labels.items():
        method, objective, variant = each[["method", "objective", "variant"]].iloc[0]
        look = line_of(method, objective, varied=variant != "")
        axes.plot(errors_less(each, labels[ADABN]).to_numpy(), label=label, **look)
    for name in ("adabn", "tent", "cascade"):
        label = METHODS[name].label
        if label in paper.index:
            theirs = paper.loc[label].reindex(base.index) - base
            look = {"color": colour_of(name), "ms": 8, "mew": 1.2, "mfc": "white", "zorder": 1}
            axes.plot(theirs.to_numpy(), "D", label="_", **look)
    if not paper.empty:
        axes.plot([], [], "D", color="0.4", mfc="white", ms=8, label="diamonds: the paper")
    run = frame["run"].iloc[0]
    stream = [domain.name for domain in run.request.stream]
    name_domains(axes, stream)
    if run.request.order is None and len(stream) == len(base):
        batches = run.batches.groupby("step").size().cumsum()
        above = axes.secondary_xaxis("top")
        above.set_xticks(range(len(batches)), [f"{count:,}" for count in batches], fontsize=7)
        above.set_xlabel("batches up to the end of the domain", fontsize=8)
    axes.set_ylabel(f"E minus our {ADABN}'s (points)")
    legend(figure, columns=4)
    note += (
        f" Domains in the order of the stream. {ADABN} does not learn, so a method that keeps "
        "rising above 0 drifts. Dashed: variants."
    )
    if not paper.empty:
        note += (
            f" Diamonds: the paper's rows of {ADABN}, Tent and the cascade, in their colours, "
            f"minus our {ADABN}'s error."
        )
    return Part("updates-figure", figure, note)
