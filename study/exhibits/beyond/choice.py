"""Beyond the paper: the online learning rate that is chosen for each method on the source alone.

The choice uses runs at one seed, on four corruptions of held-out source images.
"""

import pandas as pd

from study.exhibits.kit.exhibit import exhibit
from study.exhibits.kit.numbers import number
from study.exhibits.kit.points import Point
from study.exhibits.kit.rate_choice import (
    ON_SOURCE,
    OnSource,
    candidates,
    contestants,
    errors_on_source,
    keep_choice,
)
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.settings import Settings
from study.store import Run
from study.study import Study


@exhibit
class Choice(OnSource):
    name = "choice"
    place = 220
    label = "beyond: choice"
    title = "Learning rates chosen on the source"
    question = (
        "Which online learning rate suits each method, by corruptions that no test stream has?"
    )
    once = True
    on_source = True

    def points(self, settings: Settings) -> list[Point]:
        """Return a point on held-out source images for each contestant that adapts and each
        learning rate.
        """
        return [point for one in contestants(settings) for point in candidates(settings, one)]

    def make(self, study: Study) -> list[Run]:
        """Make the runs, and store the chosen rates for the exhibits `comparison` and `field`."""
        made = super().make(study)
        if made:
            keep_choice(Runs(study))
        return made

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        errors = errors_on_source(runs)
        if errors.empty:
            return ["No method has a run at every rate yet."]
        text = errors.map(number)
        chosen = errors.idxmin(axis=1)  # if errors are equal, the smallest rate
        is_chosen = pd.DataFrame({rate: chosen == rate for rate in errors.columns})
        table = text.mask(is_chosen, "**" + text + "**").rename(columns="{:g}".format)
        table = table.rename_axis("method").rename_axis(None, axis=1)
        note = (
            f"{ON_SOURCE} by online learning rate. Bold: the chosen rate. If it is at an edge "
            "of the grid, a rate beyond may be better."
        )
        return [Part("choice", table, note)]
