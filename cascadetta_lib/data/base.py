"""What a dataset is: one labelled source domain and named target domains.

`Split.x` holds the *stored* form of the examples (of images, uint8). `weak_augment` and `randomise`
map a stored form to a stored form, and `prepare` maps it to the network's input.
"""

import hashlib
import itertools
import os
import sys
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, Field
from torch import Tensor

from cascadetta_lib.data.streams import Vocabulary

Modality = Literal["image", "text", "speech"]
Copies = Callable[[Tensor, int, torch.Generator], Iterator[Tensor]]
"""copies(x, count, generator) yields `count` augmented versions of a prepared batch x that keep its
labels.
"""


class DataMissing(Exception):
    """Data are not there and cannot be fetched. The message says which, where from, and where to
    put them.
    """


class Options(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """How a dataset is cut and served. A modality adds its own fields in a subclass."""

    folder: str = Field("data", description="the data folder")
    device: str = Field("cpu", description="where the examples are kept: cpu or cuda")
    train_size: int | None = Field(
        None, ge=2, description="number of source examples, drawn once; null: all"
    )
    test_size: int | None = Field(
        None, ge=1, description="number of examples of each target domain; null: all"
    )
    held_out_fraction: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="share of the source examples set aside; speech has a split of its own",
    )


NOT_TRAINED_ON = {"folder", "device", "test_size"}
"""The options that do not change what a network is trained on."""


class Split(NamedTuple):
    """Examples and their labels: x is (N, ...) in stored form, y is int64 (N,)."""

    x: Tensor
    y: Tensor

    def take(self, indices: Tensor | slice) -> "Split":
        return Split(self.x[indices], self.y[indices])


@dataclass(kw_only=True)
class Dataset(ABC):
    """One source domain and its target domains.

    unit: what the examples are, in the plural.
    vocabulary: the target domains that a stream may name.
    name: see `cascadetta_lib.data.identity`.
    source: where the data come from, in words; it is printed beside every number.
    domain_source: the same of the target domains.
    fingerprint: hash of all training and test examples, part of every key in the store. official:
    whether these are the paper's own data and whole. Only then do levels compare with the paper's.
    compare_with: the dataset of the paper's tables beside which results are shown, or None.
    """

    modality: ClassVar[Modality]
    unit: ClassVar[str]
    vocabulary: ClassVar[Vocabulary]
    name: str
    source: str
    domain_source: str
    fingerprint: str
    official: bool
    compare_with: str | None
    class_names: tuple[str, ...]
    train: Split
    held_out: Split

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def network_facts(self) -> dict[str, Any]:
        """Keyword arguments of `build_network` that the data prescribe, such as `classes`."""
        return {"classes": self.classes}

    @property
    def plain(self) -> Split:
        """The source for training without domain randomisation: `train`, or a form nearer to the
        network's input.
        """
        return self.train

    @property
    def plain_held_out(self) -> Split:
        """The held-out examples to measure on: `held_out`, or a form nearer to the network's
        input."""
        return self.held_out

    @abstractmethod
    def domain(self, name: str, severity: int) -> Split:
        """The examples of one target domain. Adaptation does not see their labels; these only serve
        to measure.
        """

    def weak_augment(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """The augmentation that every objective trains with: for images crop and flip, where the
        options say so; else none, because the paper augments text and speech in no other way than
        by domain randomisation."""
        return x

    @abstractmethod
    def randomise(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Domain randomisation in stored form, π ~ Ψ of Sec. 4.2."""

    @abstractmethod
    def prepare(self, x: Tensor) -> Tensor:
        """Map a stored form to the network's input, which is float32."""

    @property
    def augmented_copies(self) -> Copies | None:
        """The augmentation that CoTTA averages over, or None where none keeps the labels of
        prepared data: it defines none for text, so that its target there is the teacher's own
        prediction."""
        return None


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """SHA-256 over shapes, dtypes and bytes of `tensors`, cut to 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for tensor in tensors:
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()[:16]


def split_source(source: Split, options: Options) -> tuple[Split, Split]:
    """Draw `train_size` examples (None: all) and set a share of them, at least one, aside.

    The draw has its own seed: all seeds of a study share one held-out split. ValueError where none
    is left to train on.
    """
    order = torch.randperm(len(source.y), generator=torch.Generator().manual_seed(0))[
        : options.train_size
    ]
    held = max(1, round(len(order) * (share := options.held_out_fraction)))
    if held >= len(order):
        raise ValueError(
            f"held_out_fraction = {share}: of {len(order)} examples none is left to train on"
        )
    return source.take(order[:-held].sort().values), source.take(order[-held:].sort().values)


def mixed(split: Split) -> Split:
    """The examples in a fixed random order if they lie more or less class by class, else as they
    are: a batch of a single class says nothing about accuracy under batch statistics."""
    # Two classes in random order change at every other place, and more classes change more often.
    steps = split.y.diff()
    if (steps < 0).any() and 4 * int((steps != 0).sum()) >= len(split.y):
        return split
    return split.take(torch.randperm(len(split.y), generator=torch.Generator().manual_seed(0)))


def to_device(split: Split, device: str) -> Split:
    return Split(split.x.to(device), split.y.to(device))


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a file that gets the name `path` only when all of it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def set_aside(path: Path, reason: str) -> None:
    """Keep a damaged file or folder as PATH.damaged-1, or the next number that is free, and warn of
    it.
    """
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in itertools.count(1))
    aside = path.replace(next(name for name in names if not name.exists()))
    warnings.warn(f"{reason}: it is kept as {aside.name} and made again", stacklevel=3)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file, without unpickling anything. ValueError where the file cannot be
    read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: np.asarray(file[name]) for name in file}
    except (
        Exception
    ) as error:  # NumPy raises a dozen kinds, down to MemoryError, for a header that is not true
        raise ValueError(f"{path} cannot be read ({type(error).__name__}: {error})") from error


def kept_arrays(path: Path, make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays that an earlier call kept in the .npz file `path`, or those that `make` returns
    and that are kept from then on, with a warning where they cannot be. A damaged file is set aside
    and made again."""
    if path.is_file():
        try:
            return read_arrays(path)  # the .npz format has a checksum for each array
        except ValueError as error:
            set_aside(path, str(error))
    made = dict(make())
    try:
        write_atomically(path, lambda file: np.savez(file, **made))  # type: ignore[arg-type]
    except NotADirectoryError:
        raise
    except (
        OSError
    ) as error:  # such as in a folder of data that many share, and only one may write to
        warnings.warn(
            f"{path} cannot be kept ({error.strerror}): it is made anew each time", stacklevel=2
        )
    return made


def kept_array(path: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """`kept_arrays` of a single array."""
    return kept_arrays(path, lambda: {"array": make()})["array"]


def code_version(*modules: str) -> str:
    """A hash of the source of `modules` (of all files of a package), as 8 hexadecimal digits. It is
    part of the name under which what they make is kept, so that nothing is reused that their
    earlier code has made."""
    paths = [Path(str(sys.modules[name].__file__)) for name in modules]
    files = [
        sorted(path.parent.glob("[!.]*.*")) if path.stem == "__init__" else [path] for path in paths
    ]
    return hashlib.sha256(
        b"".join(file.read_bytes() for each in files for file in each)
    ).hexdigest()[:8]
