"""Beyond the paper: Tent along the long stream by optimiser and learning rate, by domain, over the
paper's row.
"""

import pandas as pd
import seaborn as sns

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import Exhibit, Part, exhibit
from study.exhibits.kit.runs import Point, Runs, by_label
from study.exhibits.kit.style import colour, legend, name_domains, panels
from study.exhibits.kit.tables import by_domain, paper_main
from study.exhibits.paper.ablations import at_rates, sweep_table
from study.settings import Settings

TENTS = ("tent", "tent_adam")


@exhibit
class TentRates(Exhibit):
    name, place, label = "tent_rates", 121, "beyond: Tent's rate"
    title = "Tent by optimiser and learning rate on a long stream"
    question = "Which of Tent's steps, if any, gives the paper's row?"

    def points(self, settings: Settings) -> list[Point]:
        """AdaBN beside them, which has no rate, and so stands at the profile's."""
        changes = {"test_size": settings.image.long_test_size, "forward_transfer": False}
        names = [name for name in ("adabn", *TENTS) if name in settings.image.methods]
        return [point for name in names for point in at_rates(settings, name, changes)]

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        frame = frame.sort_values("online_learning_rate", kind="stable")
        tables = [
            Part(
                f"tent-rates-{metric}",
                sweep_table(frame, "online_learning_rate", metric),
                f"{metric} (%) by rate.",
            )
            for metric in ("E", "A")
        ]
        tents = frame[frame["method"].isin(TENTS)]
        return [_by_domain(frame, tents), *tables] if len(tents) else ["No run of Tent.", *tables]


def _by_domain(frame: pd.DataFrame, tents: pd.DataFrame) -> Part:
    """A panel an optimiser, a line a rate, over AdaBN, which cannot drift, and the paper's row."""
    paper, rates = paper_main(frame["run"].iloc[0]), sorted(set(tents["online_learning_rate"]))
    shades = dict(zip(rates, sns.color_palette("flare", len(rates)), strict=True))
    figure, grid = panels(tents["method"].nunique(), 3.4, sharey=True)
    for axes, (label, each) in zip(grid, by_label(tents).items(), strict=True):
        domains = by_domain(each).index
        for rate, rows in each.groupby("online_learning_rate"):
            axes.plot(
                by_domain(rows).to_numpy(),
                color=shades[rate],
                marker="o",
                ms=3,
                label=f"rate {rate:g}",
            )
        if len(adabn := frame[frame["method"] == "adabn"]):
            axes.plot(
                by_domain(adabn).to_numpy(),
                color=colour("adabn"),
                ls=":",
                label=METHODS["adabn"].label,
            )
        if METHODS["tent"].label in paper.index:
            theirs = paper.loc[METHODS["tent"].label].reindex(domains).to_numpy()
            axes.plot(
                theirs, "D", mfc="white", mec="black", ms=5, zorder=4, label="Tent, the paper's row"
            )
        axes.set(title=label, ylim=(0, 100))
        name_domains(axes, map(str, domains))
    grid[0].set_ylabel("online error (%)")
    legend(figure)
    return Part("tent-rates-figure", figure, "Domains in the order of the stream.")
