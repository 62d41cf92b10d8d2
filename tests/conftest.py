"""What several tests share: a tiny image dataset of made-up pictures, and the folder of real data."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cascadetta_lib.data import ImageOptions
from cascadetta_lib.data.base import Split
from cascadetta_lib.data.image import ImageDataset, make_image_dataset

CLASSES = 4


def blobs(count: int, seed: int) -> Split:
    """Pictures whose class shows: a bright quarter on noise. uint8 (N, 3, 32, 32), labels 0..3."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % CLASSES
    x = torch.randint(0, 100, (count, 3, 32, 32), generator=generator)
    for index, label in enumerate(y.tolist()):
        row, column = divmod(label, 2)
        x[index, :, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16] += 120
    return Split(x.to(torch.uint8), y)


def make_blobs(folder: Path, **options: object) -> ImageDataset:
    return make_image_dataset(
        name="blobs",
        source="made up by the tests",
        compare_with="CIFAR-10-C",
        class_names=tuple("abcd"),
        train=blobs(80, 0),
        test=blobs(22, 1),
        options=ImageOptions(folder=str(folder), **options),  # type: ignore[arg-type]
    )


@pytest.fixture
def dataset(tmp_path: Path) -> ImageDataset:
    return make_blobs(tmp_path, held_out_fraction=0.2)


@pytest.fixture
def images(dataset: ImageDataset) -> Tensor:
    """Eight prepared images, (8, 3, 32, 32)."""
    return dataset.prepare(dataset.test.x[:8])


@pytest.fixture(scope="session")
def real_cifar10() -> Path:
    """The folder of the JPEG copies of CIFAR-10; the test is skipped where they are not unpacked."""
    folder = Path(os.environ.get("CASCADETTA_DATA", "~/.cache/cascadetta-real")).expanduser() / "cifar10-jpeg"
    if not (folder / "train.npz").is_file():
        pytest.skip(f"no real images in {folder}; unpack ../shared/data and set CASCADETTA_DATA")
    return folder
