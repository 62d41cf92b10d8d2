"""Beyond the paper: methods on a network for ImageNet, by learning rate and batch size."""

import pandas as pd

from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.points import Point, at_rates
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.kit.sweep import sweep_table
from study.settings import Settings

DATASET = "imagenet_sample"
NO_BENCHMARK = (
    "A method that never learns has one rate. The images, one per class, may be training "
    "images. So compare differences between methods, not levels of E."
)


@exhibit
class ImageNet(Exhibit):
    """Show E of each method under ImageNet-C's corruptions at 224 pixels."""

    name = "imagenet"
    place = 310
    label = "beyond: ImageNet"
    title = "At the scale of ImageNet"
    question = "Do the methods gain on a network for ImageNet, at each rate and batch size?"

    def made_on(self, dataset: str) -> bool:
        """Return whether the dataset is the sample of ImageNet. The exhibit is made on no other."""
        return dataset == DATASET

    def points(self, settings: Settings) -> list[Point]:
        """Return points of each method at each batch size. A method that learns has a point per
        rate. There is no point on another dataset.
        """
        image = settings.image
        names = [name.kind for name in settings.datasets("image")]
        if names != [DATASET]:
            return []
        points = []
        for size in image.exhibits.ablation_rate_batch_sizes:
            for name in image.methods:
                points += at_rates(settings, name, {"batch_size": size, "forward_transfer": False})
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        over = "online_learning_rate"
        parts: list[Part | str] = []
        for size, rows in frame.sort_values(over, kind="stable").groupby("batch_size"):
            note = f"E (%) by learning rate, batches of {size}. {NO_BENCHMARK}"
            parts.append(Part(f"imagenet-{size}", sweep_table(rows, over), note))
        return parts
