"""Datasets by name, such as `load_dataset("cifar10", ImageOptions())`. A dataset is one file in
this folder.
"""

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pydantic_core import CoreSchema, core_schema

from cascadetta_lib.code import code_hash, value_hash
from cascadetta_lib.data.base import Dataset, Modality, Options
from cascadetta_lib.data.images import ImageDataset, ImageOptions
from cascadetta_lib.data.reviews import TextDataset, TextOptions
from cascadetta_lib.data.streams import Vocabulary
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
    real: False for made-up data, with which everything can be tried without a download.
    own: whether the folder holds the user's own data. Tables then use the folder's name.
    batch_size: the paper's batch size at test time.
    load: called as `load(folder, options)`; the folder is "" if the name has none.
    vocabulary: a function from the folder to the domains that a stream may name; None for the
        modality's domains.
    """

    modality: Modality
    folder: Folder
    real: bool
    own: bool
    batch_size: int
    load: Load
    vocabulary: Callable[[str], Vocabulary] | None = None


DATASETS: Registry[Entry] = Registry("dataset", __name__)


def dataset(
    name: str,
    modality: Modality,
    folder: Folder = "none",
    *,
    real: bool = True,
    own: bool = False,
    batch_size: int = 32,
    vocabulary: Callable[[str], Vocabulary] | None = None,
) -> Callable[[Load], Load]:
    """Register the decorated function as the loader of the dataset `name`; see `Entry` for the
    arguments.
    """

    def register(load: Load) -> Load:
        DATASETS.add(name)(Entry(modality, folder, real, own, batch_size, load, vocabulary))
        return load

    return register


def code_of_loader(kind: str) -> str:
    """Hash the code that reads the dataset registered as `kind`, and everything that it uses here.

    A loader of a notebook's cell counts by what it does, as a method of a cell does.
    """
    load = DATASETS[kind].load
    if hasattr(sys.modules[load.__module__], "__file__"):
        return code_hash([load.__module__])
    return value_hash(load, load.__module__)


@dataclass(frozen=True)
class DatasetName:
    """The name of a dataset, such as `cifar10` or `npz:/home/me/pets`.

    `parse` reads such a text, and `str` gives it back.

    kind: its name in DATASETS. folder: the text after the colon; None without a colon.
    """

    kind: str
    folder: str | None = None

    @classmethod
    def parse(cls, text: str) -> "DatasetName":
        """Read KIND or KIND:FOLDER. `check` tests whether the dataset exists."""
        kind, colon, folder = text.partition(":")
        return cls(kind, folder if colon else None)

    def __str__(self) -> str:
        return self.kind if self.folder is None else f"{self.kind}:{self.folder}"

    @property
    def entry(self) -> Entry:
        """The entry registered under this name. Raises ValueError if there is none."""
        return DATASETS[self.kind]

    @property
    def vocabulary(self) -> Vocabulary:
        """The domains that a stream may name. For some datasets this reads the names of folders."""
        if self.entry.vocabulary is not None:
            return self.entry.vocabulary(self.folder or "")
        return VOCABULARIES[self.entry.modality]

    @property
    def key(self) -> str:
        """The name under which results are kept: `cifar10`, or `npz:pets-1f3a5c`.

        The hash is of the whole path, because two folders may have the same name.
        """
        if self.folder is None:
            return self.kind
        path = Path(self.folder).expanduser().resolve()
        return f"{self.kind}:{path.name}-{hashlib.sha256(str(path).encode()).hexdigest()[:6]}"

    @property
    def title(self) -> str:
        """What tables and headings call it, without a path of this machine: `npz-pets`.

        The folder is left out if it holds known data, not the user's own.
        """
        if self.folder is not None and self.entry.own:
            return f"{self.kind}-{Path(self.folder).name}"
        return self.kind

    @property
    def file(self) -> str:
        """Its part of the name of an executed notebook: `npz-pets`, `cifar10_sample-official`."""
        if self.folder is None:
            return quote(self.kind, safe="")
        return quote(f"{self.kind}-{Path(self.folder).name}", safe="")

    def check(self, modality: Modality) -> None:
        """Raise ValueError unless it is a dataset of `modality`, and its folder, if any, fits."""
        known = [name for name in DATASETS if DATASETS[name].modality == modality]
        if self.kind not in known:
            raise ValueError(
                f"no {modality} dataset is named {self.kind!r}; {nearest(self.kind, known)}"
            )
        allowed = {
            "must": f"{self.kind}:FOLDER",
            "may": f"{self.kind} or {self.kind}:FOLDER",
            "none": self.kind,
        }
        wanted = self.entry.folder
        lacks = wanted == "must" and not self.folder
        has_one_too_many = wanted == "none" and self.folder is not None
        if lacks or has_one_too_many or self.folder == "":
            raise ValueError(f"{str(self)!r}: allowed is {allowed[wanted]}")
        try:
            self.key  # noqa: B018
        # An unknown ~user, a NUL character, a loop of links.
        except (RuntimeError, ValueError, OSError) as error:
            raise ValueError(
                f"{str(self)!r}: {self.folder!r} cannot be a folder ({error})"
            ) from None

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls.parse, core_schema.str_schema())


def load_dataset(name: str | DatasetName, options: Options) -> Dataset:
    """Load a dataset, such as `cifar10` or `npz:FOLDER`.

    Raises ValueError for a bad name and DataMissing for absent data.
    """
    asked = DatasetName.parse(name) if isinstance(name, str) else name
    asked.check(asked.entry.modality)
    return asked.entry.load(asked.folder or "", options)
