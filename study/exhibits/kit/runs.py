"""What an exhibit reads: the stored runs that a profile asks for, as one tidy table, and intervals
around means.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from cascadetta_lib.data import identity
from cascadetta_lib.data.base import Modality
from cascadetta_lib.data.cifar10_sample import DISTINCT
from cascadetta_lib.evaluation.metrics import (
    Transfer,
    average_accuracy,
    forward_transfer,
    mean_online_error,
)
from cascadetta_lib.methods import METHODS
from study import weights as networks
from study.exhibits.kit.style import number
from study.settings import Settings
from study.store import Run, RunRequest, Store
from study.study import Study

CONFIDENCE, RESAMPLES, LEAST_BATCHES = 0.95, 2000, 10
"""Of every interval, and of the bootstrap, which draws from at least so many batches of a domain.
"""
TRANSFERS: dict[str, Transfer] = {"F": "paper", "F_final": "final", "F_unadapted": "unadapted"}
PUBLISHED = ("release:", "robustbench:")
"""What `image_weights` begins with where others trained the network, on their own images."""
METRICS = ("E", "A", *TRANSFERS)
"""Online error and average accuracy in percent; forward transfer, by three definitions, in points.
"""


@dataclass(frozen=True)
class Point:
    """One run whatever its seed. label: what tables and figures call it. objective: the
    pre-training that it starts from, None for the method's own. changes: what differs from the
    profile's section, as for `Study.varied`."""

    label: str
    method: str
    objective: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


def points_for(methods: Sequence[str], several: Iterable[Mapping[str, Any]] = ({},)) -> list[Point]:
    """A point for each method under its own label and on its own pre-training, with each of
    `several` changes.
    """
    return [
        Point(METHODS[name].label, name, None, changes) for changes in several for name in methods
    ]


def points_with_transfer(
    settings: Settings, methods: Iterable[str], changes: Mapping[str, Any]
) -> list[Point]:
    """A point for each method, with F if the profile measures it and has this method; but not of
    CoTTA on a published network, where it costs as much as everything else together."""
    image = settings.image
    measured = set(image.methods if image.forward_transfer else ())
    measured -= {"cotta"} if image.weights.startswith(PUBLISHED) else set()
    return [
        Point(METHODS[one].label, one, None, {**changes, "forward_transfer": one in measured})
        for one in methods
    ]


def main_points(settings: Settings, modality: Modality) -> list[Point]:
    """The main study: every method of the profile on the profile's stream."""
    return points_for(getattr(settings, modality).methods)


def reduced(settings: Settings, **changes: Any) -> dict[str, Any]:
    """The changes of an ablation on images: the instantaneous stream, its number of images, no F;
    and `changes`.
    """
    made = {
        "stream": "instantaneous",
        "test_size": settings.image.ablation_test_size,
        "forward_transfer": False,
    }
    return made | changes


def by_label(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each label of a `Runs.frame`, in the order they come."""
    return {str(label): rows for label, rows in frame.groupby("label", sort=False)}


class Runs:
    """The stored runs of one dataset that a profile asks for, whichever profile made them. All are
    on the same data as the newest: one that was made before the data changed is not counted as one
    more seed."""

    def __init__(
        self, settings: Settings, modality: Modality = "image", dataset_name: str | None = None
    ) -> None:
        settings = settings.model_copy(update={"device": "cpu"})  # The runs' own need not be here.
        self.settings = (
            settings if dataset_name is None else settings.vary(modality, {"dataset": dataset_name})
        )
        self.modality = modality
        self.study = Study(self.settings, modality)
        self.dataset_name = self.study.dataset_name
        self._metrics: dict[RunRequest, dict[str, float]] = {}

    @cached_property
    def stored(self) -> list[Run]:
        """Every run of this dataset in the store."""
        folder = self.study.store.folder
        names = tuple(sorted(path.name for path in (folder / "runs").glob("*")))
        return list(_read(folder, names, self.modality, identity(self.dataset_name)))

    def frame(self, points: Sequence[Point], seeds: Iterable[int] | None = None) -> pd.DataFrame:
        """A row a stored run, by point and seed: label, method, objective, seed, every name that a
        point changes, the METRICS (NaN where one was not measured), and run, the run itself. seeds:
        None is every seed in the store."""
        names = list(dict.fromkeys(name for point in points for name in point.changes))
        rows = []
        for point in points:
            for run in self._find(point, seeds):
                objective = run.request.checkpoint.objective
                start = {
                    "label": point.label,
                    "method": point.method,
                    "objective": objective,
                    "seed": run.seed,
                }
                rows.append(start | dict(point.changes) | self._measured(run) | {"run": run})
        return pd.DataFrame(
            rows, columns=["label", "method", "objective", "seed", *names, *METRICS, "run"]
        )

    def missing(self, points: Sequence[Point], seeds: Sequence[int]) -> list[str]:
        """What the store lacks of these points and seeds: no line, or one that says it."""
        if not points:
            return [
                "Not asked for: the profile has none of its methods, or none of its networks is "
                "there."
            ]
        lacking = [
            (point, seed)
            for point in points
            for seed in seeds
            if not self._find(point, [seed], whole=True)
        ]
        count, for_f = (
            len(points) * len(seeds),
            sum(bool(self._find(point, [seed])) for point, seed in lacking),
        )
        if len(lacking) - for_f == count:
            return [f"Missing: none of its {count} runs is stored."]
        named = ", ".join(
            dict.fromkeys(f"{point.label} (seed {seed})" for point, seed in lacking[:4])
        )
        told = f"{len(lacking)} of {count} runs are missing" + f", {for_f} of them for F alone" * (
            for_f > 0
        )
        return [f"Partial: {told}, such as {named}."] if lacking else []

    def history(self, run: Run) -> pd.DataFrame | None:
        """How the network of `run` was trained, a row an epoch; None where that is not known."""
        asked = run.request.checkpoint
        path = networks.SHIPPED / f"{asked.objective}-{asked.seed}.csv"
        if not asked.weights.startswith("shipped:") or not path.exists():
            return self.study.store.history(run)
        return (
            pd.read_csv(path)
            if networks.origin("shipped", asked.objective, asked.seed) == asked.weights
            else None
        )

    def histories(self, frame: pd.DataFrame) -> pd.DataFrame:
        """How the networks behind a `frame` were pre-trained: label, objective, seed, classes, and
        the columns of pretrain's history, a row an epoch. A network that was brought has no
        history."""
        found = []
        for row in frame.drop_duplicates(["label", "objective", "seed"]).to_dict("records"):
            if (history := self.history(row["run"])) is not None:
                named = {name: row[name] for name in ("label", "objective", "seed")}
                found.append(
                    history.assign(**named, classes=len(row["run"].provenance["class_names"]))
                )
        return pd.concat(found, ignore_index=True) if found else pd.DataFrame()

    @cached_property
    def _by_request(self) -> dict[RunRequest, Run]:
        """The stored runs by what was asked for: those on the data of the newest with the same
        dataset's options.
        """
        ordered = sorted(self.stored, key=lambda run: str(run.provenance["finished"]))
        newest = {str(run.request.checkpoint.options): _data(run) for run in ordered}
        return {
            run.request: run
            for run in ordered
            if _data(run) == newest[str(run.request.checkpoint.options)]
        }

    def _find(self, point: Point, seeds: Iterable[int] | None, *, whole: bool = False) -> list[Run]:
        """The runs of a point by seed. F may be there unasked, or asked for and not there unless
        `whole`.
        """
        varied = self.study.varied(**point.changes) if point.changes else self.study
        runs = []
        for seed in sorted({run.seed for run in self.stored} if seeds is None else set(seeds)):
            with suppress(networks.NetworkError):  # There is none for this pre-training and seed.
                request = varied.at_seed(seed).request(point.method, point.objective)
                without = (
                    request if whole else request.model_copy(update={"forward_transfer": False})
                )
                runs.append(
                    self._by_request.get(request.with_transfer) or self._by_request.get(without)
                )
        return [run for run in runs if run is not None]

    def _measured(self, run: Run) -> dict[str, float]:
        """E, A and F of one of the stored runs (METRICS), worked out once."""
        if run.request not in self._metrics:
            values = {
                name: forward_transfer(run.accuracies, definition)
                for name, definition in TRANSFERS.items()
            }
            values |= {"E": mean_online_error(run.batches), "A": average_accuracy(run.accuracies)}
            self._metrics[run.request] = {
                n: math.nan if v is None else 100 * v for n, v in values.items()
            }
        return self._metrics[run.request]


@lru_cache(maxsize=4)
def _read(folder: Path, names: tuple[str, ...], modality: Modality, dataset: str) -> list[Run]:
    """The runs of a dataset in a store, read again where `names`, its entries, have changed."""
    wanted = (modality, dataset)
    return list(
        Store(folder).runs(
            lambda asked: (asked.checkpoint.modality, asked.checkpoint.dataset) == wanted
        )
    )


def _data(run: Run) -> tuple[str, str]:
    """What stands for the data of a run: their fingerprint, and where the domains come from."""
    return run.provenance["fingerprint"], run.provenance["domain_source"]


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval (NaN where there is none), and how many values of what it is
    taken over.
    """

    mean: float
    low: float
    high: float
    n: int
    over: str = "seeds"

    def __str__(self) -> str:
        if math.isnan(self.low):
            return (
                f"{number(self.mean)} ({self.n} "
                f"{self.over.removesuffix('s') if self.n == 1 else self.over})"
            )
        return f"{number(self.mean)} {self.interval} ({self.n} {self.over})"

    @property
    def interval(self) -> str:
        """`[low, high]`, or a dash."""
        return "–" if math.isnan(self.low) else f"[{number(self.low)}, {number(self.high)}]"


def over_seeds(values: Sequence[float] | pd.Series) -> Estimate:
    """The mean of one value a seed, with Student's interval; one seed has none. The seeds of a
    study share their training examples and their test stream, so the interval covers initialisation
    and order alone."""
    mean, n = float(np.mean(values)), len(values)
    half = (
        float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * stats.sem(values)) if n > 1 else math.nan
    )
    return Estimate(mean, mean - half, mean + half, n)


def paired(first: pd.DataFrame, second: pd.DataFrame) -> Estimate | None:
    """E of `second` less that of `first` (tables of `Runs.frame`, a run a seed), over the seeds of
    both, if any.
    """
    both = (second.set_index("seed")["E"] - first.set_index("seed")["E"]).dropna()
    return over_seeds(both) if len(both) else None


def images_at(run: Run, positions: pd.Series) -> pd.Series:
    """Which images stand at these positions of a domain: the places where they came first, in a
    long stream.
    """
    return (
        positions % DISTINCT
        if run.request.checkpoint.dataset.startswith("cifar10_sample")
        else positions
    )


def percentiles(draws: np.ndarray) -> tuple[float, float]:
    """The interval that bootstrap draws give."""
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def bootstrap(first: pd.DataFrame, second: pd.DataFrame) -> Estimate | None:
    """E of `second` less E of `first` on the same networks and batches, with an interval over the
    test batches.

    A paired block bootstrap: blocks of consecutive batches, as long as the cube root of their
    number, are drawn with replacement, since what a method has learned from one batch shows in the
    next; the same ones in all domains of images and of speech, which hold the same examples in one
    order. Errors are averaged over the common seeds first, which share the test examples. The
    interval is given these networks: it says nothing of others. None without a common seed; NaN as
    limits where a domain has fewer than LEAST_BATCHES, and on mixed and correlated streams.
    """
    both = first.merge(second, on="seed")
    if both.empty:
        return None
    keys, run = ["step", "position", "count"], both["run_x"].iloc[0]
    tables = [
        one.batches.merge(two.batches, on=keys)
        for one, two in zip(both["run_x"], both["run_y"], strict=True)
    ]
    pairs = pd.concat(tables).assign(more=lambda table: table["errors_y"] - table["errors_x"])
    pairs["position"] = images_at(run, pairs["position"])
    pairs = pairs.groupby(["step", "position"])[["more", "count"]].sum()
    means, draws = [], []
    for step, domain in pairs.groupby("step"):
        more, count = domain["more"].to_numpy(), domain["count"].to_numpy()
        means.append(more.sum() / count.sum())
        length = max(1, round(len(more) ** (1 / 3)))
        generator = np.random.default_rng(step if run.request.checkpoint.modality == "text" else 0)
        starts = generator.integers(len(more), size=(RESAMPLES, math.ceil(len(more) / length), 1))
        drawn = ((starts + np.arange(length)) % len(more)).reshape(RESAMPLES, -1)[:, : len(more)]
        draws.append(more[drawn].sum(axis=1) / count[drawn].sum(axis=1))
    enough = pairs.groupby("step").size().min() >= LEAST_BATCHES and not run.request.order
    repeated = run.request.checkpoint.dataset.startswith("cifar10_sample")
    if repeated and run.request.order_seed is not None:
        enough = False  # The versions of an image are scattered over the batches.
    low, high = percentiles(100 * np.mean(draws, axis=0)) if enough else (math.nan, math.nan)
    return Estimate(100 * float(np.mean(means)), low, high, len(pairs), "batches")
