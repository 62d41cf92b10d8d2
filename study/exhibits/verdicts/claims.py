"""The paper's claims and what is asked of Cascade+, read from claims.csv. VERDICTS.md states the
rules in words.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

READINGS_OF_F = {"F": ("", " (F of Eq. 2)"), "F_final": ("-final", " (F of the final model)")}
READINGS_OF_TENT = {"Tent": ("", ""), "Tent (Adam)": ("-adam", " (Tent with Adam)")}
"""A claim about F is judged by each definition, one of the paper's about Tent with the cascade's
optimiser and with Adam, as in Tent's release. What is added to its name and to its sentence."""


@dataclass(frozen=True)
class Claim:
    """A sentence that numbers can speak for or against, and the statistic and the bound that it is
    judged by.

    section: of the paper, `appendix`, or `ours`. dataset: the paper's. exhibit: of ours, whose runs
    it is judged by; the claims of one exhibit on one dataset are a family. paper: the paper's own
    value of the statistic.

    The statistic has a part for each name of `labels` and each setting of a column, such as
    severity 1 to 5; or one for each rival, by how much the label is better. value: a metric of
    runs.METRICS or a name of evidence.VALUES. then: what is made of the parts
    (evidence.measure), or `one refutes`: one network that misses the bound contradicts the claim,
    and no number of others supports it. Every part is to lie above the bound (side `>`) or below it
    (`<`). ours: the paper states no number, so that the bound is ours.
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
        return f"{self.side} {self.bound:g}".replace("-", "−") + (
            " (our bound)" if self.ours else ""
        )


def _read() -> Iterator[Claim]:
    """A claim a line, its columns the fields; several names or values in one cell stand between
    bars.
    """
    table = pd.read_csv(Path(__file__).with_name("claims.csv"), dtype=str, keep_default_na=False)
    row: dict[str, Any]
    for row in table.to_dict("records"):  # type: ignore[assignment]
        column, _, values = row["settings"].partition("=")
        several = (
            [{column: int(each) if each.isdigit() else each} for each in values.split("|")]
            if column
            else [{}]
        )
        row |= {
            "settings": tuple(several),
            "bound": float(row["bound"]),
            "ours": row.pop("bound_from") == "ours",
        }
        readings = READINGS_OF_F if row["value"] == "F" else {row["value"]: ("", "")}
        of_tent = row["section"] != "ours" and "Tent" in row["labels"] + row["rivals"]
        tents = READINGS_OF_TENT if of_tent else {"Tent": ("", "")}
        for (value, more), (tent, also) in product(readings.items(), tents.items()):
            words = {
                name: row[name] + more[i] + also[i]
                for i, name in enumerate(("identifier", "sentence"))
            }
            parts = {
                name: row[name].replace("Tent", tent).split("|") for name in ("labels", "rivals")
            }
            names = {name: tuple(filter(None, each)) for name, each in parts.items()}
            yield Claim(**row | words | names | {"value": value})


CLAIMS = list(_read())
