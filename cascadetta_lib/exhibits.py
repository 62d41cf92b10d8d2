"""Every table and figure of the paper, and some beyond it, from saved runs alone, beside the paper's numbers.

An exhibit is a function from the evidence and a dataset to its parts; `all_exhibits` calls them in the paper's order.
One without runs is a heading and a line that says why.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from cascadetta_lib import diagrams, report
from cascadetta_lib.collapse_exhibits import COLLAPSE_EXHIBITS
from cascadetta_lib.data.base import Modality
from cascadetta_lib.evidence import Evidence, Found, foreign_lines, main_gaps
from cascadetta_lib.exhibit import (
    Exhibit,
    Part,
    begin,
    difference_parts,
    method_pairs,
    methods_of,
    runs_at,
    runs_of,
    series_name,
    spread,
    sweep_axes,
    sweep_figure,
    sweep_table,
)
from cascadetta_lib.methods import METHODS
from cascadetta_lib.registry import nearest
from cascadetta_lib.report import SHORT, colour, name_data
from cascadetta_lib.settings import Settings
from cascadetta_lib.study import Run, dataset_name

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
        exhibit.parts += difference_parts("differences", method_pairs(runs))
        exhibit.lines = [*report.drift_lines(runs), *report.collapse_lines(trained)]
    exhibit.lines += main_gaps(evidence.settings, modality, runs) + foreign_lines(evidence.settings, runs)
    return exhibit


def paper_values(table: str, runs: Sequence[Run]) -> pd.DataFrame:
    """The paper's numbers in one of its tables for the dataset that these runs stand for and, where all of them are at
    one severity, for that one; methods by our labels. Empty where the paper has none."""
    values = pd.read_csv(report.PAPER_RESULTS, dtype={"severity": str, "batch_size": str})
    values = values[(values["table"] == table) & (values["dataset"] == runs[0].provenance["compare_with"])]
    severities = {str(severity) for run in runs for _, severity in run.config.stream}
    if len(severities) == 1:
        values = values[values["severity"].isin(severities)]
    return values.assign(method=values["method"].replace("Ours", METHODS["cascade"].label))


PAPER_BATCH_SIZES = (128, 64, 32, 16)


def batch_size_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """tab:insensitive: E by batch size, and how much it varies over the paper's sizes."""
    exhibit, found, numbers = begin(evidence, "batch_sizes", dataset, "tab:insensitive", "Error by batch size")
    if numbers.empty:
        return exhibit
    runs, ours = runs_of(found), sweep_table(numbers, "batch_size")
    sizes = [size for size in PAPER_BATCH_SIZES if size in ours.columns]
    if len(sizes) > 1:
        seeds = numbers.pivot_table(index=["series", "seed"], columns="batch_size", values="E").reindex(columns=sizes)
        means = seeds.dropna().groupby("series").mean()  # of the seeds that have all sizes, so that they compare
        over_sizes = {name: spread(row) for name, row in means.iterrows()}
        ours.insert(ours.shape[1] - 1, f"{sizes[0]}–{sizes[-1]}", [over_sizes.get(name, "–") for name in ours.index])
    paper = paper_values("tab:insensitive", runs).pivot(index="method", columns="batch_size", values="value")
    rows = paper.map("{:.2f}".format).rename(columns=lambda name: int(name) if str(name).isdigit() else name)
    if len(rows):
        rows["128–16"] = rows.pop("mean") + " ± " + rows.pop("std")
    figure = sweep_figure(numbers, "batch_size", "batch size", runs)
    note = "E (%); the last column but one is mean ± std over batch sizes, of the seeds that have all of them."
    exhibit.parts = [
        Part("batch-sizes", beside_paper(ours, rows), runs, note),
        Part("batch-sizes-figure", figure, runs),
    ]
    return exhibit


def beside_paper(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Rows of ours over the paper's of the same name, with `source` as a second index; columns are ours."""
    both = [ours.assign(source="ours"), paper.reindex(columns=ours.columns).assign(source="paper")]
    table = pd.concat([each.rename_axis("method").set_index("source", append=True) for each in both]).fillna("–")
    order = [(name, source) for name in ours.index for source in ("ours", "paper") if (name, source) in table.index]
    table.columns = pd.Index([str(column) for column in table.columns])
    return table.loc[order]


def severity_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """tab:add-result: the whole table at severities 4, 3, 2 and 1."""
    exhibit, found, numbers = begin(evidence, "severities", dataset, "tab:add-result", "Severities 4, 3, 2, 1")
    for severity in (4, 3, 2, 1):
        runs = runs_of(each for each in found if each.point.changes["severity"] == severity)
        if runs:
            exhibit.parts.append(Part(f"severity-{severity}", report.main_table(runs), runs, f"Severity {severity}."))
    if not numbers.empty:
        figure = sweep_figure(numbers, "severity", "severity", runs_of(found))
        exhibit.parts.append(Part("severities-figure", figure, runs_of(found)))
    return exhibit


def cascade_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """fig:cascade and tab:effect-theta-a: with and without θ_a, θ_m updated and fixed, by severity."""
    exhibit, found, numbers = begin(
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
    paper = paper_values("tab:effect-theta-a", runs).pivot(index="variant", columns="severity", values="value")
    names = {"with theta_a": METHODS["cascade"].label, "without theta_a": METHODS["cascade_no_auxiliary"].label}
    rows = paper.map("{:.2f}".format).rename(index=names, columns=int)
    note = "E (%) by severity. The paper has numbers of this on Tiny-ImageNet-C alone."
    table = beside_paper(sweep_table(numbers, "severity"), rows)
    pairs = {
        f"{METHODS[other].label} − {METHODS['cascade'].label}, severity {severity}": (
            runs_at(found, "cascade", severity=severity),
            runs_at(found, other, severity=severity),
        )
        for other in ("cascade_no_auxiliary", "cascade_fixed_classifier")
        for severity in range(1, 6)
    }
    exhibit.parts = [Part("cascade-parts-figure", figure, runs), Part("cascade-parts", table, runs, note)]
    exhibit.parts += difference_parts("cascade-parts-differences", pairs)
    return exhibit


def meta_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """tab:ablation-meta: TTT and the cascade with and without meta-learning, by batch size."""
    exhibit, found, numbers = begin(
        evidence, "meta_learning", dataset, "tab:ablation-meta", "With and without meta-learning"
    )
    if numbers.empty:
        return exhibit
    runs = runs_of(found)
    paper = paper_values("tab:ablation-meta", runs)
    objectives = {("TTT", "meta"): ("ttt", "meta_ttt"), ("TTT", "no meta"): ("ttt", "ttt")}
    objectives |= {("Cascade", "meta"): ("cascade", "meta"), ("Cascade", "no meta"): ("cascade", "multi_task")}
    names = [series_name(*objectives[pair]) for pair in zip(paper["method"], paper["variant"], strict=True)]
    rows = paper.assign(series=names).pivot(index="series", columns="batch_size", values="value").map("{:.2f}".format)
    table = beside_paper(sweep_table(numbers, "batch_size"), rows.rename(columns=int))
    figure = sweep_figure(numbers, "batch_size", "batch size", runs)
    pairs = {
        f"{METHODS[method].label}, without meta-learning − with it, batch {size}": (
            runs_at(found, method, meta, batch_size=size),
            runs_at(found, method, without, batch_size=size),
        )
        for method, without, meta in (("ttt", "ttt", "meta_ttt"), ("cascade", "multi_task", "meta"))
        for size in evidence.settings.image_batch_sizes
    }
    exhibit.parts = [Part("meta-learning", table, runs, "E (%)."), Part("meta-learning-figure", figure, runs)]
    exhibit.parts += difference_parts("meta-learning-differences", pairs)
    return exhibit


def gradual_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """tab:gradual-c10: E, A and F over 135 gradually changing domains, and the error along them."""
    exhibit, found, numbers = begin(evidence, "gradual", dataset, "tab:gradual-c10", "135 gradually changing domains")
    if numbers.empty:
        return exhibit
    runs = runs_of(found)
    ours = pd.DataFrame({m: numbers.groupby("series", sort=False)[m].agg(spread) for m in ("E", "A", "F")})
    ours["n"] = numbers.groupby("series", sort=False).size().astype(str)
    paper = paper_values("tab:gradual-c10", runs).assign(metric=lambda t: t["metric"].map(report.METRICS))
    rows = paper.pivot(index="method", columns="metric", values="value").map("{:.2f}".format)
    table = beside_paper(ours, rows)
    figure, axes = plt.subplots(figsize=(9, 3.2))
    for method in methods_of(runs):
        curves = [_domain_errors(run) for run in runs if run.config.method == method]
        report.band(axes, curves, colour(method), label=METHODS[method].label, lw=0.9)
    for start in range(0, 135, 9):
        axes.axvline(start, color="0.8", lw=0.6, zorder=0)
        axes.text(start + 4.5, 1.01, SHORT[runs[0].config.stream[start].name], fontsize=7, ha="center",
                  transform=axes.get_xaxis_transform())  # fmt: skip
    axes.set(xlabel="domain of the stream", ylabel="online error (%)", xlim=(0, 134), ylim=(0, None))
    axes.grid(axis="x", visible=False)
    axes.legend(ncols=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=7)
    name_data(figure, runs, 1.0)
    exhibit.parts = [Part("gradual", table, runs), Part("gradual-figure", figure, runs)]
    exhibit.parts += difference_parts("gradual-differences", method_pairs(runs))
    return exhibit


def _domain_errors(run: Run) -> pd.Series:
    sums = run.batches.groupby("step")[["errors", "count"]].sum()
    return 100 * sums["errors"] / sums["count"]


# ---------------------------------------------------------------- uncertainty, speed, theorem


UNCERTAINTY = {"error": "error (%)", "entropy_main": "entropy of z (nats)", "entropy_auxiliary": "entropy of a (nats)"}
"""The columns of fig:unc and their names."""


def uncertainty_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """fig:unc: entropy and error of the cascade against the samples adapted on, and against severity.

    Batches come in stored order, so the images at one position are the same in every domain. What AdaBN, which adapts
    nothing, has at the same positions tells their difficulty from adaptation.
    """
    exhibit, found, _ = begin(evidence, "severities", dataset, "fig:unc", "Entropy and error")
    exhibit.numbers = None
    found = [each for each in found if each.point.method == "cascade" and each.runs]
    runs = evidence.main("image", dataset)
    main = [run for run in runs if run.config.method == "cascade"]
    if not main or not found:
        exhibit.lines = exhibit.lines or ["missing: no run of the cascade"]
        return exhibit
    still = [run for run in runs if run.config.method == "adabn"]
    by_severity = [severity_entropies(found, seed) for seed in sorted({run.seed for run in runs_of(found)})]
    figure, panels = plt.subplots(1, 2, figsize=(8, 2.9))
    _entropy_and_error(panels[0], [within_domains(run) for run in main], [within_domains(run) for run in still])
    _entropy_and_error(panels[1], by_severity, [])
    panels[0].set(xlabel="samples of the domain seen before")
    panels[1].set(xlabel="severity", xticks=range(1, 6))
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncols=4, bbox_to_anchor=(0.5, -0.08))
    figure.tight_layout()
    used = [*main, *still, *runs_of(found)]
    name_data(figure, used, 1.0, 110)
    note = "Left: mean over the domains of the stream; dotted: AdaBN, which adapts nothing, on the same images."
    about = "Spearman's rank correlation of a batch's error with its entropies, over the batches of the main stream."
    exhibit.parts = [
        Part("uncertainty", figure, used, note),
        Part("uncertainty-correlations", entropy_correlations(runs), runs, about),
    ]
    return exhibit


def entropy_correlations(runs: Sequence[Run]) -> pd.DataFrame:
    """A row a method: how a batch's error goes with the entropies of z and of a, mean over seeds."""
    rows = {}
    for method in methods_of(runs):
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


def within_domains(run: Run) -> pd.DataFrame:
    """Mean error (%) and entropies (nats) over domains, by the samples of the domain seen before; of whole batches, in
    at most eight equal bins."""
    batches = run.batches[run.batches["count"] == run.batches["count"].max()]
    batches = batches.assign(error=100 * batches["errors"] / batches["count"])
    positions = np.sort(batches["position"].unique())
    bins = np.array_split(positions, min(8, len(positions)))
    middle = {position: part.mean() for part in bins for position in part}
    return batches.groupby(batches["position"].map(middle))[list(UNCERTAINTY)].mean()


def severity_entropies(found: Iterable[Found], seed: int) -> pd.DataFrame:
    """Mean error (%) and entropies (nats) over the stream, a row a severity that the seed has a run of."""
    rows = {}
    for each in found:
        for run in each.runs:
            if run.seed == seed:
                weights, errors = run.batches["count"], run.batches["errors"]
                row = {name: np.average(run.batches[name], weights=weights) for name in list(UNCERTAINTY)[1:]}
                rows[each.point.changes["severity"]] = {"error": 100 * errors.sum() / weights.sum()} | row
    return pd.DataFrame.from_dict(rows, orient="index").sort_index()


def _entropy_and_error(axes: Axes, tables: Sequence[pd.DataFrame], still: Sequence[pd.DataFrame]) -> None:
    """The columns of UNCERTAINTY, a table a seed; `still` are those of the network that does not adapt."""
    right = axes.twinx()
    shades = {"error": "black", "entropy_main": "0.55", "entropy_auxiliary": colour("cascade")}
    for column, name in UNCERTAINTY.items():
        place = axes if column == "error" else right
        style = {"marker": "o", "ms": 3} if column == "error" else {"marker": "s", "ms": 3, "ls": "--"}
        report.band(place, [table[column] for table in tables], shades[column], **style)
        axes.plot([], [], color=shades[column], label=name, **style)  # type: ignore[arg-type]
        if still:
            report.band(place, [table[column] for table in still], shades[column], ls=":", lw=1)
    if still:
        axes.plot([], [], color="black", ls=":", lw=1, label="AdaBN")
    axes.set(ylabel="error (%)")
    right.set(ylabel="entropy (nats)")
    right.grid(visible=False)


def speed_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """tab:speed: seconds to adapt to one corruption, and how many times the cascade's on the same device."""
    runs = [run for run in evidence.main("image", dataset) if METHODS[run.config.method].adapts]
    exhibit = Exhibit("tab:speed", "Seconds to adapt to one corruption", dataset_name(dataset))
    exhibit.lines = foreign_lines(evidence.settings, runs)
    if not runs:
        exhibit.lines = ["missing: no run; 02_adapt_image makes them"]
        return exhibit
    paper = paper_values("tab:speed", runs).set_index("method")["value"]
    columns = ["method", "device", "images a domain", "seconds a domain", "times the cascade's", "paper, RTX 2080 Ti"]
    rows = []
    for device in dict.fromkeys(run.provenance["device"] for run in runs):
        here = [run for run in runs if run.provenance["device"] == device]
        own = seconds_per_domain([run for run in here if run.config.method == "cascade"])
        for method in methods_of(here):
            each = [run for run in here if run.config.method == method]
            images = {int(run.batches.groupby("step")["count"].sum().max()) for run in each}
            taken, label = seconds_per_domain(each), METHODS[method].label
            times = "–" if np.isnan(own) else f"{taken / own:.1f}"
            published = f"{paper[label]:.0f} s for 10,000" if label in paper else "–"
            rows.append([label, device, ", ".join(f"{n:,}" for n in sorted(images)), f"{taken:.2f}", times, published])
    table = pd.DataFrame(rows, columns=columns).set_index(["method", "device"])
    exhibit.parts = [Part("speed", table, runs, "Adapting and predicting, without the measurements of A and F.")]
    return exhibit


def seconds_per_domain(runs: Sequence[Run]) -> float:
    """Mean seconds of the online pass over one domain, over domains and runs; NaN without runs."""
    times = [float(run.batches.groupby("step")["seconds"].sum().mean()) for run in runs]
    return float(np.mean(times)) if times else float("nan")


def theorem_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """Theorem 1: the cosine of ∇CE and ∇ENT on ψ along pre-training, and the decomposition on one batch."""
    exhibit, found, _ = begin(evidence, "meta_learning", dataset, "Theorem 1", "Are the two gradients aligned?")
    runs = [run for run in runs_of(found) if run.config.method == "cascade"]
    exhibit.numbers = None
    trained = evidence.trained(runs)
    if not trained:
        exhibit.lines = exhibit.lines or ["missing: no stored pre-training; 05_ablations makes them"]
        return exhibit
    figure, axes = plt.subplots(figsize=(4.6, 2.8))
    for objective in dict.fromkeys(each.config.objective for each in trained):
        histories = [each.history.set_index("epoch") for each in trained if each.config.objective == objective]
        curves = [history["gradient_cosine"] for history in histories]
        report.band(axes, curves, report.objective_colour(objective), marker=".", label=objective)
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
    exhibit, found, numbers = begin(
        evidence, "learning_rates", dataset, "beyond: learning rates", "Online learning rate × batch size"
    )
    if numbers.empty:
        return exhibit
    runs, methods = runs_of(found), list(dict.fromkeys(numbers["series"]))
    rates, sizes = evidence.settings.image_learning_rates, evidence.settings.image_learning_rate_batch_sizes
    means = numbers.groupby(["series", "online_learning_rate", "batch_size"])["E"].mean()
    figure, panels = plt.subplots(1, len(methods), figsize=(1.9 * len(methods) + 0.6, 2.4), sharey=True, squeeze=False)
    for axes, name in zip(panels[0], methods, strict=True):
        # The whole grid in each panel: a point without a run stays blank.
        grid = means[name].unstack("batch_size").reindex(index=rates, columns=sizes)
        image = _heat(axes, grid, means.min(), means.max())
        axes.set(title=name, xlabel="batch size")
    panels[0][0].set(ylabel="learning rate")
    figure.colorbar(image, ax=panels[0].tolist(), label="E (%)", shrink=0.8)
    name_data(figure, runs, 1.02, 110)
    whole = means.unstack("series").dropna()  # where a method has no run there is no best one
    best = whole.idxmin(axis=1).unstack("batch_size").reindex(index=rates, columns=sizes).fillna("–")
    best.columns = pd.Index([f"batch {size}" for size in best.columns])
    exhibit.parts = [
        Part("learning-rates", figure, runs),
        Part("learning-rates-best", best.rename_axis("learning rate"), runs, "The method with the lowest E."),
    ]
    return exhibit


def _heat(axes: Axes, grid: pd.DataFrame, low: float, high: float) -> Any:
    """A table as shades with its numbers."""
    image = axes.imshow(grid.to_numpy(), vmin=low, vmax=high, cmap="viridis_r", aspect="auto")
    for (row, column), value in np.ndenumerate(grid.to_numpy()):
        if not np.isnan(value):
            shade = "white" if value > (low + high) / 2 else "black"
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=7, color=shade)
    axes.set_xticks(range(grid.shape[1]), [str(name) for name in grid.columns])
    axes.set_yticks(range(grid.shape[0]), [str(name) for name in grid.index])
    axes.grid(visible=False)
    return image


def collapse_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """Whether θ_a collapses: along the pre-trainings that have one, and along the stream."""
    exhibit, found, _ = begin(evidence, "severities", dataset, "beyond: collapse", "Does θ_a collapse?")
    exhibit.numbers = None
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
        of_seed = [run for run in [*runs_of(found), *others] if run.seed == first]
        exhibit.parts.append(Part("collapse-training", report.training_figure(shown), of_seed, note))
        exhibit.lines = report.collapse_lines(trained) + exhibit.lines
    if stream_runs:
        figure, panels = plt.subplots(1, 2, figsize=(8, 2.8))
        columns = {"agreement": "argmax a = argmax z (share)", "entropy_of_mean_auxiliary": "entropy of mean a (nats)"}
        for axes, (column, title) in zip(panels, columns.items(), strict=True):
            for method in methods_of(stream_runs):
                each = [r.batches.groupby("step")[column].mean() for r in stream_runs if r.config.method == method]
                report.band(axes, each, colour(method), marker=".", label=METHODS[method].label)
            axes.set(title=title)
            names = [SHORT[domain.name] for domain in stream_runs[0].config.stream]
            axes.set_xticks(range(len(names)), names, rotation=60, fontsize=7)
        classes = stream_runs[0].config.checkpoint.model.classes
        panels[0].axhline(1 / classes, color="black", lw=0.8, ls=":", label="chance, uniform")
        panels[1].axhline(np.log(classes), color="black", lw=0.8, ls=":")
        panels[0].set(ylim=(0, 1))
        panels[1].set(ylim=(0, None))
        figure.tight_layout()
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper center", ncols=6, bbox_to_anchor=(0.5, 0.02), fontsize=7)
        name_data(figure, stream_runs, 1.0, 110)
        exhibit.parts.append(Part("collapse-stream", figure, stream_runs, "Along the stream, by domain."))
    return exhibit


def forgetting_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """R(T_i | T_1:j) − R(T_i | T_1:i) as heat maps: what is lost of a domain, or gained, as the stream goes on."""
    exhibit, found, _ = begin(
        evidence, "forgetting", dataset, "beyond: forgetting", "Accuracy on every domain after every domain"
    )
    runs = runs_of(found)
    if not runs:
        return exhibit
    matrices = {}
    for method in methods_of(runs):
        each = [run.accuracies[run.accuracies["after"] > 0] for run in runs if run.config.method == method]
        matrices[method] = 100 * pd.concat(each).groupby(["step", "after"])["accuracy"].mean().unstack("after")
    changes = {method: matrix.sub(np.diag(matrix), axis=0) for method, matrix in matrices.items()}
    most = max(5.0, *(float(change.abs().to_numpy().max()) for change in changes.values()))
    figure, panels = plt.subplots(1, len(changes), figsize=(2.2 * len(changes) + 1, 2.6), sharey=True, squeeze=False)
    for axes, (method, change) in zip(panels[0], changes.items(), strict=True):
        image = axes.imshow(change.to_numpy(), vmin=-most, vmax=most, cmap="RdBu")
        axes.set(title=METHODS[method].label, xlabel="domains seen, j")
        axes.set_xticks(range(0, change.shape[1], 4), [str(j) for j in change.columns[::4]])
        axes.grid(visible=False)
    names = [SHORT.get(domain.name, domain.name) for domain in runs[0].config.stream]
    panels[0][0].set_yticks(range(len(names)), names, fontsize=6)
    figure.colorbar(image, ax=panels[0].tolist(), label="change (points)", shrink=0.8)
    name_data(figure, runs, 1.02, 110)
    note = (
        "Accuracy on the domain of the row after j domains, less that right after it: red right of the diagonal is "
        "forgotten."
    )
    long = [matrix.reset_index().melt("step", value_name="accuracy").assign(method=m) for m, matrix in matrices.items()]
    exhibit.numbers = pd.concat(long)
    exhibit.parts = [Part("forgetting", figure, runs, note)]
    return exhibit


def order_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """E and A over several orders of the stream, mean ± standard deviation over the orders."""
    exhibit, found, numbers = begin(evidence, "orders", dataset, "beyond: orders", "The order of the domains")
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
    exhibit, found, numbers = begin(
        evidence, "predictions", dataset, "beyond: order of prediction", "Predicting after or before the update"
    )
    if not numbers.empty:
        table = sweep_table(numbers, "predict").rename_axis("method")
        pairs = {
            f"{METHODS[method].label}, before − after": (
                runs_at(found, method, predict="after"),
                runs_at(found, method, predict="before"),
            )
            for method in methods_of(runs_of(found))
        }
        exhibit.parts = [Part("predictions", table, runs_of(found), "E (%).")]
        exhibit.parts += difference_parts("predictions-differences", pairs)
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
    **COLLAPSE_EXHIBITS,
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
