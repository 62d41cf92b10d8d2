"""What a dataset is: the first of the study's four artefacts (dataset → checkpoint → run → exhibit).

A dataset has one labelled source domain, split into training and held-out examples, and named target domains.
`Split.x` is the *stored* form (images: uint8 on the device); `randomise` and `weak_augment` map it to a stored form,
`prepare` maps that to the network's input. So augmentation, storage and scaling each stand in one place.
"""

import hashlib
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

Modality = Literal["image", "text", "speech"]
Copies = Callable[[Tensor, int, torch.Generator], Iterator[Tensor]]
"""copies(x, count, generator): that many versions of a prepared batch that keep its labels, one after the other."""


class DataMissing(Exception):
    """Data that is not there and cannot be fetched; the message says what, from where, its hash and where to put it."""


class Split(NamedTuple):
    """Examples and their labels: x is (N, ...) in stored form, y is int64 (N,)."""

    x: Tensor
    y: Tensor

    def take(self, indices: Tensor | slice) -> "Split":
        """The examples at `indices` (int64 (M,) or a slice)."""
        return Split(self.x[indices], self.y[indices])


@dataclass(kw_only=True)
class Dataset(ABC):
    """One source domain and its target domains.

    name: as the user asked for it. source: where the data came from, printed beside every number. fingerprint: SHA-256
    over the training and test examples, part of every key. official: whether this is the paper's own data, whole;
    only then do numbers compare with the paper's. compare_with: the name of the dataset in the paper's tables beside
    which results are shown, or None.
    """

    modality: ClassVar[Modality]
    unit: ClassVar[str]
    """What its examples are, in the plural: images, reviews, utterances."""
    name: str
    source: str
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
    def plain(self) -> Split:
        """The source for training without domain randomisation: `train`, or something nearer to the network's input."""
        return self.train

    @property
    def plain_held_out(self) -> Split:
        """The held-out examples to measure on: `held_out`, or something nearer to the network's input."""
        return self.held_out

    @property
    @abstractmethod
    def domain_names(self) -> tuple[str, ...]:
        """The target domains, in the standard order of the stream."""

    @property
    @abstractmethod
    def domain_source(self) -> str:
        """Where the target domains come from, in words."""

    @abstractmethod
    def domain(self, name: str, severity: int) -> Split:
        """The unlabelled examples of one target domain (the labels only measure)."""

    @abstractmethod
    def weak_augment(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """The augmentation that every objective trains with (images: crop and flip, where the settings say so)."""

    @abstractmethod
    def randomise(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Domain randomisation, π ~ Ψ in Sec. 4.2 of the paper, in stored form."""

    @abstractmethod
    def prepare(self, x: Tensor) -> Tensor:
        """Stored form to the network's input, float32."""

    @property
    @abstractmethod
    def augmented_copies(self) -> Copies | None:
        """What CoTTA averages over; None where no augmentation of prepared data keeps its labels."""


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """SHA-256 over shapes, dtypes and bytes of `tensors`, as 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for tensor in tensors:
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def split_source(
    x: Tensor, y: Tensor, *, train_size: int | None, held_out_fraction: float, seed: int = 0
) -> tuple[Split, Split]:
    """Draw `train_size` examples (None: all) and set the last `held_out_fraction` of them aside.

    The draw has a seed of its own, not the run's: all seeds of a study share one held-out split.
    """
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:train_size]
    held = max(1, round(len(order) * held_out_fraction))
    train, held_out = order[:-held].sort().values, order[-held:].sort().values
    return Split(x[train], y[train]), Split(x[held_out], y[held_out])


def mixed(split: Split) -> Split:
    """The examples, by a fixed permutation if they lie more or less class by class: a batch of one class says nothing
    about accuracy under batch statistics, and a part of the first few classes is no sample."""
    # Two classes in random order change at every other place, more classes more often.
    steps = split.y.diff()
    if (steps < 0).any() and 4 * int((steps != 0).sum()) >= len(split.y):
        return split
    return split.take(torch.randperm(len(split.y), generator=torch.Generator().manual_seed(0)))


def to_device(split: Split, device: str) -> Split:
    """The split with both tensors on `device`."""
    return Split(split.x.to(device), split.y.to(device))


def write_atomically(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Let `write` fill a file that gets the name `path` only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with temporary.open("wb") as file:
            write(file)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def code_version(*modules: object) -> str:
    """A hash of the files of `modules`: what other code has made and kept is not taken for theirs."""
    files = [Path(str(module.__file__)) for module in modules]  # type: ignore[attr-defined]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]
