"""Beyond the paper: Tent's errors along the long stream by optimiser, learning rate and domain,
with the paper's row.
"""

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.comparable_runs import comparable
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.paper_numbers import paper_main
from study.exhibits.kit.points import Point, long_at_rates
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs, by_label
from study.exhibits.kit.style import colour, legend, name_domains, panels, typeset
from study.exhibits.kit.sweep import sweep_table
from study.exhibits.kit.tables import by_domain
from study.settings import Settings

MOST = 60
"""The upper limit of E in the figure, in percent. A larger E means that the method broke down."""
TENTS = ("tent", "tent_adam")


@exhibit
class TentRates(Exhibit):
    name = "tent_rates"
    place = 121
    label = "beyond: Tent's rate"
    title = "Tent by optimiser and learning rate on a long stream"
    question = "With which optimiser and rate, if any, does Tent give the paper's row?"

    def points(self, settings: Settings) -> list[Point]:
        """Return points of Tent, with SGD and with Adam, at each rate. AdaBN, which has no rate,
        has one point. Methods that the profile lacks are left out.
        """
        names = [name for name in ("adabn", *TENTS) if name in settings.image.methods]
        return long_at_rates(settings, names)

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        over = "online_learning_rate"
        frame = frame.sort_values(over, kind="stable")
        tables = [
            Part(f"tent-rates-{metric}", sweep_table(frame, over, metric), f"{metric} (%) by rate.")
            for metric in ("E", "A")
        ]
        compared = comparable(frame, ("label", over))
        compared = compared[~compared["apart"]]
        tents = compared[compared["method"].isin(TENTS)]
        if tents.empty:
            return ["No run of Tent.", *tables]
        return [_by_domain(compared, tents), *tables]


def _by_domain(frame: pd.DataFrame, tents: pd.DataFrame) -> Part:
    """Draw a panel per optimiser, with a line per rate, AdaBN's errors and the paper's row of Tent.

    AdaBN learns nothing, so it cannot drift.
    """
    paper = paper_main(frame["run"].iloc[0])
    rates = sorted(set(tents["online_learning_rate"]))
    shades = dict(zip(rates, sns.color_palette("flare", len(rates)), strict=True))
    adabn = frame[frame["method"] == "adabn"]
    name = METHODS["adabn"].label
    tent = METHODS["tent"].label
    figure, grid = panels(tents["method"].nunique(), 3.4, sharey=True)
    for axes, (label, each) in zip(grid, by_label(tents).items(), strict=True):
        domains = by_domain(each).index
        for rate, rows in each.groupby("online_learning_rate"):
            look = {"color": shades[rate], "marker": "o", "ms": 3}
            axes.plot(by_domain(rows).to_numpy(), label=f"rate {rate:g}", **look)
        if len(adabn):
            axes.plot(by_domain(adabn).to_numpy(), color=colour("adabn"), ls=":", label=name)
        if tent in paper.index:
            theirs = paper.loc[tent].reindex(domains).to_numpy()
            look = {"mfc": "white", "mec": "black", "ms": 5, "zorder": 4}
            axes.plot(theirs, "D", label="Tent, the paper's row", **look)
        axes.set(title=typeset(label), ylim=(0, MOST))
        _tell_beyond(axes)
        name_domains(axes, map(str, domains))
    grid[0].set_ylabel("online error (%)")
    legend(figure)
    note = f"Domains in the order of the stream. Errors above {MOST} % are cut."
    return Part("tent-rates-figure", figure, note)


def _tell_beyond(axes: Axes) -> None:
    """Write into a panel which of its lines go above MOST, and how far."""
    told = []
    for line in axes.lines:
        most = float(np.max(np.asarray(line.get_ydata(), dtype=float)))
        if most > MOST:
            told.append(f"{line.get_label()}: up to {most:.0f} %")
    if told:
        look: Any = {"ha": "right", "va": "top", "fontsize": 7, "transform": axes.transAxes}
        axes.text(0.98, 0.98, "\n".join(told), **look)
