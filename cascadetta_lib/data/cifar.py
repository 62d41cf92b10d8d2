"""CIFAR-10 and CIFAR-100 with their -C archives: 50,000 training and 10,000 test images of 32×32
pixels.
"""

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

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
    find_corruptions,
    make_archive,
    make_image_dataset,
)
from cascadetta_lib.data.npz import read_images
from cascadetta_lib.files import contents_hash

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

ARRAYS = "cifar-100"
"""The folder with CIFAR-100 as train.npz and test.npz: x, uint8 (N, 32, 32, 3), and y, int64 (N,).
"""
COPY = {"train": "e51ddc36d62e0a5f", "test": "b058d598f08e6a22"}
"""`unordered_fingerprint` of its parts."""
FINE_LABELS = tuple(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch
    crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house
    kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
    mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree
    plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew
    skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
    telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf
    woman worm
    """.split()
)


def load_cifar(title: str, options: ImageOptions) -> ImageDataset:
    """Load CIFAR-10 or CIFAR-100, with its -C archive where that lies in the data folder; else the
    corruptions are generated.

    The files of the public archive are checked by their MD5. For CIFAR-100, cifar-100/train.npz and
    test.npz will do in their place: they are recognised by a fingerprint of their contents.
    Raises DataMissing if the clean images are missing or altered.
    """
    # Imported here, because it takes seconds, and the look-up of any dataset imports this module.
    from torchvision import datasets

    reader = getattr(datasets, title.replace("-", ""))
    folder = Path(options.folder).expanduser()
    arrays = folder / ARRAYS
    if title == "CIFAR-100" and arrays.exists() and not (folder / reader.base_folder).exists():
        source = f"{title}, a whole copy recognised by its pixels and labels, not by the archive"
        class_names = FINE_LABELS
        train, test = _read_copy(arrays)
    else:
        source = title
        class_names, train, test = _read_official_archive(title, reader, options.folder)
    url, known_hash = CORRUPTED[title]
    contents = [f"{stem}.npy" for stem in ("labels", *CORRUPTIONS)]

    def describe(place: Path) -> str:
        return contents_hash(place, [place / name for name in contents])

    corrupted = find_corruptions(
        f"{title}-C", [url], options.folder, known_hash, "2.9 GB", contents, describe
    )
    archive = None
    if corrupted:
        for corruption in CORRUPTIONS:
            # One that was cut short would else be noticed after hours of training.
            read_cifar_c(corrupted, len(test.y), corruption, severity=1, count=1)
        read = partial(read_cifar_c, corrupted, len(test.y))
        archive = make_archive(read, corrupted, known_hash, describe(corrupted))
    return make_image_dataset(
        name=reader.__name__.lower(),
        source=source,
        compare_with=f"{title}-C",
        class_names=class_names,
        train=train,
        test=test,
        options=options,
        recognised=True,
        archive=archive,
    )


dataset("cifar10", "image")(lambda _, options: load_cifar("CIFAR-10", options))
dataset("cifar100", "image")(lambda _, options: load_cifar("CIFAR-100", options))


def _read_official_archive(
    title: str, reader: Any, data_folder: str
) -> tuple[tuple[str, ...], Split, Split]:
    """Return class names, training and test images of the public archive, downloaded if need be."""
    unpacked = fetch(
        title, [reader.url], data_folder, f"md5:{reader.tgz_md5}", "170 MB", reader.base_folder
    )
    try:  # torchvision checks the hash of each file
        train = reader(root=unpacked.parent, train=True)
        test = reader(root=unpacked.parent, train=False)
    except RuntimeError:
        message = (
            f"{title}: a file in {unpacked} is missing or altered; remove that folder and run again"
        )
        raise DataMissing(message) from None
    splits = [
        Split(channels_first(part.data), torch.tensor(part.targets)) for part in (train, test)
    ]
    return tuple(train.classes), splits[0], splits[1]


def _read_copy(folder: Path) -> tuple[Split, Split]:
    """Return training and test images of the whole copy of CIFAR-100 in `folder`."""
    splits = {name: read_images(folder / f"{name}.npz") for name in COPY}
    for name, split in splits.items():
        found = unordered_fingerprint(split)
        if found != COPY[name]:
            raise DataMissing(
                f"{folder / f'{name}.npz'} is not CIFAR-100: {len(split.y):,} images and labels of "
                f"fingerprint {found}; allowed is {COPY[name]}. npz:{folder} takes them as images "
                "of your own"
            )
    return splits["train"], splits["test"]


def unordered_fingerprint(split: Split) -> str:
    """Return a hash of all pairs of image and label, whatever order they are in: 16 hexadecimal
    digits.
    """
    pairs = sorted(
        f"{label} {hashlib.sha256(image.data).hexdigest()}"
        for image, label in zip(split.x.numpy(), split.y.tolist(), strict=True)
    )
    return hashlib.sha256("\n".join(pairs).encode()).hexdigest()[:16]


def read_cifar_c(
    folder: Path, size: int, corruption: str, severity: int, count: int | None
) -> Split:
    """Return the first `count` images of a domain, from an array that holds `size` images of each
    of the five severities.
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
