"""The main study of a modality: E, A, F and the error in every domain, ours beside the paper's."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import AsinhNorm

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import Exhibit
from study.exhibits.kit.heads import ENTROPIES, HEADS, entropy_figure
from study.exhibits.kit.numbers import number, spread
from study.exhibits.kit.paper_numbers import paper_main
from study.exhibits.kit.points import Point, main_points
from study.exhibits.kit.rendering import each_once
from study.exhibits.kit.ringing import ringing_steps
from study.exhibits.kit.shown import LESS_IN_THE_PAPER, Part
from study.exhibits.kit.stored_runs import Runs, by_label
from study.exhibits.kit.style import WIDTH, name_domains, reading, typeset
from study.exhibits.kit.tables import (
    DEFINED,
    domains_table,
    errors_less,
    method_differences,
    metrics_table,
)
from study.settings import Settings
from study.store import Run
from study.study import Study

OF_ENTROPIES = ("adabn", "cascade", "cascade_plus")
"""The methods whose entropies are drawn. Other methods on the same networks give nearly the same
lines.
"""


class MainTable(Exhibit):
    """Base class of the exhibits that show the main study of a modality."""

    elsewhere = LESS_IN_THE_PAPER

    def points(self, settings: Settings) -> list[Point]:
        return main_points(settings, self.modality)

    def so_far(self, study: Study, made: Sequence[Run]) -> pd.DataFrame:
        """Return a table of E, A and F, with a row for each method that has run."""
        frame = Runs.of(study, made).frame(self.points(study.settings))
        return metrics_table(frame, paper_main(frame["run"].iloc[0]))

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        name = self.modality
        paper = paper_main(frame["run"].iloc[0])
        by_domain = "E by domain (%), then E, A, F. Bold: the best."
        return [
            Part(f"{name}-metrics", metrics_table(frame, paper), DEFINED),
            Part(f"{name}-domains", domains_table(frame), by_domain),
            stream_figure(f"{name}-stream", frame),
            _entropies(f"{name}-entropies", frame),
            *method_differences(f"{name}-differences", frame),
        ]


def _entropies(name: str, frame: pd.DataFrame) -> Part | str:
    """Draw the entropies of the methods in OF_ENTROPIES along the stream. If none of these has θ_a,
    draw those of all methods with θ_a. Return a sentence if no method has θ_a.
    """
    with_a = frame[[run.batches["agreement"].notna().any() for run in frame["run"]]]
    if with_a.empty:
        return "No method has θ_a."
    if with_a["method"].isin(OF_ENTROPIES).any():
        with_a = with_a[with_a["method"].isin(OF_ENTROPIES)]
    note = (
        f"{HEADS} Drawn: {each_once(with_a['label'])}, each on the network that it starts "
        "from. A confident θ_a that agrees with z no more than by chance says nothing about the "
        f"class. {reading(with_a, ENTROPIES)}"
    )
    runs = list(with_a["run"])
    return Part(name, entropy_figure(runs), note, runs)


def _draw_alarms(axes: Axes, rows: Sequence[pd.DataFrame]) -> bool:
    """Put a × on each cell in which the alarm rings in any run. A cell is one method in one domain.
    Return whether there is a ×.
    """
    rang = False
    for row, each in enumerate(rows):
        for step in sorted({step for run in each["run"] for step in ringing_steps(run)}):
            axes.plot(step + 0.5, row + 0.85, "x", color="black", ms=4)
            rang = True
    return rang


def stream_figure(name: str, frame: pd.DataFrame) -> Part | str:
    """Draw a heat map by domain: the online error of each method that adapts, minus AdaBN's. The
    differences are means over the seeds that both methods have.

    Return a sentence instead if the runs lack AdaBN, a method that adapts, or a second domain.
    """
    domains = [domain.name for domain in frame["run"].iloc[0].request.stream]
    labels = by_label(frame)
    base = labels.get(METHODS["adabn"].label, frame[:0])
    added = _added(labels, base)
    if added.empty or len(domains) < 2:
        return (
            "No figure along the stream: it needs AdaBN, a method that adapts, and at least two "
            "domains."
        )
    rows = [labels[label] for label in added.index]
    network = set(base["objective"])
    other = {label for label in added.index if set(labels[label]["objective"]) != network}
    # With linear colours, one method that fails would leave the others without colour.
    end = max(1.0, float(added.abs().to_numpy().max()))
    linear = max(1.0, float(added.abs().max(axis=1).median()))
    figure, axes = plt.subplots(figsize=(WIDTH, 1.2 + 0.35 * len(added)))
    _heat_map(axes, added, linear, end)
    names = [typeset(label) + (" *" if label in other else "") for label in added.index]
    axes.set_yticks(np.arange(len(names)) + 0.5, names, rotation=0)
    rang = _draw_alarms(axes, rows)
    title = "online error minus AdaBN's (points; the colours are not linear)"
    if other:
        title += "; *: on another network than AdaBN"
    axes.set(title=title, ylabel="")
    name_domains(axes, domains, 0.5)
    note = (
        "Error minus AdaBN's in the same domain and on the same seeds; blue: less. The colours end "
        f"at ±{number(end, 1)} points; beyond ±{number(linear, 1)} their scale is compressed."
    )
    if other:
        note += " *: on another network than AdaBN; the difference is the network's, too."
    if rang:
        note += " ×: the alarm for collapse rings in this domain."
    note += f" Only methods that adapt have a row. E of AdaBN: {spread(base['E'])} %."
    return Part(name, figure, note, list(pd.concat([base, *rows])["run"]))


def _added(labels: Mapping[str, pd.DataFrame], base: pd.DataFrame) -> pd.DataFrame:
    """Return the online error of each method that adapts, minus that of `base`, in points: a row
    per label, a column per domain.
    """
    added = {}
    for label, rows in labels.items():
        less = errors_less(rows, base)
        if METHODS[rows["method"].iloc[0]].adapts and len(less):
            added[label] = less.to_numpy()
    return pd.DataFrame(added).T


NEAR_THE_END = 0.6
"""For `_heat_map`, where the colours' scale is compressed beyond ±`linear` and ends at ±`end`. The
colour bar has ticks at ±`end`. It also has ticks at ±`linear` if `linear` is below this share of
`end`. Nearer to the end, the numbers at the ticks would touch.
"""


def _heat_map(axes: Axes, added: pd.DataFrame, linear: float, end: float) -> None:
    """Draw differences in points as colours, whose scale is compressed beyond ±`linear` and
    ends at ±`end`. With 20 domains or fewer, write the numbers, too.
    """
    texts: Any = False
    if added.shape[1] <= 20:
        texts = added.map(lambda value: number(value, 1, sign=True))
    colours = AsinhNorm(linear_width=linear / 2, vmin=-end, vmax=end)
    ticks = [-end, 0.0, end]
    if linear < NEAR_THE_END * end:
        ticks += [-linear, linear]
    bar = {"ticks": ticks, "format": lambda value, _: number(value, 1, sign=True)}
    look: Any = {"cmap": "vlag", "norm": colours, "cbar_kws": bar}
    look |= {"xticklabels": False, "yticklabels": False}
    sns.heatmap(added, ax=axes, annot=texts, fmt="", annot_kws={"fontsize": 7}, **look)
