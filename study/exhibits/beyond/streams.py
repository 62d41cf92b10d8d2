"""Beyond the paper: E and A on four streams: instantaneous, mixed, correlated and gradual."""

from typing import Any

import pandas as pd
import seaborn as sns

from study.exhibits.kit.comparable_runs import comparable
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.points import (
    Point,
    gradual_points,
    points_for,
    points_with_transfer,
    reduced,
    with_alarm,
)
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.kit.style import colour, legend, panels, reading
from study.exhibits.kit.sweep import sweep_table
from study.settings import Settings


@exhibit
class Streams(Exhibit):
    name = "streams"
    place = 85
    label = "beyond: streams"
    title = "Domains mixed, labels correlated"
    question = "What is left of a gain where a batch holds all domains, or few labels?"

    def points(self, settings: Settings) -> list[Point]:
        """Return points on four streams. The exhibits `severity` and `gradual` use the same runs on
        the first and the last of them.
        """
        methods = settings.image.methods
        harder = [reduced(settings, stream="mixed"), with_alarm(settings, "correlated")]
        return [
            *points_with_transfer(settings, methods, reduced(settings)),
            *points_for(methods, harder),
            *gradual_points(settings),
        ]

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        about = ["label", "seed", "stream", "network", "current"]
        cells = frame.melt(about, ["E", "A"], "metric")
        cells["stream"] = cells["metric"] + ", " + cells["stream"]
        table = sweep_table(cells, "stream", "value")
        delta = f"δ = {runs.settings.image.dirichlet_delta:g} on the correlated stream."
        note = (
            f"{delta} δ does not change the E of a domain that fits into one batch. The gradual "
            "stream may have another number of images per domain."
        )
        return [Part("streams", table, note), *_figure(frame, delta)]


def _figure(frame: pd.DataFrame, delta: str) -> list[Part | str]:
    """Draw E and A by stream, for the labels and streams that have all shared seeds. Return a
    sentence if there are none.
    """
    compared = comparable(frame, ("label", "stream"))
    drawn = compared[~compared["apart"]]
    if drawn.empty:
        return ["No figure: these runs share no seed."]
    figure, grid = panels(2, 3.2)
    colours = {
        label: colour(method) for label, method in zip(drawn["label"], drawn["method"], strict=True)
    }
    look: Any = {
        "dodge": 0.5 if len(colours) > 1 else False,
        "linestyle": "none",
        "markersize": 4,
        "errorbar": "sd",
    }
    for axes, metric in zip(grid, ("E", "A"), strict=True):
        sns.pointplot(drawn, x="stream", y=metric, hue="label", palette=colours, ax=axes, **look)
        axes.set(title=f"{metric} (%)", xlabel="", ylabel="")
    legend(figure)
    return [Part("streams-figure", figure, f"{delta} {reading(drawn[['seed']])}")]
