"""Load datasets by name: `load_dataset("cifar10", ImageOptions())`. Each dataset is registered by a
file in this folder.
"""

import hashlib
import os
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


@dataclass(frozen=True, repr=False)
class Entry:
    """What is registered under the name of a dataset.

    folder: "must": a folder or file follows the name, as in `npz:FOLDER`. "may": it can be left
        out. "none": the name stands alone.
    real: False for data that come with a package or are made up. With these, everything can be
        tried without a download. No number of the paper stands beside their results.
    own: whether the folder holds the user's own data. If so, tables show the folder's name, and no
        number of the paper stands beside the results.
    batch_size: the batch size at test time if the profile names none. For the paper's datasets it
        is the paper's.
    load: called as `load(folder, options)`. The folder is "" if the name has none, so a loader of a
        dataset with `folder="none"` ignores it.
    vocabulary: maps the folder to the domains that a stream may name; None: the modality's domains.
    """

    modality: Modality
    folder: Folder
    real: bool
    own: bool
    batch_size: int
    load: Load
    vocabulary: Callable[[str], Vocabulary] | None = None

    def __repr__(self) -> str:
        """Return a text that stays the same when a notebook's cell registers the loader again."""
        return f"dataset loaded by {self.load.__module__}.{self.load.__qualname__}"


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
    """Hash the code of the loader that is registered as `kind`, and the code that it uses.

    The code is the loader's module and what it imports (`code_hash`). A loader that is defined in a
    notebook's cell has no file; it is hashed by its contents (`value_hash`).
    """
    load = DATASETS[kind].load
    if hasattr(sys.modules[load.__module__], "__file__"):
        return code_hash([load.__module__])
    return value_hash(load, load.__module__)


@dataclass(frozen=True)
class DatasetName:
    """The name of a dataset, such as `cifar10` or `npz:/home/me/pets`.

    `parse` makes a DatasetName of such a text, and `str` gives the text back.

    kind: the name in DATASETS, which comes before the colon.
    folder: the text after the colon; None if there is no colon.
    """

    kind: str
    folder: str | None = None

    @classmethod
    def parse(cls, text: str) -> "DatasetName":
        """Read KIND or KIND:FOLDER. Whether the dataset exists is left to `check`."""
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
        """The domains that a stream may name. For some datasets this reads names of folders, or a
        file.
        """
        if self.entry.vocabulary is not None:
            return self.entry.vocabulary(self.folder or "")
        return VOCABULARIES[self.entry.modality]

    @property
    def key(self) -> str:
        """The name under which results are kept: `cifar10`, or `npz:pets-1f3a5c`.

        The last six digits are a hash of the whole path, because two folders may have the same
        name.
        """
        if self.folder is None:
            return self.kind
        path = Path(self.folder).expanduser().resolve()
        return f"{self.kind}:{path.name}-{hashlib.sha256(str(path).encode()).hexdigest()[:6]}"

    @property
    def title(self) -> str:
        """The name in tables and headings, without a path of this machine: `npz-pets`.

        The folder's name is part of it only if the folder holds the user's own data.
        """
        if self.folder is not None and self.entry.own:
            return f"{self.kind}-{self._last_part}"
        return self.kind

    @property
    def file(self) -> str:
        """The part of an executed notebook's file name that names the dataset: `npz-pets`,
        `cifar10_sample-official`.
        """
        if self.folder is None:
            return quote(self.kind, safe="")
        return quote(f"{self.kind}-{self._last_part}", safe="")

    @property
    def _last_part(self) -> str:
        """The name of the folder or file, also if the path ends in `.` or `..`. Links are not
        followed.
        """
        return Path(os.path.abspath(Path(self.folder or "").expanduser())).name

    def check(self, modality: Modality) -> None:
        """Raise ValueError if there is no dataset of this name and `modality`, or if its folder is
        missing from the name, not allowed, or not possible as a path.
        """
        known = [name for name in DATASETS if DATASETS[name].modality == modality]
        if self.kind not in known:
            raise ValueError(
                f"no {modality} dataset is named {self.kind!r}; {nearest(self.kind, known)}"
            )
        allowed = {
            "must": f"{self.kind}:PATH",
            "may": f"{self.kind} or {self.kind}:PATH",
            "none": self.kind,
        }
        wanted = self.entry.folder
        lacks = wanted == "must" and not self.folder
        has_one_too_many = wanted == "none" and self.folder is not None
        if lacks or has_one_too_many or self.folder == "":
            raise ValueError(f"{str(self)!r}: allowed is {allowed[wanted]}")
        try:
            self.key  # noqa: B018
        # Raised for an unknown ~user, a NUL character, or a loop of links.
        except (RuntimeError, ValueError, OSError) as error:
            raise ValueError(f"{str(self)!r}: {self.folder!r} cannot be a path ({error})") from None

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls.parse, core_schema.str_schema())


def load_dataset(name: str | DatasetName, options: Options) -> Dataset:
    """Load a dataset, such as `cifar10` or `npz:FOLDER`.

    options: those of the dataset's modality, such as `ImageOptions` for images.

    Raises ValueError for a bad name, options of another modality or unusable data, and DataMissing
    for absent data.
    """
    asked = DatasetName.parse(name) if isinstance(name, str) else name
    asked.check(asked.entry.modality)
    wanted = OPTIONS[asked.entry.modality]
    if not isinstance(options, wanted):
        raise ValueError(
            f"options of {str(asked)!r}: found {type(options).__name__}; allowed are "
            f"{wanted.__name__}"
        )
    return asked.entry.load(asked.folder or "", options)
