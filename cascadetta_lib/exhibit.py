"""What an exhibit is, and what all of them are built from: figures and tables with what made them, sweeps over a
setting, and paired differences."""

import base64
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cascadetta_lib import report
from cascadetta_lib.evidence import Evidence, Found, experiment_gaps, foreign_lines, measured, paired_difference
from cascadetta_lib.experiments import chosen_experiments, seeds_of
from cascadetta_lib.methods import METHODS
from cascadetta_lib.report import colour, name_data, to_html, to_latex, to_markdown
from cascadetta_lib.study import Run, dataset_name


@dataclass(frozen=True)
class Part:
    """A figure or a table of an exhibit. name: of its files. runs: what it was made from, for the line below it."""

    name: str
    content: Figure | pd.DataFrame
    runs: Sequence[Run] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.content, Figure):
            plt.close(self.content)  # else a notebook shows it once more, at the end of the cell that made it

    @property
    def caption(self) -> str:
        """The note, the number of seeds, and what made the runs."""
        if not self.runs:
            return f"{self.note} Drawn, not measured.".strip()
        n = len({run.seed for run in self.runs})
        spread = f"± is one standard deviation over n = {n} seeds." if n > 1 and "±" not in self.note else f"n = {n}."
        return f"{self.note} {spread} {report.label(self.runs)}".strip()


@dataclass
class Exhibit:
    """One exhibit on one dataset. label: the paper's (tab:…, fig:…), or our own for what is beyond the paper."""

    label: str
    title: str
    dataset: str = ""
    parts: list[Part] = field(default_factory=list)
    numbers: pd.DataFrame | None = None
    """What the parts show, in long form, a row a number or a run."""
    lines: list[str] = field(default_factory=list)
    """What is missing, what was made elsewhere, what stands out; Markdown."""

    @property
    def anchor(self) -> str:
        """The identifier of its heading on the page."""
        return exhibit_anchor(self.label, self.dataset)

    @property
    def beyond(self) -> bool:
        """Whether the paper has no such exhibit."""
        return self.label.startswith("beyond")

    @property
    def heading(self) -> str:
        return f"{self.label} · {self.title}" + (f" ({self.dataset})" if self.dataset else "")

    @property
    def html(self) -> str:
        """The whole exhibit, as HTML that needs no other file."""
        pieces = [f'<h3 id="{self.anchor}">{self.heading}</h3>']
        for part in self.parts:
            body = _picture(part) if isinstance(part.content, Figure) else to_html(part.content)
            pieces.append(f"<div>{body}<p><small>{part.caption}</small></p></div>")
        pieces += [f"<p>{report.bold(line)}</p>" for line in self.lines]
        return "\n".join(pieces)

    def save(self, folder: Path) -> list[Path]:
        """Write each figure (PNG, SVG) and table (Markdown, LaTeX, CSV) with its caption, and the numbers (CSV).
        Without runs there is nothing to write."""
        paths = []
        if self.numbers is not None and len(self.numbers):
            folder.mkdir(parents=True, exist_ok=True)
            paths.append(folder / f"{self.anchor}-numbers.csv")
            self.numbers.to_csv(paths[0], index=False, float_format="%.4f")
        for part in self.parts:
            stem = slug(f"{self.dataset}-{part.name}")
            if isinstance(part.content, Figure):
                paths.append(report.save(part.content, stem, part.caption, folder))
            else:
                paths += save_table(part.content, stem, "\n\n".join([part.caption, *self.lines]), folder)
        return paths


def exhibit_anchor(label: str, dataset: str) -> str:
    """The identifier of an exhibit's heading on the page."""
    return slug(f"{label}-{dataset}")


def slug(text: str) -> str:
    """Letters, digits and underscores, the rest as single hyphens."""
    return re.sub(r"\W+", "-", text).strip("-")


def _picture(part: Part) -> str:
    assert isinstance(part.content, Figure)
    buffer = io.BytesIO()
    part.content.savefig(buffer, format="png")
    return f'<img alt="{part.name}" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"/>'


def save_table(table: pd.DataFrame, stem: str, text: str, folder: Path) -> list[Path]:
    """STEM.md with `text` below the table, STEM.tex (booktabs) and STEM.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{stem}.{suffix}" for suffix in ("md", "tex", "csv")]
    paths[0].write_text(f"{to_markdown(table)}\n\n{text}\n", encoding="utf-8")
    paths[1].write_text(to_latex(table, text), encoding="utf-8")
    table.map(report.plain).to_csv(paths[2])
    return paths


# ---------------------------------------------------------------- differences


def differences_table(pairs: Mapping[str, tuple[Sequence[Run], Sequence[Run]]]) -> pd.DataFrame | None:
    """A row a pair (runs, others): the E of the others less that of the runs, on the same seeds and batches, with its
    interval. None without a pair that has a seed in common."""
    rows = {}
    for name, (runs, others) in pairs.items():
        if (found := paired_difference(runs, others)) is not None:
            interval = "–" if np.isnan(found.low) else f"[{found.low:+.2f}, {found.high:+.2f}]"
            over = f"{found.n} {found.over}"
            rows[name] = {"difference of E (points)": f"{found.mean:+.2f}", "95 % interval": interval, "over": over}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("difference") if rows else None


def method_pairs(runs: Sequence[Run], reference: str = "cascade") -> dict[str, tuple[list[Run], list[Run]]]:
    """Every method against the reference."""
    of = {name: [run for run in runs if run.config.method == name] for name in methods_of(runs)}
    others = [name for name in of if name != reference]
    return {f"{METHODS[n].label} − {METHODS[reference].label}": (of.get(reference, []), of[n]) for n in others}


def difference_parts(name: str, pairs: Mapping[str, tuple[Sequence[Run], Sequence[Run]]]) -> list[Part]:
    """The table of paired differences as a part, or none."""
    table = differences_table(pairs)
    runs = [run for pair in pairs.values() for each in pair for run in each]
    note = "On the same seeds and batches."
    return [] if table is None else [Part(name, table, runs, note)]


def methods_of(runs: Iterable[Run]) -> list[str]:
    return list(dict.fromkeys(run.config.method for run in runs))


# ---------------------------------------------------------------- sweeps


def series_name(method: str, objective: str) -> str:
    """How a method is called in a sweep; another pre-training than its own is named."""
    label = METHODS[method].label
    return label if objective == METHODS[method].objective else f"{label} ({objective.replace('_', ' ')})"


def spread(values: pd.Series) -> str:
    """`mean ± std` over seeds, the one value, or a dash for a number that there is not."""
    if values.isna().all():
        return "–"
    return f"{values.mean():.2f}" + (f" ± {values.std():.2f}" if len(values) > 1 else "")


def sweep_table(numbers: pd.DataFrame, over: str) -> pd.DataFrame:
    """E by series (rows) and by `over` (columns, in the order they come), and n, the seeds of a cell that has any."""
    columns, rows = (list(dict.fromkeys(numbers[name])) for name in (over, "series"))
    grouped = numbers.groupby(["series", over], sort=False)["E"]
    table = grouped.agg(spread).unstack(over).reindex(columns=columns, index=rows).fillna("–")
    seeds = grouped.size().unstack(over)
    lows, highs = (each[rows].astype(int) for each in (seeds.min(axis=1), seeds.max(axis=1)))
    table["n"] = [f"{low}" if low == high else f"{low}–{high}" for low, high in zip(lows, highs, strict=True)]
    return table


def sweep_axes(axes: Axes, numbers: pd.DataFrame, over: str) -> None:
    """E, a line a series with a band of one standard deviation over seeds; a point of fewer seeds than others is
    hollow."""
    hollow: dict[str, Any] = {"ls": "", "marker": "o", "ms": 3, "mfc": "white"}
    most = numbers.groupby(["series", over])["seed"].nunique().max()
    for (name, method), rows in numbers.groupby(["series", "method"], sort=False):
        own = rows["objective"].iloc[0] == METHODS[str(method)].objective
        curves = [each.groupby(over)["E"].mean() for _, each in rows.groupby("seed")]
        report.band(axes, curves, colour(str(method)), marker="o", ms=3, label=name, ls="-" if own else "--")
        table = pd.concat(curves, axis=1)
        fewer = table.mean(axis=1)[table.count(axis=1) < most]
        if len(fewer):
            axes.plot(fewer.index, fewer, color=colour(str(method)), **hollow)
    if any(line.get_markerfacecolor() == "white" for line in axes.get_lines()):
        axes.plot([], [], color="0.4", label=f"fewer than {most} seeds", **hollow)


def sweep_numbers(found: Iterable[Found]) -> pd.DataFrame:
    """`measured` with a name for each series; empty without runs."""
    numbers = measured(found)
    if len(numbers):
        numbers["series"] = [series_name(*pair) for pair in zip(numbers["method"], numbers["objective"], strict=True)]
    return numbers


def runs_of(found: Iterable[Found]) -> list[Run]:
    return [run for each in found for run in each.runs]


def begin(
    evidence: Evidence, name: str, dataset: str, label: str, title: str
) -> tuple[Exhibit, list[Found], pd.DataFrame]:
    found = evidence.experiment(name, dataset)
    lines = experiment_gaps(evidence.settings, found, seeds_of(name, evidence.settings)) + foreign_lines(
        evidence.settings, runs_of(found)
    )
    if name not in chosen_experiments(dataset):
        lines = ["not made on this dataset, as in the paper"]
    numbers = sweep_numbers(found)
    return Exhibit(label, title, dataset_name(dataset), numbers=numbers, lines=lines), found, numbers


def sweep_figure(numbers: pd.DataFrame, over: str, label: str, runs: Sequence[Run]) -> Figure:
    figure, axes = plt.subplots(figsize=(4.6, 3))
    sweep_axes(axes, numbers, over)
    values = sorted(set(numbers[over]))
    if over == "batch_size":
        axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()
    axes.set(xlabel=label, ylabel="online error E (%)")
    axes.legend(fontsize=6.5, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    name_data(figure, runs, 0.92, 75)
    return figure


def runs_at(found: Iterable[Found], method: str, objective: str | None = None, **changes: Any) -> list[Run]:
    """The runs of the points with that method, pre-training (None: the method's own) and these changes."""
    points = [each for each in found if each.point.method == method and each.point.objective == objective]
    return [run for each in points if changes.items() <= dict(each.point.changes).items() for run in each.runs]
