"""Your own images: `npz:FOLDER`, with FOLDER/train.npz and FOLDER/test.npz.

Each holds x, uint8 (N, H, H, 3) with H 32 or 64, and y, int64 (N,), labels 0..C−1 of which train.npz has every one.
`numpy.savez("train.npz", x=images, y=labels)` writes such a file. The first line of FOLDER/source.txt, if it is there,
says where the images are from; it is printed beside the numbers.
"""

import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch

from cascadetta_lib.data import ImageOptions, dataset
from cascadetta_lib.data.base import DataMissing, Split, mixed
from cascadetta_lib.data.image import ImageDataset, channels_first, make_image_dataset

SIZES = (32, 64)
UNREADABLE = (ValueError, OSError, EOFError, TypeError, AttributeError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What `numpy.load` raises for the many kinds of file that are no archive of plain arrays."""
PAPER_DATASETS = {(10, 32): "CIFAR-10-C", (100, 32): "CIFAR-100-C", (200, 64): "Tiny-ImageNet-C"}
"""(classes, size in pixels) to the dataset of the paper that is most like it."""


@dataset("npz", "image", folder="must")
def load_npz(argument: str, options: ImageOptions) -> ImageDataset:
    """The images in the folder `argument`. DataMissing if a file is missing, ValueError if one is not as it must be."""
    folder = Path(argument).expanduser()
    train_path, test_path = folder / "train.npz", folder / "test.npz"
    for path in (train_path, test_path):
        if not path.is_file():
            raise DataMissing(f"npz:{argument}: there is no {path}; the folder must hold train.npz and test.npz")
    (train_x, train_y), (test_x, test_y) = _read(train_path), _read(test_path)
    used = np.unique(train_y)
    size, classes = train_x.shape[1], len(used)
    if len(train_x) < 2:
        raise _fault(train_path, "x holds 1 image", "at least 2, so that one can be held out")
    if test_x.shape[1] != size:
        raise _fault(test_path, f"images of {test_x.shape[1]} pixels", f"the size of the training images, {size}")
    if used[-1] != classes - 1:
        raise _fault(train_path, f"{classes} labels in use, the largest {used[-1]}", "0..C−1, every one of them in use")
    if classes < 2:
        raise _fault(train_path, "1 class", "at least 2")
    if test_y.max() >= classes:
        raise _fault(test_path, f"label {test_y.max()}", f"the labels of train.npz, 0..{classes - 1}")
    name = folder.resolve().name
    return make_image_dataset(
        name=f"npz:{name}",
        source=_source(folder) or f"the user's images in {name}",
        compare_with=PAPER_DATASETS.get((classes, size)),
        class_names=tuple(map(str, range(classes))),
        train=mixed(Split(channels_first(train_x), torch.from_numpy(train_y))),
        test=mixed(Split(channels_first(test_x), torch.from_numpy(test_y))),
        options=options,
    )


def _fault(path: Path, found: str, allowed: str) -> ValueError:
    return ValueError(f"{path}: found {found}; allowed is {allowed}")


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """x (N, H, H, 3) and y (N,) of one file, checked as far as that file alone allows."""
    try:
        # Unpickling a stranger's file would run their code.
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: np.asarray(file[key]) for key in ("x", "y") if key in file}
    except UNREADABLE as error:
        found = f"a file that cannot be read ({error})"
        raise _fault(path, found, "a .npz file of plain arrays, no pickled objects") from None
    for key, dtype in (("x", np.uint8), ("y", np.int64)):
        if key not in arrays:
            raise _fault(path, f"no array {key}", "arrays x and y")
        if arrays[key].dtype != dtype:
            raise _fault(path, f"{key} of dtype {arrays[key].dtype}", np.dtype(dtype).name)
    x, y = arrays["x"], arrays["y"]
    if x.ndim != 4 or x.shape[3] != 3:
        raise _fault(path, f"x of shape {x.shape}", "(N, H, H, 3), the channels last")
    if x.shape[1] != x.shape[2] or x.shape[1] not in SIZES:
        raise _fault(path, f"images of {x.shape[1]}×{x.shape[2]} pixels", "32×32 and 64×64")
    if y.shape != (len(x),):
        raise _fault(path, f"y of shape {y.shape} for {len(x)} images", f"({len(x)},), a label for each image")
    if not len(x):
        raise _fault(path, "no images", "at least 1")
    if y.min() < 0:
        raise _fault(path, f"label {y.min()}", "0..C−1")
    return x, y


def _source(folder: Path) -> str:
    """The first line of FOLDER/source.txt, or nothing."""
    path = folder / "source.txt"
    return path.read_text(encoding="utf-8").partition("\n")[0].strip() if path.is_file() else ""
