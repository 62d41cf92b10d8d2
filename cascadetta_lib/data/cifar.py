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
from cascadetta_lib.data.base import DataMissing, Split, mixed
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
"""The `unordered_fingerprint` of each part of CIFAR-100."""
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
    """Load CIFAR-10 or CIFAR-100. The corruptions come from the -C archive if the data folder has
    it, and are generated if not.

    title: "CIFAR-10" or "CIFAR-100".

    The files of the public archive are checked by their MD5. If that archive is not unpacked,
    CIFAR-100 may be given as cifar-100/train.npz and test.npz. These are checked by a fingerprint
    of their contents.

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
            # An array that was cut short would otherwise be noticed only after hours of training.
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
    """Return the class names, training images and test images of the public archive. It is
    downloaded if it is missing.
    """
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
    """Return the training and test images of the whole copy of CIFAR-100 in `folder`. Images that
    are stored class by class are shuffled.

    Raises DataMissing if a file is missing or is not CIFAR-100.
    """
    splits = {name: read_images(folder / f"{name}.npz") for name in COPY}
    for name, split in splits.items():
        found = unordered_fingerprint(split)
        if found != COPY[name]:
            raise DataMissing(
                f"{folder / f'{name}.npz'} is not CIFAR-100: found {len(split.y):,} images and "
                f"labels; its fingerprint is {found}, that of CIFAR-100 {COPY[name]}. To use the "
                f"images as your own, name them npz:{folder}"
            )
    return mixed(splits["train"]), mixed(splits["test"])


def unordered_fingerprint(split: Split) -> str:
    """Hash all pairs of an image and its label, regardless of their order. Return 16 hexadecimal
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
    """Return the first `count` images (None: all) of a corruption at a severity 1..5.

    folder: holds CORRUPTION.npy, uint8 (5 · size, 32, 32, 3), and labels.npy, (5 · size,): `size`
        examples of severity 1, then of severity 2, and so on.

    Raises DataMissing if an array cannot be read or has another form.
    """
    try:  # the arrays stay on the disk until rows of them are read
        images, labels = (
            np.load(folder / f"{stem}.npy", mmap_mode="r") for stem in (corruption, "labels")
        )
        if (images.dtype, images.shape, len(labels)) != (np.uint8, (5 * size, 32, 32, 3), 5 * size):
            raise ValueError(
                f"found {images.dtype} {images.shape} and {len(labels)} labels; allowed are uint8 "
                f"{(5 * size, 32, 32, 3)} and {5 * size} labels"
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
