"""What all text datasets share: reviews of one source and three target domains, held as rows of a bank of features.

The stored form of a review is its row, int64, and `prepare` looks the row up. The bank holds, for every training
review, its own row and those of its EDA versions, made from the text before the vectorizer; so domain randomisation is
the choice of another row. Features: counts of the most frequent unigrams and bigrams of the source's training text
alone, as they are, or the mSDA fitted on them, on the training rows alone.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cascadetta_lib.augment import text as augmentation
from cascadetta_lib.augment.text import WORD, Synonyms, apply_eda, draw_eda, eda, words
from cascadetta_lib.data import TextOptions, msda
from cascadetta_lib.data.base import (
    Dataset,
    Modality,
    Split,
    code_version,
    fingerprint,
    mixed,
    split_source,
    to_device,
    write_atomically,
)
from cascadetta_lib.registry import nearest

SOURCE_DOMAIN = "books"
DOMAINS = ("dvd", "electronics", "kitchen")
"""The target domains in the order of the stream (Sec. 5.2)."""
CLASS_NAMES = ("negative", "positive")
EDA_SEED = 0
CHUNK = 4096
"""Rows that are made dense at a time."""

SparseCounts = Any
"""A scipy.sparse CSR matrix, float32 (reviews, features)."""


class Reviews(NamedTuple):
    """Reviews of one domain, each with a word at least, and their labels, int64 (N,), 0 negative and 1 positive."""

    texts: Sequence[str]
    labels: Tensor


class Counts(NamedTuple):
    """Reviews of one domain of which the counts alone are known, and their labels, int64 (N,)."""

    counts: SparseCounts
    labels: Tensor


@dataclass(kw_only=True)
class TextDataset(Dataset):
    """Reviews of four product domains.

    bank: the features of all reviews, float32 (R, D), on the device. versions: int64 (R, C), the rows that may stand
    for a row under domain randomisation: a training review's EDA versions, for any other row the row itself.
    domains: every domain by its name, the source's among them. texts: the training texts, None where there are none.
    """

    modality: ClassVar[Modality] = "text"
    unit: ClassVar[str] = "reviews"
    options: TextOptions
    bank: Tensor
    versions: Tensor
    domains: Mapping[str, Split]
    target_source: str
    texts: Sequence[str] | None = None
    synonyms: Synonyms | None = None

    @property
    def domain_names(self) -> tuple[str, ...]:
        return DOMAINS

    @property
    def domain_source(self) -> str:
        return self.target_source

    @property
    def input_features(self) -> int:
        """D, the length of the network's input."""
        return self.bank.shape[1]

    @property
    def has_text(self) -> bool:
        """Whether the training texts are known, so that they can be shown and augmented."""
        return self.texts is not None

    def domain(self, name: str, severity: int) -> Split:
        """The first `options.test_size` reviews of a target domain in a fixed mixed order; for the source's name its
        held-out reviews. Raises ValueError for any other name, and for a severity other than 1."""
        if name not in self.domains:
            raise ValueError(f"no domain is named {name!r}; {nearest(name, self.domains)}")
        if severity != 1:
            raise ValueError(f"severity {severity!r} of {name}: text has no severities, allowed is 1")
        return self.domains[name]

    def weak_augment(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """`x` itself: the paper names no augmentation of text but domain randomisation."""
        return x

    def randomise(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """For each training review, int64 (N,), one of its EDA versions; `x` itself where there is no text."""
        chosen = torch.randint(self.versions.shape[1], x.shape, generator=generator)
        return self.versions[x, chosen.to(x.device)]

    def prepare(self, x: Tensor) -> Tensor:
        """Rows, int64 (N,), to features, float32 (N, D)."""
        return self.bank[x]

    @property
    def augmented_copies(self) -> None:
        """CoTTA defines no augmentation of text, so its teacher's own prediction is the target."""
        return None

    def text(self, index: int) -> str:
        """The text of the training review `index`. ValueError where there are no texts or not that many."""
        if self.texts is None:
            raise ValueError(f"{self.name} holds counts: its texts are not known")
        if not 0 <= index < len(self.texts):
            raise ValueError(f"review {index!r}: allowed is 0 to {len(self.texts) - 1}")
        return self.texts[index]

    def augmented_texts(self, index: int, count: int, generator: torch.Generator) -> list[tuple[str, str]]:
        """`count` EDA versions of the training review `index`: the operation and its result. ValueError as `text`."""
        review = words(self.text(index))
        assert self.synonyms is not None, "texts come with synonyms"
        draws = [draw_eda(len(review), self.options.eda_strength, generator) for _ in range(count)]
        return [(draw.operation, " ".join(apply_eda(review, draw, self.synonyms))) for draw in draws]


def make_text_dataset(
    *,
    name: str,
    source: str,
    domain_source: str,
    official: bool,
    compare_with: str | None,
    train: Reviews,
    domains: Mapping[str, Reviews],
    synonyms: Synonyms,
    options: TextOptions,
) -> TextDataset:
    """The dataset made of all reviews of the source (`train`) and of the target domains, cut as the options say.

    official: whether the reviews are the paper's; the dataset is official where nothing of them is cut away as well.
    A small source has fewer unigrams and bigrams than options.vocabulary_size: all of them are features then.
    Features that are `auto` are mSDA here.
    Raises ValueError for options that are out of range, DataMissing where the synonyms are missing.
    """
    if options.eda_copies < 1:
        raise ValueError(f"text_eda_copies = {options.eda_copies!r}: allowed is 1 or more")
    if options.vocabulary_size < 1:
        raise ValueError(f"text_vocabulary_size = {options.vocabulary_size!r}: allowed is 1 or more")
    cut = _cut(train.labels, {domain: reviews.labels for domain, reviews in domains.items()}, options)
    texts = [train.texts[index] for index in cut.train.x]
    others = [train.texts[index] for index in cut.held_out.x]
    others += [domains[domain].texts[index] for domain in DOMAINS for index in cut.targets[domain].x]

    def count() -> SparseCounts:
        generator = torch.Generator().manual_seed(EDA_SEED)
        originals = [review for text in texts for review in [words(text)] * options.eda_copies]
        versions = [" ".join(eda(review, options.eda_strength, generator, synonyms)) for review in originals]
        return _count(texts, [*versions, *others], options.vocabulary_size)

    contents = [_bytes([synonyms.identity]), _bytes(train.texts), train.labels]
    contents += [part for domain in DOMAINS for part in (_bytes(domains[domain].texts), domains[domain].labels)]
    return _assemble(
        cut,
        count,
        name=name,
        source=f"{source}, EDA with synonyms from {synonyms.description}",
        target_source=domain_source,
        contents=contents,
        official=official,
        compare_with=compare_with,
        copies=options.eda_copies,
        texts=texts,
        synonyms=synonyms,
        options=options if options.features != "auto" else options.model_copy(update={"features": "msda"}),
    )


def make_counts_dataset(
    *,
    name: str,
    source: str,
    domain_source: str,
    compare_with: str | None,
    train: Counts,
    domains: Mapping[str, Counts],
    options: TextOptions,
) -> TextDataset:
    """The same of counts, without EDA: it needs the text, so that `randomise` returns what it is given. Features that
    are `auto` are the counts themselves. Never official: the paper's experiment has EDA."""
    cut = _cut(train.labels, {domain: counts.labels for domain, counts in domains.items()}, options)

    def count() -> SparseCounts:
        from scipy.sparse import vstack

        targets = [domains[domain].counts[cut.targets[domain].x.numpy()] for domain in DOMAINS]
        source = [train.counts[split.x.numpy()] for split in (cut.train, cut.held_out)]
        return vstack([*source, *targets], format="csr")

    contents = []
    for counts, labels in (train, *(domains[domain] for domain in DOMAINS)):
        contents += [torch.from_numpy(part) for part in (counts.data, counts.indices, counts.indptr)] + [labels]
    return _assemble(
        cut,
        count,
        name=name,
        source=f"{source}, without EDA",
        target_source=domain_source,
        contents=contents,
        official=False,
        compare_with=compare_with,
        copies=0,
        texts=None,
        synonyms=None,
        options=options if options.features != "auto" else options.model_copy(update={"features": "counts"}),
    )


class Cut(NamedTuple):
    """The reviews that are used, as places in their domain's list, and their labels. whole: none is cut away."""

    train: Split
    held_out: Split
    targets: dict[str, Split]
    whole: bool


def _cut(labels: Tensor, target_labels: Mapping[str, Tensor], options: TextOptions) -> Cut:
    def all_of(labels: Tensor) -> Split:
        return mixed(Split(torch.arange(len(labels)), labels))

    train, held_out = split_source(
        *all_of(labels), train_size=options.train_size, held_out_fraction=options.held_out_fraction
    )
    targets = {domain: all_of(target_labels[domain]).take(slice(options.test_size)) for domain in DOMAINS}
    whole = len(train.y) + len(held_out.y) == len(labels)
    whole &= all(len(targets[domain].y) == len(target_labels[domain]) for domain in DOMAINS)
    return Cut(train, held_out, targets, whole)


def _assemble(
    cut: Cut,
    count: Callable[[], SparseCounts],
    *,
    name: str,
    source: str,
    target_source: str,
    contents: Sequence[Tensor],
    official: bool,
    compare_with: str | None,
    copies: int,
    texts: Sequence[str] | None,
    synonyms: Synonyms | None,
    options: TextOptions,
) -> TextDataset:
    """Give every review its row: training reviews, their versions review by review, held-out reviews, targets."""
    identity = fingerprint(contents)
    bank = _bank(count, len(cut.train.y), identity, options)
    own = torch.arange(len(cut.train.y))
    versions = torch.arange(len(bank))[:, None].repeat(1, max(1, copies))
    if copies:
        versions[own] = len(own) + own[:, None] * copies + torch.arange(copies)
    stored, start = {}, len(own) * (1 + copies)
    for part, split in {SOURCE_DOMAIN: cut.held_out, **cut.targets}.items():
        rows = torch.arange(start, start + len(split.y))
        stored[part], start = to_device(Split(rows, split.y), options.device), start + len(rows)
    held_out = stored[SOURCE_DOMAIN]
    return TextDataset(
        name=name,
        source=source,
        fingerprint=identity,
        official=official and cut.whole,
        compare_with=compare_with,
        class_names=CLASS_NAMES,
        train=to_device(Split(own, cut.train.y), options.device),
        held_out=held_out,
        options=options,
        bank=bank,
        versions=versions.to(options.device),
        domains={**stored, SOURCE_DOMAIN: held_out.take(slice(options.test_size))},
        target_source=target_source,
        texts=texts,
        synonyms=synonyms,
    )


def _bytes(texts: Sequence[str]) -> Tensor:
    """All texts, one after the other, as uint8, for the fingerprint."""
    return torch.frombuffer(bytearray("\0".join(texts).encode()), dtype=torch.uint8)


def _count(fitted: Sequence[str], others: Sequence[str], size: int) -> SparseCounts:
    """How often the `size` most frequent unigrams and bigrams of the texts `fitted` stand in those and in `others`."""
    from scipy.sparse import vstack
    from sklearn.feature_extraction.text import CountVectorizer

    kind = {"token_pattern": WORD, "ngram_range": (1, 2), "dtype": np.float32}
    vectorizer = CountVectorizer(**kind)
    counts = vectorizer.fit_transform(fitted)
    # The vectorizer's own max_features breaks ties as the machine's sort does; here the alphabet decides.
    frequent = np.sort(np.argsort(-np.asarray(counts.sum(0)).ravel(), kind="stable")[:size])
    vocabulary = vectorizer.get_feature_names_out()[frequent]
    return vstack([counts[:, frequent], CountVectorizer(vocabulary=vocabulary, **kind).transform(others)], format="csr")


def _bank(count: Callable[[], SparseCounts], fitted: int, identity: str, options: TextOptions) -> Tensor:
    """The features of all rows, the first `fitted` of which are the training reviews; read from where an earlier call
    has kept them, if it has."""
    kept = Path(options.folder).expanduser() / "generated"
    kept /= f"{identity}-{code_version(augmentation, msda, sys.modules[__name__])}"
    choice = json.dumps(options.model_dump(exclude={"folder", "device"}), sort_keys=True)
    path = kept / f"text-{hashlib.sha256(choice.encode()).hexdigest()[:16]}.npy"
    if path.is_file():
        return torch.from_numpy(np.load(path, allow_pickle=False)).to(options.device)
    features = _features(count(), fitted, options)
    write_atomically(path, lambda file: np.save(file, features.numpy()))
    return features.to(options.device)


def _features(counts: SparseCounts, fitted: int, options: TextOptions) -> Tensor:
    """Counts, or mSDA of them, float32 (R, D) on the CPU."""
    if options.features == "counts":
        return torch.from_numpy(counts.toarray())
    device = "cpu" if options.device == "mps" else options.device  # mSDA needs float64
    weights = msda.fit_msda(
        torch.from_numpy(counts[:fitted].toarray()).to(device),
        layers=options.msda_layers,
        probability=options.msda_probability,
        solver=options.msda_solver,
    )
    parts = []
    for start in range(0, counts.shape[0], CHUNK):
        x = torch.from_numpy(counts[start : start + CHUNK].toarray()).to(device)
        parts.append(msda.apply_msda(x, weights, output=options.msda_output).cpu())
    return torch.cat(parts)
