"""tab:add-result: error by severity."""

import pandas as pd

from study.exhibits.kit.exhibit import exhibit
from study.exhibits.kit.points import Point, severity_points
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.kit.sweep import Sweep
from study.exhibits.kit.tables import domains_table
from study.settings import Settings


@exhibit
class Severity(Sweep):
    name = "severity"
    place = 90
    label = "tab:add-result"
    title = "Every severity"
    question = "Does the ranking hold where the corruptions are weaker?"
    over = "severity"
    by_severity = True
    paper = ("tab:add-result", "method")

    def points(self, settings: Settings) -> list[Point]:
        return severity_points(settings, settings.image.methods)

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        """Add a table per severity below 5, in the layout of the main table."""
        weaker = [
            Part(f"severity-{level}", domains_table(rows), f"Severity {level}. Bold: the best.")
            for level, rows in frame[frame["severity"] < 5].groupby("severity")
        ]
        return [*super().parts(frame, runs), *weaker]
