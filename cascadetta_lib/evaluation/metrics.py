"""Online error E, average accuracy A (Eq. 1) and forward transfer F (Eq. 2) of an `Evaluation`."""

from typing import Literal, get_args

import pandas as pd

from cascadetta_lib.allowed import require_choice

Transfer = Literal["paper", "final", "unadapted"]


def online_errors(batches: pd.DataFrame) -> pd.Series:
    """Return the online error of each domain, in [0, 1]. The index is (step, domain, severity), in
    the stream's order.

    batches: `Evaluation.batches`.
    """
    sums = batches.groupby(["step", "domain", "severity"])[["errors", "count"]].sum()
    return sums["errors"] / sums["count"]


def mean_online_error(batches: pd.DataFrame) -> float:
    """Return E: the mean over domains of the online error, in [0, 1].

    batches: `Evaluation.batches`.
    """
    # `step` is a domain's place in the stream, so it determines domain and severity. Grouping by
    # it alone gives the same groups in half the time.
    sums = batches.groupby("step")[["errors", "count"]].sum()
    return float((sums["errors"] / sums["count"]).mean())


def average_accuracy(accuracies: pd.DataFrame) -> float:
    """Return A (Eq. 1), in [0, 1]: the mean over the stream's domains of the final model's
    accuracy.

    With `reset_each` each domain has a model of its own, and A is the mean of their accuracies.

    accuracies: `Evaluation.accuracies`.
    """
    final = accuracies["after"] == accuracies["after"].max()
    return float(accuracies.loc[final, "accuracy"].mean())


def forward_transfer(accuracies: pd.DataFrame, definition: Transfer = "paper") -> float | None:
    """Return F in [−1, 1], or None if it was not measured, as on a mixed stream.

    Each definition is a mean over the domains t = 2..N. R(T | S) is the accuracy on T after
    adapting to S:

    paper: R(T_t | T_1:t) − R(T_t | T_t), which is Eq. 2. For R(T_t | T_t) a source model adapts to
        T_t alone.
    final: R(T_t | T_1:N) − R(T_t | T_t). The published tables fit this better than Eq. 2.
    unadapted: R(T_t | T_1:N) minus the accuracy of the unadapted model. The release computes this
        too, unintentionally: its second model should adapt to T_t, but the optimiser updates
        another copy, so the second model stays unadapted. One difference is left: the release's
        second model normalises by running statistics that it has gathered on T_t. Our unadapted
        model normalises as the method does: for most methods by the statistics of the batch.

    accuracies: `Evaluation.accuracies`. Raises ValueError for another definition.
    """
    require_choice("definition", definition, get_args(Transfer))
    return forward_transfers(accuracies)[definition]


def forward_transfers(accuracies: pd.DataFrame) -> dict[Transfer, float | None]:
    """Return F by every definition of `forward_transfer`, by its name. A definition that was not
    measured gives None.
    """
    later = accuracies[accuracies["step"] > 0].set_index("step")
    by_kind = {str(kind): rows for kind, rows in later.groupby("kind")}
    found: dict[Transfer, float | None] = dict.fromkeys(get_args(Transfer))
    for definition in found:
        compared = by_kind.get("source" if definition == "unadapted" else "alone")
        if compared is None:
            continue
        stream = by_kind["stream"]
        if definition == "paper":
            reached = stream[stream["after"] == stream.index + 1]  # right after the domain
        else:
            reached = stream[stream["after"] == stream["after"].max()]  # at the end
        found[definition] = float((reached["accuracy"] - compared["accuracy"]).mean())
    return found
