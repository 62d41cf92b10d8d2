"""Beyond the paper: what is lost of a domain, or gained, as the stream goes on."""

import numpy as np
import pandas as pd
import seaborn as sns

from cascadetta_lib.exhibits.base import Exhibit, Part, exhibit
from cascadetta_lib.exhibits.runs import Point, Runs, by_label, points_for, reduced
from cascadetta_lib.exhibits.style import SHORT, number, panels, typeset
from cascadetta_lib.methods import METHODS
from cascadetta_lib.settings import Settings


@exhibit
class Forgetting(Exhibit):
    name, place, label, title = "forgetting", 130, "beyond: forgetting", "Accuracy on a domain after later ones"
    question = "What is lost of a domain as the stream goes on?"

    def points(self, settings: Settings) -> list[Point]:
        methods = [name for name in settings.image.methods if METHODS[name].adapts]
        return points_for(methods, reduced(settings, accuracy_matrix=True))

    def parts(self, runs: Runs) -> list[Part | str]:
        frame = runs.frame(self.points(runs.settings))
        names = [SHORT.get(domain.name, domain.name) for domain in frame["run"].iloc[0].request.stream]
        if len(names) < 2:
            return ["No figure of one domain alone."]
        changes = {label: change(rows) for label, rows in by_label(frame).items()}
        most = max(1.0, *(float(each.abs().to_numpy().max()) for each in changes.values()))
        figure, grid = panels(len(changes), 2.6, sharex=True, sharey=True)
        for axes, (label, each) in zip(grid, changes.items(), strict=True):
            sns.heatmap(each, vmin=-most, vmax=most, cmap="RdBu", cbar=False, yticklabels=names, ax=axes)
            axes.set(title=f"{typeset(label)}: {number(each.iloc[:-1, -1].mean(), sign=True)}", xlabel="", ylabel="")
        figure.supxlabel("domains seen", fontsize=9)
        figure.colorbar(grid[0].collections[0], ax=grid, label="change (points)", shrink=0.8)
        note = (
            "Accuracy on the row's domain after so many domains, less that right after it: right of the diagonal what "
            "is forgotten (red), left of it what was still to come. Above: the mean of the last column."
        )
        return [Part("forgetting", figure, list(frame["run"]), note)]


def change(rows: pd.DataFrame) -> pd.DataFrame:
    """R(T_i | T_1:j) − R(T_i | T_1:i) in points, i by row and j by column; the mean over seeds."""
    measured = pd.concat([run.accuracies.query("kind == 'stream'") for run in rows["run"]])
    matrix = 100 * measured.groupby(["step", "after"])["accuracy"].mean().unstack("after")
    return matrix.sub(np.diag(matrix), axis=0)
