"""Beyond the paper: text and speech by the optimiser and the learning rate at test time, neither of
which it states.
"""

import pandas as pd

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import Exhibit, Part, exhibit
from study.exhibits.kit.runs import Point, Runs, main_points, points_for
from study.exhibits.kit.sweep import sweep_table
from study.settings import Settings
from study.store import Run

STEPS = (
    {"online_optimizer": "sgd", "online_learning_rate": 0.0001},
    {"online_optimizer": "adam", "online_learning_rate": 0.001},
    {"online_optimizer": "adam", "online_learning_rate": 0.0001},
)
"""What is tried beside the steps of the main study."""


class Online(Exhibit):
    """E by the online step. The main study's Tent with Adam counts here as a step of Tent."""

    label = "beyond: online steps"
    title = "The optimiser and the rate at test time"
    question = "Is the ranking the methods' or that of a step which the paper does not state?"

    def points(self, settings: Settings) -> list[Point]:
        main = [one for one in main_points(settings, self.modality) if one.method != "tent_adam"]
        adapting = [one.method for one in main if METHODS[one.method].adapts]
        own = getattr(settings, self.modality).model_dump()
        several = [
            step | {"forward_transfer": False} for step in STEPS if not step.items() <= own.items()
        ]
        return main + points_for(adapting, several)

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        table = sweep_table(frame.assign(step=[_step(run) for run in frame["run"]]), "step")
        note = (
            "E (%) by optimiser and rate; own: the optimiser that the method has in the main study."
        )
        return [Part(self.name.replace("_", "-"), table, note)]


def _step(run: Run) -> str:
    """The optimiser and the rate of a run in words."""
    return f"{run.request.online_optimizer or 'own'}, {run.request.online_learning_rate:g}"


@exhibit
class OnlineText(Online):
    name = "online_text"
    place = 122
    modality = "text"


@exhibit
class OnlineSpeech(Online):
    name = "online_speech"
    place = 123
    modality = "speech"
