"""Whose numbers are whose: a network that was brought, such as the authors' own, beside the paper's rows; and whether a
gain is the network's, the adaptation's or the optimiser's."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from cascadetta_lib.methods import METHODS
from cascadetta_lib.settings import Settings
from exhibits.ablations import sweep_table
from exhibits.base import Exhibit, Part, exhibit
from exhibits.runs import RESAMPLES, TRANSFERS, Point, Runs, by_label, errors_less, images_at, percentiles, points_for
from exhibits.style import WIDTH, colour, legend, line_of, name_domains, number, panels
from exhibits.tables import by_domain, differences, domains_table, metrics_by_label, paper_main

PAPER_ROWS = {"tent_adam": "tent", "cascade_same_weights": "cascade", "cascade_fixed_classifier": "cascade"}
"""The method of the paper beside whose row a variant is shown."""
NETWORKS = {"erm": "plainly trained", "meta": "meta-learned"}
"""Pre-trainings and what they are called here."""
ON_BOTH = ("erm", "adabn", "tent", "tent_adam", "cotta")
"""The methods that run on either network; the cascade needs the θ_a of the meta-learned one."""
ADABN, TENT, CASCADE = ("adabn", "meta"), ("tent", "meta"), ("cascade", "meta")
PAIRS = [(("adabn", "erm"), ADABN), (ADABN, CASCADE), (TENT, CASCADE), (TENT, ("tent_adam", "meta"))]
"""The steps of a gain: the network's, the adaptation's, that of θ_a, the optimiser's."""


@exhibit
class Released(Exhibit):
    name, place, label, title = "released", 140, "beyond: the released network", "Which of the paper's rows it has"
    question = "Does a network give the paper's rows, domain by domain?"

    def points(self, settings: Settings) -> list[Point]:
        """The main study without CoTTA's F, which costs as much as everything else together."""
        points = points_for(settings.image.methods)
        return [replace(one, changes={"forward_transfer": False}) if one.method == "cotta" else one for one in points]

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        paper, rows = paper_main(frame["run"].iloc[0]), {}
        for label, each in by_label(frame).items():
            ours = pd.concat([by_domain(each), each[["E", "A", *TRANSFERS]].mean()])
            row = METHODS[PAPER_ROWS.get(each["method"].iloc[0], each["method"].iloc[0])].label
            theirs = paper.reindex([row], columns=ours.index).iloc[0]
            apart = [(by_domain(seed) - theirs).abs().mean() for _, seed in each.groupby("seed")]
            rows[label] = ours[["E", "A", *TRANSFERS]].map(number).to_dict() | {
                "95 % of E, over images": over_images(each),
                "E, distance": number(ours["E"] - theirs["E"], sign=True),
                "by domain, mean distance": number(np.mean(apart)),
                **{f"the paper's {metric}": number(theirs[metric]) for metric in ("E", "A", "F")},
            }
        table = pd.DataFrame(rows).T.rename_axis("method")
        note = "The interval is a bootstrap over the distinct images, given the networks. Distances in points."
        return [_beside_the_rows(frame, paper), Part("released", table, note)]


def _beside_the_rows(frame: pd.DataFrame, paper: pd.DataFrame) -> Part | str:
    """A panel a method that the paper has: our error, the mean over seeds, and the paper's row, by domain."""
    shown = {label: each for label, each in by_label(frame).items() if label in paper.index}
    if not shown:
        return "The paper has no row for any of these methods."
    figure, grid = panels(len(shown), 2.7, columns=3, sharey=True)
    for axes, (label, each) in zip(grid, shown.items(), strict=True):
        errors = by_domain(each)
        places = range(len(errors))
        axes.plot(places, errors, color=colour(each["method"].iloc[0]), marker="o", ms=3)
        theirs = paper.loc[label].reindex(errors.index)
        axes.plot(places, theirs, "D", mfc="white", mec="black", ms=4, label="the paper's row")
        mean, published = number(each["E"].mean(), 1), number(paper.loc[label, "E"], 1)
        axes.set(title=f"{label}: {mean}, paper {published}", ylim=(0, None))
        name_domains(axes, map(str, errors.index))
    grid[0].set_ylabel("online error (%)")
    legend(figure)
    told = "Line: ours, in the method's colour. Where it runs through the diamonds, it gives the paper's row."
    return Part("released-by-domain", figure, told)


def over_images(frame: pd.DataFrame) -> str:
    """The 95 % interval of E in percent over the images of the stream: batches that hold the same images, in whatever
    domain, version or seed, are drawn together. A dash where there are fewer than two batches a domain, and where no
    two batches hold the same images."""
    if any(run.request.order for run in frame["run"]):
        return "–"
    sums = []
    for run in frame["run"]:
        image = images_at(run, run.batches["position"])
        sums.append(run.batches.groupby(image // run.request.batch_size)[["errors", "count"]].sum())
    blocks = pd.concat(sums).groupby(level=0).sum()
    if len(blocks) < 2:
        return "–"
    drawn = np.random.default_rng(0).integers(len(blocks), size=(RESAMPLES, len(blocks)))
    errors, count = (blocks[name].to_numpy()[drawn].sum(axis=1) for name in ("errors", "count"))
    return "[{}, {}]".format(*(number(limit, 1) for limit in percentiles(100 * errors / count)))


@exhibit
class Updates(Exhibit):
    """A stream with several versions of every image, so that there are as many updates as in the paper's."""

    name, place, label, title = "updates", 141, "beyond: number of updates", "What a long stream changes"
    question = "Does a method drift as the updates go on?"

    def points(self, settings: Settings) -> list[Point]:
        """Beside the methods as they are, the cascade with the optimiser that makes Tent drift."""
        methods = [name for name in settings.image.methods if name not in ("erm", "cotta", "ttt", "cascade_plus")]
        changes = {"test_size": settings.image.long_test_size, "forward_transfer": False}
        adam = [Point("Cascade (Adam)", "cascade", None, changes | {"online_optimizer": "adam"})]
        return points_for(methods, [changes]) + (adam if "cascade" in methods else [])

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        paper, labels = paper_main(frame["run"].iloc[0]), by_label(frame)
        table = metrics_by_label(frame)[["E", "A", "n"]].rename_axis("method")
        table.insert(1, "95 %, over images", pd.Series({label: over_images(each) for label, each in labels.items()}))
        theirs = paper.reindex(index=table.index, columns=["E", "A"]).map(number)
        table = table.join(theirs.add_prefix("the paper's "))
        run = frame["run"].iloc[0]
        count = run.request.test_size or int(run.batches.groupby("step")["count"].sum().max())
        images = int(images_at(run, run.batches["position"]).nunique() * run.request.batch_size)
        versions = f": {images} in {count // images} versions" if images < count else ""
        note = f"On {count:,} images of each domain{versions}."
        domains = Part("updates-by-domain", domains_table(frame), "Online error (%) by domain, over the paper's rows.")
        return [_less_adabn(labels, paper, note), Part("updates", table, note), domains]


def _less_adabn(labels: dict[str, pd.DataFrame], paper: pd.DataFrame, note: str) -> Part | str:
    """Error by domain less that of AdaBN, which cannot drift; beside it the paper's rows, less the same."""
    adabn = METHODS["adabn"].label
    if adabn not in labels:
        return "No figure without AdaBN, which the others are held against."
    base = by_domain(labels[adabn])
    figure, axes = plt.subplots(figsize=(WIDTH, 3.6))
    for label, each in labels.items():
        added = errors_less(each, labels[adabn])
        method, objective = each[["method", "objective"]].iloc[0]
        look = line_of(method, objective, varied=label != METHODS[method].label)
        if method == "adabn":  # It is 0 everywhere.
            axes.axhline(0, color=look["color"], label=label)
        else:
            axes.plot(added, label=label, **look)
    for name in ("adabn", "tent", "cascade"):
        if (label := METHODS[name].label) in paper.index:
            theirs, line = paper.loc[label].reindex(base.index) - base, f"{label}, the paper's row"
            axes.plot(theirs, "D", color=colour(name), ms=6, mew=1.4, mfc="white", zorder=4, label=line)
    name_domains(axes, map(str, base.index))
    axes.set_ylabel(f"E minus our {adabn}'s (points)")
    legend(figure, columns=4)
    note += f" Domains in the order of the stream. A method that keeps rising above 0 drifts: {adabn} does not learn."
    note += f" Dashed: variants. The paper's rows are less the error of {adabn} here, too."
    return Part("updates-figure", figure, note)


@exhibit
class WhoseGain(Exhibit):
    name, place, label, title = "whose_gain", 142, "beyond: whose gain", "The network, the adaptation, the optimiser"
    question = "How much of the paper's gain over AdaBN is the pre-training's, and how much the adaptation's?"
    of_several = True

    def points(self, settings: Settings) -> list[Point]:
        """Without F, since the table has E alone."""
        if networks_of(settings) != [*NETWORKS]:
            return []
        pairs = [(name, objective) for objective in NETWORKS for name in ON_BOTH] + [("cascade", "meta")]
        return [
            Point(label_of(name, objective), name, objective, {"forward_transfer": False})
            for name, objective in pairs
            if name in settings.image.methods
        ]

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        labels = [METHODS[name].label for name in frame["method"]]
        table = sweep_table(frame.assign(label=labels, network=frame["objective"].map(NETWORKS)), "network")
        parts, pairs = by_label(frame), [(label_of(*one), label_of(*two)) for one, two in PAIRS]
        found = {f"{two} − {one}": (parts[one], parts[two]) for one, two in pairs if {one, two} <= parts.keys()}
        note = "E (%) of every method on the plainly trained and on the meta-learned network. Where n differs, compare "
        note += "in the table of differences, which is on common seeds."
        steps = _steps(frame, paper_main(frame["run"].iloc[0]))
        return [steps, Part("whose-gain", table, note), *differences("whose-gain-differences", found)]


def _steps(frame: pd.DataFrame, paper: pd.DataFrame) -> Part | str:
    """Bars from the paper's AdaBN row to its own method's, with ours on either network between them, of the seeds that
    all of these have: networks of one kind differ by as much as the steps."""
    ours = [label_of(*one) for one in (("adabn", "erm"), ADABN, ("tent_adam", "meta"), TENT, CASCADE)]
    errors = frame.pivot_table("E", "seed", "label")
    errors = errors[[label for label in ours if label in errors]].dropna()
    theirs = paper.reindex(["AdaBN", "Cascade"], columns=["E"])["E"].dropna().rename("{}, the paper's\nrow".format)
    bars = pd.concat([theirs[:1], errors.mean().dropna(), theirs[1:]])
    if len(bars) < 3:
        return "No figure of fewer than three errors."
    figure, axes = plt.subplots(figsize=(WIDTH, 3.4))
    shades = {METHODS[name].label: colour(name) for name in METHODS}
    colours = ["0.75" if name in theirs else shades[name.rsplit(", ", 1)[0]] for name in bars.index]
    axes.bar(bars.index.str.replace(", ", ",\n"), bars, color=colours, width=0.7)
    steps, base = bars.diff(), label_of(*ADABN)
    if base in bars:
        adapting = [name for name in ours[2:] if name in bars]
        steps[adapting] = bars[adapting] - bars[base]
    for place, (name, error) in enumerate(bars.items()):
        step = f"\n({number(steps[name], 1, sign=True)})" if place and name not in theirs else ""
        axes.annotate(f"{number(error, 1)}{step}", (place, error), ha="center", va="bottom")
    axes.tick_params(axis="x", labelsize=8)
    axes.set(ylabel="online error E (%)", ylim=(0, 1.25 * bars.max()))
    axes.grid(visible=False)  # The numbers stand above the bars.
    seeds = ", ".join(map(str, errors.index))
    note = f"In brackets, in points: of AdaBN less the bar to the left, of what learns less {base}. Intervals: in the "
    note += f"table of differences. Seeds that have all of these bars: {seeds}."
    drawn = frame["label"].isin(errors) & frame["seed"].isin(errors.index)
    return Part("whose-gain-figure", figure, note, list(frame[drawn]["run"]))


def networks_of(settings: Settings) -> list[str]:
    """The pre-trainings to compare. A file that holds one network gives the same for every one, so it counts once."""
    return ["meta"] if settings.image.weights.startswith(("release:", "robustbench:")) else [*NETWORKS]


def label_of(method: str, objective: str) -> str:
    """A method on a network."""
    return f"{METHODS[method].label}, {NETWORKS[objective]}"
