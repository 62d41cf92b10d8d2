"""The base of all datasets: one labelled source domain and named target domains.

`Split.x` holds examples in *stored form*, such as images in uint8. `weak_augment` and `randomise`
take and return a stored form. `prepare` maps a stored form to the network's input.
"""

import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from cascadetta_lib.code import file_hash
from cascadetta_lib.data.streams import Vocabulary

Modality = Literal["image", "text", "speech"]
Origin = Literal["archive", "photographs", "texture", "other"]
"""Where the target domains come from.

archive: files as they were published; for speech, domains that our code makes of such files.
photographs: our generator, with frost from the original photographs.
texture: our generator, with frost from a made-up texture.
other: anything else.
"""
Copies = Callable[[Tensor, int, torch.Generator], Iterator[Tensor]]
"""A function copies(x, count, generator) that yields `count` augmented versions of a prepared batch
x. Each version keeps the labels of x.
"""


class DataMissing(Exception):
    """Raised if data are missing, incomplete or altered. The message says which data, and what to
    do.
    """


class Options(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Options of a dataset: how many of its examples are used, and where they are kept. Each
    modality adds fields in a subclass.
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
    vocabulary: the domains that a stream may name.
    name: the name under which results are kept, see `DatasetName.key`.
    source: where the data come from, in words; printed beside every number.
    domain_source: where the target domains come from, in words.
    fingerprint: a hash of all training and test examples; part of every key in the store.
    origin: where the target domains come from, see `Origin`.
    recognised: whether a hash shows that the clean examples are those of `compare_with`, complete
        and unchanged, and the options use all of them. Images for testing are an exception: any
        number of them may be used, because the rules for verdicts ask for a number themselves.
    compare_with: the name of the paper's dataset that these data are or stand in for; None if there
        is none. The paper's numbers on that dataset may stand beside the results only if
        `data.Entry.real` is True and `data.Entry.own` is False. Otherwise each claim on that
        dataset is `not tested` on these data. With None, the verdicts do not look at these data.
    class_names: the names of the classes, in the order of their labels.
    train: the source examples to train on.
    held_out: the source examples that are set aside from training.
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
        """Whether the data count as the paper's own. If they do not, errors do not compare with the
        paper's in absolute terms, and no claim of the paper gets a verdict.
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
        """The source examples for training without domain randomisation: `train`, or a form of
        `train` that is nearer to the network's input and computed once, such as spectrograms of
        recordings.
        """
        return self.train

    @property
    def plain_held_out(self) -> Split:
        """The held-out examples to measure on: `held_out`, or a form of it as in `plain`."""
        return self.held_out

    @abstractmethod
    def domain(self, name: str, severity: int) -> Split:
        """Return the examples of a target domain in stored form. Their labels serve only to measure
        errors.

        name, severity: as in `streams.Domain`.
        """

    def examples_in(self, name: str, severity: int) -> int:
        """Return how many examples `domain` would return. No image or sound is generated to count
        them.
        """
        return len(self.domain(name, severity).y)

    def weak_augment(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Apply the augmentation that all objectives train with: crops and flips of images, if the
        options ask for them. Text and speech stay as they are, because the paper augments them by
        domain randomisation only.
        """
        return x

    @abstractmethod
    def randomise(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Apply domain randomisation (π ~ Ψ of Sec. 4.2) to examples in stored form."""

    @abstractmethod
    def prepare(self, x: Tensor) -> Tensor:
        """Map a stored form to the network's input, which is float32."""

    @property
    def augmented_copies(self) -> Copies | Literal["image"] | None:
        """The augmentation that methods such as CoTTA learn from: a function (see `Copies`),
        "image" or None.

        "image": each method has its own augmentation of RGB images.
        None: no augmentation is known to keep the labels. CoTTA defines none for text, so on text
            its target is the teacher's own prediction.
        """
        return None


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """Hash the dtypes, shapes and bytes of `tensors`. Return 16 hexadecimal digits of SHA-256."""
    digest = hashlib.sha256()
    for tensor in tensors:
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()[:16]


def code_version(*modules: str) -> str:
    """Hash the code of `modules`, for the names of kept files. A change of the code then makes
    these files anew.

    Comments and docstrings are not hashed, nor is the code of other modules that `modules` import.
    Of a package, all files in its folder are hashed. Returns 8 hexadecimal digits.
    """
    files: list[Path] = []
    for name in modules:
        path = Path(str(sys.modules[name].__file__))
        if path.stem == "__init__":
            files += sorted(path.parent.glob("[!.]*.*"))
        else:
            files.append(path)
    hashes = " ".join(file_hash(file) for file in files)
    return hashlib.sha256(hashes.encode()).hexdigest()[:8]


def sorted_classes(names: Iterable[str]) -> list[str]:
    """Sort the names of classes, each once: by number if all are whole numbers, else by the
    alphabet.
    """
    found = sorted(set(names))
    if all(name.isdecimal() for name in found):
        return sorted(found, key=int)
    return found


def split_source(
    source: Split, options: Options, contents: Sequence[Hashable] | None = None
) -> tuple[Split, Split]:
    """Split the source into a training part and a held-out part, and return them in this order.

    First `options.train_size` examples are drawn (None: all). Of these a share,
    `options.held_out_fraction`, is held out, at least one example. A held-out example is then
    dropped if the training part has an exact copy of it. The draw has its own seed, so all seeds of
    a study share one held-out part.

    contents: the value by which each example is compared with others; None: the bytes of x.

    Raises ValueError if no example is left to train on, or to hold out.
    """
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(source.y), generator=generator)[: options.train_size]
    share = options.held_out_fraction
    held = max(1, round(len(order) * share))
    if held >= len(order):
        raise ValueError(
            f"held_out_fraction = {share} leaves none of {len(order)} examples to train on"
        )
    fitted = order[:-held].sort().values
    aside = order[-held:].sort().values
    if contents is None:
        contents = _bytes_of(source.x)
    trained_on = {contents[place] for place in fitted.tolist()}
    distinct = [place for place in aside.tolist() if contents[place] not in trained_on]
    if not distinct:
        raise ValueError(
            f"held_out_fraction = {share}: all {held} held-out examples are exact copies of "
            "training examples"
        )
    return source.take(fitted), source.take(torch.tensor(distinct))


def _bytes_of(x: Tensor) -> list[bytes]:
    """Return the bytes of each example of x (N, ...)."""
    return [example.tobytes() for example in x.cpu().numpy()]


def mixed(split: Split) -> Split:
    """Put examples that are stored more or less class by class into a fixed random order. Return
    other examples as they are.

    With batch statistics, an accuracy on batches of a single class would mean nothing.
    """
    # Labels that never fall are sorted. In a random order of classes of equal size, neighbouring
    # labels differ at half of the places or more, and with unequal sizes at fewer. So a quarter of
    # the places counts as random here.
    steps = split.y.diff()
    if (steps < 0).any() and 4 * int((steps != 0).sum()) >= len(split.y):
        return split
    return split.take(torch.randperm(len(split.y), generator=torch.Generator().manual_seed(0)))


def to_device(split: Split, device: str) -> Split:
    return Split(split.x.to(device), split.y.to(device))


def repeats(source: Iterable[Hashable], tested: Sequence[Hashable], unit: str) -> str:
    """Say how many test examples are source examples too, as a clause that `Dataset.source` ends
    with. The clause is empty if there are none.

    source, tested: the examples themselves, or their hashes.
    unit: what the examples are, in the plural.
    """
    known = set(source)
    again = sum(example in known for example in tested)
    if not again:
        return ""
    return f"; {again:,} of its {len(tested):,} test {unit} are training {unit} too"
