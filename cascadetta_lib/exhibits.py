"""Every table and figure of the paper, and some beyond it, from saved runs alone, beside the paper's numbers.

An exhibit is a function from the evidence and a dataset to its parts; `all_exhibits` calls them in the paper's order.
One without runs is a heading and a line that says why.
"""

import base64
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cascadetta_lib import diagrams, report
from cascadetta_lib.data.base import Modality
from cascadetta_lib.evidence import (
    Evidence,
    Found,
    experiment_gaps,
    foreign_lines,
    main_gaps,
    measured,
    paired_difference,
)
from cascadetta_lib.experiments import chosen_experiments
from cascadetta_lib.methods import METHODS
from cascadetta_lib.registry import nearest
from cascadetta_lib.report import SHORT, colour, name_data, to_html, to_latex, to_markdown
from cascadetta_lib.settings import Settings
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
        spread = f"± is one standard deviation over n = {n} seeds." if n > 1 else "n = 1 seed."
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


# ---------------------------------------------------------------- the main tables


def main_exhibit(evidence: Evidence, modality: Modality, dataset: str) -> Exhibit:
    """tab:main-result, tab:text, tab:speech: E, A, F and the error in every domain, ours over the paper's."""
    names = {"image": ("tab:main-result", "Images"), "text": ("tab:text", "Text"), "speech": ("tab:speech", "Speech")}
    runs = evidence.main(modality, dataset)
    exhibit = Exhibit(*names[modality], dataset_name(dataset))
    if runs:
        trained = evidence.trained(runs)
        exhibit.numbers = report.results(runs)
        exhibit.parts = [
            Part("metrics", report.metrics_figure(runs), runs),
            Part("stream", report.stream_figure(runs), runs),
            Part("table", report.main_table(runs), runs),
        ]
        if (differences := differences_table(runs)) is not None:
            note = "E of each method less the cascade's, on the same seeds and batches, with its 95 % interval."
            exhibit.parts.append(Part("differences", differences, runs, note))
        exhibit.lines = [*report.drift_lines(runs), *report.collapse_lines(trained)]
    exhibit.lines += main_gaps(evidence.settings, modality, runs) + foreign_lines(evidence.settings, runs)
    return exhibit


def differences_table(runs: Sequence[Run], reference: str = "cascade") -> pd.DataFrame | None:
    """A row a method: its E less the reference's, paired. None without a pair."""
    by_method = {name: [run for run in runs if run.config.method == name] for name in _methods(runs)}
    rows = {}
    for name, others in by_method.items():
        if name != reference and (found := paired_difference(by_method.get(reference, []), others)) is not None:
            low, high = f"{found.low:+.2f}", f"{found.high:+.2f}"
            interval = "–" if found.n < 2 else f"[{low}, {high}]"
            rows[METHODS[name].label] = {
                f"E less that of {METHODS[reference].label} (points)": f"{found.mean:+.2f}",
                "95 % interval": interval,
                "over": f"{found.n} {found.over}",
            }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method") if rows else None


def _methods(runs: Iterable[Run]) -> list[str]:
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


def sweep_table(numbers: pd.DataFrame, over: str, value: str = "E") -> pd.DataFrame:
    """Cells of `value` by series (rows) and by `over` (columns, in the order they come)."""
    columns = list(dict.fromkeys(numbers[over]))
    grouped = numbers.groupby(["series", over], sort=False)[value].agg(spread)
    return grouped.unstack(over).reindex(columns=columns, index=list(dict.fromkeys(numbers["series"]))).fillna("–")


def sweep_axes(axes: Axes, numbers: pd.DataFrame, over: str, value: str = "E", **style: Any) -> None:
    """A line a series with a band of one standard deviation over seeds."""
    for (name, method), rows in numbers.groupby(["series", "method"], sort=False):
        grouped = rows.groupby(over, sort=True)[value]
        mean, std, x = grouped.mean(), grouped.std(), grouped.mean().index.to_numpy()
        own = rows["objective"].iloc[0] == METHODS[str(method)].objective
        axes.plot(x, mean, color=colour(str(method)), marker="o", ms=3, label=name, ls="-" if own else "--", **style)
        if grouped.size().max() > 1:
            axes.fill_between(x, mean - std, mean + std, color=colour(str(method)), alpha=0.2, lw=0)


def sweep_numbers(found: Iterable[Found]) -> pd.DataFrame:
    """`measured` with a name for each series; empty without runs."""
    numbers = measured(found)
    if len(numbers):
        numbers["series"] = [series_name(*pair) for pair in zip(numbers["method"], numbers["objective"], strict=True)]
    return numbers


def runs_of(found: Iterable[Found]) -> list[Run]:
    return [run for each in found for run in each.runs]


def paper_values(**where: Any) -> pd.DataFrame:
    """Rows of the paper's numbers with these values in these columns; methods by our labels."""
    table = pd.read_csv(report.PAPER_RESULTS, dtype={"severity": str, "batch_size": str})
    for column, value in where.items():
        table = table[table[column] == value]
    return table.assign(method=table["method"].replace("Ours", METHODS["cascade"].label))


def _experiment(
    evidence: Evidence, name: str, dataset: str, label: str, title: str
) -> tuple[Exhibit, list[Found], pd.DataFrame]:
    found = evidence.experiment(name, dataset)
    lines = experiment_gaps(evidence.settings, found) + foreign_lines(evidence.settings, runs_of(found))
    if name not in chosen_experiments(dataset):
        lines = ["not made on this dataset, as in the paper"]
    numbers = sweep_numbers(found)
    return Exhibit(label, title, dataset_name(dataset), numbers=numbers, lines=lines), found, numbers


PAPER_BATCH_SIZES = (128, 64, 32, 16)


def batch_size_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """tab:insensitive: E by batch size, and how much it varies over the paper's sizes."""
    exhibit, found, numbers = _experiment(evidence, "batch_sizes", dataset, "tab:insensitive", "Error by batch size")
    if numbers.empty:
        return exhibit
    ours = sweep_table(numbers, "batch_size")
    sizes = [size for size in PAPER_BATCH_SIZES if size in ours.columns]
    by_size = numbers[numbers["batch_size"].isin(sizes)].groupby(["series", "batch_size"])["E"].mean().groupby("series")
    if len(sizes) > 1:
        ours[f"{sizes[0]}–{sizes[-1]}"] = (
            by_size.mean().map("{:.2f}".format) + " ± " + by_size.std().map("{:.2f}".format)
        )
    paper = paper_values(table="tab:insensitive").pivot(index="method", columns="batch_size", values="value")
    rows = paper.map("{:.2f}".format).rename(columns=lambda name: int(name) if str(name).isdigit() else name)
    rows["128–16"] = rows.pop("mean") + " ± " + rows.pop("std")
    exhibit.parts = [
        Part("batch-sizes", beside_paper(ours, rows), runs_of(found), "E (%); the last column over batch sizes."),
        Part("batch-sizes-figure", _sweep_figure(numbers, "batch_size", "batch size", runs_of(found)), runs_of(found)),
    ]
    return exhibit


def beside_paper(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Rows of ours over the paper's of the same name, with `source` as a second index; columns are ours."""
    both = [ours.assign(source="ours"), paper.reindex(columns=ours.columns).assign(source="paper")]
    table = pd.concat([each.rename_axis("method").set_index("source", append=True) for each in both]).fillna("–")
    order = [(name, source) for name in ours.index for source in ("ours", "paper") if (name, source) in table.index]
    table.columns = pd.Index([str(column) for column in table.columns])
    return table.loc[order]


def _sweep_figure(numbers: pd.DataFrame, over: str, label: str, runs: Sequence[Run]) -> Figure:
    figure, axes = plt.subplots(figsize=(4.6, 3))
    sweep_axes(axes, numbers, over)
    values = sorted(set(numbers[over]))
    if over == "batch_size":
        axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()
    axes.set(xlabel=label, ylabel="online error E (%)")
    axes.legend(fontsize=6.5, ncols=2)
    name_data(figure, runs, 1.0, 75)
    return figure


def severity_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """tab:add-result: the whole table at severities 4, 3, 2 and 1."""
    exhibit, found, numbers = _experiment(evidence, "severities", dataset, "tab:add-result", "Severities 4, 3, 2, 1")
    for severity in (4, 3, 2, 1):
        runs = runs_of(each for each in found if each.point.changes["severity"] == severity)
        if runs:
            exhibit.parts.append(Part(f"severity-{severity}", report.main_table(runs), runs, f"Severity {severity}."))
    if not numbers.empty:
        figure = _sweep_figure(numbers, "severity", "severity", runs_of(found))
        exhibit.parts.append(Part("severities-figure", figure, runs_of(found)))
    return exhibit


def cascade_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """fig:cascade and tab:effect-theta-a: with and without θ_a, θ_m updated and fixed, by severity."""
    exhibit, found, numbers = _experiment(
        evidence, "cascade_parts", dataset, "fig:cascade, tab:effect-theta-a", "What θ_a and θ_m do"
    )
    if numbers.empty:
        return exhibit
    runs = runs_of(found)
    figure, panels = plt.subplots(1, 2, figsize=(7, 2.8), sharey=True)
    for axes, other in zip(panels, ("cascade_no_auxiliary", "cascade_fixed_classifier"), strict=True):
        sweep_axes(axes, numbers[numbers["method"].isin(["cascade", other])], "severity")
        axes.set(xlabel="severity", xticks=range(1, 6))
        axes.legend(fontsize=7)
    panels[0].set(ylabel="online error E (%)")
    figure.tight_layout()
    name_data(figure, runs, 1.0, 110)
    paper = paper_values(table="tab:effect-theta-a").pivot(index="variant", columns="severity", values="value")
    names = {"with theta_a": METHODS["cascade"].label, "without theta_a": METHODS["cascade_no_auxiliary"].label}
    rows = paper.map("{:.2f}".format).rename(index=names, columns=int)
    note = "E (%) by severity; the paper's are on Tiny-ImageNet-C."
    table = beside_paper(sweep_table(numbers, "severity"), rows)
    exhibit.parts = [Part("cascade-parts-figure", figure, runs), Part("cascade-parts", table, runs, note)]
    return exhibit


def meta_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """tab:ablation-meta: TTT and the cascade with and without meta-learning, by batch size."""
    exhibit, found, numbers = _experiment(
        evidence, "meta_learning", dataset, "tab:ablation-meta", "With and without meta-learning"
    )
    if numbers.empty:
        return exhibit
    runs = runs_of(found)
    paper = paper_values(table="tab:ablation-meta")
    objectives = {("TTT", "meta"): ("ttt", "meta_ttt"), ("TTT", "no meta"): ("ttt", "ttt")}
    objectives |= {("Cascade", "meta"): ("cascade", "meta"), ("Cascade", "no meta"): ("cascade", "multi_task")}
    names = [series_name(*objectives[pair]) for pair in zip(paper["method"], paper["variant"], strict=True)]
    rows = paper.assign(series=names).pivot(index="series", columns="batch_size", values="value").map("{:.2f}".format)
    table = beside_paper(sweep_table(numbers, "batch_size"), rows.rename(columns=int))
    figure = _sweep_figure(numbers, "batch_size", "batch size", runs)
    exhibit.parts = [Part("meta-learning", table, runs, "E (%)."), Part("meta-learning-figure", figure, runs)]
    return exhibit


def gradual_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """tab:gradual-c10: E, A and F over 135 gradually changing domains, and the error along them."""
    exhibit, found, numbers = _experiment(
        evidence, "gradual", dataset, "tab:gradual-c10", "135 gradually changing domains"
    )
    if numbers.empty:
        return exhibit
    runs = runs_of(found)
    ours = pd.DataFrame({m: numbers.groupby("series", sort=False)[m].agg(spread) for m in ("E", "A", "F")})
    paper = paper_values(table="tab:gradual-c10").assign(metric=lambda t: t["metric"].map(report.METRICS))
    rows = paper.pivot(index="method", columns="metric", values="value").map("{:.2f}".format)
    table = beside_paper(ours, rows)
    figure, axes = plt.subplots(figsize=(9, 3.2))
    for method in _methods(runs):
        curves = [_domain_errors(run) for run in runs if run.config.method == method]
        mean = pd.concat(curves, axis=1).mean(axis=1).rolling(9, min_periods=1, center=True).mean()
        axes.plot(mean.index, mean, color=colour(method), label=METHODS[method].label, lw=1.2)
    for start in range(0, 135, 9):
        axes.axvline(start, color="0.8", lw=0.6, zorder=0)
        axes.text(start + 4.5, 1.01, SHORT[runs[0].config.stream[start].name], fontsize=7, ha="center",
                  transform=axes.get_xaxis_transform())  # fmt: skip
    axes.set(xlabel="domain of the stream", ylabel="online error (%), 9 domains", xlim=(0, 134), ylim=(0, None))
    axes.grid(axis="x", visible=False)
    axes.legend(ncols=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=7)
    name_data(figure, runs, 1.0)
    exhibit.parts = [Part("gradual", table, runs), Part("gradual-figure", figure, runs)]
    return exhibit


def _domain_errors(run: Run) -> pd.Series:
    sums = run.batches.groupby("step")[["errors", "count"]].sum()
    return 100 * sums["errors"] / sums["count"]


# ---------------------------------------------------------------- uncertainty, speed, theorem


def uncertainty_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """fig:unc: entropy and error of the cascade against the samples adapted on, and against severity."""
    exhibit, found, _ = _experiment(evidence, "severities", dataset, "fig:unc", "Entropy and error")
    found = [each for each in found if each.point.method == "cascade"]
    main = [run for run in evidence.main("image", dataset) if run.config.method == "cascade"]
    if not main or not runs_of(found):
        exhibit.lines = exhibit.lines or ["missing: no run of the cascade"]
        return exhibit
    along = within_domains(main)
    by_severity = pd.concat([severity_entropies(each) for each in found if each.runs])
    figure, panels = plt.subplots(1, 2, figsize=(8, 2.9))
    for axes, table, name in ((panels[0], along, "samples of the domain"), (panels[1], by_severity, "severity")):
        _entropy_and_error(axes, table)
        axes.set(xlabel=name)
    panels[1].set_xticks(range(1, 6))
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncols=3, bbox_to_anchor=(0.5, -0.08))
    figure.tight_layout()
    runs = [*main, *runs_of(found)]
    name_data(figure, runs, 1.0, 110)
    note = "Left: mean over the domains of the stream, by how many samples of the domain were seen before the batch."
    about = "Spearman's rank correlation of a batch's error with its entropies, over the batches of the main stream."
    table = entropy_correlations(evidence.main("image", dataset))
    exhibit.parts = [Part("uncertainty", figure, runs, note), Part("uncertainty-correlations", table, main, about)]
    return exhibit


def entropy_correlations(runs: Sequence[Run]) -> pd.DataFrame:
    """A row a method: how a batch's error goes with the entropies of z and of a, mean over seeds."""
    rows = {}
    for method in _methods(runs):
        each = [run.batches for run in runs if run.config.method == method]
        columns = {"entropy of z": "entropy_main", "entropy of a": "entropy_auxiliary"}
        rows[METHODS[method].label] = {
            name: _rank_correlation([(b["errors"] / b["count"], b[column]) for b in each])
            for name, column in columns.items()
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


def _rank_correlation(pairs: Sequence[tuple[pd.Series, pd.Series]]) -> str:
    values = [one.corr(other, method="spearman") for one, other in pairs if other.nunique() > 1]
    return f"{np.mean(values):.2f}" if values else "–"


def within_domains(runs: Sequence[Run]) -> pd.DataFrame:
    """Mean error (%) and entropies (nats) by the samples of the domain seen before, over domains and seeds; of whole
    batches, in at most eight equal bins."""
    batches = pd.concat([run.batches for run in runs])
    batches = batches[batches["count"] == batches["count"].max()]
    batches["error"] = 100 * batches["errors"] / batches["count"]
    positions = np.sort(batches["position"].unique())
    bins = np.array_split(positions, min(8, len(positions)))
    middle = {position: part.mean() for part in bins for position in part}
    return batches.groupby(batches["position"].map(middle))[["error", "entropy_main", "entropy_auxiliary"]].mean()


def severity_entropies(found: Found) -> pd.DataFrame:
    """One row: mean error (%) and entropies (nats) over the stream at the point's severity."""
    batches = pd.concat([run.batches for run in found.runs])
    weights = batches["count"]
    row = {"error": 100 * batches["errors"].sum() / weights.sum()}
    row |= {c: np.average(batches[c], weights=weights) for c in ("entropy_main", "entropy_auxiliary")}
    return pd.DataFrame([row], index=[found.point.changes["severity"]])


def _entropy_and_error(axes: Axes, table: pd.DataFrame) -> None:
    axes.plot(table.index, table["error"], color="black", marker="o", ms=3, label="error (%)")
    axes.set(ylabel="error (%)")
    right = axes.twinx()
    for place, (column, name) in enumerate((("entropy_main", "entropy of z"), ("entropy_auxiliary", "entropy of a"))):
        right.plot(table.index, table[column], color=report.PALETTE[place], marker="s", ms=3, ls="--")
        axes.plot([], [], color=report.PALETTE[place], marker="s", ms=3, ls="--", label=f"{name} (nats)")
    right.set(ylabel="entropy (nats)")
    right.grid(visible=False)


def speed_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """tab:speed: seconds to adapt to one corruption, and how many times the cascade's."""
    runs = [run for run in evidence.main("image", dataset) if METHODS[run.config.method].adapts]
    exhibit = Exhibit("tab:speed", "Seconds to adapt to one corruption", dataset_name(dataset))
    if not runs:
        exhibit.lines = ["missing: no run; 02_adapt_image makes them"]
        return exhibit
    seconds = seconds_per_domain(runs)
    own = seconds.get("cascade", float("nan"))
    compare_with = runs[0].provenance["compare_with"]
    paper = paper_values(table="tab:speed", dataset=compare_with).set_index("method")["value"]
    rows = {
        METHODS[name].label: {
            "seconds a corruption": f"{value:.2f}",
            "times the cascade's": f"{value / own:.1f}",
            "device": ", ".join(sorted({r.provenance["device"] for r in runs if r.config.method == name})),
            f"paper, {compare_with}, RTX 2080 Ti": f"{paper[METHODS[name].label]:.0f} s"
            if METHODS[name].label in paper
            else "–",
        }
        for name, value in seconds.items()
    }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
    exhibit.parts = [Part("speed", table, runs, "Adapting and predicting, without the measurements of A and F.")]
    exhibit.lines = foreign_lines(evidence.settings, runs)
    return exhibit


def seconds_per_domain(runs: Sequence[Run]) -> dict[str, float]:
    """Mean seconds of the online pass over one domain, by method, over domains and seeds."""
    times: dict[str, list[float]] = {}
    for run in runs:
        times.setdefault(run.config.method, []).append(float(run.batches.groupby("step")["seconds"].sum().mean()))
    return {name: float(np.mean(values)) for name, values in times.items()}


def theorem_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """Theorem 1: the cosine of ∇CE and ∇ENT on ψ along pre-training, and the decomposition on one batch."""
    exhibit, found, _ = _experiment(evidence, "meta_learning", dataset, "Theorem 1", "Are the two gradients aligned?")
    runs = [run for run in runs_of(found) if run.config.method == "cascade"]
    trained = evidence.trained(runs)
    if not trained:
        return exhibit
    figure, axes = plt.subplots(figsize=(4.6, 2.8))
    for place, objective in enumerate(dict.fromkeys(each.config.objective for each in trained)):
        histories = [each.history for each in trained if each.config.objective == objective]
        cosine = pd.concat([history.set_index("epoch")["gradient_cosine"] for history in histories], axis=1)
        axes.plot(cosine.index, cosine.mean(axis=1), color=report.PALETTE[place], marker=".", label=objective)
        if cosine.shape[1] > 1:
            low, high = cosine.mean(axis=1) - cosine.std(axis=1), cosine.mean(axis=1) + cosine.std(axis=1)
            axes.fill_between(cosine.index, low, high, color=report.PALETTE[place], alpha=0.2, lw=0)
    axes.axhline(0, color="black", lw=0.8)
    axes.set(xlabel="epoch of the pre-training", ylabel="cosine of ∇CE and ∇ENT on ψ", ylim=(-1, 1))
    axes.legend()
    name_data(figure, runs, 1.0, 75)
    note = "On held-out source examples, with batch statistics."
    exhibit.parts = [Part("theorem-cosine", figure, runs, note)]
    checks = [(each.config, evidence.store.theorem(each.config)) for each in trained]
    rows = {f"{config.objective}, seed {config.seed}": check for config, check in checks if check is not None}
    if rows:
        table = pd.DataFrame.from_dict(rows, orient="index").map("{:.2g}".format).rename_axis("pre-training")
        about = (
            "error_…: relative error of the decomposition; curvatures: Rayleigh quotients of the Hessian of ENT at ψ."
        )
        exhibit.parts.append(Part("theorem", table.rename(columns=lambda name: name.replace("_", " ")), runs, about))
    else:
        exhibit.lines.append("missing: the decomposition was not checked; 05_ablations does it")
    return exhibit


# ---------------------------------------------------------------- beyond the paper


def learning_rate_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """E by online learning rate and batch size: is the ranking the method's or the setting's?"""
    exhibit, found, numbers = _experiment(
        evidence, "learning_rates", dataset, "beyond: learning rates", "Online learning rate × batch size"
    )
    if numbers.empty:
        return exhibit
    runs, methods = runs_of(found), list(dict.fromkeys(numbers["series"]))
    figure, panels = plt.subplots(1, len(methods), figsize=(1.9 * len(methods) + 0.6, 2.4), sharey=True, squeeze=False)
    means = numbers.groupby(["series", "online_learning_rate", "batch_size"])["E"].mean()
    for axes, name in zip(panels[0], methods, strict=True):
        grid = means[name].unstack("batch_size")
        image = _heat(axes, grid, means.min(), means.max(), "{:.1f}")
        axes.set(title=name, xlabel="batch size")
    panels[0][0].set(ylabel="learning rate")
    figure.colorbar(image, ax=panels[0].tolist(), label="E (%)", shrink=0.8)
    name_data(figure, runs, 1.02, 110)
    best = means.unstack("series").idxmin(axis=1).unstack("batch_size")
    best.columns = pd.Index([f"batch {size}" for size in best.columns])
    exhibit.parts = [
        Part("learning-rates", figure, runs),
        Part("learning-rates-best", best.rename_axis("learning rate"), runs, "The method with the lowest E."),
    ]
    return exhibit


def _heat(axes: Axes, grid: pd.DataFrame, low: float, high: float, form: str, size: float = 7) -> Any:
    """A table as shades with its numbers (none where `form` is empty)."""
    image = axes.imshow(grid.to_numpy(), vmin=low, vmax=high, cmap="viridis_r", aspect="auto")
    for (row, column), value in np.ndenumerate(grid.to_numpy()):
        shade = "white" if value > (low + high) / 2 else "black"
        axes.text(column, row, form.format(value), ha="center", va="center", fontsize=size, color=shade)
    axes.set_xticks(range(grid.shape[1]), [str(name) for name in grid.columns])
    axes.set_yticks(range(grid.shape[0]), [str(name) for name in grid.index])
    axes.grid(visible=False)
    return image


def collapse_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """Whether θ_a collapses: along the pre-trainings that have one, and along the stream."""
    exhibit, found, _ = _experiment(evidence, "severities", dataset, "beyond: collapse", "Does θ_a collapse?")
    severity = evidence.settings.image_severity
    stream = [each for each in found if each.point.changes["severity"] == severity]
    stream_runs = [
        r for r in runs_of(stream) if r.batches["agreement"].notna().any() and METHODS[r.config.method].adapts
    ]
    others = runs_of(evidence.experiment("meta_learning", dataset))
    trained = [each for each in evidence.trained([*runs_of(found), *others]) if "agreement" in each.history]
    first = min((each.config.seed for each in trained), default=0)
    if trained:
        note = f"Along the pre-training of seed {first}."
        shown = [each for each in trained if each.config.seed == first]
        exhibit.parts.append(Part("collapse-training", report.training_figure(shown), [*runs_of(found), *others], note))
        exhibit.lines = report.collapse_lines(trained) + exhibit.lines
    if stream_runs:
        figure, panels = plt.subplots(1, 2, figsize=(8, 2.8))
        columns = {"agreement": "argmax a = argmax z (share)", "entropy_of_mean_auxiliary": "entropy of mean a (nats)"}
        for axes, (column, title) in zip(panels, columns.items(), strict=True):
            for method in _methods(stream_runs):
                each = [r.batches.groupby("step")[column].mean() for r in stream_runs if r.config.method == method]
                mean = pd.concat(each, axis=1).mean(axis=1)
                axes.plot(mean.index, mean, color=colour(method), marker=".", label=METHODS[method].label)
            axes.set(title=title, ylim=(0, None))
            names = [SHORT[domain.name] for domain in stream_runs[0].config.stream]
            axes.set_xticks(range(len(names)), names, rotation=60, fontsize=7)
        panels[1].legend(fontsize=7)
        figure.tight_layout()
        name_data(figure, stream_runs, 1.0, 110)
        exhibit.parts.append(Part("collapse-stream", figure, stream_runs, "Along the stream, by domain."))
    return exhibit


def forgetting_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """R(T_i | T_1:j) as heat maps: what is lost of a domain as the stream goes on."""
    exhibit, found, _ = _experiment(
        evidence, "forgetting", dataset, "beyond: forgetting", "Accuracy on every domain after every domain"
    )
    runs = runs_of(found)
    if not runs:
        return exhibit
    matrices = {}
    for method in _methods(runs):
        each = [run.accuracies[run.accuracies["after"] > 0] for run in runs if run.config.method == method]
        matrices[method] = 100 * pd.concat(each).groupby(["step", "after"])["accuracy"].mean().unstack("after")
    low, high = (function([m.to_numpy() for m in matrices.values()]) for function in (np.min, np.max))
    figure, panels = plt.subplots(1, len(matrices), figsize=(2.2 * len(matrices) + 1, 2.6), sharey=True, squeeze=False)
    for axes, (method, matrix) in zip(panels[0], matrices.items(), strict=True):
        image = axes.imshow(matrix.to_numpy(), vmin=low, vmax=high, cmap="viridis")
        axes.set(title=METHODS[method].label, xlabel="domains seen, j")
        axes.set_xticks(range(0, matrix.shape[1], 4), [str(j) for j in matrix.columns[::4]])
        axes.grid(visible=False)
    names = [SHORT.get(domain.name, domain.name) for domain in runs[0].config.stream]
    panels[0][0].set_yticks(range(len(names)), names, fontsize=6)
    figure.colorbar(image, ax=panels[0].tolist(), label="accuracy (%)", shrink=0.8)
    name_data(figure, runs, 1.02, 110)
    exhibit.parts = [
        Part("forgetting", figure, runs, "Rows: the domain that is measured. Columns: how far the stream was.")
    ]
    return exhibit


def order_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """E and A over several orders of the stream, mean ± standard deviation over the orders."""
    exhibit, found, numbers = _experiment(evidence, "orders", dataset, "beyond: orders", "The order of the domains")
    if numbers.empty:
        return exhibit
    runs = runs_of(found)
    numbers["order"] = ["standard" if stream == "instantaneous" else "random" for stream in numbers["stream"]]
    mean = numbers.groupby(["series", "stream", "order"], sort=False)[["E", "A"]].mean().reset_index()
    rows: dict[str, dict[str, str]] = {}
    for name, each in mean.groupby("series", sort=False):
        standard = each[each["order"] == "standard"]
        row = {"orders": str(len(each))}
        for metric in ("E", "A"):
            row[f"{metric}, standard order"] = f"{standard[metric].mean():.2f}"
            row[f"{metric}, all orders"] = spread(each[metric])
        rows[str(name)] = row
    figure, axes = plt.subplots(figsize=(4.6, 2.6))
    for place, name in enumerate(rows):
        each = mean[mean["series"] == name]
        shade = colour(str(numbers[numbers["series"] == name]["method"].iloc[0]))
        for order, marker, size, edge in (("random", "o", 4, shade), ("standard", "D", 6, "black")):
            errors = each[each["order"] == order]["E"]
            axes.plot(errors, [place] * len(errors), marker, color=shade, ms=size, mec=edge)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.plot([], [], "D", mfc="0.6", mec="black", ls="", label="standard order")
    axes.plot([], [], "o", color="0.6", ls="", label="random order")
    axes.legend(fontsize=7)
    axes.set(xlabel="online error E (%)")
    name_data(figure, runs, 1.0, 75)
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
    note = "± is one standard deviation over the orders."
    exhibit.parts = [Part("orders-figure", figure, runs), Part("orders", table, runs, note)]
    return exhibit


def prediction_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """E of the predictions recorded after the update and before it."""
    exhibit, found, numbers = _experiment(
        evidence, "predictions", dataset, "beyond: order of prediction", "Predicting after or before the update"
    )
    if not numbers.empty:
        table = sweep_table(numbers, "predict").rename_axis("method")
        exhibit.parts = [Part("predictions", table, runs_of(found), "E (%).")]
    return exhibit


# ---------------------------------------------------------------- all of them


def drawings() -> list[Exhibit]:
    """fig:models and fig:overview."""
    return [
        Exhibit("fig:models", "Parallel and cascading", parts=[Part("models", diagrams.models_figure())]),
        Exhibit("fig:overview", "Pre-training and adaptation", parts=[Part("overview", diagrams.overview_figure())]),
    ]


IMAGE_EXHIBITS: dict[str, Callable[[Evidence, str], Exhibit]] = {
    "gradual": gradual_exhibit,
    "batch_sizes": batch_size_exhibit,
    "cascade_parts": cascade_exhibit,
    "meta_learning": meta_exhibit,
    "uncertainty": uncertainty_exhibit,
    "severities": severity_exhibit,
    "speed": speed_exhibit,
    "theorem": theorem_exhibit,
    "learning_rates": learning_rate_exhibit,
    "collapse": collapse_exhibit,
    "forgetting": forgetting_exhibit,
    "orders": order_exhibit,
    "predictions": prediction_exhibit,
}
"""The exhibits on images beside the main table, in the paper's order and then ours."""


def one_exhibit(name: str, evidence: Evidence, dataset: str) -> Exhibit:
    """The image exhibit of that name on a dataset. Raises ValueError for an unknown name."""
    if name not in IMAGE_EXHIBITS:
        raise ValueError(f"no exhibit is named {name!r}; {nearest(name, IMAGE_EXHIBITS)}")
    return IMAGE_EXHIBITS[name](evidence, dataset)


def all_exhibits(evidence: Evidence) -> list[Exhibit]:
    """Every exhibit of the profile, in the paper's order."""
    settings: Settings = evidence.settings
    main = [
        main_exhibit(evidence, modality, name)
        for modality in get_args(Modality)
        for name in settings.datasets(modality)
    ]
    images = [one_exhibit(name, evidence, each) for each in settings.datasets("image") for name in IMAGE_EXHIBITS]
    return drawings() + main + images
