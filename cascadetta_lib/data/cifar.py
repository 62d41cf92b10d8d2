"""CIFAR-10 and CIFAR-100 with their -C archives: 50,000 training and 10,000 test images, 32×32 pixels."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from cascadetta_lib.data import ImageOptions, dataset
from cascadetta_lib.data.archives import corruptions_archive, ensure_archive
from cascadetta_lib.data.base import DataMissing, Split
from cascadetta_lib.data.corruptions import SEVERITIES
from cascadetta_lib.data.image import ImageDataset, channels_first, domain_source, make_image_dataset


@dataclass(frozen=True)
class CifarC:
    """CIFAR-10-C or CIFAR-100-C: one array for each corruption, its severities one after the other."""

    name: str
    folder: Path

    def read(self, corruption: str, severity: int, count: int | None) -> Split:
        labels = self._rows("labels", severity, count).astype(np.int64)
        return Split(channels_first(self._rows(corruption, severity, count)), torch.from_numpy(labels))

    def _rows(self, stem: str, severity: int, count: int | None) -> np.ndarray:
        array = np.load(self.folder / f"{stem}.npy", mmap_mode="r", allow_pickle=False)
        size = len(array) // len(SEVERITIES)
        return array[(severity - 1) * size : severity * size][:count]


@dataset("cifar10", "image")
def load_cifar10(argument: str, options: ImageOptions) -> ImageDataset:
    return _load("cifar10", "CIFAR-10", options)


@dataset("cifar100", "image")
def load_cifar100(argument: str, options: ImageOptions) -> ImageDataset:
    return _load("cifar100", "CIFAR-100", options)


def _load(name: str, title: str, options: ImageOptions) -> ImageDataset:
    """Raises DataMissing if the clean images are missing; without the -C archive it warns and generates."""
    from torchvision.datasets import CIFAR10, CIFAR100  # seconds, and asking for a dataset's name imports this module

    reader = {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]
    unpacked = ensure_archive(title, options.folder)
    try:
        parts = [reader(root=unpacked.parent, train=train, download=False) for train in (True, False)]
    except RuntimeError:  # torchvision has checked the hash of each file
        message = f"{title}: a file in {unpacked} is missing or altered; remove that folder and run again"
        raise DataMissing(message) from None
    train, test = (Split(channels_first(part.data), torch.tensor(part.targets)) for part in parts)
    corrupted = corruptions_archive(f"{title}-C", options.folder)
    archive = None if corrupted is None else CifarC(f"{title}-C", corrupted)
    return make_image_dataset(
        name=name,
        source=f"{title}, {domain_source(archive)}",
        compare_with=f"{title}-C",
        class_names=tuple(parts[0].classes),
        train=train,
        test=test,
        options=options,
        archive=archive,
    )
