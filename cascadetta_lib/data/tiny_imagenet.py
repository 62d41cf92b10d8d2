"""Tiny-ImageNet with Tiny-ImageNet-C: 200 classes, 100,000 training and 10,000 validation images of
64×64 pixels.

As in the paper, the validation images serve as test images, and the network is a ResNet-34 on
224×224 pixels. The clean images are decoded once, and the arrays (1.3 GB) are kept beside them;
those of a -C domain are decoded when it is read.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from cascadetta_lib.data import dataset
from cascadetta_lib.data.base import DataMissing, Split, kept_arrays, mixed
from cascadetta_lib.data.corruptions import CORRUPTIONS, SEVERITIES
from cascadetta_lib.data.fetch import fetch
from cascadetta_lib.data.images import (
    ImageDataset,
    ImageOptions,
    channels_first,
    fetch_corruptions,
    make_image_dataset,
)

URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
HASH = "md5:90528d7ca1a48142e341f4ef8d21d0de"
CONTENTS = ("words.txt", "train", "val/val_annotations.txt")
WHOLE = (100_000, 10_000, 200)  # training images, validation images, classes
CORRUPTED_URLS = [
    f"https://zenodo.org/record/{record}/files/Tiny-ImageNet-C.tar" for record in (8206060, 2536630)
]
CORRUPTED_HASH = "md5:f9c9a9dbdc11469f0b850190f7ad8be1"


@dataset("tiny_imagenet", "image", batch_size=64)
def load_tiny_imagenet(argument: str, options: ImageOptions) -> ImageDataset:
    """DataMissing if the clean images are missing; without the -C archive it warns and
    generates."""
    folder = Path(options.folder).expanduser()
    clean = kept_arrays(folder / "tiny-imagenet-200.npz", lambda: _read_clean(options.folder))
    contents = [f"{corruption}/{severity}" for corruption in CORRUPTIONS for severity in SEVERITIES]
    corrupted = fetch_corruptions(
        "Tiny-ImageNet-C", CORRUPTED_URLS, folder, CORRUPTED_HASH, "1.8 GB", contents
    )
    whole = (len(clean["test_x"]), len(clean["class_names"]))
    if corrupted:
        for (
            corruption
        ) in CORRUPTIONS:  # An incomplete one would else be noticed after hours of training.
            _read_domain(corrupted, whole, corruption, severity=SEVERITIES[-1], count=1)
    return make_image_dataset(
        name="tiny_imagenet",
        source="Tiny-ImageNet",
        compare_with="Tiny-ImageNet-C",
        class_names=tuple(clean["class_names"].tolist()),
        train=mixed(Split(torch.from_numpy(clean["train_x"]), torch.from_numpy(clean["train_y"]))),
        test=Split(torch.from_numpy(clean["test_x"]), torch.from_numpy(clean["test_y"])),
        options=options,
        archive=corrupted and partial(_read_domain, corrupted, whole),
        architecture="resnet34",
        input_size=224,
    )


def _read_clean(data_folder: str) -> dict[str, np.ndarray]:
    """All arrays of the archive. A label is the place of a class in the sorted WordNet ids. Raises
    DataMissing.
    """
    folder = fetch(
        "Tiny-ImageNet", [URL], data_folder, HASH, "248 MB", "tiny-imagenet-200", CONTENTS
    )
    words = dict(line.split("\t") for line in (folder / "words.txt").read_text().splitlines())
    paths = sorted((folder / "train").glob("*/images/*.JPEG"))
    classes = sorted({path.parents[1].name for path in paths})
    # The validation images lie in one folder, and a file names the class of each.
    annotations = [
        line.split("\t")
        for line in (folder / "val" / "val_annotations.txt").read_text().splitlines()
    ]
    if (found := (len(paths), len(annotations), len(classes))) != WHOLE:
        raise DataMissing(
            f"{folder} has {found} training images, validation images, classes, not {WHOLE}; "
            "remove it"
        )
    return {
        "train_x": _decode(paths),
        "train_y": np.array([classes.index(path.parents[1].name) for path in paths]),
        "test_x": _decode(folder / "val" / "images" / fields[0] for fields in annotations),
        "test_y": np.array([classes.index(fields[1]) for fields in annotations]),
        "class_names": np.array([words[wnid].split(",")[0] for wnid in classes]),
    }


def _read_domain(
    folder: Path, whole: tuple[int, int], corruption: str, severity: int, count: int | None
) -> Split:
    """The first `count` images of CORRUPTION/SEVERITY/WNID/*.JPEG, in one order, drawn once, for
    all domains. whole: how many images of how many classes there must be, since a label is the
    place of a class among them."""
    paths = sorted((place := folder / corruption / str(severity)).glob("*/*.JPEG"))
    places = {
        wnid: place for place, wnid in enumerate(sorted({path.parent.name for path in paths}))
    }
    if (found := (len(paths), len(places))) != whole:
        raise DataMissing(
            f"{place}: {found} images and classes, not {whole}; unpack its archive again"
        )
    order = torch.randperm(len(paths), generator=torch.Generator().manual_seed(0))[:count].tolist()
    x = _decode(paths[index] for index in order)
    return Split(
        torch.from_numpy(x), torch.tensor([places[paths[index].parent.name] for index in order])
    )


def _decode(paths: Iterable[str | Path]) -> np.ndarray:
    """The images as uint8 (N, 3, H, W). Several threads read them, since decoding releases Python's
    lock.
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
