"""What several exhibits share: tables beside the paper's, tables of differences, and a sweep over one setting."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pandas as pd

from cascadetta_lib.exhibits.base import Exhibit, Part
from cascadetta_lib.exhibits.paper import paper_values
from cascadetta_lib.exhibits.rendering import from_to
from cascadetta_lib.exhibits.runs import METRICS, Runs, bootstrap, by_label, paired
from cascadetta_lib.exhibits.style import BANDS, draw_lines, legend, number, panels, spread
from cascadetta_lib.methods import METHODS

F_NAMES = {"F": "F (Eq. 2)", "F_final": "F (final)", "F_release": "F (release)"}
DEFINED = "F of Eq. 2; of the final model, R(T_t|T_1:N) − R(T_t|T_t); and as the release computes it."


def metrics_by_label(frame: pd.DataFrame) -> pd.DataFrame:
    """E, A and F by all its definitions, mean ± standard deviation over seeds, and n; a row a label."""
    table = frame.groupby("label", sort=False)[list(METRICS)].agg(spread)
    return table.assign(n=frame.groupby("label")["seed"].nunique().astype(str))


def sweep_table(frame: pd.DataFrame, over: str) -> pd.DataFrame:
    """E by label (rows) and by the setting `over` (columns, in the order they come), and the seeds behind each row."""
    cells = frame.groupby(["label", over], sort=False)
    table = cells["E"].agg(spread).unstack(over)[list(dict.fromkeys(frame[over]))].fillna("–")
    seeds = cells["seed"].nunique().groupby("label").agg(from_to)
    return table.loc[list(dict.fromkeys(frame["label"]))].assign(n=seeds).rename_axis("method").rename(columns=str)


def beside_paper(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Rows of ours over the paper's of the same name, as text; `source` is a second index, columns are ours."""
    theirs = paper.map(lambda value: value if isinstance(value, str) else number(value)).rename(columns=str)
    theirs = theirs.reindex(index=ours.index.intersection(paper.index), columns=ours.columns)
    table = pd.concat({"ours": ours, "paper": theirs}, names=["source", "method"]).swaplevel().fillna("–")
    return table.loc[ours.index]


def differences(name: str, pairs: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]]) -> list[Part | str]:
    """Of each pair (first, second), E of the second less E of the first, with an interval over seeds and one over the
    test batches; no part where no pair has a seed in common."""
    rows, runs = {}, []
    for label, (first, second) in pairs.items():
        found, batches = paired(first, second), bootstrap(first, second)
        if found is not None and batches is not None:
            rows[label] = {
                "difference of E (points)": number(found.mean, sign=True),
                "95 %, over seeds": found.interval,
                "95 %, over test batches": batches.interval,
                "n": str(found.n),
            }
            runs += [*first["run"], *second["run"]]
    note = "On the same seeds and batches. Over seeds: Student; over test batches: block bootstrap, given the networks."
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("difference")
    return [Part(name, table, runs, note)] if rows else []


def method_differences(name: str, frame: pd.DataFrame) -> list[Part | str]:
    """Every method's E less that of the cascade."""
    parts, cascade = by_label(frame), METHODS["cascade"].label
    rivals = {label: rows for label, rows in parts.items() if label != cascade and cascade in parts}
    return differences(name, {f"{label} − {cascade}": (parts[cascade], rows) for label, rows in rivals.items()})


def sweep_figure(
    name: str, frame: pd.DataFrame, over: str, reference: str | None = None, metrics: Sequence[str] = ("E",)
) -> Part | str:
    """Metrics by the setting `over`, and beside them E less that of the label `reference`, where small differences
    show."""
    values, axis = sorted(set(frame[over])), over.replace("_", " ")
    if len(values) < 2:
        return f"No figure of one {axis} alone: {values[0]}."
    titles = {metric: f"{metric} ({'points' if metric == 'F' else '%'})" for metric in metrics}
    base = frame[frame["label"] == reference]
    if len(base):
        titles["less"] = f"E less that of {reference} (points)"
        frame = frame.merge(base[["seed", over, "E"]], on=["seed", over], how="left", suffixes=("", " of reference"))
        frame["less"] = frame["E"] - frame["E of reference"]
    figure, grid = panels(len(titles), 3.4)
    for axes, (metric, title) in zip(grid, titles.items(), strict=True):
        draw_lines(axes, frame, over, metric)
        axes.set(title=title, xlabel=axis, ylabel="", xscale="linear" if over == "severity" else "log")
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
    legend(figure)
    return Part(name, figure, list(frame["run"]), BANDS)


class Sweep(Exhibit):
    """E by one setting, as a table beside the paper's and as a figure, and differences between pairs of methods.

    over: the setting. paper: the paper's table, and the column of `paper_values` that names its rows. reference: the
    method whose E is subtracted in the second panel of the figure. contrasts: pairs of labels (first, second), of which
    the second's E less the first's is shown at every value.
    """

    over: ClassVar[str]
    paper: ClassVar[tuple[str, str]]
    reference: ClassVar[str | None] = METHODS["adabn"].label
    contrasts: ClassVar[Sequence[tuple[str, str]]] = ()
    note: ClassVar[str] = "E (%)."

    def table(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Ours, as text."""
        return sweep_table(frame, self.over)

    def parts(self, runs: Runs) -> list[Part | str]:
        frame, (table, rows) = runs.frame(self.points(runs.settings)), self.paper
        values = paper_values(table, frame["run"].iloc[0]).query("domain == 'all' and metric == 'E'")
        both = beside_paper(self.table(frame), values.pivot(index=rows, columns=self.over, values="value"))
        cells = dict(list(frame.groupby(["label", self.over])))
        pairs = {
            f"{second} − {first}, {self.over.replace('_', ' ')} {value}": (cells[first, value], cells[second, value])
            for first, second in self.contrasts
            for value in dict.fromkeys(frame[self.over])
            if {(first, value), (second, value)} <= cells.keys()
        }
        stem = self.name.replace("_", "-")
        return [
            Part(stem, both, list(frame["run"]), self.note),
            sweep_figure(f"{stem}-figure", frame, self.over, self.reference),
            *differences(f"{stem}-differences", pairs),
        ]
