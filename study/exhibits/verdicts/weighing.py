"""Weigh a statistic of several parts against its bound.

Each part has Student's interval. Whether any part misses the bound is tested by max-t.
"""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from study.exhibits.kit.intervals import CONFIDENCE, Estimate

DRAWS = 20_000
TAIL = (1 - CONFIDENCE) / 2
NO_SPREAD = 1e-8
Outcome = Literal["supported", "contradicted", "undecided"]


class Weighed(NamedTuple):
    """Whether a statistic supports a reading or contradicts it.

    part: the part that stands most in the way of support, such as the strongest rival.
    estimate: the part's mean and 95 % interval.
    critical: how many standard errors a part must be beyond the bound to refute the reading. With a
        single part it is Student's quantile.
    """

    outcome: Outcome
    part: str
    estimate: Estimate
    critical: float
    reason: str = ""


def critical_value(values: pd.DataFrame, draws: int = DRAWS) -> float:
    """Return the 97.5 % quantile of the largest t statistic among the parts, for the case that the
    true value of every part lies exactly at its bound (max-t).

    values: a row per replicate (a seed, or an order) and a column per part; NaN where a part was
        not measured.

    Each draw makes as many new replicates as there are. A new replicate is a sum of the replicates'
    deviations from the mean, with random normal weights. So the parts of new replicates have the
    correlation of the measured parts, and the ratios of their spreads are the same. Each draw gives
    the largest t statistic among the parts. The quantile of these values is one side of a 95 %
    interval.

    A single part has Student's quantile. Several parts have NaN if none of them has a spread.
    """
    measured = values.notna().to_numpy()
    counts = measured.sum(axis=0)
    if values.shape[1] == 1:
        return float(stats.t.ppf(1 - TAIL, counts[0] - 1))
    deviations = (values - values.mean()).fillna(0.0).to_numpy()
    generator = np.random.default_rng(0)
    largest = np.empty(draws)
    for start in range(0, draws, 1000):
        size = min(1000, draws - start)
        weights = generator.standard_normal((size, len(values), len(values)))
        drawn = weights @ deviations
        means = np.where(measured, drawn, 0.0).sum(axis=1) / counts
        squares = np.where(measured, drawn - means[:, None], 0.0) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.sqrt(squares.sum(axis=1) / (counts - 1))
            t = means / (spread / np.sqrt(counts))
        largest[start : start + size] = np.nan_to_num(t, nan=-np.inf).max(axis=1)
    if not np.isfinite(largest).all():
        return math.nan  # No part has a spread, for example with a single seed.
    return float(np.quantile(largest, 1 - TAIL))


def weigh(
    values: pd.DataFrame,
    side: str,
    bound: float,
    over: str = "seeds",
    images: Mapping[str, float] | None = None,
    draws: int = DRAWS,
) -> Weighed:
    """Compare the parts of a statistic with its bound.

    supported: the 95 % interval of every part lies on the right side of the bound. Since every part
        must pass, no correction for multiple comparisons is needed.
    contradicted: a part lies more than `critical_value` standard errors on the wrong side.
    undecided: neither.

    A part with a single value has no interval. A part whose values are all equal has one only if
    `images` gives it a standard error. A part without an interval prevents support, and it
    contradicts nothing.

    values, draws: see `critical_value`.
    side, bound: the right side is above the bound (`>`) or below it (`<`).
    over: what the replicates are, in the plural.
    images: the standard error of each part over the test images; None is 0. Its square is added to
        the square of the standard error over the replicates.
    """
    sign = 1 if side == ">" else -1
    counts = values.count()
    means = values.mean()
    spread = values.std()
    over_images = pd.Series(dict(images or {}), dtype=float).reindex(values.columns).fillna(0.0)
    errors = np.sqrt(spread**2 / counts + over_images**2)
    known = errors > NO_SPREAD
    quantiles = pd.Series(stats.t.ppf(1 - TAIL, counts - 1), index=values.columns)
    critical = critical_value(values, draws)
    # A part without a spread has t = −∞, which prevents support. `known` keeps it from refuting.
    t = (sign * (means - bound) / errors.where(known)).fillna(-math.inf)
    refuting = known & (t < -critical)
    outcome: Outcome = "undecided"
    if refuting.any():
        outcome = "contradicted"
    elif (t > quantiles).all():
        outcome = "supported"
    shown = (t[refuting] if refuting.any() else t).idxmin()
    half = math.nan
    reason = ""
    if known[shown]:
        half = float(quantiles[shown] * errors[shown])
        if outcome == "undecided" and t[shown] < -quantiles[shown]:
            reason = (
                f"{-t[shown]:.1f} standard errors beyond the bound; more than {critical:.1f} are "
                "needed to refute it"
            )
    elif counts[shown] == 1:
        reason = "no spread known: there is one value"
    else:
        reason = f"no spread known: all {counts[shown]} values are equal"
    mean = float(means[shown])
    estimate = Estimate(mean, mean - half, mean + half, int(counts[shown]), over)
    return Weighed(outcome, str(shown), estimate, critical, reason)
