"""Beyond the paper: a published network, such as the authors', beside the paper's rows."""

import pandas as pd

from study.exhibits.kit.distance_from_paper import BESIDE_ITS_ROW, beside_its_row
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.numbers import number
from study.exhibits.kit.paper_numbers import paper_main
from study.exhibits.kit.points import Point, points_with_transfer
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs, by_label
from study.exhibits.kit.style import colour, legend, name_domains, panels, typeset
from study.exhibits.kit.tables import DEFINED, F_NAMES, by_domain
from study.settings import Settings


@exhibit
class Released(Exhibit):
    name = "released"
    place = 140
    label = "beyond: the released network"
    title = "Which of the paper's rows it has"
    question = "Does a network give the paper's rows, domain by domain?"

    def points(self, settings: Settings) -> list[Point]:
        return points_with_transfer(settings, settings.image.methods, {})

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        paper = paper_main(frame["run"].iloc[0])
        table = beside_its_row(frame, paper, ["E", "A", *F_NAMES]).rename(columns=F_NAMES)
        return [
            _beside_the_rows(frame, paper),
            Part("released", table, f"{BESIDE_ITS_ROW} {DEFINED}"),
        ]


def _beside_the_rows(frame: pd.DataFrame, paper: pd.DataFrame) -> Part | str:
    """Draw a panel per method that has a row in the paper: our error by domain, averaged over
    networks, beside the paper's. Return a sentence if no method has such a row.
    """
    shown = {label: each for label, each in by_label(frame).items() if label in paper.index}
    if not shown:
        return "The paper has no row that compares with any of these."
    figure, grid = panels(len(shown), 2.7, columns=3, sharey=True)
    for axes, (label, each) in zip(grid, shown.items(), strict=True):
        errors = by_domain(each)
        shade = colour(each["method"].iloc[0])
        axes.plot(errors.to_numpy(), color=shade, marker="o", ms=3, label="here")
        theirs = paper.loc[label].reindex(errors.index).to_numpy()
        axes.plot(theirs, "D", mfc="white", mec="black", ms=4, label="the paper")
        mean = number(each["E"].mean(), 1)
        published = number(paper.loc[label, "E"], 1)
        axes.set(title=f"{typeset(label)}\nhere: {mean} %, paper: {published} %", ylim=(0, None))
        name_domains(axes, map(str, errors.index))
    grid[0].set_ylabel("online error (%)")
    legend(figure)
    told = (
        "Line: ours, in the method's colour. Where it runs through the diamonds, it gives "
        "the paper's row."
    )
    return Part("released-by-domain", figure, told)
