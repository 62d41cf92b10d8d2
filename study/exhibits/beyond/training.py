"""Beyond the paper: how the networks were pre-trained, and whether θ_a has collapsed."""

from collections.abc import Sequence

import pandas as pd

from cascadetta_lib.data import DatasetName
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.histories import training_parts
from study.exhibits.kit.points import Point, main_points, meta_learning_points
from study.exhibits.kit.shown import LESS_IN_THE_PAPER, Part, Shown
from study.exhibits.kit.stored_runs import Runs
from study.settings import Settings
from study.study import Checkpoint


class Training(Exhibit):
    """Show how the networks of one modality's main study were pre-trained. On images, also show
    those of tab:ablation-meta, except for datasets in LESS_IN_THE_PAPER.
    """

    label = "beyond: training"
    title = "Pre-training"
    question = "How were the networks trained, and does θ_a still tell examples apart?"
    elsewhere = LESS_IN_THE_PAPER

    def points(self, settings: Settings) -> list[Point]:
        points = main_points(settings, self.modality)
        datasets = {name.kind for name in settings.datasets(self.modality)}
        if self.modality == "image" and not datasets & set(LESS_IN_THE_PAPER):
            points += meta_learning_points(settings)
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        return training_parts(f"{self.modality}-training", runs.histories(frame))


@exhibit
class TrainingImage(Training):
    name = "training_image"
    place = 150


@exhibit
class TrainingText(Training):
    name = "training_text"
    place = 151
    modality = "text"


@exhibit
class TrainingSpeech(Training):
    name = "training_speech"
    place = 152
    modality = "speech"


def show_checkpoints(checkpoints: Sequence[Checkpoint], dataset_name: DatasetName) -> Shown:
    """Show the training curves of checkpoints from which no run has started yet. Checkpoints
    without a history are left out.
    """
    histories = []
    for each in checkpoints:
        if each.history is None:
            continue
        table = each.history.assign(
            objective=each.request.objective, seed=each.request.seed, classes=each.classes
        )
        histories.append(table)
    found = pd.concat(histories) if histories else pd.DataFrame()
    parts = training_parts("training", found)
    return Shown(TrainingImage(), dataset_name.title, parts)
