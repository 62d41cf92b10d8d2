"""Beyond the paper: E on text and speech by optimiser and learning rate at test time. The paper
states neither of the two. On text, the table also names the pair that held-out source reviews would
choose.
"""

from typing import Any, ClassVar

import pandas as pd

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.numbers import rounded
from study.exhibits.kit.points import Point, main_points, points_for
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs, by_label
from study.exhibits.kit.sweep import sweep_table
from study.settings import Settings

OPTIMIZERS = (None, "adam")
"""The optimisers: each method's own (None), and Adam for all methods."""


class Online(Exhibit):
    """Show E by step, which here is a pair of an optimiser and a learning rate.

    The method `tent_adam` of the main study counts as a step of Tent and has no row of its own.

    source_chooses: whether to show also the step that held-out source examples would choose. For
        this, the dataset must have them as a domain.
    """

    source_chooses: ClassVar[bool]

    label = "beyond: online steps"
    title = "The optimiser and the rate at test time"
    question = (
        "Does the ranking come from the methods, or from the optimiser and the learning rate, "
        "which the paper does not state?"
    )

    def points(self, settings: Settings) -> list[Point]:
        points = self._main(settings) + self._on_targets(settings)
        if self.source_chooses:
            points += self._on_source(settings)
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        requests = [run.request for run in frame["run"]]
        frame = frame.assign(
            step=[_step_name(one.online_optimizer, one.online_learning_rate) for one in requests]
        )
        if "stream" not in frame:
            frame["stream"] = None  # No point changes the stream: all runs are on the targets.
        on_source = frame["stream"].notna()
        source = frame[on_source]
        targets = frame[~on_source]
        if targets.empty:
            return ["No method has a run on the target domains."]
        table = sweep_table(targets, "step")
        note = (
            "E (%) on the target domains by optimiser and rate; own: the optimiser that the method "
            "has in the main study."
        )
        if self.source_chooses:
            order = [_step_name(**step) for step in self._steps(runs.settings)]
            table.insert(len(table.columns) - 1, "source chooses", chosen(source, order))
            table["source chooses"] = table["source chooses"].fillna("–")
            note += (
                " Source chooses: the step with the least E on held-out source reviews. E is the "
                "mean over the seeds that have every step, and stands in brackets. If two are "
                "equal, the first is named."
            )
        return [Part(self.name.replace("_", "-"), table, note)]

    def _main(self, settings: Settings) -> list[Point]:
        main = main_points(settings, self.modality)
        return [point for point in main if point.method != "tent_adam"]

    def _adapting(self, settings: Settings) -> list[str]:
        names = [point.method for point in self._main(settings)]
        return [name for name in names if METHODS[name].adapts]

    def _steps(self, settings: Settings) -> list[dict[str, Any]]:
        section = settings.text if self.modality == "text" else settings.speech
        return [
            {"online_optimizer": optimizer, "online_learning_rate": rate}
            for optimizer in OPTIMIZERS
            for rate in section.exhibits.ablation_learning_rates
        ]

    def _on_targets(self, settings: Settings) -> list[Point]:
        """Return points of each adapting method on the target domains at each step. The profile's
        own step is left out, because the points of `_main` have it.
        """
        own = settings.section(self.modality).online.model_dump()
        steps = [step for step in self._steps(settings) if not step.items() <= own.items()]
        changes = [{**step, "forward_transfer": False} for step in steps]
        return points_for(self._adapting(settings), changes)

    def _on_source(self, settings: Settings) -> list[Point]:
        """Return points of each adapting method at each step on held-out source examples. A text
        dataset offers these as a further domain, which has the name of the source.
        """
        held_out = {
            "stream": settings.datasets(self.modality)[0].vocabulary.others,
            "forward_transfer": False,
        }
        changes = [{**step, **held_out} for step in self._steps(settings)]
        return points_for(self._adapting(settings), changes)


def chosen(source: pd.DataFrame, order: list[str]) -> pd.Series:
    """Return, by label, the name of the step with the smallest mean E, followed by this E, as text.

    The mean is over the seeds at which the label has a run of every step. Other seeds do not count,
    because networks differ more than steps do. A label without such a seed is left out. If two
    steps have the same E, the first in `order` is chosen.

    source: a row per run on held-out source examples.
    order: the names of all steps, in the order of the table.
    """
    texts = {}
    for label, rows in by_label(source).items():
        errors = rows.pivot_table(index="seed", columns="step", values="E")
        errors = errors.reindex(columns=order).dropna()
        if errors.empty:
            continue
        # Rounded, because the last bits of equal means may differ.
        means = errors.mean().round(6)
        texts[label] = f"{means.idxmin()} ({rounded(means.min())})"
    return pd.Series(texts, dtype=object)


def _step_name(online_optimizer: str | None, online_learning_rate: float) -> str:
    """Return the name of a step, such as `own, 0.001` or `adam, 0.001`."""
    return f"{online_optimizer or 'own'}, {online_learning_rate:g}"


@exhibit
class OnlineText(Online):
    name = "online_text"
    place = 122
    modality = "text"
    source_chooses = True


@exhibit
class OnlineSpeech(Online):
    """Show no column `source chooses`. Speech has no domain of held-out source recordings: its
    domain `clean` consists of test recordings.
    """

    name = "online_speech"
    place = 123
    modality = "speech"
    source_chooses = False
