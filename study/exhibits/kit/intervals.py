"""Means with 95 % intervals: over networks, over orders, over the test batches, or over the test
images.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from cascadetta_lib.data.cifar10_sample import DISTINCT
from study.exhibits.kit.numbers import FULL, Rounded, interval, number, rounded
from study.store import Run

CONFIDENCE = 0.95
"""Level of every interval."""
RESAMPLES = 2000
"""The number of draws in every bootstrap."""
SINGULAR = {"batches": "batch"}
"""The singular of a name in `Estimate.over`, if dropping the final `s` does not give it."""
LEAST_BATCHES = 10
"""The fewest batches from which a bootstrap makes an interval."""


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval.

    low, high: the limits; NaN if there is no interval.
    n: the number of values behind the mean.
    over: what the values are, in the plural, such as `orders`.
    """

    mean: float
    low: float
    high: float
    n: int
    over: str = "seeds"

    def __str__(self) -> str:
        return self.written.text

    @property
    def written(self) -> Rounded:
        """The mean, its interval if there is one, and the number of values behind the mean."""
        unit = SINGULAR.get(self.over, self.over.removesuffix("s")) if self.n == 1 else self.over
        shown = str(self.value(sign=False))
        full = number(self.mean, FULL)
        if not math.isnan(self.low):
            shown = f"{shown} {self.interval}"
            full = f"{full} {self.interval.full}"
        return Rounded(f"{shown} ({self.n} {unit})", f"{full} ({self.n} {unit})")

    @property
    def half(self) -> float:
        """Half the width of the interval; NaN if there is none."""
        return (self.high - self.low) / 2

    def value(self, sign: bool = True) -> Rounded:
        """Write the mean with the decimals that its interval supports.

        sign: whether to write the plus sign of a positive mean.
        """
        return rounded(self.mean, self.half, sign=sign)

    @property
    def interval(self) -> Rounded:
        """The interval as text: `[low, high]`. If there is none, it is `no spread known` for
        several seeds, and otherwise a dash.
        """
        if math.isnan(self.low) and self.n > 1 and self.over == "seeds":
            return Rounded("no spread known", "no spread known")
        return interval(self.low, self.high)


def mean_with_interval(values: Sequence[float] | pd.Series, over: str = "seeds") -> Estimate:
    """Return the mean of one value per network or per order, with Student's 95 % interval.

    over: what the values are, in the plural, such as `orders`.

    A single value has no interval. Several equal values have none either: on a small test set
    values may be equal by chance, so their spread is not known. The networks of a study share their
    training examples and their test stream. So an interval over networks covers only their
    initialisation and the order of their training.
    """
    mean = float(np.mean(values))
    n = len(values)
    # The sums behind equal differences may differ in the last bit.
    if n < 2 or np.ptp(np.asarray(values, dtype=float)) < 1e-8:
        return Estimate(mean, math.nan, math.nan, n, over)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * stats.sem(values))
    return Estimate(mean, mean - half, mean + half, n, over)


def per_network(rows: pd.DataFrame, column: str) -> pd.Series:
    """Return one value per network: the mean of a column over the runs on this network.

    rows: a table of `Runs.frame`.
    """
    return rows.groupby("network", sort=False)[column].mean()


def paired(base: pd.DataFrame, other: pd.DataFrame) -> Estimate | None:
    """Return E of `other` minus E of `base`, in points, as a mean over the seeds that both have.

    Seeds at which both ran on the same two networks count as one: their differences are averaged
    first. The result is None without a common seed.

    base, other: tables of `Runs.frame`, a run per seed.
    """
    both = base.merge(other, on="seed", suffixes=("_base", "_other"))
    both["difference"] = both["E_other"] - both["E_base"]
    both = both.dropna(subset="difference")
    if both.empty:
        return None
    pairs = both.groupby(["network_base", "network_other"], sort=False)["difference"]
    return mean_with_interval(pairs.mean())


def image_numbers(run: Run, positions: pd.Series) -> pd.Series:
    """Return which image is at each of these positions of a domain, by its number in stored order.

    On a long stream that repeats its images, an image's number is the position at which it comes
    first.
    """
    if repeats_images(run):
        return positions % DISTINCT
    return positions


def repeats_images(run: Run) -> bool:
    """Return whether the long streams of the run's dataset repeat their images."""
    return run.request.checkpoint.dataset_kind == "cifar10_sample"


def percentiles(draws: np.ndarray) -> tuple[float, float]:
    """Return the limits of the 95 % interval of bootstrap draws."""
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def bootstrap(base: pd.DataFrame, other: pd.DataFrame) -> Estimate | None:
    """Return E of `other` minus E of `base`, in points, with an interval over the test batches.

    This is a paired block bootstrap over the batches that both have. It draws blocks of ∛n
    consecutive batches with replacement (n: a domain's batches). It does not draw single batches,
    because what a method learned from one batch shows in the next. Generated domains of images and
    of speech hold the same examples in one order, so the same blocks are drawn in each domain. The
    common seeds share the test examples, so errors are first averaged over these seeds. The
    interval is conditional on these networks: it says nothing about other networks.

    The result is None without a common seed. The limits are NaN if a domain has fewer than
    LEAST_BATCHES batches, if the stream is mixed or correlated, or if a position may stand for
    several images (`positions_are_ambiguous`).

    base, other: tables of `Runs.frame`, a run per seed.
    """
    both = base.merge(other, on="seed", suffixes=("_base", "_other"))
    if both.empty:
        return None
    tables = [
        run_base.batches.merge(
            run_other.batches, on=["step", "position", "count"], suffixes=("_base", "_other")
        )
        for run_base, run_other in zip(both["run_base"], both["run_other"], strict=True)
    ]
    pairs = pd.concat(tables)
    pairs["extra_errors"] = pairs["errors_other"] - pairs["errors_base"]
    run = both["run_base"].iloc[0]
    pairs["position"] = image_numbers(run, pairs["position"])
    pairs = pairs.groupby(["step", "position"])[["extra_errors", "count"]].sum()
    by_step = pairs.groupby("step")
    sums = by_step.sum()
    mean = 100 * float((sums["extra_errors"] / sums["count"]).mean())
    ambiguous = positions_are_ambiguous(both["run_base"])
    if by_step.size().min() < LEAST_BATCHES or run.request.order or ambiguous:
        return Estimate(mean, math.nan, math.nan, len(pairs), "batches")
    draws = []
    for step, domain in by_step:
        drawn = _blocks(len(domain), step if run.request.checkpoint.modality == "text" else 0)
        extra_errors = domain["extra_errors"].to_numpy()[drawn].sum(axis=1)
        draws.append(extra_errors / domain["count"].to_numpy()[drawn].sum(axis=1))
    low, high = percentiles(100 * np.mean(draws, axis=0))
    return Estimate(mean, low, high, len(pairs), "batches")


def positions_are_ambiguous(runs: pd.Series) -> bool:
    """Return whether batches at one position may hold different images.

    They may in three cases. In the first, the runs are in several orders. The other two concern a
    dataset whose long streams repeat their images (`repeats_images`): the stream is shuffled, which
    scatters the repetitions, or a repetition of the images begins in the middle of a batch. A
    shuffled stream of such a dataset counts as ambiguous even if it is so short that it repeats no
    image.
    """
    orders = {run.request.order_seed for run in runs}
    if len(orders) > 1:
        return True
    repeating = [run for run in runs if repeats_images(run)]
    is_shuffled = orders != {None}
    return any(is_shuffled or _begins_within_a_batch(run) for run in repeating)


def _begins_within_a_batch(run: Run) -> bool:
    """Return whether a repetition of the images begins in the middle of a batch. If so, each batch
    inside this repetition mixes the images of two neighbouring batches of the repetition before.
    """
    numbers = image_numbers(run, run.batches["position"])
    return bool((numbers % run.request.batch_size).any())


def _blocks(count: int, seed: int) -> np.ndarray:
    """Draw (RESAMPLES, count) of the batches 0 … count − 1, in blocks of consecutive batches."""
    length = max(1, round(count ** (1 / 3)))
    generator = np.random.default_rng(seed)
    starts = generator.integers(count, size=(RESAMPLES, math.ceil(count / length), 1))
    drawn = (starts + np.arange(length)) % count
    return drawn.reshape(RESAMPLES, -1)[:, :count]


def interval_over_images(frame: pd.DataFrame) -> tuple[float, float]:
    """Return the limits of the 95 % interval of E, in percent, over the images of the stream.

    Batches that hold the same images are drawn together, whatever their seed. So are the
    repetitions of these images on a long stream (`repeats_images`). Domains with equally many
    batches get the same draw. The error of a draw is the mean over the domains, as E is.

    The limits are NaN if a domain has fewer than LEAST_BATCHES batches of different images, if the
    stream is mixed or correlated, or if a position may stand for several images
    (`positions_are_ambiguous`).

    frame: a table of `Runs.frame`.
    """
    if any(run.request.order for run in frame["run"]) or positions_are_ambiguous(frame["run"]):
        return math.nan, math.nan
    sums = []
    for run in frame["run"]:
        size = run.request.batch_size
        image = image_numbers(run, run.batches["position"])
        blocks = run.batches.assign(block=image // size)
        sums.append(blocks.groupby(["step", "block"])[["errors", "count"]].sum())
    by_domain = pd.concat(sums).groupby(level=["step", "block"]).sum().groupby(level="step")
    if by_domain.size().min() < LEAST_BATCHES:
        return math.nan, math.nan
    shares = []
    for _, domain in by_domain:
        # The same seed draws the same images in all domains that have equally many batches.
        drawn = np.random.default_rng(0).integers(len(domain), size=(RESAMPLES, len(domain)))
        errors = domain["errors"].to_numpy()[drawn].sum(axis=1)
        shares.append(errors / domain["count"].to_numpy()[drawn].sum(axis=1))
    return percentiles(100 * np.mean(shares, axis=0))
