"""The base of the text datasets: reviews of one source and three target domains, kept as a table of
features.

The stored form of a review is its row, an int64, which `prepare` looks up. Each EDA version of a
training review has a row too, so domain randomisation is the choice of another row. Features are
the counts of the most frequent unigrams and bigrams of the source's training texts and, beside
them, their mSDA, which is fitted on the training rows alone.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy  # it imports scipy.sparse when that is first used
import torch
from pydantic import Field
from torch import Tensor

from cascadetta_lib.augment import generator_for
from cascadetta_lib.augment.text import WORD, FindSynonyms, eda, words
from cascadetta_lib.data import msda
from cascadetta_lib.data.base import Dataset, Options, Split, fingerprint, split_source
from cascadetta_lib.data.streams import Vocabulary
from cascadetta_lib.files import code_version, kept_array

SOURCE_DOMAIN = "books"
DOMAINS = ("dvd", "electronics", "kitchen")  # the targets in the order of the stream (Sec. 5.2)
EDA_SEED = 0
NO_WORDS = "no words"  # the synonyms' name where features are given and there is no EDA
CHUNK = 4096  # rows that mSDA maps at a time


class TextOptions(Options):
    """The options by which text becomes features. The defaults are the paper's values, where the
    paper gives them.
    """

    synthetic_shift: float = Field(
        0.5, ge=0, le=1, description="reviews: share of opinions in a domain's own words"
    )
    vocabulary_size: int = Field(
        5000, ge=1, description="how many of the source's unigrams and bigrams are counted"
    )
    msda_layers: int = Field(
        1, ge=0, description="mSDA layers beside the counts, 0 for none; not in the paper"
    )
    msda_probability: float = Field(
        0.5, ge=0, lt=1, description="probability that mSDA drops a feature"
    )
    eda_strength: float = Field(
        0.05, ge=0, le=1, description="α, share of words that change; EDA's for 2,000 texts"
    )
    eda_copies: int = Field(
        8, ge=1, description="augmented versions of a review; EDA's for 2,000 texts"
    )


class Reviews(NamedTuple):
    """Reviews of one domain."""

    texts: np.ndarray  # of objects (N,)
    labels: Tensor  # int64 (N,), 0 for negative and 1 for positive

    def take(self, places: Tensor) -> "Reviews":
        return Reviews(self.texts[places.numpy()], self.labels[places])


def mixed_places(labels: Tensor, seed: int) -> Split:
    """Return the places of reviews in a mixed order, and their labels.

    Each domain needs its own seed. Files hold one class after the other, so with one seed for all
    domains their batches would have the same labels.
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return Split(order, labels[order])


class Synonyms(NamedTuple):
    """Where synonyms come from."""

    find: FindSynonyms
    name: str  # is shown, and is part of the data's fingerprint


@dataclass(kw_only=True)
class TextDataset(Dataset):
    """Reviews of four product domains.

    bank: the features of all rows, float32 (R, D), on the device.
    versions: the rows that may replace a row under domain randomisation, int64 (R, C): the EDA
        versions of a training review; for any other row the row itself.
    domains: all domains by name, and the held-out reviews of the source.
    texts: the training texts.
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
        source reviews, in a fixed mixed order. Text has no severities.
        """
        return self.domains[name]

    def randomise(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Return one EDA version of each training review, int64 (N,)."""
        count = self.versions.shape[1]
        generator = generator_for(x, generator)
        return self.versions[x, torch.randint(count, x.shape, generator=generator, device=x.device)]

    def prepare(self, x: Tensor) -> Tensor:
        """Convert rows, int64 (N,), to features, float32 (N, D)."""
        return self.bank[x]

    def augmented_texts(
        self, index: int, count: int, generator: torch.Generator
    ) -> list[tuple[str, str]]:
        """Return `count` EDA versions of a training review as pairs of operation and text."""
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
    """Make the dataset of all reviews of the source (`train`) and of the target domains, cut as
    the options say.

    recognised: whether the reviews are the paper's; the dataset is recognised if, besides, none of
    them is cut away. fields: name, domain_source and compare_with of `TextDataset`.
    """
    everything = [train, *(domains[name] for name in target_names)]
    orders = [mixed_places(part.labels, seed) for seed, part in enumerate(everything)]
    # Many reviews are there twice; none is trained on and held out at once.
    contents = [" ".join(words(train.texts[place])) for place in orders[0].x.tolist()]
    fitted, held_out = split_source(orders[0], options, contents)
    targets = [
        part.take(order.x[: options.test_size])
        for part, order in zip(everything[1:], orders[1:], strict=True)
    ]
    parts = [train.take(fitted.x), train.take(held_out.x), *targets]

    # The rows of the features are those of the training reviews, of their EDA versions and of the
    # other parts.
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
    made_by = code_version(
        __name__, msda.__name__, *(part.__module__ for part in (eda, split_source, synonyms.find))
    )
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


class Counts(NamedTuple):
    """Features of the reviews of one domain."""

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
    """Make the dataset of reviews whose features are given, cut as the options say.

    Without words there is no EDA: a row's only version is itself. The arguments are those of
    `make_text_dataset`.
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
    """Put a dataset together.

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
    """Return whether the options cut nothing away from the source and the target domains."""
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
    """Return counts (CSR) as dense features and, beside them, their mSDA, which is fitted on the
    first rows.
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
    """Return counts (float32 CSR) of the `size` most frequent unigrams and bigrams of `fitted` in
    these and in `others`.
    """
    # Imported here, because it takes seconds.
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(token_pattern=WORD, ngram_range=(1, 2), dtype=np.float32)
    counts = vectorizer.fit_transform(fitted)
    # The vectorizer's own max_features breaks ties as the machine's sort does; here the alphabet
    # decides.
    frequent = np.sort(np.argsort(-np.asarray(counts.sum(0)).ravel(), kind="stable")[:size])
    return scipy.sparse.vstack([counts, vectorizer.transform(others)], format="csr")[:, frequent]
