"""Online error E, average accuracy A (Eq. 1) and forward transfer F (Eq. 2) of an `Evaluation`."""

from typing import Literal, get_args

import pandas as pd

from cascadetta_lib.allowed import require_choice

Transfer = Literal["paper", "final", "unadapted"]


def online_errors(batches: pd.DataFrame) -> pd.Series:
    """Return the online error of each domain, in [0, 1], in the stream's order.

    The index is (step, domain, severity).
    """
    sums = batches.groupby(["step", "domain", "severity"])[["errors", "count"]].sum()
    return sums["errors"] / sums["count"]


def mean_online_error(batches: pd.DataFrame) -> float:
    """Return E: the mean over domains of the online error, in [0, 1]."""
    # A step is one domain at one severity; grouping by it alone takes half of the time.
    sums = batches.groupby("step")[["errors", "count"]].sum()
    return float((sums["errors"] / sums["count"]).mean())


def average_accuracy(accuracies: pd.DataFrame) -> float:
    """Return A (Eq. 1): the mean accuracy over the stream's domains, in [0, 1].

    The accuracies are the final model's. With reset_each they are those of each domain's own model.
    """
    final = accuracies["after"] == accuracies["after"].max()
    return float(accuracies.loc[final, "accuracy"].mean())


def forward_transfer(accuracies: pd.DataFrame, definition: Transfer = "paper") -> float | None:
    """Return F in [−1, 1], or None if it was not measured, as on a mixed stream.

    Each definition is a mean over the domains t = 2..N:

    paper (Eq. 2): R(T_t | T_1:t) − R(T_t | T_t). For R(T_t | T_t) a source model adapts to T_t
        alone.
    final: R(T_t | T_1:N) − R(T_t | T_t), which the published tables fit better.
    unadapted: R(T_t | T_1:N) minus the accuracy of the unadapted model. The release computes this,
        too. Intended is a second model adapted to T_t; in fact its optimiser updates another copy,
        so it stays unadapted. One difference is left: the release's second model has running
        statistics of the domain, and our unadapted model has the method's BatchNorm mode.

    Raises ValueError for another definition.
    """
    require_choice("definition", definition, get_args(Transfer))
    return forward_transfers(accuracies)[definition]


def forward_transfers(accuracies: pd.DataFrame) -> dict[Transfer, float | None]:
    """Return F by each definition of `forward_transfer`; None for one that was not measured."""
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
