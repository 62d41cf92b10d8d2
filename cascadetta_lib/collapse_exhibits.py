"""The exhibits of 08_collapse: why θ_a collapses, what was tried against it, what was chosen, and how it compares."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from cascadetta_lib import remedy, report
from cascadetta_lib.evaluate import online_errors
from cascadetta_lib.evidence import Evidence, Found, foreign_lines, measured
from cascadetta_lib.exhibit import (
    Exhibit,
    Part,
    begin,
    difference_parts,
    methods_of,
    runs_of,
    spread,
    sweep_table,
)
from cascadetta_lib.experiments import (
    ADAPTED_ON_THE_SAME,
    CANDIDATES,
    NOT_ADAPTED,
    ONLINE_TERMS,
    SMALL_BATCH_TERMS,
    chosen_experiments,
    condition_changes,
)
from cascadetta_lib.methods import METHODS
from cascadetta_lib.report import colour, kept_epoch, name_data
from cascadetta_lib.study import Run, Trained, dataset_name

DIAGNOSTICS = {
    "entropy_auxiliary": "entropy of a (nats)",
    "entropy_of_mean_auxiliary": "entropy of mean a (nats)",
    "agreement": "argmax a = argmax z (share)",
    "gradient_ratio": "‖∇ENT‖ / ‖∇CE‖ on ψ",
}
ON_SOURCE = "E on four corruptions of held-out source images"


def _diagnosed(trained: Trained) -> pd.DataFrame:
    """The history with the ratio of the two gradients."""
    history = trained.history
    return history.assign(gradient_ratio=history["gradient_norm_self_supervised"] / history["gradient_norm_main"])


def _kept_row(trained: Trained) -> dict[str, str]:
    """What the kept epoch tells, as text."""
    kept = kept_epoch(_diagnosed(trained))
    row = {"held-out accuracy (%)": f"{100 * kept['held_out_accuracy']:.1f}"}
    row |= {"entropy of z (nats)": f"{kept['entropy_main']:.2f}"}
    return row | {name: f"{kept[column]:.2f}" for column, name in DIAGNOSTICS.items()}


def conditions_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """When θ_a collapses: diagnostics along pre-trainings that differ in one value each."""
    exhibit, found, numbers = begin(evidence, "conditions", dataset, "beyond: why θ_a collapses", "When θ_a collapses")
    if numbers.empty:
        return exhibit
    names = [*condition_changes(evidence.settings), "θ_a out of the outer entropy's gradient"]
    runs = runs_of(found)
    figure, panels = plt.subplots(1, 4, figsize=(11, 2.7))
    rows, styles = {}, ["-", "--", ":", "-."]
    for place, (name, each) in enumerate(zip(names, found, strict=True)):
        style: dict[str, Any] = {"color": report.PALETTE[place], "ls": styles[place % 4], "marker": ".", "ms": 3}
        for trained in evidence.trained(each.runs):
            history = _diagnosed(trained)
            for axes, column in zip(panels, DIAGNOSTICS, strict=True):
                axes.plot(history["epoch"], history[column], label=name, **style)
            errors = measured([each])["E"]
            rows[name] = _kept_row(trained) | {ON_SOURCE + " (%)": f"{errors.mean():.1f}"}
    classes = runs[0].config.checkpoint.model.classes
    for axes, title in zip(panels, DIAGNOSTICS.values(), strict=True):
        axes.set(title=title, xlabel="epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
    panels[0].axhline(np.log(classes), color="black", lw=0.8, ls=":")
    panels[1].axhline(np.log(classes), color="black", lw=0.8, ls=":")
    panels[2].axhline(1 / classes, color="black", lw=0.8, ls=":")
    panels[2].set(ylim=(0, 1))
    panels[3].set_yscale("log")
    figure.tight_layout()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=3, bbox_to_anchor=(0.5, 0.02), fontsize=7)
    name_data(figure, runs, 1.0, 160)
    note = "Of held-out source examples, by epoch; dotted: uniform, chance. Each value but one as in the profile."
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("pre-training")
    exhibit.parts = [Part("collapse-conditions-figure", figure, runs, note)]
    exhibit.parts.append(Part("collapse-conditions", table, runs, "In the epoch kept."))
    return exhibit


def candidates_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """The candidates: what each makes of θ_a, and its error on the source, not adapted and adapted."""
    exhibit, found, numbers = begin(
        evidence, "candidates", dataset, "beyond: candidates", "Pre-trainings that compete, judged on the source"
    )
    if numbers.empty:
        return exhibit
    rows, histories = {}, evidence.trained(runs_of(found))
    for objective in CANDIDATES:
        own = numbers[numbers["objective"] == objective]
        if own.empty:
            continue
        kept = [_kept_row(each) for each in histories if each.config.objective == objective]
        still, adapted = own[own["method"] == "adabn"], own[own["method"] == "cascade"]
        rows[objective.replace("_", " ")] = (kept[0] if kept else {}) | {
            "E, not adapted": f"{still['E'].mean():.2f}",
            **{f"E, rate {rate:g}": spread(each["E"]) for rate, each in adapted.groupby("online_learning_rate")},
        }
    table = pd.DataFrame.from_dict(rows, orient="index").fillna("–").rename_axis("pre-training")
    note = f"{ON_SOURCE} (%); adapted by the loss that the network was trained with."
    exhibit.parts = [Part("collapse-candidates", table, runs_of(found), note)]
    return exhibit


def online_terms_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """What is added at test time, for Tent and the cascade alike."""
    exhibit, found, numbers = begin(
        evidence, "online_terms", dataset, "beyond: online terms", "Diversity, drift bound and memory at test time"
    )
    if numbers.empty:
        return exhibit
    tried = ONLINE_TERMS | SMALL_BATCH_TERMS
    names = {frozenset(terms.items()): name for name, terms in tried.items()}
    keys = {key for terms in tried.values() for key in terms}
    terms = [
        names[frozenset((key, each.point.changes[key]) for key in keys & each.point.changes.keys())]
        for each in found
        for _ in each.runs
    ]
    labels = numbers["method"].map(lambda name: METHODS[name].label)
    table = sweep_table(numbers.assign(series=labels + ", " + pd.Series(terms)), "online_learning_rate")
    note = f"{ON_SOURCE} (%) by online learning rate, on the network of {METHODS['cascade_plus'].label}."
    exhibit.parts = [Part("collapse-online-terms", table.rename_axis("method"), runs_of(found), note)]
    return exhibit


def choice_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """The learning rate of each contestant, chosen on the source."""
    exhibit, found, _ = begin(evidence, "choice", dataset, "beyond: choice", "Learning rates chosen on the source")
    chosen = [each for each in remedy.choose(evidence, dataset) if each.runs]
    if not chosen:
        return exhibit
    rows = {
        each.contestant.label: {
            f"{rate:g}": f"**{error:.2f}**" if rate == each.rate else f"{error:.2f}"
            for rate, error in each.errors.items()
        }
        for each in chosen
    }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
    note = f"{ON_SOURCE} (%) by online learning rate; bold: chosen."
    exhibit.parts = [Part("collapse-choice", table, runs_of(found), note)]
    return exhibit


def comparison_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """Every contestant on the fifteen test corruptions at the rate chosen for it, against cascade_plus."""
    exhibit = Exhibit("beyond: comparison", "Every method at the rate chosen for it", dataset_name(dataset))
    if "choice" not in chosen_experiments(dataset):
        exhibit.lines = ["not made on this dataset"]
        return exhibit
    found = remedy.compared(evidence, dataset)
    rates = {each.contestant.label: each for each in remedy.choose(evidence, dataset)}
    main = {label: runs_of(each) for (label, what), each in found.items() if what == "main" and runs_of(each)}
    runs = [run for each in main.values() for run in each]
    if not main:
        exhibit.lines = ["missing: no run of it is stored; 08_collapse makes them"]
        return exhibit
    lacking = [label for label in rates if {run.seed for run in main.get(label, [])} < set(evidence.settings.seeds)]
    exhibit.lines = [f"partial: {', '.join(lacking)}: not every seed has a run"] if lacking else []
    exhibit.lines += foreign_lines(evidence.settings, runs)
    numbers = {label: measured(found[label, "main"]) for label in main}
    exhibit.numbers = pd.concat([each.assign(contestant=label) for label, each in numbers.items()])
    rows = {
        label: {metric: spread(each[metric]) for metric in ("E", "A", "F")}
        | {"rate": f"{rates[label].rate:g}" if rates[label].runs else "–", "n": str(len(each))}
        for label, each in numbers.items()
    }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
    exhibit.parts = [Part("comparison", table, runs, "E and A in percent, F in points."), _forest(main, runs)]
    plus = METHODS["cascade_plus"].label
    if plus in main:
        pairs = {f"{label} − {plus}": (main[plus], each) for label, each in main.items() if label != plus}
        exhibit.parts += difference_parts("comparison-differences", pairs)
        exhibit.parts += _along_the_stream(main) + _holding(found, plus)
    return exhibit


def _forest(main: dict[str, list[Run]], runs: Sequence[Run]) -> Part:
    """E of each contestant, a point a seed."""
    figure, axes = plt.subplots(figsize=(5.6, 0.26 * len(main) + 1))
    for place, each in enumerate(main.values()):
        values = report.results(each).query("domain == 'all' and metric == 'online_error'")["value"]
        shade = colour(each[0].config.method)
        axes.plot(values, [place] * len(values), "o", color=shade, ms=4, alpha=0.6)
        axes.plot(values.mean(), place, "D", color=shade, mec="black", ms=6)
    axes.set_yticks(range(len(main)), list(main), fontsize=7)
    axes.invert_yaxis()
    axes.set(xlabel="online error E (%)")
    name_data(figure, runs, 0.9, 90)
    return Part("comparison-figure", figure, runs, "A dot a seed, a diamond their mean.")


def _along_the_stream(main: dict[str, list[Run]]) -> list[Part]:
    """What adapting adds, domain by domain: online error less AdaBN's on the same network, a thin line a seed."""
    unadapted = {run.seed: online_errors(run.batches) for run in main.get(NOT_ADAPTED, [])}
    shown = {label: each for label, each in main.items() if label in ADAPTED_ON_THE_SAME and unadapted}
    if not shown:
        return []
    figure, panels = plt.subplots(1, len(shown), figsize=(3.1 * len(shown), 2.6), sharey=True, squeeze=False)
    for axes, (label, each) in zip(panels[0], shown.items(), strict=True):
        lines = [100 * (online_errors(run.batches) - unadapted[run.seed]) for run in each if run.seed in unadapted]
        for line in lines:
            axes.plot(range(1, len(line) + 1), line, color=colour(each[0].config.method), lw=0.8, alpha=0.6)
        mean = np.mean(lines, axis=0)
        axes.plot(range(1, len(mean) + 1), mean, color=colour(each[0].config.method), lw=2.2)
        axes.axhline(0, color="black", lw=0.8, ls=":")
        axes.set_title(label, fontsize=8)
        axes.set_xlabel("domain of the stream")
        axes.xaxis.get_major_locator().set_params(integer=True)
    panels[0][0].set_ylabel("E less AdaBN's (points)")
    figure.tight_layout()
    runs = [run for each in shown.values() for run in each]
    name_data(figure, runs, 1.0, 120)
    note = f"Online error less that of {NOT_ADAPTED}. A thin line a seed, the thick one their mean."
    return [Part("comparison-stream", figure, runs, note)]


def _holding(found: dict[tuple[str, str], list[Found]], label: str) -> list[Part]:
    """What cascade_plus does at other batch sizes, and on the gradual stream."""
    rows: dict[str, dict[str, str]] = {}
    sizes = {what: each for (of, what), each in found.items() if of == label and what.startswith("batch")}
    for what, each in sizes.items():
        if runs_of(each):
            rows[what] = {"E (%)": spread(measured(each)["E"]), "n": str(len(runs_of(each)))}
    late, alone = late_errors(found, label)
    both = sorted(late.keys() & alone.keys())
    for name, values in (("last 27 of 135 gradual domains", late), ("the same, each corruption alone", alone)):
        if both:
            rows[name] = {"E (%)": spread(pd.Series([values[seed] for seed in both])), "n": str(len(both))}
    runs = [run for (of, what), each in found.items() if of == label and what != "main" for run in runs_of(each)]
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("stream")
    return (
        [Part("comparison-holding", table, runs, f"{label} at other batch sizes, and at the end of a long stream.")]
        if rows
        else []
    )


def late_errors(found: dict[tuple[str, str], list[Found]], label: str) -> tuple[dict[int, float], dict[int, float]]:
    """By seed, the online error (%) over the last 27 gradual domains, and over the same where each of the three
    corruptions is met by a fresh source model."""

    def error(run: Run, last: int) -> float:
        sums = run.batches.groupby("step")[["errors", "count"]].sum()
        return float((100 * sums["errors"] / sums["count"]).tail(last).mean())

    gradual = runs_of(found.get((label, "gradual"), []))
    late = {run.seed: error(run, 27) for run in gradual}
    alone: dict[int, list[float]] = {}
    for run in runs_of(found.get((label, "alone"), [])):
        alone.setdefault(run.seed, []).append(error(run, 9))
    return late, {seed: float(np.mean(values)) for seed, values in alone.items() if len(values) == 3}


def stability_exhibit(evidence: Evidence, dataset: str) -> Exhibit:
    """E, A and F over the online learning rate: whose is the gain?"""
    exhibit, found, numbers = begin(
        evidence, "stability", dataset, "beyond: stability", "E, A and F over the online learning rate"
    )
    if numbers.empty:
        return exhibit
    runs = runs_of(found)
    rates = sorted(set(numbers["online_learning_rate"]))
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.8))
    for axes, (metric, title) in zip(
        panels, {"E": "E (%) ↓", "A": "A (%) ↑", "F": "F (points) ↑"}.items(), strict=True
    ):
        for method in methods_of(runs):
            means = numbers[numbers["method"] == method].groupby("online_learning_rate")[metric].mean()
            if METHODS[method].adapts:
                axes.plot(means.index, means, color=colour(method), marker="o", ms=3, label=METHODS[method].label)
            elif metric != "F":
                axes.axhline(means.mean(), color=colour(method), ls=":", label=METHODS[method].label)
        axes.set_xscale("log")
        axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axes.minorticks_off()
        axes.set(title=title, xlabel="online learning rate")
    figure.tight_layout()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=len(labels), bbox_to_anchor=(0.5, 0.02), fontsize=7)
    name_data(figure, runs, 1.0, 120)
    exhibit.parts = [Part("stability", figure, runs)]
    return exhibit


COLLAPSE_EXHIBITS = {
    "conditions": conditions_exhibit,
    "stability": stability_exhibit,
    "candidates": candidates_exhibit,
    "online_terms": online_terms_exhibit,
    "choice": choice_exhibit,
    "comparison": comparison_exhibit,
}
"""In the order of the notebook."""
