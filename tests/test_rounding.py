"""The share of rounding in a spread over orders."""

from pathlib import Path

import pytest
from made_up_runs import Numbers, made_up_run, quick

from study.store import Run
from study.study import Study
from study.tools.rounding import compared


def runs_in(folder: Path, errors: list[int], **changes: object) -> dict[str, Run]:
    """Tent's runs in orders 0, 1, …, with so many errors of a hundred in each domain."""
    study = Study(quick(results_folder=str(folder), image_dataset="cifar10", **changes))
    runs = {}
    for order, wrong in enumerate(errors):
        numbers = Numbers((wrong,), count=100)
        run = made_up_run(study.varied(order_seed=order), "tent", numbers)
        runs[run.request.key()] = run
    return runs


def test_the_spread_over_orders_beside_that_of_rounding(tmp_path: Path) -> None:
    """E 20, 22, 24 and, again, 21, 22: the differences are 1 and 0."""
    table = compared(runs_in(tmp_path, [20, 22, 24]), runs_in(tmp_path, [21, 22]))
    row = table.loc["Tent"]
    assert row["orders"] == "3" and row["made twice"] == "2"
    assert row["E, over orders"] == "2.00"
    assert row["E, rounding"] == "0.500"  # the root of (1 + 0) / 2 / 2
    assert row["A, rounding"] == "0.000"


def test_runs_of_another_network_or_stream_do_not_count(tmp_path: Path) -> None:
    own = runs_in(tmp_path, [20, 22, 24])
    mixed = runs_in(tmp_path, [60, 70], image_stream="mixed")
    another = runs_in(tmp_path, [80, 90], seed=1)
    row = compared(own | mixed | another, own).loc["Tent"]
    assert row["orders"] == "3" and row["E, over orders"] == "2.00"
    for others in (mixed, another):
        with pytest.raises(ValueError, match="differ in more than method, rate and order"):
            compared(own | others, own | others)


def test_runs_without_a_twin_are_refused(tmp_path: Path) -> None:
    first = runs_in(tmp_path, [20])
    with pytest.raises(ValueError, match="no run of one request, data and code in common"):
        compared(first, {"another": next(iter(first.values()))})
