"""Choose which runs a table may compare, by their seeds and by the code that made the runs."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from study.exhibits.kit.intervals import per_network
from study.exhibits.kit.numbers import ALONE, Rounded, spread

DAGGER = "†"
APART = (
    f"{DAGGER}: at other seeds or in other orders than most rows, or made by an earlier code than "
    "today's. Do not compare it with other rows. A difference, where one is given, is over the "
    "seeds or orders that both have."
)


def shared_seeds(frame: pd.DataFrame, keys: Sequence[str] = ("label",)) -> set[Any]:
    """Return the seeds that a table compares over: those that more than half of its rows have.

    keys: the columns that distinguish the rows (or cells) of the table.
    """
    of_each = frame.groupby(list(keys), sort=False, dropna=False)["seed"].agg(set)
    counts = Counter(seed for seeds in of_each for seed in seeds)
    return {seed for seed, count in counts.items() if 2 * count > len(of_each)}


def comparable(
    frame: pd.DataFrame, keys: Sequence[str] = ("label",), shared: set[Any] | None = None
) -> pd.DataFrame:
    """Return the runs that a table compares, with the new column `apart`.

    A row of the table is made of all runs that are equal in `keys`. If it has all `shared` seeds,
    only its runs at these seeds are kept, so that the means of such rows are over the same seeds.
    If it lacks one, it is apart: all of its runs are kept, with True in the column `apart`, and it
    must not be compared with other rows. If any run was made by today's code, a row with a run by
    an earlier code is apart, too. All runs are on the same data (see `Runs`).

    frame: a table of `Runs.frame`.
    keys: the columns that distinguish the rows (or cells) of the table.
    shared: the seeds to compare over; None: those of `shared_seeds`.
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
    """Make each order of domains and examples count as a seed.

    Afterwards the column `seed` holds a number for each pair of a seed and an order. Tables take
    means, spreads and n over the column `network`. If each pre-training (`objective`) has a single
    network, the order is added to the name of the network, so that means, spreads and n are over
    orders. A table of runs in one order is returned as it is.

    frame: a table of `Runs.frame`.
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
    rows: pd.DataFrame,
    column: str,
    uncertainty: float = math.nan,
    most: int = 2,
    alone: int = ALONE,
) -> Rounded:
    """Write `mean ± standard deviation` over networks. A † says that the cell must not be compared.

    rows: the runs behind the cell, from `comparable`. The cell has a † if one of them is apart or
        lacks the value.
    column: the column of the value. Each network counts once: as the mean of its runs.
    uncertainty, most, alone: what decides the number of decimals; see `spread`.
    """
    values = per_network(rows, column).dropna()
    incomplete = rows[column].isna().any() or rows["apart"].any()
    mark = f" {DAGGER}" if len(values) and incomplete else ""
    return spread(values, uncertainty, most, alone, mark)


def count(rows: pd.DataFrame) -> int:
    """Count the networks behind these runs. A network counts once, however many seeds ran on it."""
    return int(rows["network"].nunique())


def has_dagger(table: pd.DataFrame) -> bool:
    """Return whether a table marks a value with †."""
    return bool(table.map(lambda text: DAGGER in str(text)).any(axis=None))
