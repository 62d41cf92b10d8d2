"""Beyond the paper: streams that are mixed or gradual with correlated labels, a walk from one
corruption to the next, and a stream with a reset at each domain.
"""

import pandas as pd

from cascadetta_lib.data.streams import RESET_EACH, WALK
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.points import Point, methods_without, points_for, reduced, with_alarm
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.kit.sweep import sweep_table
from study.settings import Settings

STREAMS = ("mixed_correlated", "gradual_correlated", WALK, RESET_EACH)
LEFT_OUT = ("memo",)
"""Methods that are left out. MEMO goes back to the source after each image, so a stream changes
only the order of its random draws.
"""


@exhibit
class Wild(Exhibit):
    name = "wild"
    place = 87
    label = "beyond: wild streams"
    title = "Mixed and correlated, gradual and correlated, a walk, and a reset at each domain"
    question = (
        "How much of a gain is left on harder streams: with labels in runs and domains that are "
        "mixed or change slowly, or with corruptions that slowly become the next? And how large is "
        "the gain with a reset at each domain?"
    )

    def points(self, settings: Settings) -> list[Point]:
        methods = methods_without(settings, LEFT_OUT)
        size = settings.image.exhibits.gradual_test_size
        mixed, gradual, walk, reset_each = STREAMS
        several = [
            reduced(settings, stream=mixed),
            with_alarm(settings, gradual, test_size=size),
            reduced(settings, stream=walk, test_size=size),
            reduced(settings, stream=reset_each),
        ]
        return points_for(methods, several)

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        about = ["label", "seed", "stream", "network", "current"]
        cells = frame.melt(about, ["E", "A"], "metric")
        cells["stream"] = cells["metric"] + ", " + cells["stream"]
        note = (
            f"δ = {runs.settings.image.dirichlet_delta:g}. With {RESET_EACH}, each domain is "
            "measured by the model that adapted to this domain alone, and A is the mean of these "
            "accuracies. The gradual stream and the walk may have another number of images per "
            "domain than the other streams."
        )
        return [Part("wild", sweep_table(cells, "stream", "value"), note)]
