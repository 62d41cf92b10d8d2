"""fig:unc: entropy and error by the number of samples seen before, and by severity."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from cascadetta_lib.data.streams import MIXED
from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.heads import ENTROPIES, HEADS, tidy_batches
from study.exhibits.kit.numbers import spread
from study.exhibits.kit.points import Point, points_for, severity_points
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.kit.style import colour, draw_level, draw_lines, legend, panels, reading
from study.settings import Settings

BIN = 5
"""The number of batches of a domain that are averaged, because single batches are noisy."""
ADABN = METHODS["adabn"].label
COLUMNS = {"error": "error (%)"} | ENTROPIES


@exhibit
class Uncertainty(Exhibit):
    name = "uncertainty"
    place = 100
    label = "fig:unc"
    title = "Entropy and error"
    question = (
        "Does the entropy of a fall with the error as the cascade adapts, and rise with severity?"
    )

    def points(self, settings: Settings) -> list[Point]:
        methods = [name for name in ("cascade", "adabn") if name in settings.image.methods]
        if "cascade" not in methods:
            return []
        return points_for(methods) + severity_points(settings, ["cascade"])

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        if runs.study.section.protocol["order"] in MIXED:
            return ["No figure: the stream is mixed, so a batch has images of several domains."]
        if "severity" not in frame:  # The domains have no severities.
            frame = frame.assign(severity=np.nan)
        is_stream = frame["severity"].isna()
        tables = {
            "position": batch_means(binned(frame[is_stream]), "position"),
            "severity": batch_means(frame[~is_stream], "severity"),
        }
        for over, table in tables.items():
            if table.empty or table[over].nunique() < 2:
                return ["No figure: it needs two full batches per domain, and two severities."]
        figure, grid = panels(2 * len(COLUMNS), 2, columns=2, sharex="col")
        classes = len(frame["run"].iloc[0].provenance.class_names)
        differences = minus_adabn(tables["position"])
        shown = tables | ({} if differences.empty else {"position": differences})
        for axes, (column, over) in zip(grid, product(COLUMNS, tables), strict=True):
            draw_lines(axes, shown[over], over, column)
            label = "samples of the domain seen before" if over == "position" else over
            title = COLUMNS[column]
            if over == "position" and len(differences):
                measure, unit = title.rstrip(")").split(" (")
                unit = "points" if unit == "%" else unit
                title = f"{measure}, minus {ADABN}'s ({unit})"
                axes.axhline(0, color=colour("adabn"), lw=1, label=ADABN)
            else:
                draw_level(axes, column, classes)
            axes.set(title=title, xlabel=label, ylabel="")
        legend(figure)
        note = f"Left: means over {BIN} batches of a domain, if it has at least {2 * BIN}. "
        if len(differences):
            note += (
                f"All methods see the batches in one order, and {ADABN} learns nothing: the "
                "difference is adaptation."
            )
        rows = tables["severity"].groupby(["label", "severity"], sort=False)
        means = rows[list(COLUMNS)].agg(spread, most=3, alone=3)
        table = means.rename(columns=COLUMNS).rename_axis(["method", "severity"])
        told = f"Means of the panels on the right, over whole batches, ± over seeds. {HEADS}"
        return [
            Part("uncertainty", figure, f"{HEADS} {note} {reading(frame, COLUMNS)}"),
            Part("uncertainty-severity", table, told),
        ]


def minus_adabn(table: pd.DataFrame) -> pd.DataFrame:
    """Subtract AdaBN's values from those of other methods, at the same pre-training, seed and
    position.

    The result is empty if AdaBN and another method share no such point.

    table: `batch_means` by position.
    """
    keys = ["objective", "seed", "position"]
    is_base = table["method"] == "adabn"
    both = table[~is_base].merge(table[is_base], on=keys, suffixes=("", " of AdaBN"))
    for column in COLUMNS:
        both[column] = both[column] - both[f"{column} of AdaBN"]
    return both[table.columns]


def binned(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the same runs, with the positions of their batches set by `in_bins`."""
    return frame.assign(run=[replace(run, batches=in_bins(run.batches)) for run in frame["run"]])


def in_bins(batches: pd.DataFrame) -> pd.DataFrame:
    """Divide the batches of each domain into parts of BIN, and set the position of each batch to
    the mean of its part. A domain with fewer than two such parts keeps its positions.
    """
    steps = batches.groupby("step")["position"]
    count = steps.transform("size")
    # Batches left over at the end join the last part, because a few batches are noisy.
    part = np.minimum(steps.cumcount() // BIN, count // BIN - 1)
    middle = batches.groupby(["step", part])["position"].transform("mean")
    return batches.assign(position=middle.where(count >= 2 * BIN, batches["position"]))


def batch_means(frame: pd.DataFrame, over: str) -> pd.DataFrame:
    """Return the means of COLUMNS over full batches, by label, seed and `over`.

    over: `severity`, or `position`: the number of samples of the domain seen before.
    """
    if frame.empty:
        return frame
    batches = pd.concat([tidy_batches(run) for run in frame["run"]])
    whole = batches[batches["count"] == batches["count"].max()]
    keys = ["label", "method", "variant", "objective", "seed", over]
    return whole.groupby(keys)[list(COLUMNS)].mean().reset_index()
