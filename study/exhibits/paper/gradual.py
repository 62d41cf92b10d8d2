"""tab:gradual-c10: E, A and F over 135 gradually changing domains."""

import pandas as pd

from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.main_table import stream_figure
from study.exhibits.kit.paper_numbers import paper_values
from study.exhibits.kit.points import Point, gradual_points
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.kit.tables import DEFINED, method_differences, metrics_table
from study.settings import Settings


@exhibit
class Gradual(Exhibit):
    name = "gradual"
    place = 80
    label = "tab:gradual-c10"
    title = "135 gradually changing domains"
    question = "Does a method that is never reset hold over a long stream?"

    def points(self, settings: Settings) -> list[Point]:
        return gradual_points(settings)

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        values = paper_values("tab:gradual-c10", frame["run"].iloc[0])
        paper = values.pivot(index="method", columns="metric", values="value")
        return [
            Part("gradual", metrics_table(frame, paper), DEFINED),
            stream_figure("gradual-figure", frame),
            *method_differences("gradual-differences", frame),
        ]
