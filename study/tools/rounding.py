"""Compute how much of the spread over orders is rounding, from runs that were made twice.

    ./run_all.sh python -m study.tools.rounding FOLDER OTHER

FOLDER (by default figures/runs) and OTHER hold packed runs of the same requests (see pack_runs.py).
Those in OTHER were made with another number of threads, or on another kind of CPU. This changes the
order in which numbers are added up, so the last bit of a sum differs; nothing else does. Writes
OTHER/rounding.md.
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd

from cascadetta_lib.evaluation.metrics import average_accuracy, online_errors
from cascadetta_lib.files import write_atomically
from cascadetta_lib.methods import METHODS
from study.exhibits.kit.numbers import number
from study.exhibits.kit.rendering import markdown
from study.requests import RunRequest
from study.store import Run, Unusable
from study.tools.pack_runs import FOLDER, read_packed, run_of

PAGE = "rounding.md"
LAST = 5
VALUES = {"E": "E", "last": f"E of the last {LAST} domains", "A": "A"}
TEXT = """# How much of the spread over orders is rounding

Points. Spread over orders: the standard deviation of a value over orders of domains and examples.
Rounding: the standard deviation that rounding alone would cause. It is computed from pairs of runs
of one request, as √(mean square of their differences / 2). Written by `study/tools/rounding.py`.

Runs on {first}, and again on {second}.

{table}
"""


def runs_of(folder: Path) -> dict[str, Run]:
    """Return the packed runs of a folder by key."""
    entries = read_packed(folder)
    return {key: run_of(json.loads(one.line)) for key, one in entries.items() if one.kind == "runs"}


def in_any_order(request: RunRequest) -> RunRequest:
    """Return a request without its order of domains and examples, and with all measurements beside
    E and A. For requests that differ only in these, the function returns the same request.
    """
    in_one_order = {"order_seed": None, "stream": tuple(sorted(request.stream))}
    return request.fullest.model_copy(update=in_one_order)


def values_of(run: Run) -> dict[str, float]:
    """Return the VALUES of a run in percent."""
    errors = 100 * online_errors(run.batches)
    return {
        "E": float(errors.mean()),
        "last": float(errors.iloc[-LAST:].mean()),
        "A": 100 * average_accuracy(run.accuracies),
    }


def compared(first: dict[str, Run], second: dict[str, Run]) -> pd.DataFrame:
    """Return a row per method and rate: the spread over orders, and the spread by rounding, in
    points.

    The spread over orders is that of the runs in `first`. It includes runs that were made once, if
    they differ only in order from a run that was made twice.

    first, second: runs by key.

    Raises ValueError if the two have no run in common, or if the common runs differ in more than
    method, rate and order.
    """
    common = [key for key in first if key in second]
    if not common:
        raise ValueError("the two folders have no run of one request, data and code in common")
    made_twice = {in_any_order(first[key].request) for key in common}
    named = {(request.method, request.online_learning_rate) for request in made_twice}
    if len(named) < len(made_twice):
        raise ValueError(
            "the runs made twice differ in more than method, rate and order, such as the network "
            "or the stream: pack those of each into a folder of its own"
        )
    rows = []
    for key, run in first.items():
        request = run.request
        if in_any_order(request) not in made_twice:
            continue
        row = {"method": METHODS[request.method].label, "rate": request.online_learning_rate}
        values = values_of(run)
        again = values_of(second[key]) if key in second else dict.fromkeys(values, math.nan)
        row |= {f"{name} apart": values[name] - again[name] for name in values}
        rows.append(row | values)
    table = pd.DataFrame(rows)
    found = []
    for (method, rate), each in table.groupby(["method", "rate"], sort=False):
        twice = each.dropna()
        if twice.empty:
            continue
        row = {"method": method, "rate": f"{rate:g}", "orders": str(len(each))}
        row["made twice"] = str(len(twice))
        for name, label in VALUES.items():
            rounding = math.sqrt(float(np.mean(twice[f"{name} apart"] ** 2)) / 2)
            row[f"{label}, over orders"] = number(each[name].std())
            row[f"{label}, rounding"] = number(rounding, 3)
        found.append(row)
    return pd.DataFrame(found).set_index("method")


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(
        prog="rounding", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("other", type=Path)
    asked = parser.parse_args()
    try:
        first = runs_of(asked.folder)
        second = runs_of(asked.other)
        table = compared(first, second)
    except (Unusable, ValueError) as error:
        parser.exit(2, f"rounding: {error}\n")
    devices = [
        ", ".join(sorted({run.provenance.device for run in runs.values()}))
        for runs in (first, second)
    ]
    text = TEXT.format(first=devices[0], second=devices[1], table=markdown(table))
    write_atomically(asked.other / PAGE, lambda file: file.write(text.encode()))
    print(text)


if __name__ == "__main__":
    main()
