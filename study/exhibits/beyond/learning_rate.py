"""Beyond the paper: E, A and F by learning rate at several batch sizes."""

import pandas as pd

from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.points import Point, adapting, at_rates, of_sizes
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.kit.sweep import sweep_figure, sweep_table
from study.settings import Settings

MOST = 40
"""The upper limit of E in the figure, in percent. A larger E means that the method broke down."""


@exhibit
class LearningRate(Exhibit):
    name = "learning_rate"
    place = 120
    label = "beyond: learning rate"
    title = "Online learning rate and batch size"
    question = (
        "Does the ranking come from the methods or from the learning rate? Does a method that "
        "leads learn something, or does it move so little that it stays near AdaBN?"
    )

    def points(self, settings: Settings) -> list[Point]:
        """Return points of each adapting method at each batch size and rate. AdaBN, which has no
        rate, has one point per batch size.

        F doubles the cost, so it is measured only at the first batch size. It is not measured for
        CoTTA, whose steps cost as much as those of all other methods together.
        """
        image = settings.image
        several = of_sizes(settings, image.exhibits.ablation_rate_batch_sizes)
        points = []
        for place, changes in enumerate(several):
            for name in adapting(settings):
                measured = image.online.forward_transfer and place == 0 and name != "cotta"
                points += at_rates(settings, name, changes | {"forward_transfer": measured})
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        over = "online_learning_rate"
        parts: list[Part | str] = []
        for size, rows in frame.sort_values(over, kind="stable").groupby("batch_size", sort=False):
            stem = f"learning-rate-{size}"
            shown = [metric for metric in ("E", "A", "F") if has_throughout(rows, metric)]
            parts.append(sweep_figure(f"{stem}-figure", rows, over, metrics=shown, most=MOST))
            parts.append(Part(stem, sweep_table(rows, over), f"E (%) by rate, batch {size}."))
        return parts


def has_throughout(rows: pd.DataFrame, metric: str) -> bool:
    """Return whether a metric is complete enough to be drawn: some method has it, and each method
    that has it at one rate has it at all of its rates. Single points would look like a result.
    """
    by_method = rows[metric].notna().groupby(rows["label"])
    return bool(by_method.any().any() and (by_method.any() == by_method.all()).all())
