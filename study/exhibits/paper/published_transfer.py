"""The accuracy of a model adapted to one domain alone, as the paper's E, A and F imply it."""

import pandas as pd

from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.numbers import number
from study.exhibits.kit.paper_numbers import paper_results
from study.exhibits.kit.points import Point
from study.exhibits.kit.shown import Part, Shown
from study.exhibits.kit.stored_runs import Runs
from study.settings import Settings

WITH_TRANSFER = ("Tent", "CoTTA", "TTT", "Cascade")
"""The methods for which the paper has F, in the paper's order."""
IMPOSSIBLE = "‡"
"""The mark of a number above 100 %, which is no accuracy."""
NOTE = (
    "Each cell has two values, in percent. Before the slash, by Eq. 2: 100 − E − F. After it, by "
    "the final model: A − F. Both are only nearly the mean of "
    "R(T_t|T_t): E counts errors while the method adapts, Eq. 2 afterwards, and F leaves out the "
    f"first domain. {IMPOSSIBLE}: above 100 %, which no accuracy is."
)


def published() -> pd.DataFrame:
    """Return the paper's E and A in percent and F in points, for each stream and method with an F.

    The index levels are row (the text of `stream_of`) and method.
    """
    values = paper_results()
    values = values[values["domain"] == "all"]
    with_transfer = values.loc[values["metric"] == "F", "table"].unique()
    values = values[values["table"].isin(with_transfer)]
    values = values.assign(row=values.apply(stream_of, axis=1))
    wide = values.pivot(index=["row", "method"], columns="metric", values="value")
    return wide.dropna(subset="F")


def stream_of(value: pd.Series) -> str:
    """Return the data and the stream of a published number, such as `CIFAR-10-C, severity 5`.

    value: a row of `paper_results`.
    """
    if value["setup"] == "gradual":
        return f"{value['dataset']}, gradual"
    if value["dataset"] == "CIFAR-10-C":
        return f"{value['dataset']}, severity {value['severity']}"
    return str(value["dataset"])


def one_domain_table() -> pd.DataFrame:
    """Return R(T_t|T_t) in percent as text, a row per stream and a column per method. A cell has
    the value that Eq. 2 implies, a slash, and the value that the definition of F by the final model
    implies.
    """
    wide = published()
    by_equation = 100 - wide["E"] - wide["F"]
    by_final = wide["A"] - wide["F"]
    cells = by_equation.map(accuracy) + " / " + by_final.map(accuracy)
    table = cells.unstack("method").reindex(columns=WITH_TRANSFER).fillna("–")
    return table.rename_axis(index="data", columns=None)


def accuracy(value: float) -> str:
    """Write an accuracy in percent, followed by IMPOSSIBLE if it is above 100."""
    text = number(value, 0)
    return f"{text} {IMPOSSIBLE}" if value > 100 else text


@exhibit
class PublishedTransfer(Exhibit):
    name = "published_transfer"
    place = 85
    label = "tab:main-result, tab:add-result, tab:gradual-c10, tab:text, tab:speech"
    title = "How good one domain alone would be, by the published E, A and F"
    question = "By which definition can the published F be a difference of two accuracies?"

    def points(self, settings: Settings) -> list[Point]:
        """Return no point, since the numbers are the paper's."""
        return []

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        return [Part("published-transfer", one_domain_table(), NOTE)]

    def show(self, runs: Runs) -> Shown:
        dataset = runs.dataset_name.title
        if not self.made_on(dataset):
            return super().show(runs)
        return Shown(self, dataset, self.parts(pd.DataFrame(), runs))
