"""tab:insensitive, tab:ablation-meta: E by batch size; and, beyond the paper, E, A and F by learning rate."""

from typing import Any

import pandas as pd

from cascadetta_lib.exhibits.base import Exhibit, Part, exhibit
from cascadetta_lib.exhibits.runs import Point, Runs, points_for, reduced
from cascadetta_lib.exhibits.style import number
from cascadetta_lib.exhibits.tables import Sweep, sweep_figure, sweep_table
from cascadetta_lib.methods import METHODS
from cascadetta_lib.settings import Settings

PAPER_SIZES = (128, 64, 32, 16)
TRAININGS = {"ttt": {"no meta": "ttt", "meta": "meta_ttt"}, "cascade": {"no meta": "multi_task", "meta": "meta"}}
"""By method, what the paper's variants are pre-trained for."""


def of_sizes(settings: Settings) -> list[dict[str, Any]]:
    """The changes of an ablation at each batch size, with images for one batch of the largest at least."""
    images, sizes = settings.image.ablation_test_size, settings.image.batch_sizes
    whole = None if images is None else max(images, *sizes)
    return [reduced(settings, batch_size=size, test_size=whole) for size in sizes]


@exhibit
class BatchSize(Sweep):
    name, place, label, title = "batch_size", 50, "tab:insensitive", "Error by batch size"
    question = "Does the cascade depend less on the batch size than the others?"
    over, paper = "batch_size", ("tab:insensitive", "method")
    note = "E (%). mean, std: over the paper's batch sizes, of the seeds that have all of them."

    def points(self, settings: Settings) -> list[Point]:
        methods = [name for name in settings.image.methods if name == "adabn" or METHODS[name].adapts]
        return [point for changes in of_sizes(settings) for point in points_for(methods, changes)]

    def table(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Also the mean and the standard deviation over batch sizes."""
        wide = frame[frame["batch_size"].isin(PAPER_SIZES)].pivot_table("E", ["label", "seed"], "batch_size")
        over_sizes = wide.dropna().groupby("label").mean().agg(["mean", "std"], axis=1)
        return super().table(frame).join(over_sizes.map(number)).fillna("–")


@exhibit
class MetaLearning(Sweep):
    name, place, label, title = "meta_learning", 70, "tab:ablation-meta", "With and without meta-learning"
    question = "What does meta-learning add to the same loss?"
    over, paper, reference = "batch_size", ("tab:ablation-meta", "row"), None
    contrasts = [(f"{METHODS[name].label}, meta", f"{METHODS[name].label}, no meta") for name in TRAININGS]

    def points(self, settings: Settings) -> list[Point]:
        return [
            Point(f"{METHODS[method].label}, {variant}", method, objective, changes)
            for method in settings.image.methods
            for variant, objective in TRAININGS.get(method, {}).items()
            for changes in of_sizes(settings)
        ]


@exhibit
class LearningRate(Exhibit):
    name, place, label = "learning_rate", 120, "beyond: learning rate"
    title = "Online learning rate and batch size"
    question = "Is the ranking the methods' or the learning rate's, and is a gain that of steps which hardly move?"

    def points(self, settings: Settings) -> list[Point]:
        """AdaBN at one rate, since it has none; F, which costs as much again, at the first batch size alone."""
        image, points = settings.image, []
        adapting = [name for name in image.methods if METHODS[name].adapts]
        for size in image.learning_rate_batch_sizes:
            fixed = {"batch_size": size, "forward_transfer": False}
            if size == image.learning_rate_batch_sizes[0]:
                fixed["forward_transfer"] = image.forward_transfer
            for rate in image.learning_rates:
                points += points_for(adapting, reduced(settings, **fixed, online_learning_rate=rate))
            own = reduced(settings, **fixed, online_learning_rate=image.online_learning_rate)
            points += points_for({"adabn"} & set(image.methods), own)
        return points

    def parts(self, runs: Runs) -> list[Part | str]:
        frame, over = runs.frame(self.points(runs.settings)), "online_learning_rate"
        parts: list[Part | str] = []
        for size, rows in frame.sort_values(over, kind="stable").groupby("batch_size", sort=False):
            shown = [metric for metric in ("E", "A", "F") if rows[metric].notna().any()]
            note = f"E (%) by online learning rate, batch {size}."
            parts.append(sweep_figure(f"learning-rate-{size}-figure", rows, over, metrics=shown))
            parts.append(Part(f"learning-rate-{size}", sweep_table(rows, over), list(rows["run"]), note))
        return parts
