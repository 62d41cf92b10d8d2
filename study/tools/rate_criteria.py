"""Choose the label-free criterion that selects Tent's learning rate online, on source images alone.

    python -m study.tools.rate_criteria record WEIGHTS RECORDS [--data FOLDER]
    python -m study.tools.rate_criteria compare RECORDS

`record` runs Tent at each rate on streams of held-out training images of CIFAR-10, under four
corruptions that are no test domains. It keeps the logits of every batch, a file per stream.
`compare` tries every criterion on these records and writes docs/rate-criteria.csv and .md. The copy
of the network at one rate does not depend on the other copies, so a criterion needs no run of its
own.

The regret of a criterion on a stream is E of the selected predictions minus E of the best fixed
rate. The criterion with the smallest worst regret over the streams, in tenths of a point, is
chosen. If several are equal, the first in `candidates` is chosen, where simpler criteria come
first.
"""

import argparse
import copy
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.special import entr, log_softmax, rel_entr
from torch import Tensor, nn

from cascadetta_lib.data.base import DataMissing, Dataset, Split
from cascadetta_lib.data.corruptions import HELD_OUT_CORRUPTIONS, corrupt
from cascadetta_lib.data.streams import (
    GRADUAL_SEVERITIES,
    MIXED,
    Domain,
    Order,
    order_of_examples,
)
from cascadetta_lib.files import write_atomically, write_text_atomically
from cascadetta_lib.methods import METHODS
from study import ROOT
from study.exhibits.kit.numbers import number
from study.exhibits.kit.rendering import markdown
from study.provenance import code_revision
from study.settings import SettingsError, load_profile
from study.study import Study

TABLE = ROOT / "docs" / "rate-criteria.csv"
PAGE = ROOT / "docs" / "rate-criteria.md"
RATES = (1e-4, 1e-3, 1e-2)
WINDOWS = (256, 1024)
"""The numbers of examples that a criterion may look back on. Up to this number, a measure is the
mean over all examples so far. After that, it is a moving mean over about this many.
"""
BATCH = 32
DELTA = 0.1
"""δ of the streams with correlated labels, as in the profiles."""
MOST_IMAGES = 1472
"""The number of test images that the dataset is read with. No recipe takes more than 992."""


@dataclass(frozen=True)
class Recipe:
    """A stream of the four held-out corruptions.

    images: the number of images of each domain.
    order: see streams.Order.
    severities: the severities that each corruption goes through.
    rounds: how often the whole sequence of domains comes.
    pairs: whether a domain has two corruptions, one on top of the other, which is harder. Then all
        ordered pairs come.
    """

    images: int
    order: Order | None = None
    severities: tuple[int, ...] = (5,)
    rounds: int = 1
    pairs: bool = False

    @property
    def domains(self) -> list[tuple[Domain, ...]]:
        """The domains in the order of the stream. Each is the tuple of its corruptions, in the
        order in which they are applied.
        """
        names = itertools.permutations(HELD_OUT_CORRUPTIONS, 2 if self.pairs else 1)
        once = [
            tuple(Domain(name, level) for name in several)
            for several in names
            for level in self.severities
        ]
        return once * self.rounds


RECIPES = {
    "correlated": Recipe(992, "correlated"),
    "recurring": Recipe(160, rounds=16),
    "pairs": Recipe(576, pairs=True),
    "pairs, mixed and correlated": Recipe(160, "mixed_correlated", pairs=True),
    "gradual and correlated": Recipe(96, "correlated", GRADUAL_SEVERITIES),
}
"""The streams, of 60 to 320 batches each. In the first version of this list, two streams with one
corruption at a time, one in order and one mixed and correlated, stood in place of the two streams
of pairs. They were replaced after `recurring` had shown that no rate collapses under one corruption
at a time, on images that the network has learned from.
"""


@dataclass(frozen=True)
class Record:
    """What Tent predicted along a stream of N examples and T batches, at each of K rates.

    logits: (N, K, C), for C classes.
    labels: (N,).
    sizes: the number of examples of each batch, (T,).
    """

    logits: np.ndarray
    labels: np.ndarray
    sizes: np.ndarray


def batches(recipe: Recipe, dataset: Dataset) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the prepared batches of a stream with their labels. The order is drawn by the rule of
    the evaluator. But if a domain comes again, its order is drawn again.
    """
    generator = np.random.default_rng(0)
    stretches = [[domain] for domain in recipe.domains]
    if recipe.order in MIXED:
        stretches = [recipe.domains]
    for stretch in stretches:
        splits = [images_of(several, recipe.images, dataset) for several in stretch]
        x = torch.cat([split.x for split in splits])
        y = torch.cat([split.y for split in splits])
        places = order_of_examples(recipe.order, y.numpy(), DELTA, generator)
        for chosen in torch.from_numpy(places).split(BATCH):
            yield dataset.prepare(x[chosen]), y[chosen]


def images_of(several: Sequence[Domain], count: int, dataset: Dataset) -> Split:
    """Return the first held-out images, under the corruptions of a domain one after the other.

    several: the corruptions, with their severities.
    count: the number of images.
    """
    first, *others = several
    split = dataset.domain(*first).take(slice(count))
    x = split.x
    for name, severity in others:
        x = corrupt(x, name, severity)
    return Split(x, split.y)


def record(recipe: Recipe, dataset: Dataset, network: nn.Module) -> Record:
    """Run Tent along a stream at each rate, each on a copy of the network, and return its
    predictions.
    """
    copies = [METHODS["tent"](copy.deepcopy(network), learning_rate=rate) for rate in RATES]
    logits = []
    labels = []
    for x, y in batches(recipe, dataset):
        logits.append(torch.stack([tent(x) for tent in copies], 1))
        labels.append(y)
    sizes = np.array([len(y) for y in labels])
    return Record(torch.cat(logits).numpy(), torch.cat(labels).numpy(), sizes)


def keep(path: Path, made: Record) -> None:
    """Write a record to a file."""
    write_atomically(
        path,
        lambda file: np.savez_compressed(
            file, logits=made.logits, labels=made.labels, sizes=made.sizes
        ),
    )


def read(path: Path) -> Record:
    """Read a record from its file."""
    with np.load(path) as stored:
        return Record(stored["logits"], stored["labels"], stored["sizes"])


@dataclass(frozen=True)
class Measures:
    """What a criterion sees of K copies after each of T batches. All values are means over a
    window.

    mean: the mean prediction, (T, K, C).
    entropy: the mean entropy of a prediction in nats, (T, K).
    agreement: the share of examples on which two copies predict the same class, (T, K, K).
    surprise: the mean cross-entropy of a copy to the mean of all copies' predictions, (T, K).
    """

    mean: np.ndarray
    entropy: np.ndarray
    agreement: np.ndarray
    surprise: np.ndarray

    @property
    def entropy_of_mean(self) -> np.ndarray:
        """The entropy of the mean prediction in nats, (T, K)."""
        return entr(self.mean).sum(2)


def measures(made: Record, window: int) -> Measures:
    """Return what a criterion sees of a record. The labels have no part in it.

    window: see `moving_means`.
    """
    log_p = log_softmax(made.logits.astype(np.float64), axis=2)
    p = np.exp(log_p)
    classes = p.argmax(2)
    of_examples = Measures(
        mean=p,
        entropy=-(p * log_p).sum(2),
        agreement=(classes[:, :, None] == classes[:, None, :]).astype(float),
        surprise=-(p.mean(1, keepdims=True) * log_p).sum(2),
    )
    return Measures(
        mean=moving_means(of_examples.mean, made.sizes, window),
        entropy=moving_means(of_examples.entropy, made.sizes, window),
        agreement=moving_means(of_examples.agreement, made.sizes, window),
        surprise=moving_means(of_examples.surprise, made.sizes, window),
    )


def moving_means(values: np.ndarray, sizes: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of values after each batch, (T, …).

    Up to `window` examples it is the mean over all so far. After that, it is a moving mean over
    about the last `window`.

    values: a value per example, (N, …).
    sizes: the number of examples of each batch, (T,).
    """
    found = []
    mean = np.zeros(values.shape[1:])
    seen = 0
    for batch in np.split(values, np.cumsum(sizes)[:-1]):
        seen += len(batch)
        share = min(1.0, len(batch) / min(seen, window))
        mean = mean + share * (batch.mean(0) - mean)
        found.append(mean)
    return np.stack(found)


Select = Callable[[Measures, float], np.ndarray]
"""A criterion. By measures and a threshold it returns the place of the preferred copy after each
batch, (T,). Copies are ordered by rate. If several are equal, the smallest rate is preferred.
"""


def mutual_information(seen: Measures, threshold: float) -> np.ndarray:
    """The largest H(mean p) − mean H(p)."""
    return (seen.entropy_of_mean - seen.entropy).argmax(1)


def consensus(seen: Measures, threshold: float) -> np.ndarray:
    """The copy that the others agree with most."""
    return seen.agreement.mean(2).argmax(1)


def surprise(seen: Measures, threshold: float) -> np.ndarray:
    """The smallest cross-entropy to the mean of all copies' predictions."""
    return seen.surprise.argmin(1)


def diversity(seen: Measures, threshold: float) -> np.ndarray:
    """The largest rate with H(mean p) at least `threshold` times that of the smallest rate."""
    diverse = seen.entropy_of_mean
    return largest(diverse >= threshold * diverse[:, :1])


def agreement(seen: Measures, threshold: float) -> np.ndarray:
    """The copy with the lowest mean entropy, of those that agree with the copy at the smallest
    rate. Two copies agree if the share of examples for which they predict the same class is at
    least `threshold`.
    """
    agreeing = seen.agreement[:, 0] >= threshold
    return np.where(agreeing, seen.entropy, np.inf).argmin(1)


def divergence(seen: Measures, threshold: float) -> np.ndarray:
    """The largest rate with KL(mean p of the smallest rate ‖ its own mean p) at most `threshold`
    nats.
    """
    apart = rel_entr(seen.mean[:, :1], seen.mean).sum(2)
    return largest(apart <= threshold)


def largest(allowed: np.ndarray) -> np.ndarray:
    """Return the place of the last allowed copy after each batch, (T,); 0 if none is allowed.

    allowed: bool, (T, K).
    """
    allowed = allowed.copy()
    allowed[:, 0] = True
    return allowed.shape[1] - 1 - allowed[:, ::-1].argmax(1)


@dataclass(frozen=True)
class Candidate:
    """A criterion with its window and its threshold.

    threshold: NaN if the criterion has none.
    """

    select: Select
    window: int
    threshold: float = np.nan

    def selected(self, made: Record) -> np.ndarray:
        """Return the place of the preferred copy after each batch, (T,)."""
        return self.select(measures(made, self.window), self.threshold)


THRESHOLDS: dict[Select, tuple[float, ...]] = {
    mutual_information: (np.nan,),
    consensus: (np.nan,),
    surprise: (np.nan,),
    diversity: (0.9, 0.95, 0.98, 0.99),
    agreement: (0.7, 0.8, 0.85, 0.9, 0.95),
    divergence: (0.002, 0.005, 0.01, 0.02, 0.05),
}
"""The criteria, simpler ones first, with the thresholds to try."""


def candidates() -> list[Candidate]:
    """Return every candidate, simpler ones first."""
    return [
        Candidate(select, window, threshold)
        for select, thresholds in THRESHOLDS.items()
        for window, threshold in itertools.product(WINDOWS, thresholds)
    ]


def error(made: Record, selected: np.ndarray) -> float:
    """Return the error of the selected copies' predictions, in percent.

    selected: the place of the selected copy at each batch, (T,).
    """
    of_examples = np.repeat(selected, made.sizes)
    predicted = made.logits.argmax(2)[np.arange(len(made.labels)), of_examples]
    return float(100 * (predicted != made.labels).mean())


def compare(records: dict[str, Record]) -> pd.DataFrame:
    """Return the regret of each fixed rate and of each candidate on each stream, in points.

    The columns are criterion, window, threshold, one per stream, and the worst of these. The first
    row has E (%) of the best fixed rate instead of regrets. The next rows are those of the fixed
    rates. In all of these the window is 0.
    """
    rows: list[dict[str, object]] = []
    fixed = {
        stream: [error(made, np.full(len(made.sizes), copy)) for copy in range(len(RATES))]
        for stream, made in records.items()
    }
    best = {stream: min(errors) for stream, errors in fixed.items()}
    for copy_, rate in enumerate(RATES):
        errors = {stream: of_rates[copy_] for stream, of_rates in fixed.items()}
        regrets = {stream: errors[stream] - best[stream] for stream in records}
        rows.append(_row(f"always {rate:g}", 0, np.nan, regrets))
    for one in candidates():
        regrets = {
            stream: error(made, one.selected(made)) - best[stream]
            for stream, made in records.items()
        }
        rows.append(_row(one.select.__name__, one.window, one.threshold, regrets))
    smallest = {"criterion": "E (%) of the best fixed rate", "window": 0, "threshold": np.nan}
    return pd.DataFrame([smallest | best, *rows])


def _row(criterion: str, window: int, threshold: float, regrets: dict[str, float]) -> dict:
    about = {"criterion": criterion, "window": window, "threshold": threshold}
    return about | regrets | {"worst": max(regrets.values())}


def chosen(table: pd.DataFrame) -> int:
    """Return the index of the row that the rule chooses."""
    tried = table[table["window"] > 0]
    return int(tried.index.to_numpy()[tried["worst"].round(1).argmin()])


TEXT = """# Criteria that select the rate online

Written by `python -m study.tools.rate_criteria compare`. Revision {revision}.

`tent_rate_selection` carries a copy of Tent at each of the rates {rates} and answers, after each \
batch, with the copy that a criterion without labels prefers. The criterion was chosen here, \
on source images alone, before the rule met a test stream: held-out training images of CIFAR-10, \
under {corruptions}, none of which is a test domain, on the network that the authors published. It \
has learned from these images without the corruptions. One order of each stream. The criteria and \
thresholds were written down first. The list of streams was changed once. At first it had two \
more streams with one corruption at a time, one in order and one mixed and correlated, and no \
stream of pairs. Then the recurring stream showed that no rate collapses under one corruption at \
a time. So the two streams of pairs took the place of the other two.

Numbers are regrets in points: E of the selected predictions minus E of the best fixed rate on \
that stream. The rule takes the smallest worst regret, in tenths of a point. If several are equal, \
it takes the first in this table. It chooses **{chosen}**. A window is the number of examples that \
a criterion looks back on.

{table}

{streams}

{criteria}
"""


def page(table: pd.DataFrame, revision: str) -> str:
    """Return docs/rate-criteria.md as a whole."""
    best = chosen(table)
    shown = pd.DataFrame(index=table.index)
    shown["criterion"] = table["criterion"]
    shown["window"] = table["window"].map(lambda window: str(window) if window else "–")
    shown["threshold"] = table["threshold"].map(
        lambda value: "–" if np.isnan(value) else f"{value:g}"
    )
    for name in [*RECIPES, "worst"]:
        shown[name] = table[name].map(number)
    shown.loc[best] = "**" + shown.loc[best] + "**"
    streams = [f"* *{name}*: {_told(recipe)}" for name, recipe in RECIPES.items()]
    criteria = [f"* *{select.__name__}*: {_said(select.__doc__)}" for select in THRESHOLDS]
    row = table.loc[best]
    threshold = "" if np.isnan(row["threshold"]) else f", threshold {row['threshold']:g}"
    return TEXT.format(
        revision=revision,
        rates=", ".join(f"{rate:g}" for rate in RATES),
        corruptions=", ".join(HELD_OUT_CORRUPTIONS),
        chosen=f"{row['criterion']}, window {row['window']}{threshold}",
        table=markdown(shown.set_index("criterion")),
        streams="\n".join(streams),
        criteria="\n".join(criteria),
    )


def _told(recipe: Recipe) -> str:
    order = "in order" if recipe.order is None else recipe.order.replace("_", " and ")
    rounds = f", in {recipe.rounds} rounds" if recipe.rounds > 1 else ""
    pairs = ", each a corruption on top of another" if recipe.pairs else ""
    once = len(recipe.domains) // recipe.rounds
    return f"{once} domains of {recipe.images} images, {order}{rounds}{pairs}."


def _said(docstring: str | None) -> str:
    return " ".join((docstring or "").split()).replace("`threshold`", "the threshold")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `record` or `compare`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("record", "compare"))
    parser.add_argument("weights", nargs="?", help="the authors' checkpoint, for `record`")
    parser.add_argument("records", type=Path)
    data = os.environ.get("CASCADETTA_DATA", "data")
    parser.add_argument("--data", default=data, help="where the official CIFAR-10 is")
    asked = parser.parse_args(arguments)
    if asked.step == "compare":
        if asked.weights is not None:
            parser.error(f"compare needs RECORDS alone, without {asked.weights}")
        lacking = [name for name in RECIPES if not (asked.records / f"{name}.npz").is_file()]
        if lacking:
            parser.error(f"{asked.records} has no {lacking[0]}.npz; `record` writes the records")
        records = {name: read(asked.records / f"{name}.npz") for name in RECIPES}
        table = compare(records)
        write_text_atomically(TABLE, table.to_csv(index=False, float_format="%.4f"))
        write_text_atomically(PAGE, page(table, code_revision()))
        return
    if asked.weights is None:
        parser.error("record needs WEIGHTS and RECORDS: the authors' checkpoint, and a folder")
    if not Path(asked.weights).is_file():
        parser.error(f"WEIGHTS is {asked.weights}, and there is no such file")
    changes = {
        "image_dataset": "cifar10",
        "image_test_size": MOST_IMAGES,
        "image_weights": f"release:{asked.weights}",
        "data_folder": asked.data,
        "device": "cpu",
    }
    try:
        study = Study(load_profile("released", changes))
        network = study.checkpoint(METHODS["tent"].objective).model
        dataset = study.dataset
    except (SettingsError, DataMissing, ValueError) as error:
        parser.error(str(error))
    for name, recipe in RECIPES.items():
        path = asked.records / f"{name}.npz"
        if not path.exists():
            keep(path, record(recipe, dataset, network))
            print(f"{name}: recorded", flush=True)


if __name__ == "__main__":
    main()
