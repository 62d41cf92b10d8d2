"""The statistic by which a reading of a claim is judged: a table with a row per replicate and a
column per part, such as a rival.

On networks of ours a replicate is a seed, and each seed has a network of its own. The authors
released a single network. On their network a replicate is an order of the images and domains
(`order_seed`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from cascadetta_lib.evaluation.metrics import mean_online_error
from study.exhibits.kit.exhibit import EXHIBITS
from study.exhibits.kit.intervals import bootstrap
from study.exhibits.kit.origin_of_network import in_kept_epoch
from study.exhibits.kit.stored_runs import METRICS, Runs
from study.exhibits.verdicts.claims import EXACT, TOGETHER, Reading
from study.store import Run


class NotTestedError(Exception):
    """Raised if a number to judge is missing. The message says which one."""


def _theorem(number: str, *others: str) -> Callable[[Runs, Run], float]:
    """Return a function that reads one number of theorem.check_theorem for the network of a run.

    The function divides the number by the largest absolute value of `others`. It returns NaN if
    this value is 0, or if the network was not checked.
    """

    def value(runs: Runs, run: Run) -> float:
        check = runs.study.store.theorem(run)
        if not check:
            return math.nan
        largest = max(abs(check[name]) for name in others)
        return check[number] / largest if largest else math.nan

    return value


def _fall(column: str, times: float) -> Callable[[Runs, Run], float]:
    """Return a function that computes how far a column of the batches falls within a domain.

    The fall is `times` × (the column's mean over the first halves of all domains − its mean over
    the second halves). A domain of a single batch has only a first half. The fall is NaN if all
    domains have a single batch.
    """

    def value(runs: Runs, run: Run) -> float:
        batches = run.batches.assign(error=run.batches["errors"] / run.batches["count"])
        steps = batches.groupby("step")["count"]
        half = 2 * steps.cumcount() // steps.transform("size")  # 0 or 1
        means = batches.groupby(half)[column].mean()
        return times * float(means[0] - means.get(1, math.nan))

    return value


VALUES: dict[str, Callable[[Runs, Run], float]] = {
    "entropy": lambda runs, run: (
        1000 * np.average(run.batches["entropy_auxiliary"], weights=run.batches["count"])
    ),
    "entropy_fall": _fall("entropy_auxiliary", 1000),
    "error_fall": _fall("error", 100),
    "work": lambda runs, run: run.provenance.cost["work"],
    "agreement": in_kept_epoch("agreement"),
    "gradient_cosine": in_kept_epoch("gradient_cosine"),
    "hessian_error": _theorem("error_moved_point", "error_first_order_equal_rates"),
    "least_curvature": _theorem("smallest_curvature", "smallest_curvature", "largest_curvature"),
}
"""The values that claims judge besides the METRICS. Each is a function that takes `Runs` and a run,
and returns a number of this run or of its network. Entropies are in thousandths of a nat, and
`error_fall` is in points.
"""


Tier = Literal["the authors' network", "networks of ours"]
AUTHORS, OURS = get_args(Tier)
NOT_RELEASED = ("TTT",)
"""Methods whose networks the authors did not release. They are left out of claims on the authors'
network.
"""
NORMAL = 1.96


@dataclass
class Evidence:
    """A statistic, and the runs behind it.

    parts: a row per replicate and a column per part; NaN if the part has no run at the replicate.
    used: the runs.
    images: on the authors' network, the standard error of each part over the test images.
    left_out: the methods of the reading that are left out, because they are in NOT_RELEASED.
    """

    parts: pd.DataFrame
    used: list[Run] = field(default_factory=list)
    images: dict[str, float] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def tier_of(runs: Runs) -> Tier:
    """Return whether the networks behind `runs` are the authors' or ours."""
    return AUTHORS if runs.study.section.weights.kind == "release" else OURS


def measure(reading: Reading, runs: Runs) -> Evidence:
    """Return the statistic of a reading, with the runs behind it. Raises NotTestedError if a part
    has no value, or lacks a standard error that it needs.
    """
    parts: dict[str, pd.Series] = {}
    evidence = Evidence(pd.DataFrame())
    on_authors = tier_of(runs) == AUTHORS
    away = NOT_RELEASED if on_authors else ()
    evidence.left_out = [name for name in reading.labels + reading.rivals if name in away]
    labels = [label for label in reading.labels if label not in away]
    rivals = [rival for rival in reading.rivals if rival not in away]
    if not labels:
        raise NotTestedError(f"a released network for {reading.labels[0]}")
    with_images = on_authors and reading.then not in EXACT
    for setting, label in product(reading.settings, labels):
        ours = _rows(reading, runs, label, setting, evidence)
        if not reading.rivals:
            name = _part(label, setting)
            parts[name] = ours["value"]
            if with_images:
                evidence.images[name] = _error_of_shares(reading.value, ours)
        for rival in rivals:
            name = _part(rival, setting)
            theirs = _rows(reading, runs, rival, setting, evidence)
            lead = ours["value"] - theirs["value"]
            parts[name] = -lead if reading.value == "E" else lead
            if with_images:
                evidence.images[name] = _error_over_images(reading.value, ours, theirs)
    evidence.parts = combined(reading, pd.DataFrame(parts))
    if evidence.parts.empty or evidence.parts.isna().all().any():
        raise NotTestedError("a replicate that all compared runs have")
    if evidence.images and reading.then:
        # We give a combination of parts the largest standard error among the parts.
        largest = max(evidence.images.values())
        evidence.images = dict.fromkeys(map(str, evidence.parts.columns), largest)
    return evidence


def _error_over_images(value: str, first: pd.DataFrame, second: pd.DataFrame) -> float:
    """Return the standard error over the test images of a difference of two methods on one network.

    For E, if both methods saw the same batches, it comes from the paired block bootstrap
    (kit.intervals.bootstrap) in each order: it is the root of the mean square over the orders. For
    other values, and if an order that both have gives no such interval, it is the largest that a
    difference of two independent shares can have (`_error_of_shares`).
    """
    if value != "E":
        return _error_of_shares(value, first)
    squares = []
    for replicate in first.index.intersection(second.index):
        one = first.loc[[replicate]]
        other = second.loc[[replicate]]
        seen = None
        if _comparable(one, other):
            seen = bootstrap(one, other)
        if seen is None or math.isnan(seen.low):
            return _error_of_shares(value, first)
        squares.append(((seen.high - seen.low) / (2 * NORMAL)) ** 2)
    return math.sqrt(float(np.mean(squares))) if squares else _error_of_shares(value, first)


def _error_of_shares(value: str, rows: pd.DataFrame) -> float:
    """Return the largest standard error, in points, that a difference of two independent shares can
    have: 100 √(½ / images), where each share is of the images of one domain.

    Raises NotTestedError if the value is not a metric.
    """
    if value not in METRICS:
        raise NotTestedError(f"an interval of {value} over images")
    least = min(int(run.examples_by_domain.min()) for run in rows["run"])
    return 100 * math.sqrt(0.5 / least)


def _part(label: str, setting: Mapping[str, Any]) -> str:
    """Return the name of a part in tables."""
    named = [f"{column.replace('_', ' ')} {value}" for column, value in setting.items()]
    return ", ".join([label, *named])


@lru_cache(maxsize=64)  # Most claims of an exhibit read the same runs.
def _frame(runs: Runs, exhibit: str) -> pd.DataFrame:
    """Return the runs of an exhibit with the column `replicate`: the seed on networks of ours, and
    the order on the authors' network.
    """
    if tier_of(runs) == OURS:
        frame = runs.frame(EXHIBITS[exhibit].points(runs.settings))
        return frame.assign(replicate=frame["seed"])
    orders = {run.request.order_seed for run in runs.stored}
    frames = []
    for order in sorted(order for order in orders if order is not None):
        at_order = Runs.of(runs.study.varied(order_seed=order), runs.stored)
        frame = at_order.frame(EXHIBITS[exhibit].points(at_order.settings))
        frames.append(frame.assign(replicate=order))
    if not frames:
        raise NotTestedError("an order of images and domains (order_seed)")
    return pd.concat(frames, ignore_index=True)


def _rows(
    reading: Reading, runs: Runs, label: str, setting: Mapping[str, Any], evidence: Evidence
) -> pd.DataFrame:
    """Return the runs of a label at a setting, a row per replicate, with the reading's value in the
    column `value`.
    """
    frame = _at_setting(runs, reading.exhibit, label, tuple(setting.items())).copy()
    evidence.used += list(frame["whole"])
    if reading.value in METRICS:
        frame["value"] = frame[reading.value]
    else:
        frame["value"] = [VALUES[reading.value](runs, run) for run in frame["run"]]
    if frame["value"].isna().all():
        raise NotTestedError(f"{reading.value} of {_part(label, setting)}")
    return frame


@lru_cache(maxsize=1024)  # Several claims compare the same method at the same setting.
def _at_setting(
    runs: Runs, exhibit: str, label: str, setting: tuple[tuple[str, Any], ...]
) -> pd.DataFrame:
    """Return the runs of a label at a setting, a row per replicate.

    The column `whole` has the runs as they are stored. If the setting names a domain, `run` and E
    are of that domain's batches alone.
    """
    frame = _frame(runs, exhibit)
    frame = frame[frame["label"] == label]
    columns = dict(setting)
    domain = columns.pop("domain", None)
    if len(frame):  # A table without runs has no columns of settings.
        for column, value in columns.items():
            frame = frame[frame[column] == value]
    if "severity" in frame and "severity" not in columns:
        frame = frame[frame["severity"].isna()]  # the run of the main study, not those by severity
    frame = frame.drop_duplicates("replicate").set_index("replicate")
    frame["whole"] = frame["run"]
    if domain:
        inside = [
            replace(run, batches=run.batches[run.batches["domain"] == domain])
            for run in frame["run"]
        ]
        frame = frame.assign(run=inside, E=[100 * mean_online_error(run.batches) for run in inside])
    return frame


def _comparable(first: pd.DataFrame, second: pd.DataFrame) -> bool:
    """Return whether the runs of both started from the same weights and saw the same batches.

    A published network has the same weights, whichever pre-training the request names in
    `objective`.
    """
    compared = ("batch_size", "order", "dirichlet_delta", "order_seed")
    for run, other in zip(first["run"], second["run"], strict=True):
        one, another = run.request.checkpoint, other.request.checkpoint
        same_file = one.published and one.weights == another.weights
        if one != another and not same_file:
            return False
        for name in compared:
            if getattr(run.request, name) != getattr(other.request, name):
                return False
    return True


def combined(reading: Reading, parts: pd.DataFrame) -> pd.DataFrame:
    """Combine the parts of a reading, as its `then` says.

    growth: the growth from each part to the next.
    deviation: the standard deviation of the parts.
    ratio: the first part divided by the second.
    median: the median, over the settings, of the lead over the best rival.

    These four use only replicates that have all parts. Without such a replicate the result is
    empty. If `then` is none of the four, the parts stay as they are, and a replicate with at least
    one part is kept.
    """
    whole = parts.dropna()
    if reading.then in TOGETHER and whole.empty:
        return whole
    if reading.then == "ratio":
        return (whole.iloc[:, 0] / whole.iloc[:, 1]).to_frame(" / ".join(reading.labels))
    if reading.then == "deviation":
        return whole.std(axis=1).to_frame("standard deviation")
    if reading.then == "median":
        settings = len(reading.settings)
        by_setting = whole.to_numpy().reshape(len(whole), settings, -1)
        leads = by_setting.min(axis=2)  # over the rivals
        medians = pd.Series(np.median(leads, axis=1), index=whole.index)
        return medians.to_frame(f"median of {settings}")
    if reading.then == "growth":
        return whole.diff(axis=1).iloc[:, 1:]
    return parts.dropna(how="all")
