"""How far a network is from the paper's rows, by metric and by domain."""

import math

import numpy as np
import pandas as pd

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.comparable_runs import cell, comparable
from study.exhibits.kit.intervals import interval_over_images
from study.exhibits.kit.numbers import interval, number, rounded
from study.exhibits.kit.stored_runs import by_label
from study.exhibits.kit.tables import by_domain, metrics_by_label

PAPER_ROWS = {
    "tent_adam": "tent",
    "cascade_same_weights": "cascade",
    "cascade_fixed_classifier": "cascade",
}
"""For each variant, the method of the paper with whose row the variant is compared."""
BESIDE_ITS_ROW = (
    "The interval is over the test images, for these networks: a bootstrap that draws batches. "
    "Batches that hold the same images, in any repetition, domain or run, are drawn together. "
    "Distances are in points. Tent (Adam) is compared with the paper's row of Tent. The cascade "
    "with Adam, with θ_m fixed, and without θ_a at test time is compared with the paper's row of "
    "the cascade."
)
INSIDE = "paper's E inside"


def label_of_paper_row(method: str) -> str:
    """Return the label of the paper's row that a method is compared with: its own, or that of the
    method of which it is a variant.
    """
    return METHODS[PAPER_ROWS.get(method, method)].label


def beside_its_row(frame: pd.DataFrame, paper: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return a row per label: our metrics, the interval of E over the images, and the distance from
    the paper's row. Without rows of the paper, there is no distance.

    frame: a table of `Runs.frame`.
    paper: the paper's rows; see `paper_main`.
    metrics: the columns of `frame` to show, such as E and A.
    """
    rows = {}
    own = {}
    for label, each in by_label(comparable(frame)).items():
        method = each["method"].iloc[0]
        low, high = interval_over_images(each)
        half = (high - low) / 2
        own[label] = {metric: cell(each, metric, half) for metric in metrics}
        row = label_of_paper_row(method)
        # Metrics and domains are looked up apart: the user may call a domain E, A or F.
        theirs = paper.reindex(index=[row], columns=["E", "A", "F"]).iloc[0]
        their_domains = paper.reindex(index=[row], columns=by_domain(each).index).iloc[0]
        distances = [
            (by_domain(seed) - their_domains).abs().mean() for _, seed in each.groupby("seed")
        ]
        rows[label] = {
            "95 % of E, over images": interval(low, high),
            INSIDE: _inside(low, high, theirs["E"]),
            "E, distance": rounded(each["E"].mean() - theirs["E"], half, sign=True),
            "by domain, mean distance": rounded(float(np.mean(distances)), half),
        }
        for metric in ("E", "A", "F"):
            if metric in metrics:
                rows[label][f"the paper's {metric}"] = number(theirs[metric])
    ours = pd.DataFrame.from_dict(own, orient="index", columns=metrics).rename_axis("method")
    ours["n"] = metrics_by_label(frame)["n"]
    table = ours.join(pd.DataFrame.from_dict(rows, orient="index"))
    if paper.empty:  # No row of the paper stands beside ours.
        return table[[*metrics, "n", "95 % of E, over images"]]
    return table


def _inside(low: float, high: float, theirs: float) -> str:
    """Say whether the paper's E lies in our interval; a dash if one of the two is missing."""
    if math.isnan(low) or math.isnan(theirs):
        return "–"
    return "yes" if low <= theirs <= high else "no"
