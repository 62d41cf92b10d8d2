"""fig:unc: entropy and error against the samples adapted on and against severity; entropies along
the stream.
"""

from collections.abc import Sequence
from itertools import product

import pandas as pd
from matplotlib.figure import Figure

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import Exhibit, Part, exhibit
from study.exhibits.kit.runs import Point, Runs, points_for
from study.exhibits.kit.style import (
    draw_level,
    draw_lines,
    legend,
    name_domains,
    panels,
    reading,
    spread,
)
from study.exhibits.paper.ablations import severity_points
from study.settings import Settings
from study.store import Run

ENTROPIES = {
    "entropy_main": "entropy of z (nats)",
    "entropy_auxiliary": "entropy of a (nats)",
    "agreement": "a and z name one class (share)",
}
HEADS = "z: output of the classifier θ_m; a: of θ_a."
COLUMNS = {"error": "error (%)"} | ENTROPIES


@exhibit
class Uncertainty(Exhibit):
    name, place, label, title = "uncertainty", 100, "fig:unc", "Entropy and error"
    question = (
        "Does the entropy of a fall with the error as the cascade adapts, and rise with severity?"
    )

    def points(self, settings: Settings) -> list[Point]:
        methods = [name for name in ("cascade", "adabn") if name in settings.image.methods]
        return (
            points_for(methods) + severity_points(settings, ["cascade"])
            if "cascade" in methods
            else []
        )

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        if runs.study.section.stream == "mixed":
            return ["No figure of a mixed stream, whose batches are of no one domain."]
        stream = frame[frame["severity"].isna()]
        tables = {"position": batch_means(stream, "position")}
        tables["severity"] = batch_means(frame.drop(stream.index), "severity")
        if min(len(table) and table[over].nunique() for over, table in tables.items()) < 2:
            return ["No figure: it takes two whole batches of a domain and two severities."]
        figure, grid = panels(2 * len(COLUMNS), 2, columns=2, sharex="col")
        for axes, (column, over) in zip(grid, product(COLUMNS, tables), strict=True):
            draw_lines(axes, tables[over], over, column)
            label = "samples of the domain seen before" if over == "position" else over
            axes.set(title=COLUMNS[column], xlabel=label, ylabel="")
            if column == "agreement":
                draw_level(axes, column, len(frame["run"].iloc[0].provenance["class_names"]))
        legend(figure)
        note = (
            "Batches come in one order: AdaBN, which adapts nothing, tells the images' "
            "difficulty from adaptation."
        )
        means = (
            tables["severity"]
            .groupby(["label", "severity"], sort=False)[list(COLUMNS)]
            .agg(spread, digits=3)
        )
        table = means.rename(columns=COLUMNS).rename_axis(["method", "severity"])
        told = f"Means of the panels on the right, over whole batches, ± over seeds. {HEADS}"
        return [
            Part("uncertainty", figure, f"{HEADS} {note} {reading(frame, COLUMNS)}"),
            Part("uncertainty-severity", table, told),
        ]


def batch_means(frame: pd.DataFrame, over: str) -> pd.DataFrame:
    """Means of COLUMNS over whole batches by label, seed and `over`: severity, or samples of the
    domain seen before.
    """
    if frame.empty:
        return frame
    batches = pd.concat([tidy_batches(run) for run in frame["run"]])
    whole = batches[batches["count"] == batches["count"].max()]
    return (
        whole.groupby(["label", "method", "objective", "seed", over])[list(COLUMNS)]
        .mean()
        .reset_index()
    )


def entropy_figure(runs: Sequence[Run]) -> Figure:
    """Along the stream, the entropies of z and of a and how often their argmax agrees, of methods
    that have θ_a.
    """
    batches = pd.concat([tidy_batches(run) for run in runs]).dropna(subset="agreement")
    means = batches.groupby(["label", "method", "objective", "seed", "step"], sort=False)[
        list(ENTROPIES)
    ].mean()
    figure, grid = panels(3, 3.2)
    classes = len(runs[0].provenance["class_names"])
    for axes, (column, title) in zip(grid, ENTROPIES.items(), strict=True):
        draw_lines(axes, means.reset_index(), "step", column)
        draw_level(axes, column, classes)
        axes.set(title=title, xlabel="", ylabel="")
        name_domains(axes, [domain.name for domain in runs[0].request.stream])
    legend(figure)
    return figure


def tidy_batches(run: Run) -> pd.DataFrame:
    """The batches of a run with label, method, objective and seed, and the error of each in
    percent.
    """
    label, objective = METHODS[run.method].label, run.request.checkpoint.objective
    error = 100 * run.batches["errors"] / run.batches["count"]
    return run.batches.assign(
        label=label, method=run.method, objective=objective, seed=run.seed, error=error
    )
