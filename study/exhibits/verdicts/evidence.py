"""The statistic that a claim is judged by: a table with a row a seed and a column a part, such as a
rival.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from cascadetta_lib.evaluation.metrics import mean_online_error
from study.exhibits.kit.exhibit import EXHIBITS
from study.exhibits.kit.intervals import Estimate, bootstrap
from study.exhibits.kit.networks import trained
from study.exhibits.kit.runs import METRICS, Runs
from study.exhibits.verdicts.claims import Claim
from study.store import Run


class NotTestedError(Exception):
    """There is no number; the message says which one is missing."""


def _theorem(number: str, *others: str) -> Callable[[Runs, Run], float]:
    """A number of theorem.check_theorem as a share of the largest in size of others, of a run's
    network; else NaN.
    """

    def value(runs: Runs, run: Run) -> float:
        found = runs.study.store.theorem(run)
        return (
            found[number] / (max(abs(found[name]) for name in others) or math.nan)
            if found
            else math.nan
        )

    return value


def _fall(column: str, times: float) -> Callable[[Runs, Run], float]:
    """By how much a column of the batches falls within a domain: `times` its mean over the first
    halves of the domains less that over the second halves; NaN where a domain is one batch."""

    def value(runs: Runs, run: Run) -> float:
        batches = run.batches.assign(error=run.batches["errors"] / run.batches["count"])
        steps = batches.groupby("step")["count"]
        means = batches.groupby(2 * steps.cumcount() // steps.transform("size"))[column].mean()
        return times * float(means[0] - means.get(1, math.nan))

    return value


VALUES: dict[str, Callable[[Runs, Run], float]] = {
    "entropy": lambda runs, run: (
        1000 * np.average(run.batches["entropy_auxiliary"], weights=run.batches["count"])
    ),
    "entropy_fall": _fall("entropy_auxiliary", 1000),
    "error_fall": _fall("error", 100),
    "work": lambda runs, run: run.provenance.cost["work"],
    "agreement": trained("agreement"),
    "gradient_cosine": trained("gradient_cosine"),
    "hessian_error": _theorem("error_moved_point", "error_first_order_equal_rates"),
    "least_curvature": _theorem("smallest_curvature", "smallest_curvature", "largest_curvature"),
}
"""What claims speak of beside the METRICS, of a run or of its network. Errors in percent, entropies
in 0.001 nats.
"""


@dataclass
class Evidence:
    """A statistic, with the runs `used` and, where it compares E on the same networks, its interval
    over `batches`.
    """

    parts: pd.DataFrame
    used: list[Run] = field(default_factory=list)
    batches: dict[str, Estimate] = field(default_factory=dict)


def measure(claim: Claim, runs: Runs) -> Evidence:
    """The statistic of a claim, of those seeds that have all parts. Raises NotTestedError where
    there are none.
    """
    parts, pairs, evidence = {}, {}, Evidence(pd.DataFrame())
    for setting, label in product(claim.settings, claim.labels):
        ours = _rows(claim, runs, label, setting, evidence)
        if not claim.rivals:
            parts[_part(label, setting)] = ours["value"]
        for rival in claim.rivals:
            theirs, part = _rows(claim, runs, rival, setting, evidence), _part(rival, setting)
            lead = ours["value"] - theirs["value"]
            parts[part], pairs[part] = -lead if claim.value == "E" else lead, (ours, theirs)
    evidence.parts = _combined(claim, pd.DataFrame(parts).dropna())
    if evidence.parts.empty:
        raise NotTestedError("a seed that all compared runs have")
    for part in evidence.parts.columns.intersection([*pairs]) if claim.value == "E" else ():
        first, second = (rows.loc[evidence.parts.index] for rows in pairs[part])
        if _comparable(first, second) and (
            seen := bootstrap(first.reset_index(), second.reset_index())
        ):
            evidence.batches[part] = seen
    return evidence


def _part(label: str, setting: Mapping[str, Any]) -> str:
    return ", ".join(
        [label, *(f"{column.replace('_', ' ')} {value}" for column, value in setting.items())]
    )


@lru_cache(maxsize=64)  # Most claims of an exhibit read the same runs.
def _frame(runs: Runs, exhibit: str) -> pd.DataFrame:
    return runs.frame(EXHIBITS[exhibit].points(runs.settings))


def _rows(
    claim: Claim, runs: Runs, label: str, setting: Mapping[str, Any], evidence: Evidence
) -> pd.DataFrame:
    """The runs of a label at a setting with their `value`, a row a seed; of a domain, of their
    batches there alone.
    """
    frame = _frame(runs, claim.exhibit)
    frame = frame[frame["label"] == label]
    for column in (
        setting.keys() - {"domain"} if len(frame) else ()
    ):  # The table of no run has no columns of settings.
        frame = frame[frame[column] == setting[column]]
    if "severity" in frame and "severity" not in setting:
        frame = frame[frame["severity"].isna()]  # the run of the main study, not those by severity
    frame = frame.drop_duplicates("seed").set_index("seed")
    evidence.used += list(frame["run"])
    if domain := setting.get("domain"):
        inside = [
            replace(run, batches=run.batches[run.batches["domain"] == domain])
            for run in frame["run"]
        ]
        frame = frame.assign(run=inside, E=[100 * mean_online_error(run.batches) for run in inside])
    measured = claim.value in METRICS
    frame["value"] = (
        frame[claim.value] if measured else [VALUES[claim.value](runs, run) for run in frame["run"]]
    )
    if frame["value"].isna().all():
        raise NotTestedError(f"{claim.value} of {_part(label, setting)}")
    return frame


def _comparable(first: pd.DataFrame, second: pd.DataFrame) -> bool:
    """Whether the runs of both started from the very same weights, seed by seed, and saw the same
    batches.
    """
    pairs = first[["run"]].join(second["run"].rename("other"), how="inner").itertuples(index=False)
    asked = [(run.request, other.request) for run, other in pairs]
    alike = ("checkpoint", "batch_size", "order", "dirichlet_delta", "order_seed")
    return all(getattr(a, name) == getattr(b, name) for a, b in asked for name in alike)


def _combined(claim: Claim, parts: pd.DataFrame) -> pd.DataFrame:
    """What a claim makes of its parts: `growth` from each to the next, their standard `deviation`,
    the `ratio` of the first to the second, or the `median` over the settings of the least part."""
    if claim.then == "ratio":
        return (parts.iloc[:, 0] / parts.iloc[:, 1]).to_frame(" / ".join(claim.labels))
    if claim.then == "deviation":
        return parts.std(axis=1).to_frame("standard deviation")
    if claim.then == "median":
        leads = parts.T.groupby(np.arange(parts.shape[1]) // len(claim.rivals)).min()
        return leads.median().to_frame(f"median of {len(leads)}")
    return parts.diff(axis=1).iloc[:, 1:] if claim.then == "growth" else parts
