"""A metric by one setting, such as the batch size, the learning rate or the severity."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.comparable_runs import cell, comparable, count
from study.exhibits.kit.exhibit import Exhibit
from study.exhibits.kit.numbers import Rounded, number
from study.exhibits.kit.paper_numbers import paper_values
from study.exhibits.kit.rendering import each_once, from_to
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.kit.style import dodged, draw_lines, legend, panels, reading
from study.exhibits.kit.tables import beside_paper, differences


def sweep_table(frame: pd.DataFrame, over: str, metric: str = "E") -> pd.DataFrame:
    """Return a metric by label (rows) and by the setting `over` (columns, in the order they come).

    The last column, n, counts the networks behind each row. Cells are over the seeds that most
    cells have. A † marks a cell over other seeds, or by an earlier code (see `comparable`).
    """
    cells: dict[str, dict[object, Rounded]] = {}
    counts: dict[str, list[int]] = {}
    compared = comparable(frame, ("label", over))
    for (label, value), rows in compared.groupby(["label", over], sort=False):
        cells.setdefault(str(label), {})[value] = cell(rows, metric)
        counts.setdefault(str(label), []).append(count(rows))
    columns = frame[over].dropna().unique()
    table = pd.DataFrame.from_dict(cells, orient="index").reindex(columns=columns).fillna("–")
    table["n"] = pd.Series({label: from_to(each) for label, each in counts.items()})
    order = [label for label in frame["label"].unique() if label in cells]
    return table.loc[order].rename_axis("method").rename(columns=str)


def sweep_figure(
    name: str,
    frame: pd.DataFrame,
    over: str,
    reference: str | None = None,
    metrics: Sequence[str] = ("E",),
    most: float = math.inf,
) -> Part | str:
    """Draw a panel per metric by the setting `over`. A last panel draws E minus E of the label
    `reference`.

    The last panel shows differences that are too small to see in the others. A value over other
    seeds than the rest, or by an earlier code, is not drawn. Lines that would coincide are drawn a
    little apart. With fewer than two values of the setting, return a sentence.

    most: the upper limit of the axis of E (%). The axis is limited only if, at each value of the
        setting, at least one label has an E of at most `most`.
    """
    axis = over.replace("_", " ")
    compared = comparable(frame, ("label", over))
    drawn = compared[~compared["apart"]]
    values = sorted(set(drawn[over]))
    if len(values) < 2:
        return f"No figure of one {axis} alone: {each_once(sorted(set(frame[over])))}."
    titles = {metric: f"{metric} ({'points' if metric == 'F' else '%'})" for metric in metrics}
    base = drawn[drawn["label"] == reference]
    if len(base):
        titles["less"] = f"E minus that of {reference} (points)"
        base = base[["seed", over, "E"]].rename(columns={"E": "E of reference"})
        drawn = drawn.merge(base, on=["seed", over], how="left")
        drawn["less"] = drawn["E"] - drawn["E of reference"]
    figure, grid = panels(len(titles), 3.4)
    moved = False
    for axes, (metric, title) in zip(grid, titles.items(), strict=True):
        scale = "linear" if over == "severity" else "log"
        shown = dodged(drawn, over, metric, scale == "log")
        moved |= bool((shown[over] != drawn[over]).any())
        draw_lines(axes, shown, over, metric)
        axes.set(title=title, xlabel=axis, ylabel="", xscale=scale)
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
    legend(figure)
    note = f"{reading(drawn)}{_cut(grid, list(titles), drawn, over, most)}"
    if moved:
        note += " Lines that would coincide are drawn a little to the right."
    left_out = [label for label in frame["label"].unique() if label not in set(drawn["label"])]
    if left_out:
        note += f" Not drawn, being on other seeds or of an earlier code: {', '.join(left_out)}."
    return Part(name, figure, note)


def _cut(
    grid: Sequence[Axes], metrics: Sequence[str], drawn: pd.DataFrame, over: str, most: float
) -> str:
    """Set the upper limit of the axis of E to `most`, the lower limit of the axis of A to
    100 − `most`, and the upper limit of the axis of differences to `most` minus the largest E of
    the reference.

    Return sentences that say where the axes end and which E lie beyond. If no E is above `most`, or
    if all E are above `most` at some value of the setting, no axis is limited and the text is
    empty.
    """
    errors = drawn.pivot_table("E", "label", over, sort=False)
    means = drawn.groupby(["label", over], sort=False)["E"].mean()
    beyond = means[means > most]
    if beyond.empty or (errors.min() > most).any():
        return ""
    ends = []
    for axes, metric in zip(grid, metrics, strict=True):
        if metric == "E":
            axes.set_ylim(top=most)
            _point_beyond(axes, most)
            ends.append(f"an E of {most:g} %")
        elif metric == "A":
            axes.set_ylim(bottom=100 - most)
            ends.append(f"an A of {100 - most:g} %")
        elif metric == "less":
            end = most - float((drawn["E"] - drawn["less"]).max())
            axes.set_ylim(top=end)
            ends.append(f"a difference of {number(end, 1)} points")
    told = ", ".join(
        f"{row.label} at {getattr(row, over):g} ({number(row.E, 0)} %)"
        for row in beyond.rename("E").reset_index().itertuples()
    )
    return f" Axes end at {' and at '.join(ends)}. Arrowheads mark a higher E: {told}."


def _point_beyond(axes: Axes, most: float) -> None:
    """Put an arrowhead at the upper end of a panel wherever a line is above it."""
    for line in list(axes.lines):
        if line.get_transform() != axes.transData:
            continue  # A line across the whole panel: its x values are no values of the setting.
        heights = np.asarray(line.get_ydata(), dtype=float)
        beyond = np.asarray(line.get_xdata(), dtype=float)[heights > most]
        look: dict[str, Any] = {"color": line.get_color(), "clip_on": False, "ms": 6}
        if len(beyond):
            axes.plot(beyond, np.full(len(beyond), most), "^", **look)


class Sweep(Exhibit):
    """Base class of exhibits that show E by one setting: as a table beside the paper's, as a
    figure, and as differences between pairs of methods.

    over: the setting.
    paper: the paper's table, and the column of `paper_values` that names its rows.
    reference: the label whose E is subtracted in the second panel of the figure.
    contrasts: pairs of labels (base, other). E of `other` minus E of `base` is shown at every value
        of the setting.
    note: the caption of the table.
    """

    over: ClassVar[str]
    paper: ClassVar[tuple[str, str]]
    reference: ClassVar[str | None] = METHODS["adabn"].label
    contrasts: ClassVar[Sequence[tuple[str, str]]] = ()
    note: ClassVar[str] = "E (%)."

    def table(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return our table as text, without the paper's rows."""
        return sweep_table(frame, self.over)

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        stem = self.name.replace("_", "-")
        return [
            Part(stem, beside_paper(self.table(frame), self._published(frame)), self.note),
            sweep_figure(f"{stem}-figure", frame, self.over, self.reference),
            *differences(f"{stem}-differences", self._pairs(frame)),
        ]

    def _published(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return E of the paper's rows, by the setting."""
        table, rows = self.paper
        values = paper_values(table, frame["run"].iloc[0], self.over)
        values = values[(values["domain"] == "all") & (values["metric"] == "E")]
        return values.pivot(index=rows, columns=self.over, values="value")

    def _pairs(self, frame: pd.DataFrame) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
        """Return the runs of each contrast (base, other) at each value of the setting, by the name
        of the difference.
        """
        cells = dict(list(frame.groupby(["label", self.over])))
        axis = self.over.replace("_", " ")
        pairs = {}
        for base, other in self.contrasts:
            for value in frame[self.over].unique():
                if (base, value) in cells and (other, value) in cells:
                    name = f"{other} − {base}, {axis} {value}"
                    pairs[name] = (cells[base, value], cells[other, value])
        return pairs
