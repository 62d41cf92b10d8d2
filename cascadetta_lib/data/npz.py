"""Your own images: `npz:FOLDER`, with FOLDER/train.npz and FOLDER/test.npz.

Each file holds images x, uint8 (N, H, H, 3), and labels y, int64 (N,). H is 32 or 64, the same in
both files. Labels are 0..C−1, and each must occur in train.npz. `numpy.savez("train.npz", x=images,
y=labels)` writes such a file.

FOLDER/source.txt is optional. Its first line says where the images are from. This line is printed
beside the numbers, with how many test images are training images too.
"""

from pathlib import Path

import numpy as np
import torch

from cascadetta_lib.data import DatasetName, dataset
from cascadetta_lib.data.base import DataMissing, Split, mixed, repeats
from cascadetta_lib.data.images import (
    ImageDataset,
    ImageOptions,
    channels_first,
    make_image_dataset,
)
from cascadetta_lib.files import read_arrays

PAPER_DATASETS = {(10, 32): "CIFAR-10-C", (100, 32): "CIFAR-100-C", (200, 64): "Tiny-ImageNet-C"}
"""The dataset of the paper that is most like the user's, by (number of classes, side of the images
in pixels).
"""


@dataset("npz", "image", folder="must", own=True)
def load_npz(argument: str, options: ImageOptions) -> ImageDataset:
    """Load the images in the folder `argument`.

    Raises DataMissing if a file is missing, and ValueError if a file is not as described above.
    """
    folder = Path(argument).expanduser()
    train_path = folder / "train.npz"
    test_path = folder / "test.npz"
    train = read_images(train_path)
    test = read_images(test_path)
    size = train.x.shape[-1]
    used = train.y.unique()
    classes = len(used)
    _check(train_path, classes > 1, "1 class", "at least 2")
    _check(
        train_path,
        used[-1] == classes - 1,
        f"{classes} labels, the largest {used[-1]}",
        "0..C−1, each one in use",
    )
    _check(
        test_path,
        test.x.shape[-1] == size,
        f"images of {test.x.shape[-1]} pixels",
        f"{size}, as in train.npz",
    )
    _check(
        test_path,
        test.y.max() < classes,
        f"label {test.y.max()}",
        f"the labels of train.npz, 0..{classes - 1}",
    )
    said = folder / "source.txt"
    source = (
        said.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
        if said.is_file()
        else ""
    )
    source = source or f"the user's images in {folder.resolve().name}"
    source += repeats([*map(bytes, train.x.numpy())], [*map(bytes, test.x.numpy())], "images")
    return make_image_dataset(
        name=DatasetName("npz", argument).key,
        source=source,
        compare_with=PAPER_DATASETS.get((classes, size)),
        class_names=tuple(map(str, range(classes))),
        train=mixed(train),
        test=mixed(test),
        options=options,
    )


def read_images(path: Path) -> Split:
    """Read one file, as x, uint8 (N, 3, H, H), and y, int64 (N,).

    Raises DataMissing if there is no such file. Raises ValueError if an array is missing or has
    another dtype or shape, if no level is above 1, or if a label is negative.
    """
    if not path.is_file():
        raise DataMissing(
            f"there is no {path}; numpy.savez writes it: x, uint8 (N, H, H, 3), and y, int64 (N,)"
        )
    arrays = read_arrays(path)
    for key, dtype in (("x", "uint8"), ("y", "int64")):
        _check(path, key in arrays, f"no array {key}", "arrays x and y")
        _check(path, arrays[key].dtype == dtype, f"{key} of dtype {arrays[key].dtype}", dtype)
    x = arrays["x"]
    y = arrays["y"]
    fits = x.ndim == 4 and x.shape[1:] in {(32, 32, 3), (64, 64, 3)}
    _check(
        path, fits, f"x of shape {x.shape}", "(N, 32, 32, 3) and (N, 64, 64, 3), the channels last"
    )
    _check(
        path,
        y.shape == (len(x),),
        f"y of shape {y.shape} for {len(x)} images",
        f"({len(x)},), one label per image",
    )
    _check(path, len(x) > 0, "no images", "at least 1")
    _check(path, x.max() > 1, f"no level above {x.max()}", "levels of 0…255")
    _check(path, y.min() >= 0, f"label {y.min()}", "0..C−1")
    return Split(channels_first(x), torch.from_numpy(y))


def _check(path: Path, holds: bool | np.bool_ | torch.Tensor, found: str, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{path}: found {found}; allowed is {allowed}")
