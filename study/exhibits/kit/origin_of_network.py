"""Where the network of a run comes from, and how it was trained."""

import math
from collections.abc import Callable

from cascadetta_lib.training.pretrain import kept_epoch
from study.exhibits.kit.stored_runs import Runs
from study.store import Run


def in_kept_epoch(column: str) -> Callable[[Runs, Run], float]:
    """Return a function that reads a column of a training history, in the epoch that was kept.

    The function takes `Runs` and a run, and reads the history of the run's network. It returns NaN
    if there is no history or no such column.
    """

    def value(runs: Runs, run: Run) -> float:
        history = runs.history(run)
        if history is None:
            return math.nan
        return float(kept_epoch(history).get(column, math.nan))

    return value


def doubt_about_held_out(run: Run) -> str:
    """Say why the network of a run may have learned from the held-out source examples.

    The answer is empty if the network was trained here, or if its record says that it was trained
    on the same part of the same data. Otherwise it may have learned from these examples.
    """
    asked = run.request.checkpoint
    if asked.weights == "train":
        return ""
    card = run.provenance.card
    known = card.get("options", {})
    same_data = card.get("data_fingerprint") == run.provenance.fingerprint
    same_part = all(
        known.get(name) == asked.options.get(name) for name in ("train_size", "held_out_fraction")
    )
    if same_data and same_part:
        return ""
    learned_from = "of its training nothing is known"
    if "data" in card:
        learned_from = f"it was trained on {card['data']}"
    return f"the network may know the held-out source images ({learned_from})"
