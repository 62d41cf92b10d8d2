"""CIFAR-10 and CIFAR-100 with their -C archives: 50,000 training and 10,000 test images of 32×32
pixels.
"""

from functools import partial
from pathlib import Path

import numpy as np
import torch

from cascadetta_lib.data import dataset
from cascadetta_lib.data.base import DataMissing, Split
from cascadetta_lib.data.corruptions import CORRUPTIONS
from cascadetta_lib.data.fetch import fetch
from cascadetta_lib.data.images import (
    ImageDataset,
    ImageOptions,
    channels_first,
    fetch_corruptions,
    make_image_dataset,
)

CORRUPTED = {
    "CIFAR-10": (
        "https://zenodo.org/record/2535967/files/CIFAR-10-C.tar",
        "md5:56bf5dcef84df0e2308c6dcbcbbd8499",
    ),
    "CIFAR-100": (
        "https://zenodo.org/record/3555552/files/CIFAR-100-C.tar",
        "md5:11f0ed0f1191edbf9fa23466ae6021d3",
    ),
}


def load_cifar(title: str, options: ImageOptions) -> ImageDataset:
    """DataMissing if the clean images are missing or altered; without the -C archive it warns and
    generates.
    """
    from torchvision import (
        datasets,  # takes seconds, and the look-up of any dataset imports this module
    )

    reader = getattr(datasets, title.replace("-", ""))
    unpacked = fetch(
        title, [reader.url], options.folder, f"md5:{reader.tgz_md5}", "170 MB", reader.base_folder
    )
    try:  # torchvision checks the hash of each file
        train, test = (reader(root=unpacked.parent, train=part) for part in (True, False))
    except RuntimeError:
        message = (
            f"{title}: a file in {unpacked} is missing or altered; remove that folder and run again"
        )
        raise DataMissing(message) from None
    url, known_hash = CORRUPTED[title]
    contents = [f"{stem}.npy" for stem in ("labels", *CORRUPTIONS)]
    corrupted = fetch_corruptions(
        f"{title}-C", [url], options.folder, known_hash, "2.9 GB", contents
    )
    if corrupted:
        for (
            corruption
        ) in CORRUPTIONS:  # One that was cut short would else be noticed after hours of training.
            read_cifar_c(corrupted, len(test.data), corruption, severity=1, count=1)
    return make_image_dataset(
        name=reader.__name__.lower(),
        source=title,
        compare_with=f"{title}-C",
        class_names=tuple(train.classes),
        train=Split(channels_first(train.data), torch.tensor(train.targets)),
        test=Split(channels_first(test.data), torch.tensor(test.targets)),
        options=options,
        archive=corrupted and partial(read_cifar_c, corrupted, len(test.data)),
    )


dataset("cifar10", "image")(lambda _, options: load_cifar("CIFAR-10", options))
dataset("cifar100", "image")(lambda _, options: load_cifar("CIFAR-100", options))


def read_cifar_c(
    folder: Path, size: int, corruption: str, severity: int, count: int | None
) -> Split:
    """The first `count` images of a domain, from an array that holds `size` images of each of the
    five severities.
    """
    try:  # the arrays stay on the disk until rows of them are read
        images, labels = (
            np.load(folder / f"{stem}.npy", mmap_mode="r") for stem in (corruption, "labels")
        )
        if (images.dtype, images.shape, len(labels)) != (np.uint8, (5 * size, 32, 32, 3), 5 * size):
            raise ValueError(
                f"{images.dtype} {images.shape} beside {len(labels)} labels, not uint8 of 5 × "
                f"{size}"
            )
    except (OSError, ValueError, EOFError) as error:
        raise DataMissing(
            f"{folder}: {corruption}.npy or labels.npy cannot be read ({error}); unpack it again"
        ) from None
    rows = slice((severity - 1) * size, severity * size)
    return Split(
        channels_first(images[rows][:count]),
        torch.from_numpy(labels[rows][:count].astype(np.int64)),
    )
