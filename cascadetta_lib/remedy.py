"""Choosing every contestant's online learning rate on the source alone, and the comparison at these rates.

The choice reads the runs on the four corruptions of held-out source images (experiments.choice), at one seed. The
fifteen test corruptions are then run once, at every seed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from cascadetta_lib.evidence import Evidence, Found, measured
from cascadetta_lib.experiments import (
    ONCE_SEED,
    Contestant,
    Point,
    choice_points,
    chosen_experiments,
    comparison_points,
    contestants,
    make_points,
)
from cascadetta_lib.study import Run, Study


@dataclass(frozen=True)
class Chosen:
    """A contestant with the learning rate chosen for it. errors: E (%) on the source by learning rate, empty where
    nothing adapts."""

    contestant: Contestant
    rate: float
    errors: pd.Series
    runs: list[Run]


def choose(evidence: Evidence, dataset: str) -> list[Chosen]:
    """Every contestant at the rate of least E on the source, the smaller of two alike. One whose runs are not all
    stored is left out: a choice among a part of the rates would be another one tomorrow."""
    settings, found = evidence.settings, []
    if "choice" not in chosen_experiments(dataset):
        return []
    for one in contestants(settings):
        points = choice_points(settings, one)
        stored = evidence.points(points, dataset, seeds=(ONCE_SEED,))
        if not points:
            found.append(Chosen(one, settings.image_online_learning_rate, pd.Series(dtype=float), []))
        elif all(each.runs for each in stored):
            # Rounded, so that two alike are alike: their sums may differ in the last bit.
            errors = measured(stored).set_index("online_learning_rate")["E"].sort_index().round(6)
            found.append(
                Chosen(one, float(str(errors.idxmin())), errors, [run for each in stored for run in each.runs])
            )
    return found


def _comparisons(evidence: Evidence, dataset: str) -> Iterator[tuple[Chosen, str, list[Point]]]:
    for each in choose(evidence, dataset):
        for what, points in comparison_points(evidence.settings, each.contestant, each.rate).items():
            yield each, what, points


def make_comparison(study: Study) -> list[Run]:
    """The runs of the comparison at the study's seed; none where the choice is not made."""
    found = _comparisons(Evidence(study.settings), study.dataset_name)
    return [
        run for each, what, points in found for run in make_points(study, points, f"{each.contestant.label}, {what}")
    ]


def compared(evidence: Evidence, dataset: str) -> dict[tuple[str, str], list[Found]]:
    """What is stored of the comparison by the contestant's label and by what is compared."""
    return {
        (each.contestant.label, what): evidence.points(points, dataset)
        for each, what, points in _comparisons(evidence, dataset)
    }
