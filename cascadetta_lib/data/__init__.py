"""Datasets by name, such as `load_dataset("cifar10", ImageOptions())`. A dataset is one file in
this folder.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cascadetta_lib.data.base import Dataset, Modality, Options
from cascadetta_lib.data.images import ImageDataset, ImageOptions
from cascadetta_lib.data.reviews import TextDataset, TextOptions
from cascadetta_lib.data.utterances import SpeechDataset, SpeechOptions
from cascadetta_lib.registry import Registry, nearest

OPTIONS: dict[Modality, type[Options]] = {
    "image": ImageOptions,
    "text": TextOptions,
    "speech": SpeechOptions,
}
VOCABULARIES = {
    kind.modality: kind.vocabulary for kind in (ImageDataset, TextDataset, SpeechDataset)
}
Folder = Literal["must", "may", "none"]
Load = Callable[[str, Any], Dataset]


@dataclass(frozen=True)
class Entry:
    """A dataset that can be named.

    folder: whether a folder must, may or must not follow its name, as in `npz:FOLDER`.
    real: False where it takes the place of real data, so that all can be tried without a download.
    batch_size: the paper's, at test time.
    load: called as `load(folder, options)`; the folder is "" where the name has none.
    """

    modality: Modality
    folder: Folder
    real: bool
    batch_size: int
    load: Load


DATASETS: Registry[Entry] = Registry("dataset", __name__)


def dataset(
    name: str,
    modality: Modality,
    folder: Folder = "none",
    *,
    real: bool = True,
    batch_size: int = 32,
) -> Callable[[Load], Load]:
    """Register the decorated function as the loader of the dataset `name`; see `Entry` for the
    arguments.
    """

    def register(load: Load) -> Load:
        DATASETS.add(name)(Entry(modality, folder, real, batch_size, load))
        return load

    return register


def entry(name: str) -> Entry:
    """That of a dataset by its name, such as `npz:FOLDER`."""
    return DATASETS[name.partition(":")[0]]


def identity(name: str) -> str:
    """Return the name under which results are kept: `cifar10`, or `npz:pets-1f3a5c` for
    `npz:/home/me/pets`.

    The hash is of the whole path, so that two folders of one name are told apart.
    """
    kind, colon, folder = name.partition(":")
    if not colon:
        return name
    path = Path(folder).expanduser().resolve()
    return f"{kind}:{path.name}-{hashlib.sha256(str(path).encode()).hexdigest()[:6]}"


def check_name(name: str, modality: Modality) -> None:
    """Raise ValueError unless `name` is a dataset of `modality`, and its folder, if any, fits."""
    kind, colon, folder = name.partition(":")
    known = [entry for entry in DATASETS if DATASETS[entry].modality == modality]
    if kind not in known:
        raise ValueError(f"no {modality} dataset is named {kind!r}; {nearest(kind, known)}")
    wanted = DATASETS[kind].folder
    if (wanted == "must" and not folder) or (wanted == "none" and colon) or (colon and not folder):
        allowed = {"must": f"{kind}:FOLDER", "may": f"{kind} or {kind}:FOLDER", "none": kind}[
            wanted
        ]
        raise ValueError(f"{name!r}: allowed is {allowed}")
    try:
        identity(name)
    except (
        RuntimeError,
        ValueError,
        OSError,
    ) as error:  # an unknown ~user, a NUL character, a loop of links
        raise ValueError(f"{name!r}: {folder!r} cannot be a folder ({error})") from None


def load_dataset(name: str, options: Options) -> Dataset:
    """The dataset `name`, or `KIND:FOLDER`. Raises ValueError for a bad name and DataMissing for
    absent data.
    """
    kind, _, folder = name.partition(":")
    check_name(name, DATASETS[kind].modality)
    return DATASETS[kind].load(folder, options)
