"""Datasets by name: `load_dataset("cifar10", options)`. A dataset is one file in this folder."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from cascadetta_lib.data.base import Dataset, Modality
from cascadetta_lib.registry import Registry, nearest


class Options(BaseModel):
    """How a dataset is cut and served; the names are those of the profile without `image_`, `text_` or `speech_`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str = "data"
    device: str = "cpu"
    train_size: int | None = None
    test_size: int | None = None
    held_out_fraction: float = 0.1


class ImageOptions(Options):
    input_scaling: str = "symmetric"
    crop_and_flip: bool = False
    randomisation: str = "augmix_image"
    augmix_severity: float = 3.0


class TextOptions(Options):
    synthetic_shift: float = 0.5
    features: Literal["auto", "msda", "counts"] = "auto"
    vocabulary_size: int = 5000
    msda_layers: int = 1
    msda_probability: float = 0.5
    msda_solver: Literal["cholesky", "conjugate_gradient"] = "cholesky"
    msda_output: Literal["last", "all"] = "last"
    eda_strength: float = 0.05
    eda_copies: int = 8


class SpeechOptions(Options):
    augmentation_probability: float = 0.5


OPTIONS: dict[Modality, type[Options]] = {"image": ImageOptions, "text": TextOptions, "speech": SpeechOptions}
SERVING = {"folder", "device", "test_size"}
"""The options that do not change what a network is trained on."""

Loader = Callable[[str, Any], Dataset]
LoaderType = TypeVar("LoaderType", bound=Loader)


@dataclass(frozen=True)
class Entry:
    """A dataset that can be named. `load(argument, options)`; `argument` is what follows the colon of `npz:FOLDER`,
    else empty. folder: whether the name must, may or must not have one. real: false for what only stands in for real
    data, so that the machinery can be tried. batch_size: the paper's at test time."""

    modality: Modality
    folder: Literal["must", "may", "none"]
    real: bool
    batch_size: int
    load: Loader


DATASETS: Registry[Entry] = Registry("dataset", __name__)


def dataset(
    name: str,
    modality: Modality,
    folder: Literal["must", "may", "none"] = "none",
    *,
    real: bool = True,
    batch_size: int = 32,
) -> Callable[[LoaderType], LoaderType]:
    """Decorator of a loader: it serves the datasets called `name`."""

    def register(load: LoaderType) -> LoaderType:
        DATASETS.add(name)(Entry(modality, folder, real, batch_size, load))
        return load

    return register


def is_real(name: str) -> bool:
    """Whether the dataset of that name, `npz:FOLDER` say, is more than a stand-in."""
    return DATASETS[name.partition(":")[0]].real


def paper_batch_size(name: str) -> int:
    """The paper's batch size at test time on the dataset of that name: what a null in a profile stands for."""
    return DATASETS[name.partition(":")[0]].batch_size


def check_name(name: str, modality: Modality) -> None:
    """ValueError if `modality` has no dataset of that name, or if it lacks the folder that it needs; loads no data."""
    kind, colon, folder = name.partition(":")
    known = [entry for entry in DATASETS if DATASETS[entry].modality == modality]
    if kind not in known:
        raise ValueError(f"no {modality} dataset is named {kind!r}; {nearest(kind, known)}")
    wanted = DATASETS[kind].folder
    if (wanted == "must" and not folder) or (wanted == "none" and colon) or (colon and not folder):
        allowed = {"must": f"{kind}:FOLDER", "may": f"{kind} or {kind}:FOLDER", "none": kind}[wanted]
        raise ValueError(f"{name!r}: allowed is {allowed}")


def load_dataset(name: str, options: Options) -> Dataset:
    """The dataset `name`, or `KIND:FOLDER`. Raises ValueError for a bad name and DataMissing for absent data."""
    kind, _, folder = name.partition(":")
    check_name(name, DATASETS[kind].modality)
    return DATASETS[kind].load(folder, options)
