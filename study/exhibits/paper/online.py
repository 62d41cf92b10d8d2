"""Beyond the paper: text and speech by the optimiser and the learning rate at test time, neither of
which it states.
"""

import pandas as pd

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import Exhibit, Part, exhibit
from study.exhibits.kit.runs import Point, Runs, main_points, points_for
from study.exhibits.paper.ablations import sweep_table
from study.settings import Settings

STEPS = {
    "sgd, 0.0001": {"online_optimizer": "sgd", "online_learning_rate": 0.0001},
    "adam, 0.001": {"online_optimizer": "adam", "online_learning_rate": 0.001},
    "adam, 0.0001": {"online_optimizer": "adam", "online_learning_rate": 0.0001},
}
"""What is tried beside the steps of the main study."""


class Online(Exhibit):
    """E by the online step. Tent with Adam, which the main study has too, stands in the row of Tent
    here.
    """

    label, title = "beyond: online steps", "The optimiser and the rate at test time"
    question = "Is the ranking the methods' or that of a step which the paper does not state?"

    def points(self, settings: Settings) -> list[Point]:
        main = [one for one in main_points(settings, self.modality) if one.method != "tent_adam"]
        adapting = [one.method for one in main if METHODS[one.method].adapts]
        own = getattr(settings, self.modality).model_dump()
        steps = [changes for changes in STEPS.values() if not changes.items() <= own.items()]
        return main + points_for(
            adapting, [changes | {"forward_transfer": False} for changes in steps]
        )

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        requests = [run.request for run in frame["run"]]
        steps = [
            f"{one.online_optimizer or 'own'}, {one.online_learning_rate:g}" for one in requests
        ]
        note = (
            "E (%) by optimiser and rate; own: the optimiser that the method has in the main study."
        )
        return [
            Part(self.name.replace("_", "-"), sweep_table(frame.assign(step=steps), "step"), note)
        ]


@exhibit
class OnlineText(Online):
    name, place, modality = "online_text", 122, "text"


@exhibit
class OnlineSpeech(Online):
    name, place, modality = "online_speech", 123, "speech"
