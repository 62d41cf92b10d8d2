"""Tiny-ImageNet with Tiny-ImageNet-C: 200 classes, 100,000 training and 10,000 validation images of
64×64 pixels.

As in the paper, the validation images serve as test images, and the network is a ResNet-34 on
224×224 pixels. The clean images are decoded once. Their arrays (1.3 GB) are kept in generated/, in
a file that is named by a hash of the images. The images of a -C domain are decoded each time the
domain is read.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from cascadetta_lib.data import dataset
from cascadetta_lib.data.base import DataMissing, Split, code_version, mixed
from cascadetta_lib.data.corruptions import CORRUPTIONS, SEVERITIES
from cascadetta_lib.data.fetch import fetch
from cascadetta_lib.data.images import (
    ImageDataset,
    ImageOptions,
    channels_first,
    find_corruptions,
    make_archive,
    make_image_dataset,
)
from cascadetta_lib.files import contents_hash, kept_arrays

URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
HASH = "md5:90528d7ca1a48142e341f4ef8d21d0de"
CONTENTS = ("words.txt", "train", "val/val_annotations.txt")
KNOWN = "5f1edeb7c32dc6f7c4813bde197ab4ae88ae462327668c43ca34c9d4422edb9c"
"""The `contents_hash` of the clean images of a whole copy, together with words.txt and
val_annotations.txt. It covers the labels, which are in the paths of the training images and in
val_annotations.txt. It is not known whether that copy's archive has the MD5 above.
"""
WHOLE = (100_000, 10_000, 200)  # training images, validation images, classes
CORRUPTED_URLS = [
    f"https://zenodo.org/record/{record}/files/Tiny-ImageNet-C.tar" for record in (8206060, 2536630)
]
CORRUPTED_HASH = "md5:f9c9a9dbdc11469f0b850190f7ad8be1"


@dataset("tiny_imagenet", "image", batch_size=64)
def load_tiny_imagenet(argument: str, options: ImageOptions) -> ImageDataset:
    """Load the clean images, and the -C archive if it is in the data folder.

    Without the archive the corruptions are generated. Raises DataMissing if clean images are
    missing.
    """
    folder = Path(options.folder).expanduser()
    place = fetch("Tiny-ImageNet", [URL], folder, HASH, "248 MB", "tiny-imagenet-200", CONTENTS)
    listed = list_clean(place)
    contents = contents_hash(place, listed.files)
    kept = folder / "generated" / f"tiny-imagenet-{contents[:16]}-{code_version(__name__)}.npz"
    clean = kept_arrays(kept, lambda: _read_clean(listed))
    train = Split(torch.from_numpy(clean["train_x"]), torch.from_numpy(clean["train_y"]))
    test = Split(torch.from_numpy(clean["test_x"]), torch.from_numpy(clean["test_y"]))
    domains = [f"{corruption}/{severity}" for corruption in CORRUPTIONS for severity in SEVERITIES]

    def describe(place: Path) -> str:
        return contents_hash(
            place, [path for domain in domains for path in _images_of(place / domain)]
        )

    corrupted = find_corruptions(
        "Tiny-ImageNet-C", CORRUPTED_URLS, folder, CORRUPTED_HASH, "1.8 GB", domains, describe
    )
    archive = None
    if corrupted:
        whole = (len(test.y), len(listed.class_names))
        for corruption in CORRUPTIONS:
            # An incomplete corruption would otherwise be noticed only after hours of training.
            _read_domain(corrupted, whole, corruption, severity=SEVERITIES[-1], count=1)
        read = partial(_read_domain, corrupted, whole)
        archive = make_archive(read, corrupted, CORRUPTED_HASH, describe(corrupted))
    recognised = contents == KNOWN
    told = "a whole copy recognised by its files" if recognised else "files of unknown origin"
    return make_image_dataset(
        name="tiny_imagenet",
        source=f"Tiny-ImageNet, {told}",
        compare_with="Tiny-ImageNet-C",
        class_names=tuple(listed.class_names),
        train=mixed(train),
        test=test,
        options=options,
        recognised=recognised,
        archive=archive,
        architecture="resnet34",
        input_size=224,
    )


class Clean(NamedTuple):
    """The files of the clean images.

    train, test: the training and the validation images.
    train_y, test_y: the label of each image, a place in `class_names`.
    class_names: the names of the classes.
    lists: the files that name the classes.
    """

    train: list[Path]
    train_y: list[int]
    test: list[Path]
    test_y: list[int]
    class_names: list[str]
    lists: list[Path]

    @property
    def files(self) -> list[Path]:
        """All files, for `contents_hash`."""
        return [*self.train, *self.test, *self.lists]


def list_clean(folder: Path) -> Clean:
    """List the clean images in the folder of the unpacked archive. A label is the place of a class
    among the sorted WordNet ids.

    Raises DataMissing if images or names of classes are missing.
    """
    names = {row[0]: row[1] for row in _rows(folder / "words.txt")}
    paths = sorted((folder / "train").glob("*/images/*.JPEG"))
    classes = sorted({path.parents[1].name for path in paths})
    # The validation images are in one folder, and val_annotations.txt names the class of each.
    annotations = _rows(folder / "val" / "val_annotations.txt")
    found = (len(paths), len(annotations), len(classes))
    if found != WHOLE:
        raise DataMissing(
            f"{folder} has {found[0]} training images, {found[1]} validation images and {found[2]} "
            f"classes; allowed are {WHOLE[0]}, {WHOLE[1]} and {WHOLE[2]}: remove it"
        )
    tests = [folder / "val" / "images" / fields[0] for fields in annotations]
    absent = [path for path in tests if not path.is_file()]
    if absent:
        raise DataMissing(f"{absent[0]} cannot be read (no such file); unpack its archive again")
    places = {wnid: place for place, wnid in enumerate(classes)}
    unknown = {fields[1] for fields in annotations} - set(places)
    if unknown or not places.keys() <= names.keys():
        raise DataMissing(
            f"{folder}: words.txt or val_annotations.txt names other classes than train/; unpack "
            "its archive again"
        )
    return Clean(
        paths,
        [places[path.parents[1].name] for path in paths],
        tests,
        [places[fields[1]] for fields in annotations],
        [names[wnid].split(",")[0] for wnid in classes],
        [folder / "words.txt", folder / "val" / "val_annotations.txt"],
    )


def _rows(path: Path) -> list[list[str]]:
    """Return the rows of a table whose columns are separated by tabs.

    Raises DataMissing if a row has one column alone.
    """
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    for number, row in enumerate(rows, 1):
        if len(row) < 2:
            raise DataMissing(
                f"{path}, line {number}: found {row[0]!r}; allowed are 2 columns or more, "
                "separated by tabs: unpack its archive again"
            )
    return rows


def _read_clean(listed: Clean) -> dict[str, np.ndarray]:
    """Decode all clean images."""
    return {
        "train_x": _decode(listed.train),
        "train_y": np.array(listed.train_y),
        "test_x": _decode(listed.test),
        "test_y": np.array(listed.test_y),
    }


def _images_of(place: Path) -> list[Path]:
    """Return the images of one domain of the -C archive, class by class."""
    return sorted(place.glob("*/*.JPEG"))


def _read_domain(
    folder: Path, whole: tuple[int, int], corruption: str, severity: int, count: int | None
) -> Split:
    """Return the first `count` images (None: all) of CORRUPTION/SEVERITY/WNID/*.JPEG, in a random
    order that is the same for all domains.

    whole: the numbers of images and of classes that there must be. A label is the place of a class
        among the classes found, so none may be missing.

    Raises DataMissing if these numbers differ, or if an image cannot be read.
    """
    place = folder / corruption / str(severity)
    paths = _images_of(place)
    classes = sorted({path.parent.name for path in paths})
    places = {wnid: label for label, wnid in enumerate(classes)}
    found = (len(paths), len(places))
    if found != whole:
        raise DataMissing(
            f"{place}: {found} images and classes, not {whole}; unpack its archive again"
        )
    order = torch.randperm(len(paths), generator=torch.Generator().manual_seed(0))[:count].tolist()
    x = _decode(paths[index] for index in order)
    return Split(
        torch.from_numpy(x), torch.tensor([places[paths[index].parent.name] for index in order])
    )


def _decode(paths: Iterable[str | Path]) -> np.ndarray:
    """Decode the images, uint8 (N, 3, H, W). Threads do this at the same time, since decoding
    releases Python's lock.

    Raises DataMissing if an image cannot be read.
    """

    def decode(path: str | Path) -> np.ndarray:
        try:
            with Image.open(path) as image:
                return np.asarray(image.convert("RGB"))  # grey images get three channels
        except OSError as error:
            raise DataMissing(
                f"{path} cannot be read ({error}); unpack its archive again"
            ) from None

    with ThreadPoolExecutor() as pool:
        return channels_first(np.stack(list(pool.map(decode, paths)))).numpy()
