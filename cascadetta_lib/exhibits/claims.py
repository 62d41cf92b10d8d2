"""The paper's claims and what is asked of Cascade+, read from claims.csv. VERDICTS.md states the rules in words."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

TRANSFERS = {"F": "F of Eq. 2", "F_final": "F of the final model"}
"""A claim about F is judged twice: the published tables fit the second definition better."""


@dataclass(frozen=True)
class Claim:
    """A sentence that numbers can speak for or against, and the statistic and the bound that it is judged by.

    section: of the paper, `appendix`, or `ours`. dataset: the paper's. exhibit: of ours, whose runs it is judged by;
    the claims of one exhibit on one dataset are a family. paper: the paper's own value of the statistic.

    The statistic has a part for each name of `labels` and each setting of a column, such as severity 1 to 5; or one for
    each rival, by how much the label is better. value: a metric of runs.METRICS or a name of statistics.VALUES. then:
    what is made of the parts (statistics.measure), or `one refutes`: one network that misses the bound contradicts the
    claim, and no number of others supports it. Every part is to lie above the bound (side `>`) or below it (`<`). ours:
    the paper states no number, so that the bound is ours.
    """

    section: str
    dataset: str
    exhibit: str
    identifier: str
    sentence: str
    paper: str
    value: str
    labels: tuple[str, ...]
    rivals: tuple[str, ...]
    settings: tuple[dict[str, Any], ...]
    then: str
    side: str
    bound: float
    ours: bool

    @property
    def condition(self) -> str:
        """What is to hold, as text."""
        return f"{self.side} {self.bound:g}".replace("-", "−") + (" (our bound)" if self.ours else "")


def _read() -> Iterator[Claim]:
    """A claim a line; several names or values in one cell stand between bars."""
    for row in pd.read_csv(Path(__file__).with_name("claims.csv"), dtype=str, keep_default_na=False).to_dict("records"):
        column, _, values = row["at"].partition("=")
        settings = (
            tuple({column: int(each) if each.isdigit() else each} for each in values.split("|")) if column else ({},)
        )
        for value in TRANSFERS if row["value"] == "F" else [row["value"]]:
            yield Claim(
                section=row["section"],
                dataset=row["dataset"],
                exhibit=row["exhibit"],
                identifier=row["claim"] + ("-final" if value == "F_final" else ""),
                sentence=row["sentence"] + (f" ({TRANSFERS[value]})" if value in TRANSFERS else ""),
                paper=row["paper"],
                value=value,
                labels=tuple(row["of"].split("|")),
                rivals=tuple(row["rivals"].split("|")) if row["rivals"] else (),
                settings=settings,
                then=row["then"],
                side=row["side"],
                bound=float(row["bound"]),
                ours=row["bound_from"] == "ours",
            )


CLAIMS = list(_read())
