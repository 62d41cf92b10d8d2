"""What a table may compare: runs on the seeds that most of its rows have, on one state of data and
code.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from study.exhibits.kit.intervals import per_network
from study.exhibits.kit.numbers import ALONE, Rounded, spread

DAGGER = "†"
APART = (
    f"{DAGGER}: other seeds or orders, or an earlier code, than most rows. Compare it with none of "
    "them; the differences below are paired on what both have."
)


def shared_seeds(frame: pd.DataFrame, keys: Sequence[str] = ("label",)) -> set[Any]:
    """Return the seeds that a table compares over: those that more than half of its rows have.

    keys: the columns whose values make a row (or a cell) of the table.
    """
    of_each = frame.groupby(list(keys), sort=False, dropna=False)["seed"].agg(set)
    counts = Counter(seed for seeds in of_each for seed in seeds)
    return {seed for seed, count in counts.items() if 2 * count > len(of_each)}


def comparable(
    frame: pd.DataFrame, keys: Sequence[str] = ("label",), shared: set[Any] | None = None
) -> pd.DataFrame:
    """Return the runs that a table compares, with the column `apart`.

    A row that has all of `shared_seeds` keeps only these, so all such rows are means over the same
    seeds. A row that lacks one is apart and keeps its own seeds. A row of an earlier code is apart
    too, where others have today's. The data are the same (see `Runs`).

    shared: the seeds to compare over; else those that more than half of the rows have.
    """
    if frame.empty:
        return frame.assign(apart=False)
    if shared is None:
        shared = shared_seeds(frame, keys)
    row = frame.groupby(list(keys), sort=False, dropna=False).ngroup()
    seeds = frame["seed"].groupby(row).agg(set)
    complete = [number for number, own in seeds.items() if shared and shared.issubset(own)]
    lacks_a_seed = ~row.isin(complete)
    all_current = frame["current"].groupby(row).transform("all")
    of_older_code = ~all_current & bool(frame["current"].any())
    apart = lacks_a_seed | of_older_code
    marked = frame.assign(apart=apart)
    return marked[apart | frame["seed"].isin(shared)]


def by_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Return runs in several orders of domains and examples as replicates of one another.

    The column seed numbers the pairs of seed and order. If the runs of each objective are on one
    network, each order is named as a network of its own, so that spreads are over orders.
    """
    orders = pd.Series([run.request.order_seed for run in frame["run"]], frame.index, dtype=object)
    if orders.nunique(dropna=False) < 2:
        return frame
    replicates = frame.groupby(["seed", orders], dropna=False, sort=False)
    network = frame["network"]
    if network.groupby(frame["objective"]).nunique().max() == 1:
        network = network + ", order " + orders.map(str)
    return frame.assign(seed=replicates.ngroup(), network=network)


def cell(
    rows: pd.DataFrame, column: str, half: float = math.nan, most: int = 2, alone: int = ALONE
) -> Rounded:
    """Write `mean ± standard deviation` over networks, with † if the value is not to be compared.

    rows: runs of `comparable`. A value that some of the runs lack is not comparable either.
    half, most, alone: which decimals are shown; see `spread`.
    """
    values = per_network(rows, column).dropna()
    incomplete = rows[column].isna().any() or rows["apart"].any()
    mark = f" {DAGGER}" if len(values) and incomplete else ""
    return spread(values, half, most, alone, mark)


def count(rows: pd.DataFrame) -> int:
    """Count the networks behind these runs. One network is one, however many seeds ran on it."""
    return int(rows["network"].nunique())


def has_dagger(table: pd.DataFrame) -> bool:
    """Return whether a table of text marks a value as not to be compared."""
    return bool(table.map(lambda text: DAGGER in str(text)).any(axis=None))
