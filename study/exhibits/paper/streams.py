"""Beyond the paper: one network on the same images in other orders."""

from typing import Any

import pandas as pd
import seaborn as sns

from study.exhibits.kit.exhibit import Exhibit, Part, exhibit
from study.exhibits.kit.runs import Point, Runs, points_for, points_with_transfer, reduced
from study.exhibits.kit.style import colour, legend, panels, reading
from study.exhibits.paper.ablations import sweep_table
from study.exhibits.paper.main_tables import Gradual
from study.settings import Settings


@exhibit
class Streams(Exhibit):
    name, place, label, title = "streams", 85, "beyond: streams", "Domains mixed, labels correlated"
    question = "What is left of a gain where a batch holds all domains, or few labels?"

    def points(self, settings: Settings) -> list[Point]:
        """The first and the last are runs of the exhibits `severity` and `gradual`, too."""
        image, several = (
            settings.image,
            [reduced(settings, stream=name) for name in ("mixed", "correlated")],
        )
        own = points_with_transfer(settings, image.methods, reduced(settings))
        return own + points_for(image.methods, several) + Gradual().points(settings)

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        cells = frame.melt(["label", "seed", "stream"], ["E", "A"], "metric")
        cells["stream"] = cells["metric"] + ", " + cells["stream"]
        table = sweep_table(cells, "stream", "value")
        figure, grid = panels(2, 3.2)
        colours = {
            label: colour(method)
            for label, method in zip(frame["label"], frame["method"], strict=True)
        }
        how: Any = {
            "dodge": len(colours) > 1 and 0.5,
            "linestyle": "none",
            "markersize": 4,
            "errorbar": "sd",
        }
        for axes, metric in zip(grid, ("E", "A"), strict=True):
            sns.pointplot(frame, x="stream", y=metric, hue="label", palette=colours, ax=axes, **how)
            axes.set(title=f"{metric} (%)", xlabel="", ylabel="")
        legend(figure)
        delta = f"δ = {runs.settings.image.dirichlet_delta:g} on the correlated stream."
        note = (
            f"{delta} It changes nothing of a domain of one batch. The gradual one has "
            "images of its own."
        )
        return [
            Part("streams", table, note),
            Part("streams-figure", figure, f"{delta} {reading(frame[['seed']])}"),
        ]
