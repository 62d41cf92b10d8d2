"""Beyond the paper: methods on a network for ImageNet, by learning rate and batch size."""

import pandas as pd

from study.exhibits.kit.exhibit import Exhibit, Part, exhibit
from study.exhibits.kit.points import at_rates
from study.exhibits.kit.runs import Point, Runs
from study.exhibits.kit.sweep import sweep_table
from study.settings import Settings

DATASET = "imagenet_sample"


@exhibit
class ImageNet(Exhibit):
    """E of each method under ImageNet-C's corruptions at 224 pixels."""

    name = "imagenet"
    place = 310
    label = "beyond: ImageNet"
    title = "At the scale of ImageNet"
    question = "Do the methods gain on a network for ImageNet, at two rates and two batch sizes?"

    def made_on(self, dataset: str) -> bool:
        """Say that it is made on the sample of ImageNet alone."""
        return dataset == DATASET

    def points(self, settings: Settings) -> list[Point]:
        """Ask for each method at each batch size, and for one that learns at each rate."""
        image = settings.image
        names = [name.kind for name in settings.datasets("image")]
        if names != [DATASET]:
            return []
        points = []
        for size in image.ablation_rate_batch_sizes:
            for name in image.methods:
                points += at_rates(settings, name, {"batch_size": size, "forward_transfer": False})
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        parts: list[Part | str] = [
            "The images are perhaps training images of ImageNet, one a class: the level of an "
            "error is no benchmark. Differences between methods on the same images are what counts."
        ]
        for size, rows in frame.groupby("batch_size", sort=False):
            table = sweep_table(rows, "online_learning_rate")
            note = f"E (%) by learning rate, batches of {size}. ERM, AdaBN and LAME have no rate."
            parts.append(Part(f"imagenet-{size}", table, note))
        return parts
