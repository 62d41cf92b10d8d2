"""Tiny-ImageNet with Tiny-ImageNet-C: 200 classes, 100,000 training and 10,000 validation images, 64×64 pixels.

The JPEG files are read once; the arrays are kept beside them (1.3 GB of clean images, 0.1 GB for each whole domain).
As in the paper, the validation images are the test images, and the network is a ResNet-34 on 224×224 pixels.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from cascadetta_lib.data import ImageOptions, dataset
from cascadetta_lib.data.archives import corruptions_archive, ensure_archive
from cascadetta_lib.data.base import DataMissing, Split, mixed, write_atomically
from cascadetta_lib.data.image import ImageDataset, domain_source, make_image_dataset


@dataclass(frozen=True)
class TinyImageNetC:
    """Tiny-ImageNet-C: CORRUPTION/SEVERITY/WNID/*.JPEG. classes: the WordNet ids in the order of the labels."""

    folder: Path
    classes: tuple[str, ...]
    name: str = "Tiny-ImageNet-C"

    def read(self, corruption: str, severity: int, count: int | None) -> Split:
        path = self.folder.parent / "Tiny-ImageNet-C-arrays" / f"{corruption}-{severity}-{count or 'all'}.npz"
        if not path.is_file():
            images, labels = self._read_files(corruption, severity, count)
            write_atomically(path, lambda file: np.savez(file, x=images, y=labels))
        with np.load(path, allow_pickle=False) as arrays:
            return Split(torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"]))

    def _read_files(self, corruption: str, severity: int, count: int | None) -> tuple[np.ndarray, np.ndarray]:
        paths = sorted((self.folder / corruption / str(severity)).glob("*/*.JPEG"))
        # The files lie class by class. One order for all domains, drawn once, makes of the first `count` a fair sample.
        order = torch.randperm(len(paths), generator=torch.Generator().manual_seed(0))[:count]
        chosen = [paths[index] for index in order]
        return _read_images(chosen, self.folder), _labels([path.parent.name for path in chosen], self.classes)


@dataset("tiny_imagenet", "image", batch_size=64)
def load_tiny_imagenet(argument: str, options: ImageOptions) -> ImageDataset:
    """Raises DataMissing if the clean images are missing; without the -C archive it warns and generates."""
    kept = Path(options.folder).expanduser() / "tiny-imagenet-200.npz"
    if not kept.is_file():
        arrays = _read_clean(ensure_archive("Tiny-ImageNet", options.folder))
        write_atomically(kept, lambda file: np.savez(file, **arrays))
    with np.load(kept, allow_pickle=False) as stored:
        train, test = (
            Split(torch.from_numpy(stored[f"{part}_x"]), torch.from_numpy(stored[f"{part}_y"]))
            for part in ("train", "test")
        )
        classes, class_names = (tuple(stored[key].tolist()) for key in ("classes", "class_names"))
    corrupted = corruptions_archive("Tiny-ImageNet-C", options.folder)
    archive = None if corrupted is None else TinyImageNetC(corrupted, classes)
    return make_image_dataset(
        name="tiny_imagenet",
        source=f"Tiny-ImageNet, {domain_source(archive)}",
        compare_with="Tiny-ImageNet-C",
        class_names=class_names,
        train=mixed(train),  # read class by class
        test=test,
        options=options,
        archive=archive,
        architecture="resnet34",
        input_size=224,
    )


def _read_clean(folder: Path) -> dict[str, Any]:
    """All arrays of the unpacked archive. Labels are places in the sorted WordNet ids (torchvision's ImageFolder)."""
    classes = sorted((folder / "wnids.txt").read_text().split())
    words = dict(line.split("\t") for line in (folder / "words.txt").read_text().splitlines())
    train = [path for wnid in classes for path in sorted((folder / "train" / wnid / "images").glob("*.JPEG"))]
    annotations = [line.split("\t") for line in (folder / "val" / "val_annotations.txt").read_text().splitlines()]
    return {
        "train_x": _read_images(train, folder),
        "train_y": _labels([path.parents[1].name for path in train], classes),
        "test_x": _read_images([folder / "val" / "images" / fields[0] for fields in annotations], folder),
        "test_y": _labels([fields[1] for fields in annotations], classes),
        "classes": np.array(classes),
        "class_names": np.array([words[wnid].split(",")[0] for wnid in classes]),
    }


def _labels(wnids: Sequence[str], classes: Sequence[str]) -> np.ndarray:
    """int64 (N,): the place of each WordNet id in `classes`."""
    place = {wnid: index for index, wnid in enumerate(classes)}
    return np.array([place[wnid] for wnid in wnids], dtype=np.int64)


def _read_images(paths: Sequence[Path], folder: Path) -> np.ndarray:
    """The images as uint8 (N, 3, H, W), read by several threads: decoding does not hold Python's lock."""
    if not paths:
        raise DataMissing(f"{folder} holds no .JPEG files where they are expected; remove it and run again")
    with ThreadPoolExecutor() as pool:
        return np.stack(list(pool.map(_read_image, paths)))


def _read_image(path: Path) -> np.ndarray:
    """uint8 (3, H, W); grey images get three channels."""
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    except OSError as error:
        raise DataMissing(f"{path} cannot be read ({error}); unpack its archive again") from None
