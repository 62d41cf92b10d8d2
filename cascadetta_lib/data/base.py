"""The base of all datasets: one labelled source domain and named target domains.

`Split.x` holds the *stored* form of the examples (of images, uint8). `weak_augment` and `randomise`
map a stored form to a stored form, and `prepare` maps it to the network's input.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from cascadetta_lib.data.streams import Vocabulary

Modality = Literal["image", "text", "speech"]
Origin = Literal["archive", "photographs", "texture", "other"]
"""What the target domains come from.

archive: files, as they were published. photographs: our generator, with the original photographs of
frost. texture: our generator, with a made-up texture of frost. other: anything else.
"""
Copies = Callable[[Tensor, int, torch.Generator], Iterator[Tensor]]
"""copies(x, count, generator) yields `count` augmented versions of a prepared batch x that keep its
labels.
"""


class DataMissing(Exception):
    """Raised if data are missing and cannot be downloaded. The message says which data, where they
    can be found, and where to put them.
    """


class Options(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Options of a dataset: how much of it is used, and where it is kept. Each modality adds fields
    in a subclass.
    """

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
    name: see `DatasetName.key`.
    source: where the data come from, in words; printed beside every number.
    domain_source: where the target domains come from, in words.
    fingerprint: a hash of all training and test examples, part of every key in the store.
    origin: what the target domains come from; see `Origin`.
    recognised: whether a hash shows that the clean examples are exactly, and all of, those of
        `compare_with`.
    compare_with: the dataset of the paper whose numbers are shown beside the results, or None.
    """

    modality: ClassVar[Modality]
    unit: ClassVar[str]
    vocabulary: ClassVar[Vocabulary]
    name: str
    source: str
    domain_source: str
    fingerprint: str
    origin: Origin
    recognised: bool
    compare_with: str | None
    class_names: tuple[str, ...]
    train: Split
    held_out: Split

    @property
    def official(self) -> bool:
        """Whether these count as the paper's own data. Only then do errors compare with the paper's
        in absolute terms, and is a verdict given.
        """
        return self.recognised and self.origin in ("archive", "photographs")

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def network_facts(self) -> dict[str, Any]:
        """Keyword arguments of `build_network` that the data prescribe, such as `classes`."""
        return {"classes": self.classes}

    @property
    def plain(self) -> Split:
        """The source for training without domain randomisation: `train`, or a form of it that is
        nearer to the network's input, such as the spectrograms of recordings, computed once.
        """
        return self.train

    @property
    def plain_held_out(self) -> Split:
        """The held-out examples to measure on: `held_out`, or a form nearer to the network's
        input."""
        return self.held_out

    @abstractmethod
    def domain(self, name: str, severity: int) -> Split:
        """Return the examples of a target domain. Their labels are only for measuring."""

    def examples_in(self, name: str, severity: int) -> int:
        """Return how many examples `domain` returns, without generating images or sounds."""
        return len(self.domain(name, severity).y)

    def weak_augment(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Apply the augmentation that all objectives train with: crops and flips of images, if the
        options ask for them. Text and speech stay as they are, because the paper augments them only
        by domain randomisation.
        """
        return x

    @abstractmethod
    def randomise(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Apply domain randomisation to examples in stored form, π ~ Ψ of Sec. 4.2."""

    @abstractmethod
    def prepare(self, x: Tensor) -> Tensor:
        """Map a stored form to the network's input, which is float32."""

    @property
    def augmented_copies(self) -> Copies | Literal["image"] | None:
        """The augmentation that methods such as CoTTA learn from. "image": each method's own
        augmentation of RGB images. None: no augmentation is known to keep the labels. CoTTA defines
        none for text, so its target there is the teacher's own prediction.
        """
        return None


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """Hash shapes, dtypes and bytes of `tensors`: 16 hexadecimal digits of SHA-256."""
    digest = hashlib.sha256()
    for tensor in tensors:
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()[:16]


def split_source(
    source: Split, options: Options, contents: Sequence[Hashable] | None = None
) -> tuple[Split, Split]:
    """Draw `train_size` examples (None: all), and hold a share of them out, at least one.

    The draw has its own seed, so all seeds of a study share one held-out split. A held-out example
    of which the training part has an exact copy is dropped.

    contents: the values by which examples are compared; None for the bytes of x.

    Raises ValueError if no example is left to train on, or to hold out.
    """
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(source.y), generator=generator)[: options.train_size]
    share = options.held_out_fraction
    held = max(1, round(len(order) * share))
    if held >= len(order):
        raise ValueError(
            f"held_out_fraction = {share}: of {len(order)} examples none is left to train on"
        )
    fitted = order[:-held].sort().values
    aside = order[-held:].sort().values
    if contents is None:
        contents = _bytes_of(source.x)
    trained_on = {contents[place] for place in fitted.tolist()}
    distinct = [place for place in aside.tolist() if contents[place] not in trained_on]
    if not distinct:
        raise ValueError(
            f"held_out_fraction = {share}: each of the {held} examples that are set aside is an "
            "exact copy of one that is trained on"
        )
    return source.take(fitted), source.take(torch.tensor(distinct))


def _bytes_of(x: Tensor) -> list[bytes]:
    """Return the bytes of each example of x (N, ...)."""
    return [example.tobytes() for example in x.cpu().numpy()]


def mixed(split: Split) -> Split:
    """Return the examples in a fixed random order if they are stored more or less class by class,
    and otherwise as they are.

    Under batch statistics, batches of a single class would say nothing about the accuracy.
    """
    # Two classes in random order change at every other place, and more classes change more often.
    steps = split.y.diff()
    if (steps < 0).any() and 4 * int((steps != 0).sum()) >= len(split.y):
        return split
    return split.take(torch.randperm(len(split.y), generator=torch.Generator().manual_seed(0)))


def to_device(split: Split, device: str) -> Split:
    return Split(split.x.to(device), split.y.to(device))


def repeats(source: Iterable[Hashable], tested: Sequence[Hashable], unit: str) -> str:
    """Return a clause for the description of data: how many test examples are source examples too.

    It is empty if there are none. The arguments hold the examples themselves or their hashes.
    """
    known = set(source)
    again = sum(example in known for example in tested)
    if not again:
        return ""
    return f"; {again:,} of its {len(tested):,} test {unit} are training {unit} too"
