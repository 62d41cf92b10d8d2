"""Tables that several exhibits share: ours beside the paper's, and differences of methods."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from cascadetta_lib.evaluation.metrics import online_errors
from cascadetta_lib.methods import METHODS
from study.exhibits.kit.comparable_runs import DAGGER, cell, comparable, count
from study.exhibits.kit.intervals import LEAST_BATCHES, Estimate, bootstrap, paired, per_network
from study.exhibits.kit.numbers import ALONE, FULL, Rounded, number, places
from study.exhibits.kit.paper_numbers import paper_main
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import METRICS, by_label
from study.exhibits.kit.style import SHORT

MEASURED = ("E", "A", "F", "n")
"""The columns of `domains_table` that are no domains."""
F_NAMES = {"F": "F (Eq. 2)", "F_final": "F (final)", "F_unadapted": "F (unadapted)"}
DEFINED = (
    "F (Eq. 2): R(T_t|T_1:t) − R(T_t|T_t). F (final): R(T_t|T_1:N) − R(T_t|T_t). F (unadapted): "
    "R(T_t|T_1:N) minus the accuracy on T_t of the model before its first update, with the "
    "BatchNorm statistics that the method uses."
)


def metrics_by_label(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row per label: E, A, and F by each of its definitions, all as mean ± standard
    deviation over networks, and n, the number of networks.

    The means are over the seeds that most rows have. A † marks a row that lacks one of these seeds,
    or that an earlier code made (see `comparable`).
    """
    rows = {}
    for label, each in by_label(comparable(frame)).items():
        cells = {metric: cell(each, metric) for metric in METRICS}
        rows[label] = {**cells, "n": str(count(each))}
    return pd.DataFrame.from_dict(rows, orient="index", columns=[*METRICS, "n"])


def metrics_table(frame: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Return `metrics_by_label`, with the paper's row below ours if there is one."""
    return beside_paper(metrics_by_label(frame), paper).rename(columns=F_NAMES)


def domains_table(frame: pd.DataFrame, shared: set[Any] | None = None) -> pd.DataFrame:
    """Return a table in the paper's layout: methods × domains, then E, A, F and n. A domain that is
    called E, A, F or n stands under `domain NAME`.

    The means are over the seeds that most rows have. A row that lacks one of these seeds, or that
    an earlier code made, is marked with † and is never the best. The best of each column is in
    bold, ours and the paper's separately. A metric that one of a row's runs lacks is a dash. A row
    has one decimal, or none if the deviation of its E over networks supports none.

    shared: see `comparable`.
    """
    labels = by_label(comparable(frame, shared=shared))
    numbers = {label: by_domain(each) for label, each in labels.items()}
    table = pd.DataFrame(numbers).T
    # A domain of the user's own may have the name of a column that is added below.
    taken = {name: f"domain {name}" for name in table.columns if name in MEASURED}
    table = table.rename(columns=taken)
    for metric in ("E", "A", "F"):
        table[metric] = pd.Series(
            {label: per_network_mean(each, metric) for label, each in labels.items()}
        )
    apart = pd.Series({label: bool(each["apart"].any()) for label, each in labels.items()})
    paper = paper_main(frame["run"].iloc[0])
    deviations = {label: per_network(each, "E").std() for label, each in labels.items()}
    digits = pd.Series({label: places(half, ALONE) for label, half in deviations.items()})
    ours = table.apply(_best_in_bold, apart=apart, digits=digits)
    ours["n"] = [str(count(each)) for each in labels.values()]
    return beside_paper(ours, paper.apply(_best_in_bold)).rename(columns=SHORT)


def per_network_mean(rows: pd.DataFrame, metric: str) -> float:
    """Return the mean of a metric over networks; NaN if one of the runs lacks it."""
    if rows[metric].isna().any():
        return math.nan
    return float(per_network(rows, metric).mean())


def by_domain(frame: pd.DataFrame) -> pd.Series:
    """Return the online error (%) by the name of the domain: a mean over the runs of each network,
    then over the networks of `frame`.

    A domain that comes several times in the stream has one value, the mean. Runs that are apart
    (see `comparable`) are not marked; `domains_table` marks them.
    """
    means = []
    for _, rows in frame.groupby("network", sort=False):
        errors = [
            100 * online_errors(run.batches).groupby("domain", sort=False).mean()
            for run in rows["run"]
        ]
        means.append(pd.concat(errors, axis=1).mean(axis=1))
    return pd.concat(means, axis=1).mean(axis=1)


def errors_less(frame: pd.DataFrame, base: pd.DataFrame) -> pd.Series:
    """Return the online error minus that of `base`, in points, for each domain of the stream.

    frame, base: tables of `Runs.frame`, a run per seed.

    The result is a mean over the seeds that both have. The index is the name of the domain, so a
    domain that comes several times in the stream has several rows. (`by_domain` has one row per
    name.) The result is empty if the two share no seed.
    """
    both = frame.merge(base, on="seed", suffixes=("", "_base"))
    if both.empty:
        return pd.Series(dtype=float, index=pd.Index([], name="domain"))
    differences = [
        100 * (online_errors(run.batches) - online_errors(run_base.batches))
        for run, run_base in zip(both["run"], both["run_base"], strict=True)
    ]
    return pd.concat(differences, axis=1).mean(axis=1).droplevel(["step", "severity"])


def _best_in_bold(
    column: pd.Series, apart: pd.Series | None = None, digits: pd.Series | None = None
) -> pd.Series:
    """Write numbers as text, the best in bold: the largest of A and F, the smallest of other
    columns.

    apart: whether each row must not be compared; if so, it is marked with † and never in bold.
    digits: the decimals of each row; None is one decimal for all.
    """
    if apart is None:
        apart = pd.Series(False, index=column.index)
    if digits is None:
        digits = pd.Series(ALONE, index=column.index)
    compared = column[~apart]
    best = compared.max() if column.name in ("A", "F") else compared.min()
    cells = {}
    for label, value, is_apart in zip(column.index, column, apart, strict=True):
        shown = number(value, digits[label])
        full = number(value, FULL)
        if is_apart and not math.isnan(value):
            cells[label] = Rounded(f"{shown} {DAGGER}", f"{full} {DAGGER}")
        elif math.isclose(value, best, abs_tol=1e-9):  # The last bits of equal numbers may differ.
            cells[label] = Rounded(f"**{shown}**", f"**{full}**")
        else:
            cells[label] = Rounded(shown, full)
    return pd.Series(cells, dtype=object)


def beside_paper(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Return our rows, each with the paper's row of the same name below it if there is one.

    The index is (method, source), and the columns are ours. The paper's numbers are written as
    text, and a missing number as a dash.
    """
    theirs = paper.map(lambda value: number(value) if isinstance(value, float) else value)
    theirs = theirs.rename(columns=str)
    theirs = theirs.reindex(index=ours.index.intersection(paper.index), columns=ours.columns)
    both = pd.concat({"ours": ours, "paper": theirs}, names=["source", "method"])
    return both.swaplevel().fillna("–").loc[ours.index]


def differences(
    name: str, pairs: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]]
) -> list[Part | str]:
    """Return a table with a row per pair (base, other): E of `other` minus E of `base`, and two
    intervals.

    One interval is over seeds, of which those with the same networks count once. The other is over
    the test batches. The list is empty if no pair has a common seed.

    pairs: the pair (base, other) of tables of `Runs.frame`, by the name of the row, `OTHER − BASE`.
        The column "first method errs" says whether OTHER, which comes first in the name, errs less
        or more than BASE.
    """
    rows = {}
    for label, (base, other) in pairs.items():
        found = paired(base, other)
        batches = bootstrap(base, other)
        if found is not None and batches is not None:
            mean = found if found.n > 1 else replace(found, low=batches.low, high=batches.high)
            rows[label] = {
                "difference of E (points)": mean.value(),
                "95 %, over seeds": found.interval,
                "95 %, over test batches": batches.interval,
                "n": str(found.n),
                "first method errs": other_errs(found if found.n > 1 else batches),
            }
    if not rows:
        return []
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("difference")
    note = (
        "On the same seeds and batches. Over seeds: Student's interval. In this interval "
        "and in n, seeds with the same networks count once. Over test batches: block bootstrap, "
        "given the networks."
    )
    if set(table["first method errs"]) == {"–"}:
        table = table.drop(columns="first method errs")
    else:
        note += (
            " The last column says whether the method that stands first in a row errs less or "
            "more. Undecided: 0 is inside the interval over seeds, or over test batches if n is 1."
        )
    if "–" in set(table["95 %, over test batches"]):
        note += (
            " There is no interval over test batches if a domain has fewer than "
            f"{LEAST_BATCHES} batches, if the stream is mixed or correlated, or if the images came "
            "in several orders."
        )
    return [Part(name, table, note)]


def other_errs(difference: Estimate) -> str:
    """Say whether `other` errs less or more than `base`. Say `undecided` if 0 is inside the
    interval, and write a dash if there is no interval.

    difference: E of `other` minus E of `base`.
    """
    if math.isnan(difference.low):
        return "–"
    if difference.low <= 0 <= difference.high:
        return "undecided"
    return "less" if difference.mean < 0 else "more"


def method_differences(
    name: str, frame: pd.DataFrame, reference: str = METHODS["cascade"].label
) -> list[Part | str]:
    """Return a table of `differences`: each method's E minus that of the label `reference`. The
    list is empty if `reference` has no runs.
    """
    parts = by_label(frame)
    if reference not in parts:
        return []
    pairs = {
        f"{label} − {reference}": (parts[reference], other)
        for label, other in parts.items()
        if label != reference
    }
    return differences(name, pairs)
