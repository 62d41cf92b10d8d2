"""Datasets by name: `load_dataset("cifar10", options)`. A dataset is one file in this folder."""

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict

from cascadetta_lib.data.base import Dataset
from cascadetta_lib.registry import Registry


class ImageOptions(BaseModel):
    """How an image dataset is cut and served; the names are those of the profile without `image_`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str = "data"
    device: str = "cpu"
    train_size: int | None = None
    test_size: int | None = None
    held_out_fraction: float = 0.1
    input_scaling: str = "symmetric"
    crop_and_flip: bool = False
    randomisation: str = "augmix_image"


Loader = Callable[[str, ImageOptions], Dataset]
DATASETS: Registry[Loader] = Registry("dataset", __name__)
"""Name to loader(argument, options); `argument` is what follows the colon of `npz:FOLDER`, else empty."""


def check_name(name: str) -> None:
    """ValueError if no dataset has that name, or if it lacks the argument that it needs; loads no data."""
    kind, _, argument = name.partition(":")
    DATASETS[kind]
    if (kind == "npz") != bool(argument):
        raise ValueError(f"{name!r}: npz takes a folder (npz:FOLDER), and no other dataset takes one")


def load_dataset(name: str, options: ImageOptions) -> Dataset:
    """The dataset `name`, or `KIND:ARGUMENT`. Raises ValueError for a bad name and DataMissing for absent data."""
    check_name(name)
    kind, _, argument = name.partition(":")
    return DATASETS[kind](argument, options)
