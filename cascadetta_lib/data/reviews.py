"""The base of the text datasets: reviews of a source and of target domains, kept as a table of
features.

A review is any labelled text. Its stored form is the number of its row in the table, int64;
`prepare` looks the row up. Each EDA version of a training review has a row too, so domain
randomisation only chooses another row.

The features are counts of the most frequent unigrams and bigrams in the training texts. The mSDA of
the counts is appended to them as further features. It is fitted on the rows of the training reviews
only.
"""

import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy  # scipy imports scipy.sparse when it is first used
import torch
from pydantic import Field
from torch import Tensor

from cascadetta_lib.augment import generator_for
from cascadetta_lib.augment.text import WORD, FindSynonyms, eda, words
from cascadetta_lib.code import module_of, value_hash
from cascadetta_lib.data import msda
from cascadetta_lib.data.base import (
    Dataset,
    Options,
    Split,
    code_version,
    fingerprint,
    split_source,
)
from cascadetta_lib.data.streams import Vocabulary, require_domain
from cascadetta_lib.files import kept_array

SOURCE_DOMAIN = "books"
DOMAINS = ("dvd", "electronics", "kitchen")  # the targets in the order of the stream (Sec. 5.2)
EDA_SEED = 0
NO_WORDS = "no words"  # the synonyms' name if only features are given, so that there is no EDA
CHUNK = 4096  # rows that mSDA maps at a time


class TextOptions(Options):
    """The options by which text becomes features. The defaults are the paper's values if the paper
    gives them.
    """

    synthetic_shift: float = Field(
        0.5,
        ge=0,
        le=1,
        description="share of opinions in a domain's own words; for the dataset `reviews` alone",
    )
    vocabulary_size: int = Field(
        5000, ge=1, description="how many of the source's unigrams and bigrams are counted"
    )
    msda_layers: int = Field(
        1,
        ge=0,
        description="mSDA layers, whose features are appended to the counts; not in the paper",
    )
    msda_probability: float = Field(
        0.5, ge=0, lt=1, description="probability that mSDA drops a feature"
    )
    eda_strength: float = Field(
        0.05,
        ge=0,
        le=1,
        description="α, share of words that change; EDA's authors recommend 0.05 for 2,000 texts",
    )
    eda_copies: int = Field(
        8,
        ge=1,
        description="augmented versions of a review; EDA's authors recommend 8 for 2,000 texts",
    )


class Reviews(NamedTuple):
    """Reviews of one domain."""

    texts: np.ndarray  # strings, as objects (N,)
    labels: Tensor  # int64 (N,), places in class_names

    def take(self, places: Tensor) -> "Reviews":
        return Reviews(self.texts[places.numpy()], self.labels[places])


def mixed_places(labels: Tensor, seed: int) -> Split:
    """Shuffle reviews. Return their places in a random order, and the labels in this order.

    Give each domain another seed. Files hold one class after the other, so with the same seed the
    batches of all domains would have the same labels.
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return Split(order, labels[order])


class Synonyms(NamedTuple):
    """Where synonyms come from."""

    find: FindSynonyms
    name: str  # shown to users, and part of the data's fingerprint


@dataclass(kw_only=True)
class TextDataset(Dataset):
    """Reviews of a source domain and of target domains.

    bank: the features of all rows, float32 (R, D), on the device.
    versions: for each row, the rows that may replace it under domain randomisation, int64 (R, V).
        For a training review these are its EDA versions, for any other row the row itself.
    domains: the target domains by name, and the held-out reviews under the name of the source.
    texts: the training texts, or a description of each if only features are given.
    synonyms: the synonyms that EDA uses.
    """

    modality = "text"
    unit = "reviews"
    vocabulary = Vocabulary(DOMAINS, (SOURCE_DOMAIN,), (1,))
    options: TextOptions
    bank: Tensor
    versions: Tensor
    domains: Mapping[str, Split]
    texts: Sequence[str]
    synonyms: Synonyms

    @property
    def network_facts(self) -> dict[str, Any]:
        return {"classes": self.classes, "inputs": self.bank.shape[1]}

    def domain(self, name: str, severity: int = 1) -> Split:
        """Return the first `options.test_size` reviews of a target domain, or of the held-out
        source reviews, in a fixed random order. Text has no severities, so `severity` is ignored.

        Raises ValueError for any other name.
        """
        require_domain(name, list(self.domains))
        return self.domains[name]

    def randomise(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Draw an EDA version of each training review, and return their rows, int64 (N,)."""
        count = self.versions.shape[1]
        generator = generator_for(x, generator)
        return self.versions[x, torch.randint(count, x.shape, generator=generator, device=x.device)]

    def prepare(self, x: Tensor) -> Tensor:
        """Convert rows, int64 (N,), to features, float32 (N, D)."""
        return self.bank[x]

    def augmented_texts(
        self, index: int, count: int, generator: torch.Generator
    ) -> list[tuple[str, str]]:
        """Return `count` EDA versions of the training review at `index`, as pairs of operation and
        text.
        """
        if self.synonyms.name == NO_WORDS:
            return [("no EDA", self.texts[index])] * count
        review = words(self.texts[index])
        strength = self.options.eda_strength
        drawn = [eda(review, strength, generator, self.synonyms.find) for _ in range(count)]
        return [(operation, " ".join(changed)) for operation, changed in drawn]


def make_text_dataset(
    *,
    source: str,
    train: Reviews,
    domains: Mapping[str, Reviews],
    synonyms: Synonyms,
    options: TextOptions,
    recognised: bool = False,
    source_name: str = SOURCE_DOMAIN,
    target_names: Sequence[str] = DOMAINS,
    class_names: tuple[str, ...] = ("negative", "positive"),
    **fields: Any,
) -> TextDataset:
    """Make a dataset from all reviews of the source and of the target domains. The options say how
    many of them are used, and which share of the source is held out.

    source: where the reviews come from, in words.
    train: all reviews of the source.
    domains: all reviews of each of `target_names`; other domains are ignored.
    synonyms: the synonyms that EDA uses.
    recognised: whether the reviews are the paper's. The dataset counts as recognised only if, in
        addition, the options use all of them.
    source_name, target_names: the names of the domains, with the targets in the order of the
        stream.
    fields: name, domain_source and compare_with of `TextDataset`.

    Raises ValueError if no review is left to train on or to hold out.
    """
    everything = [train, *(domains[name] for name in target_names)]
    orders = [mixed_places(part.labels, seed) for seed, part in enumerate(everything)]
    # Many reviews occur twice. None may be both trained on and held out.
    contents = [" ".join(words(train.texts[place])) for place in orders[0].x.tolist()]
    fitted, held_out = split_source(orders[0], options, contents)
    targets = [
        part.take(order.x[: options.test_size])
        for part, order in zip(everything[1:], orders[1:], strict=True)
    ]
    parts = [train.take(fitted.x), train.take(held_out.x), *targets]

    # The rows of the features: first the training reviews, then their EDA versions, then the other
    # parts.
    copies = options.eda_copies
    sizes = [len(fitted.y), len(fitted.y) * copies, *(len(part.labels) for part in parts[1:])]
    rows = torch.arange(sum(sizes))
    own, augmented, *others = rows.split(sizes)
    versions = rows[:, None].repeat(1, copies)
    versions[own] = augmented.view(-1, copies)
    device = options.device
    stored = zip([own, *others], parts, strict=True)
    splits = [Split(places.to(device), part.labels.to(device)) for places, part in stored]

    examples = [part for texts, labels in everything for part in (_as_bytes(texts), labels)]
    identity = fingerprint([_as_bytes([synonyms.name]), *examples, *(order.x for order in orders)])
    library = code_version(__name__, msda.__name__, eda.__module__, split_source.__module__)
    made_by = f"{library}-{_code_of(synonyms)}"
    choice = hashlib.sha256(
        options.model_dump_json(exclude={"folder", "device"}).encode()
    ).hexdigest()[:16]
    path = (
        Path(options.folder).expanduser()
        / "generated"
        / f"{identity}-{made_by}"
        / f"text-{choice}.npz"
    )
    bank = kept_array(path, lambda: _features(parts, synonyms, options))
    return _assemble(
        everything,
        splits,
        options,
        recognised,
        source=f"{source}, EDA with synonyms from {synonyms.name}",
        fingerprint=identity,
        names=(source_name, *target_names),
        class_names=class_names,
        bank=torch.from_numpy(bank).to(device),
        versions=versions.to(device),
        texts=list(parts[0].texts),
        synonyms=synonyms,
        **fields,
    )


def _code_of(synonyms: Synonyms) -> str:
    """Hash the code that finds synonyms, for the names of kept files. Code without a file, such as
    that of a notebook's cell, is hashed by its contents.
    """
    find = synonyms.find
    module = module_of(find)
    if getattr(sys.modules.get(module), "__file__", None):
        return code_version(module)
    # A built-in method, such as a dictionary's `get`, is hashed with its object.
    return value_hash([find, getattr(find, "__self__", None)], module)[:8]


class Counts(NamedTuple):
    """Reviews of one domain, given by their features."""

    counts: Any  # float32 CSR (N, D)
    labels: Tensor  # int64 (N,), 0 for negative and 1 for positive

    def take(self, places: Tensor) -> "Counts":
        return Counts(self.counts[places.numpy()], self.labels[places])


def make_counts_dataset(
    *,
    source: str,
    train: Counts,
    domains: Mapping[str, Counts],
    options: TextOptions,
    recognised: bool,
    **fields: Any,
) -> TextDataset:
    """Make a dataset from reviews that are given as counts of words, not as texts.

    EDA needs words. So there is none, and the only version of a row is the row itself. The other
    arguments and errors are those of `make_text_dataset`.
    """
    everything = [train, *(domains[name] for name in DOMAINS)]
    orders = [mixed_places(part.labels, seed) for seed, part in enumerate(everything)]
    contents = [train.counts[place].toarray().tobytes() for place in orders[0].x.tolist()]
    fitted, held_out = split_source(orders[0], options, contents)
    parts = [train.take(fitted.x), train.take(held_out.x)]
    for part, order in zip(everything[1:], orders[1:], strict=True):
        parts.append(part.take(order.x[: options.test_size]))
    rows = torch.arange(sum(len(part.labels) for part in parts), device=options.device)
    splits = [
        Split(own, part.labels.to(options.device))
        for own, part in zip(rows.split([len(part.labels) for part in parts]), parts, strict=True)
    ]
    counts = scipy.sparse.vstack([part.counts for part in parts], format="csr")
    bank = torch.from_numpy(_with_msda(counts, len(fitted.y), options))
    tensors = [
        torch.from_numpy(array)
        for part in everything
        for array in (part.counts.indptr, part.counts.indices, part.counts.data)
    ]
    labels = [part.labels for part in everything]
    return _assemble(
        everything,
        splits,
        options,
        recognised,
        source=source,
        fingerprint=fingerprint([*tensors, *labels, *(order.x for order in orders)]),
        bank=bank.to(options.device),
        versions=rows[:, None],
        texts=[f"{row.nnz} of {row.shape[1]:,} features" for row in parts[0].counts],
        synonyms=Synonyms(lambda word: (), NO_WORDS),
        **fields,
    )


def _assemble(
    everything: Sequence[Reviews | Counts],
    splits: Sequence[Split],
    options: TextOptions,
    recognised: bool,
    *,
    names: Sequence[str] = (SOURCE_DOMAIN, *DOMAINS),
    class_names: tuple[str, ...] = ("negative", "positive"),
    **fields: Any,
) -> TextDataset:
    """Make the dataset from the rows of its parts.

    everything: all reviews of the source, then of each target domain.
    splits: the rows of the source's training part and held-out part, then of each target domain.
    names: the names of the domains, the source's first.
    """
    train, held_out, *targets = splits
    tested = held_out.take(slice(options.test_size))
    return TextDataset(
        origin="archive" if recognised else "other",
        recognised=recognised and _whole(everything, options),
        class_names=class_names,
        train=train,
        held_out=held_out,
        options=options,
        domains=dict(zip(names, [tested, *targets], strict=True)),
        **fields,
    )


def _whole(everything: Sequence[Reviews | Counts], options: TextOptions) -> bool:
    """Return whether the options use all reviews of the source and of the target domains."""
    sizes = [options.train_size, *[options.test_size] * (len(everything) - 1)]
    return all(
        size is None or size >= len(part.labels)
        for size, part in zip(sizes, everything, strict=True)
    )


def _as_bytes(texts: Iterable[str]) -> Tensor:
    return torch.frombuffer(bytearray("\0".join(texts).encode()), dtype=torch.uint8)


def _features(parts: Sequence[Reviews], synonyms: Synonyms, options: TextOptions) -> np.ndarray:
    """Return the features of all rows: those of `parts[0]`, of its EDA versions, and of the other
    parts.
    """
    generator = torch.Generator().manual_seed(EDA_SEED)
    versions = [
        " ".join(eda(words(text), options.eda_strength, generator, synonyms.find)[1])
        for text in parts[0].texts
        for _ in range(options.eda_copies)
    ]
    others = [text for part in parts[1:] for text in part.texts]
    counts = count_ngrams(list(parts[0].texts), [*versions, *others], options.vocabulary_size)
    return _with_msda(counts, len(parts[0].labels), options)


def _with_msda(counts: Any, fitted_rows: int, options: TextOptions) -> np.ndarray:
    """Return counts (CSR) as dense features, float32 (R, D), to which their mSDA is appended. mSDA
    is fitted on the first `fitted_rows` rows.
    """
    if not options.msda_layers:
        return counts.toarray()

    def dense(first: int, last: int) -> Tensor:
        return torch.from_numpy(counts[first:last].toarray()).to(options.device)

    fitted = dense(0, fitted_rows)
    weights = msda.fit_msda(
        fitted, layers=options.msda_layers, probability=options.msda_probability
    )
    chunks = (dense(row, row + CHUNK) for row in range(0, counts.shape[0], CHUNK))
    return torch.cat(
        [torch.cat(msda.apply_msda(chunk, weights), 1).cpu() for chunk in chunks]
    ).numpy()


def count_ngrams(fitted: Sequence[str], others: Sequence[str], size: int) -> Any:
    """Count the `size` most frequent unigrams and bigrams of `fitted`. Return their counts in the
    texts of `fitted` and then of `others`, float32 CSR.
    """
    # Imported here, because it takes seconds.
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(token_pattern=WORD, ngram_range=(1, 2), dtype=np.float32)
    counts = vectorizer.fit_transform(fitted)
    # The vectorizer's own max_features breaks ties in an order that depends on the machine's sort.
    # Here ties are broken by the alphabet.
    frequent = np.sort(np.argsort(-np.asarray(counts.sum(0)).ravel(), kind="stable")[:size])
    return scipy.sparse.vstack([counts, vectorizer.transform(others)], format="csr")[:, frequent]
