"""What the store holds for a profile: the runs of the main study and of every experiment, and what is missing of them.

Exhibits and verdicts read this and nothing else; no model is touched.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from cascadetta_lib.data.base import Modality
from cascadetta_lib.evaluate import average_accuracy, forward_transfer, mean_online_error
from cascadetta_lib.experiments import EXPERIMENTS, ONCE, Point, chosen_experiments, find_runs, seeds_of
from cascadetta_lib.settings import Settings
from cascadetta_lib.study import Run, Store, Trained, belongs, code_revision

NOTEBOOKS: dict[Modality, str] = {"image": "02_adapt_image", "text": "03_adapt_text", "speech": "04_adapt_speech"}
"""Which notebook makes the main runs."""
CONFIDENCE = 0.95
"""Of every interval."""


@dataclass(frozen=True)
class Found:
    """A point of an experiment and its stored runs, one for each seed that is there, by seed."""

    point: Point
    runs: list[Run]


class Evidence:
    """The stored runs that a profile asks for. All runs of a dataset are on the same data as the newest of them: what
    was made before the data changed is not taken for a seed more."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.store = settings, Store(settings.results_path)
        self._main: dict[tuple[Modality, str], list[Run]] = {}
        self._experiments: dict[tuple[str, str], list[Found]] = {}

    @cached_property
    def stored(self) -> list[Run]:
        """Every run in the store, this profile's or not."""
        return list(self.store.runs())

    def main(self, modality: Modality, dataset: str) -> list[Run]:
        """The main study on a dataset: every method of the profile on its stream, in the profile's order, by seed."""
        if (modality, dataset) not in self._main:
            methods: Sequence[str] = getattr(self.settings, f"{modality}_methods")
            found = [run for run in self.stored if belongs(run, self.settings, modality, dataset)]
            runs = self._on_newest_data(found)
            runs.sort(key=lambda run: (methods.index(run.config.method), run.seed))
            self._main[modality, dataset] = runs
        return self._main[modality, dataset]

    def experiment(self, name: str, dataset: str) -> list[Found]:
        """The points of an experiment on an image dataset, with or without runs; none where it is not made there."""
        if name not in chosen_experiments(dataset):
            return []
        if (name, dataset) not in self._experiments:
            seeds = seeds_of(name, self.settings) if name in ONCE else None
            self._experiments[name, dataset] = self.points(EXPERIMENTS[name](self.settings), dataset, seeds)
        return self._experiments[name, dataset]

    def points(self, points: Sequence[Point], dataset: str, seeds: Sequence[int] | None = None) -> list[Found]:
        """Points on an image dataset with their stored runs, of these seeds or of all."""
        found = [(point, find_runs(self.stored, self.settings, dataset, point)) for point in points]
        kept = [(point, self._on_newest_data(runs)) for point, runs in found]
        return [Found(point, [run for run in runs if seeds is None or run.seed in seeds]) for point, runs in kept]

    def _on_newest_data(self, runs: list[Run]) -> list[Run]:
        """Those of `runs`, all of one dataset cut in one way, on the same data as the newest run of all on that."""
        if not runs:
            return []
        source = runs[0].config.checkpoint.source
        sources = [(run, run.config.checkpoint.source) for run in self.stored]
        same = [run for run, other in sources if (other.dataset, other.options) == (source.dataset, source.options)]
        newest = max(same, key=lambda run: str(run.provenance["finished"]))
        return [run for run in runs if _data(run) == _data(newest)]

    def trained(self, runs: Iterable[Run]) -> list[Trained]:
        """The histories of the pre-trainings that `runs` started from, each once."""
        configs = {run.config.checkpoint.key: run.config.checkpoint for run in runs}
        found = (self.store.trained(config) for config in configs.values())
        return [trained for trained in found if trained is not None]


def _data(run: Run) -> tuple[str, str]:
    return run.config.checkpoint.source.fingerprint, run.config.domain_source


# ---------------------------------------------------------------- what is missing, and what was made elsewhere


def main_gaps(settings: Settings, modality: Modality, runs: Sequence[Run]) -> list[str]:
    """A line for each method and seed of the profile without a run, or one line where there is none at all."""
    if not runs:
        return [f"missing: no run of it is stored; {NOTEBOOKS[modality]} makes them"]
    there = {(run.config.method, run.seed) for run in runs}
    asked = itertools.product(getattr(settings, f"{modality}_methods"), settings.seeds)
    return [f"partial: {method}, seed {seed}: no run" for method, seed in asked if (method, seed) not in there]


def experiment_gaps(settings: Settings, found: Sequence[Found], seeds: Sequence[int] | None = None) -> list[str]:
    """What an experiment lacks, in a line: nothing of it is there (missing), or a part of its points and seeds (None:
    the profile's)."""
    if not found:
        return ["not asked for: the profile has none of its methods"]
    wanted = {(place, seed) for place in range(len(found)) for seed in seeds or settings.seeds}
    lacking = wanted - {(place, run.seed) for place, each in enumerate(found) for run in each.runs}
    if not lacking:
        return []
    if not any(each.runs for each in found):
        return ["missing: no run of it is stored; 05_ablations, 06_uncertainty and 08_collapse make them"]
    return [f"partial: {len(wanted) - len(lacking)} of {len(wanted)} runs are stored"]


def foreign_lines(settings: Settings, runs: Iterable[Run]) -> list[str]:
    """A line for each profile and code revision other than this report's own that made some of `runs`."""
    here = code_revision()
    lines: dict[str, int] = {}
    for run in runs:
        profile, revision = run.provenance["profile"], run.provenance["code_revision"]
        if profile != settings.profile:
            lines[f"profile {profile}"] = lines.get(f"profile {profile}", 0) + 1
        if revision != here:
            lines[f"code {revision}"] = lines.get(f"code {revision}", 0) + 1
    return [f"made elsewhere: {count} by {what}" for what, count in sorted(lines.items())]


# ---------------------------------------------------------------- numbers


def measured(found: Iterable[Found]) -> pd.DataFrame:
    """A row a run: method, objective, seed, what the point changes, and E, A, F in percent (F may be NaN)."""
    rows: list[dict[str, Any]] = []
    for each in found:
        for run in each.runs:
            transfer = forward_transfer(run.accuracies, run.config.forward_transfer)
            rows.append(
                dict(each.point.changes)
                | {"method": run.config.method, "objective": run.config.checkpoint.objective, "seed": run.seed}
                | {"E": 100 * mean_online_error(run.batches), "A": 100 * average_accuracy(run.accuracies)}
                | {"F": float("nan") if transfer is None else 100 * transfer}
            )
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval, n values, and what they vary over: seeds, or batches where there is one seed."""

    mean: float
    low: float
    high: float
    n: int
    over: str

    def __str__(self) -> str:
        if self.n < 2:
            return f"{_short(self.mean)} (1 seed)"
        return f"{_short(self.mean)} [{_short(self.low)}, {_short(self.high)}] ({self.n} {self.over})"


def _short(value: float) -> str:
    """Two decimals, or two digits where these would be lost."""
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.2g}"


def over_seeds_estimate(values: Sequence[float]) -> Estimate:
    """The mean of one value a seed, with Student's interval; from one seed there is none (NaN)."""
    mean, n = float(np.mean(values)), len(values)
    if n < 2:
        return Estimate(mean, float("nan"), float("nan"), n, "seeds")
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return Estimate(mean, mean - half, mean + half, n, "seeds")


def paired_difference(runs: Sequence[Run], others: Sequence[Run]) -> Estimate | None:
    """E of `others` less E of `runs`, in points, on the same seeds and batches; None without a common seed.

    From two seeds on the interval is over the seeds' differences. From one seed it is over the batches' differences
    within the domains, which says nothing of another pre-training.
    """
    one, two = ({run.seed: run for run in each} for each in (runs, others))
    seeds = sorted(one.keys() & two.keys())
    if not seeds:
        return None
    if len(seeds) > 1:
        both = [100 * (mean_online_error(two[s].batches) - mean_online_error(one[s].batches)) for s in seeds]
        return over_seeds_estimate(both)
    pairs = one[seeds[0]].batches.merge(two[seeds[0]].batches, on=["step", "position", "count"])
    # A batch counts by its size: the last one of a domain may be short.
    share = pairs["count"] / pairs.groupby("step")["count"].transform("mean")
    pairs["difference"] = 100 * share * (pairs["errors_y"] - pairs["errors_x"]) / pairs["count"]
    domains = pairs.groupby("step")["difference"]
    mean = float(domains.mean().mean())
    variance = float((domains.var(ddof=1) / domains.size()).sum(skipna=False)) / domains.ngroups**2
    half = float(stats.norm.ppf((1 + CONFIDENCE) / 2)) * variance**0.5
    return Estimate(mean, mean - half, mean + half, len(pairs), "batches of one seed")
