"""Whose numbers are whose: a network that was brought, such as the authors' own, beside the paper's
rows.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import Exhibit, Part, Shown, exhibit
from study.exhibits.kit.rendering import warning
from study.exhibits.kit.runs import (
    LEAST_BATCHES,
    PUBLISHED,
    RESAMPLES,
    Point,
    Runs,
    by_label,
    images_at,
    paired,
    percentiles,
    points_for,
    points_with_transfer,
)
from study.exhibits.kit.style import WIDTH, colour, legend, line_of, name_domains, number, panels
from study.exhibits.kit.tables import (
    DEFINED,
    F_NAMES,
    by_domain,
    domains_table,
    metrics_by_label,
    paper_main,
)
from study.exhibits.paper.main_tables import errors_less
from study.settings import Settings

ADAM = "Cascade (Adam)"
PAPER_ROWS = {
    "tent_adam": "tent",
    "cascade_same_weights": "cascade",
    "cascade_fixed_classifier": "cascade",
}
"""The method of the paper beside whose row a variant is shown."""
BESIDE_ITS_ROW = (
    "The interval is a bootstrap over blocks of distinct images, a batch each, given the networks. "
    "Distances in "
    "points; none for a published network on JPEG copies, which are harder for it. Tent (Adam) "
    "stands beside Tent's "
    "row; the cascade with Adam, with θ_m fixed and without θ_a at test time beside the cascade's."
)


@exhibit
class Released(Exhibit):
    name, place, label, title = (
        "released",
        140,
        "beyond: the released network",
        "Which of the paper's rows it has",
    )
    question = "Does a network give the paper's rows, domain by domain?"

    def points(self, settings: Settings) -> list[Point]:
        return points_with_transfer(settings, settings.image.methods, {})

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        paper = paper_main(frame["run"].iloc[0])
        table = beside_its_row(frame, paper, ["E", "A", *F_NAMES]).rename(columns=F_NAMES)
        return [
            _beside_the_rows(frame, paper),
            Part("released", table, f"{BESIDE_ITS_ROW} {DEFINED}"),
        ]


def beside_its_row(frame: pd.DataFrame, paper: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """A row a label: our metrics, the interval of E over the images, and how far we are from the
    paper's row.
    """
    rows = {}
    for label, each in by_label(frame).items():
        method, (low, high) = each["method"].iloc[0], interval_over_images(each)
        row = METHODS[PAPER_ROWS.get(method, method)].label
        theirs = paper.reindex(index=[row], columns=["E", "A", "F", *by_domain(each).index]).iloc[0]
        apart = [(by_domain(seed) - theirs).abs().mean() for _, seed in each.groupby("seed")]
        inside = "yes" if low <= theirs["E"] <= high else "no"
        rows[label] = {
            "95 % of E, over images": interval_text(low, high),
            "the paper's E in it": "–" if np.isnan(low + theirs["E"]) else inside,
            "E, distance": number(each["E"].mean() - theirs["E"], sign=True),
            "by domain, mean distance": number(np.mean(apart)),
            **{
                f"the paper's {metric}": number(theirs[metric])
                for metric in ("E", "A", "F")
                if metric in metrics
            },
        }
    ours = metrics_by_label(frame)[[*metrics, "n"]].rename_axis("method")
    return ours.join(pd.DataFrame.from_dict(rows, orient="index"))


def _beside_the_rows(frame: pd.DataFrame, paper: pd.DataFrame) -> Part | str:
    """A panel a method that the paper has: our error, the mean over seeds, and the paper's row, by
    domain.
    """
    shown = {label: each for label, each in by_label(frame).items() if label in paper.index}
    if not shown:
        return "The paper has no row that compares with any of these."
    figure, grid = panels(len(shown), 2.7, columns=3, sharey=True)
    for axes, (label, each) in zip(grid, shown.items(), strict=True):
        errors = by_domain(each)
        axes.plot(errors.to_numpy(), color=colour(each["method"].iloc[0]), marker="o", ms=3)
        theirs = paper.loc[label].reindex(errors.index).to_numpy()
        axes.plot(theirs, "D", mfc="white", mec="black", ms=4, label="the paper's row")
        mean, published = number(each["E"].mean(), 1), number(paper.loc[label, "E"], 1)
        axes.set(title=f"{label}: {mean}, paper {published}", ylim=(0, None))
        name_domains(axes, map(str, errors.index))
    grid[0].set_ylabel("online error (%)")
    legend(figure)
    told = (
        "Line: ours, in the method's colour. Where it runs through the diamonds, it gives "
        "the paper's row."
    )
    return Part("released-by-domain", figure, told)


def interval_over_images(frame: pd.DataFrame) -> tuple[float, float]:
    """The 95 % interval of E in percent over the images of the stream: batches that hold the same
    images, in whatever domain, version or seed, are drawn together. NaN if they are fewer than
    LEAST_BATCHES, or overlap in part."""
    if any(run.request.order for run in frame["run"]):
        return np.nan, np.nan
    sums = []
    for run in frame["run"]:
        image = images_at(run, run.batches["position"])
        if (
            image % run.request.batch_size
        ).any():  # a version begins within a batch, so batches overlap
            return np.nan, np.nan
        sums.append(run.batches.groupby(image // run.request.batch_size)[["errors", "count"]].sum())
    blocks = pd.concat(sums).groupby(level=0).sum()
    if len(blocks) < LEAST_BATCHES:
        return np.nan, np.nan
    drawn = np.random.default_rng(0).integers(len(blocks), size=(RESAMPLES, len(blocks)))
    errors, count = (blocks[name].to_numpy()[drawn].sum(axis=1) for name in ("errors", "count"))
    return percentiles(100 * errors / count)


def interval_text(low: float, high: float) -> str:
    """An interval in percent as text, a dash where there is none."""
    return "–" if np.isnan(low) else f"[{number(low, 1)}, {number(high, 1)}]"


@exhibit
class Updates(Exhibit):
    """A stream with several versions of every image, so that there are as many updates as in the
    paper's.
    """

    name, place, label, title = (
        "updates",
        141,
        "beyond: number of updates",
        "What a long stream changes",
    )
    question = "Does a method drift as the updates go on?"

    def points(self, settings: Settings) -> list[Point]:
        """Also the cascade without θ_a (of ours trained so, too) and with the optimiser that makes
        Tent drift.
        """
        methods = [
            name
            for name in settings.image.methods
            if name not in ("erm", "cotta", "ttt", "cascade_plus")
        ]
        changes = {"test_size": settings.image.long_test_size, "forward_transfer": False}
        if "cascade" not in methods:
            return points_for(methods, [changes])
        adam = Point(ADAM, "cascade", None, changes | {"online_optimizer": "adam"})
        apart = [] if settings.image.weights.startswith(PUBLISHED) else ["cascade_no_auxiliary"]
        return [
            *points_for(list(dict.fromkeys([*methods, "cascade_same_weights", *apart])), [changes]),
            adam,
        ]

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        run = frame["run"].iloc[0]
        table = beside_its_row(frame, paper := paper_main(run), ["E", "A"])
        count = int(run.batches.groupby("step")["count"].sum().max())
        images = images_at(run, pd.Series(range(count))).nunique()
        versions = f": {images} in {count // images} versions" if images < count else ""
        note = f"On {count:,} images of each domain{versions}."
        domains = Part(
            "updates-by-domain", domains_table(frame), "E (%) by domain, over the paper's, if any."
        )
        return [
            _less_adabn(frame, paper, note),
            Part("updates", table, f"{note} {BESIDE_ITS_ROW}"),
            domains,
        ]


def answer(shown: Shown) -> list[str]:
    """What the long stream says in sentences: of each method whether the paper's row is within what
    the network gives, what each gains on AdaBN, over the seeds that both have, and which of the
    paper's rows the network gives."""
    table = {part.name: part.content for part in shown.parts}.get("updates")
    if not isinstance(table, pd.DataFrame) or shown.numbers is None:
        return ["No answer: the long stream was not run."]
    place, told = {"yes": ", inside", "no": ", outside", "–": ""}, []
    for label, row in table[table["the paper's E"] != "–"].iterrows():
        ours = " ".join(
            text for text in (f"{row['E']} %", row["95 % of E, over images"]) if text != "–"
        )
        theirs = (
            "the paper's row has {} %".format(row["the paper's E"])
            + place[row["the paper's E in it"]]
        )
        theirs += f"; by domain they are {row['by domain, mean distance']} points apart"
        told.append(f"* **{label}** errs on {ours}; {theirs}.")
    labels, adabn = by_label(shown.numbers), METHODS["adabn"].label
    found = {
        label: paired(each, labels[adabn])
        for label, each in labels.items()
        if adabn in labels and label != adabn
    }
    gains = [f"{label} {number(gain.mean, 1, sign=True)}" for label, gain in found.items() if gain]
    told += (
        [f"\nWhat each gains on {adabn}, in points of E, at the same seeds: {', '.join(gains)}."]
        if gains
        else []
    )
    own = table["the paper's E in it"].drop(
        [*{METHODS[name].label for name in PAPER_ROWS}, ADAM], errors="ignore"
    )
    given, others = (", ".join(own.index[own == inside]) for inside in ("yes", "no"))
    short = (
        f"by E, of the paper's rows this network gives: {given or 'none'}. It does not "
        f"give: {others or 'none'}."
    )
    told += [f"\n**In short**, {short}"] if given or others else []
    return [*told, f"\n{warning(shown.runs)}"]


def _less_adabn(frame: pd.DataFrame, paper: pd.DataFrame, note: str) -> Part | str:
    """Error by domain less that of AdaBN, which cannot drift; beside it the paper's rows, less the
    same. Above it, where a domain is one step of the stream, how many batches have come."""
    labels, adabn = by_label(frame), METHODS["adabn"].label
    if adabn not in labels:
        return "No figure without AdaBN, which the others are held against."
    base = by_domain(labels[adabn])
    figure, axes = plt.subplots(figsize=(WIDTH, 4.2))
    for label, each in labels.items():
        method, objective = each[["method", "objective"]].iloc[0]
        look = line_of(method, objective, varied=label != METHODS[method].label)
        axes.plot(errors_less(each, labels[adabn]), label=label, **look)
    for name in ("adabn", "tent", "cascade"):
        if (label := METHODS[name].label) in paper.index:
            theirs, line = paper.loc[label].reindex(base.index) - base, f"{label}, the paper's row"
            axes.plot(
                theirs, "D", color=colour(name), ms=6, mew=1.4, mfc="white", zorder=4, label=line
            )
    name_domains(axes, map(str, base.index))
    run = frame["run"].iloc[0]
    if run.request.order is None and len(run.request.stream) == len(base):
        batches = run.batches.groupby("step").size().cumsum()
        above = axes.secondary_xaxis("top")
        above.set_xticks(range(len(batches)), [f"{count:,}" for count in batches], fontsize=7)
        above.set_xlabel("batches up to the end of the domain", fontsize=8)
    axes.set_ylabel(f"E minus our {adabn}'s (points)")
    legend(figure, columns=4)
    note += (
        " Domains in the order of the stream. A method that keeps rising above 0 drifts: "
        f"{adabn} does not learn."
    )
    note += " Dashed: variants." + f" The paper's rows are less the error of {adabn} here, too." * (
        not paper.empty
    )
    return Part("updates-figure", figure, note)
