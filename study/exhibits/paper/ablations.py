"""What depends on a setting. tab:add-result, fig:cascade, tab:effect-theta-a: E by severity;
tab:insensitive, tab:ablation-meta: E by batch size; tab:speed: seconds; and, beyond the paper, E, A
and F by learning rate."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import Exhibit, Part, exhibit
from study.exhibits.kit.rendering import from_to
from study.exhibits.kit.runs import (
    PUBLISHED,
    Point,
    Runs,
    points_for,
    points_with_transfer,
    reduced,
)
from study.exhibits.kit.style import draw_lines, legend, number, panels, reading, spread
from study.exhibits.kit.tables import beside_paper, differences, domains_table, paper_values
from study.settings import Settings

CASCADE = METHODS["cascade"].label
VARIANTS = ("cascade_no_auxiliary", "cascade_same_weights", "cascade_fixed_classifier")
"""Pre-trained and adapted without θ_a; θ_a left out at test time alone; θ_m fixed."""
PAPER_SIZES = (128, 64, 32, 16)
CASCADED = {
    "no meta": "multi_task",
    "no meta, light entropy": "multi_task_light_entropy",
    "meta": "meta",
}
TRAININGS = {"adabn": CASCADED, "ttt": {"no meta": "ttt", "meta": "meta_ttt"}, "cascade": CASCADED}
"""By method, pre-trainings without meta-learning, then with it. AdaBN, which does not learn, tells
of the network.
"""


def sweep_table(frame: pd.DataFrame, over: str, metric: str = "E") -> pd.DataFrame:
    """A metric by label (rows) and by `over` (columns, in the order they come), and the seeds
    behind each row.
    """
    cells = frame.groupby(["label", over], sort=False)
    table = cells[metric].agg(spread).unstack(over)[list(dict.fromkeys(frame[over]))].fillna("–")
    seeds = cells["seed"].nunique().groupby("label").agg(from_to)
    return (
        table.loc[list(dict.fromkeys(frame["label"]))]
        .assign(n=seeds)
        .rename_axis("method")
        .rename(columns=str)
    )


def sweep_figure(
    name: str,
    frame: pd.DataFrame,
    over: str,
    reference: str | None = None,
    metrics: Sequence[str] = ("E",),
) -> Part | str:
    """Metrics by the setting `over`; beside them E less that of the label `reference`, to show
    small differences.
    """
    values, axis = sorted(set(frame[over])), over.replace("_", " ")
    if len(values) < 2:
        return f"No figure of one {axis} alone: {values[0]}."
    titles = {metric: f"{metric} ({'points' if metric == 'F' else '%'})" for metric in metrics}
    base = frame[frame["label"] == reference]
    if len(base):
        titles["less"] = f"E less that of {reference} (points)"
        frame = frame.merge(
            base[["seed", over, "E"]], on=["seed", over], how="left", suffixes=("", " of reference")
        )
        frame["less"] = frame["E"] - frame["E of reference"]
    figure, grid = panels(len(titles), 3.4)
    for axes, (metric, title) in zip(grid, titles.items(), strict=True):
        draw_lines(axes, frame, over, metric)
        axes.set(
            title=title, xlabel=axis, ylabel="", xscale="linear" if over == "severity" else "log"
        )
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
    legend(figure)
    return Part(name, figure, reading(frame))


class Sweep(Exhibit):
    """E by one setting, as a table beside the paper's and as a figure, and differences between
    pairs of methods.

    over: the setting. paper: the paper's table, and the column of `paper_values` that names its
    rows. reference: the method whose E is subtracted in the second panel of the figure. contrasts:
    pairs of labels (first, second), of which the second's E less the first's is shown at every
    value.
    """

    over: ClassVar[str]
    paper: ClassVar[tuple[str, str]]
    reference: ClassVar[str | None] = METHODS["adabn"].label
    contrasts: ClassVar[Sequence[tuple[str, str]]] = ()
    note: ClassVar[str] = "E (%)."

    def table(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Ours, as text."""
        return sweep_table(frame, self.over)

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        table, rows = self.paper
        values = paper_values(table, frame["run"].iloc[0], self.over).query(
            "domain == 'all' and metric == 'E'"
        )
        both = beside_paper(
            self.table(frame), values.pivot(index=rows, columns=self.over, values="value")
        )
        cells = dict(list(frame.groupby(["label", self.over])))
        pairs = {
            f"{second} − {first}, {self.over.replace('_', ' ')} {value}": (
                cells[first, value],
                cells[second, value],
            )
            for first, second in self.contrasts
            for value in dict.fromkeys(frame[self.over])
            if {(first, value), (second, value)} <= cells.keys()
        }
        stem = self.name.replace("_", "-")
        return [
            Part(stem, both, self.note),
            sweep_figure(f"{stem}-figure", frame, self.over, self.reference),
            *differences(f"{stem}-differences", pairs),
        ]


def severity_points(settings: Settings, methods: Sequence[str]) -> list[Point]:
    """These methods at every severity."""
    several = [reduced(settings, severity=level) for level in range(1, 6)]
    return [
        point for changes in several for point in points_with_transfer(settings, methods, changes)
    ]


@exhibit
class Severity(Sweep):
    name, place, label, title = "severity", 90, "tab:add-result", "Every severity"
    question = "Does the ranking hold where the corruptions are weaker?"
    over, paper = "severity", ("tab:add-result", "method")

    def points(self, settings: Settings) -> list[Point]:
        return severity_points(settings, settings.image.methods)

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        """Also the layout of the main table for each severity that the paper has beside it."""
        weaker = [
            Part(f"severity-{level}", domains_table(rows), f"Severity {level}. Bold: the best.")
            for level, rows in frame[frame["severity"] < 5].groupby("severity")
        ]
        return super().parts(frame, runs) + weaker


@exhibit
class CascadeParts(Sweep):
    name, place, label, title = (
        "cascade_parts",
        60,
        "fig:cascade, tab:effect-theta-a",
        "What θ_a and θ_m do",
    )
    question = "What is lost without θ_a, and what with θ_m fixed?"
    elsewhere = ("tiny_imagenet",)
    over, paper, reference, of_several = (
        "severity",
        ("tab:effect-theta-a", "variant"),
        CASCADE,
        True,
    )
    contrasts = [(CASCADE, METHODS[name].label) for name in VARIANTS]
    note = "E (%). The paper has numbers of this on Tiny-ImageNet-C alone."

    def points(self, settings: Settings) -> list[Point]:
        own = VARIANTS[
            settings.image.weights.startswith(PUBLISHED) :
        ]  # A published network has none without θ_a.
        return (
            severity_points(settings, ("cascade", *own))
            if "cascade" in settings.image.methods
            else []
        )


def of_sizes(settings: Settings, sizes: Sequence[int], **changes: Any) -> list[dict[str, Any]]:
    """`reduced` at each batch size, with images for one batch of the largest at least."""
    made = reduced(settings, **changes)
    made["test_size"] = made["test_size"] and max(made["test_size"], *sizes)
    return [made | {"batch_size": size} for size in sizes]


@exhibit
class BatchSize(Sweep):
    name, place, label, title = "batch_size", 50, "tab:insensitive", "Error by batch size"
    question = "Does the cascade depend less on the batch size than the others?"
    over, paper = "batch_size", ("tab:insensitive", "method")
    note = "E (%). mean, std: over the paper's batch sizes, of the seeds that have all of them."

    def points(self, settings: Settings) -> list[Point]:
        methods = [
            name for name in settings.image.methods if name == "adabn" or METHODS[name].adapts
        ]
        return points_for(methods, of_sizes(settings, settings.image.batch_sizes))

    def table(self, frame: pd.DataFrame) -> pd.DataFrame:
        wide = frame.pivot_table("E", ["label", "seed"], "batch_size").reindex(columns=PAPER_SIZES)
        means = wide.dropna().groupby("label").mean()
        over_sizes = pd.DataFrame({"mean": means.mean(axis=1), "std": means.std(axis=1)})
        return super().table(frame).join(over_sizes.map(number).astype(str)).fillna("–")


@exhibit
class MetaLearning(Sweep):
    name, place, label, title = (
        "meta_learning",
        70,
        "tab:ablation-meta",
        "With and without meta-learning",
    )
    question = "What does meta-learning add, and how much of it is there before anything adapts?"
    over, paper, reference, of_several = "batch_size", ("tab:ablation-meta", "row"), None, True
    contrasts = [
        (f"{METHODS[name].label}, meta", f"{METHODS[name].label}, {variant}")
        for name in TRAININGS
        for variant in [*TRAININGS[name]][:-1]
    ]

    def points(self, settings: Settings) -> list[Point]:
        return [
            Point(f"{METHODS[method].label}, {variant}", method, objective, changes)
            for method in settings.image.methods
            for variant, objective in TRAININGS.get(method, {}).items()
            for changes in of_sizes(settings, settings.image.batch_sizes)
        ]


def at_rates(settings: Settings, name: str, changes: dict[str, Any]) -> list[Point]:
    """A method with these changes at each learning rate of the profile, or at its own where it does
    not learn.
    """
    rates = (
        settings.image.learning_rates
        if METHODS[name].adapts
        else [settings.image.online_learning_rate]
    )
    return points_for([name], [changes | {"online_learning_rate": rate} for rate in rates])


@exhibit
class LearningRate(Exhibit):
    name, place, label = "learning_rate", 120, "beyond: learning rate"
    title = "Online learning rate and batch size"
    question = (
        "Is the ranking the methods' or the learning rate's, and is a gain that of "
        "steps which hardly move?"
    )

    def points(self, settings: Settings) -> list[Point]:
        """AdaBN at one rate, since it has none; F, which costs as much again, at the first batch
        size alone, and not of CoTTA, whose steps cost as much as those of all others together."""
        image, points = settings.image, []
        for place, changes in enumerate(of_sizes(settings, image.learning_rate_batch_sizes)):
            for name in (name for name in image.methods if name == "adabn" or METHODS[name].adapts):
                measured = changes | {
                    "forward_transfer": image.forward_transfer and not place and name != "cotta"
                }
                points += at_rates(settings, name, measured)
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        parts, over = list[Part | str](), "online_learning_rate"
        for size, rows in frame.sort_values(over, kind="stable").groupby("batch_size", sort=False):
            shown = [metric for metric in ("E", "A", "F") if rows[metric].notna().any()]
            parts.append(sweep_figure(f"learning-rate-{size}-figure", rows, over, metrics=shown))
            parts.append(
                Part(
                    f"learning-rate-{size}",
                    sweep_table(rows, over),
                    f"E (%) by rate, batch {size}.",
                )
            )
        return parts


@exhibit
class Speed(Exhibit):
    name, place, label, title = "speed", 110, "tab:speed", "Seconds to adapt to one corruption"
    question = "What does adapting cost?"

    def points(self, settings: Settings) -> list[Point]:
        return points_for([name for name in settings.image.methods if METHODS[name].adapts])

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        paper = paper_values("tab:speed", frame["run"].iloc[0]).set_index("method")["value"]
        timed = frame.assign(
            seconds=[run.batches.groupby("step")["seconds"].sum().mean() for run in frame["run"]],
            images=[run.batches.groupby("step")["count"].sum().max() for run in frame["run"]],
            work=[run.provenance["cost"]["work"] for run in frame["run"]],
            device=[run.provenance["device"] for run in frame["run"]],
        ).groupby(["label", "device"], sort=False)
        means = timed.agg({"seconds": "mean", "work": "mean", "seed": "nunique"})
        labels = means.index.get_level_values("label")
        cascade = means["seconds"].where(labels == CASCADE).groupby("device").transform("max")
        columns = {
            f"seconds a domain, {timed['images'].max().max():,}": means["seconds"].map(number),
            "times the cascade's": (means["seconds"] / cascade).map(lambda times: number(times, 1)),
            "work, in forward passes": means["work"].map(number),
            "paper, 10,000 on an RTX 2080 Ti": [
                number(paper.get(label, np.nan), 0) for label in labels
            ],
            "n": means["seed"].astype(str),
        }
        table = pd.DataFrame(columns).rename_axis(["method", "device"])
        note = (
            "Adapting and predicting, without measuring A and F. Seconds change with the "
            "load; work is counted."
        )
        return [Part("speed", table, note)]
