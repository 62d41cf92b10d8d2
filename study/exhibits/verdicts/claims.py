"""The paper's claims and what is asked of Cascade+, read from claims.csv. VERDICTS.md states the
rules in words.
"""

from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from typing import Any

import pandas as pd

from study.yaml12 import parse_yaml

READINGS_OF_F = {"F": "F of Eq. 2", "F_final": "F of the final model"}
READINGS_OF_TENT = {"Tent": "Tent with SGD", "Tent (Adam)": "Tent with Adam"}
"""The readings of claims. A claim about F has one per definition. A claim of the paper's about Tent
has one with the cascade's optimiser and one with Adam, as in Tent's release.
"""


@dataclass(frozen=True)
class Reading:
    """One way to take a sentence: a statistic, and the bound that it must meet.

    name: what distinguishes it from the claim's other readings; empty if there is only one.
    exhibit: the exhibit whose runs judge it.
    value: a metric of stored_runs.METRICS or a name of evidence.VALUES.
    labels, rivals, settings: the statistic has a part for each label and each setting, such as
        severities 1 to 5. With rivals it has a part for each rival: by how much the label is
        better.
    then: how the parts are combined (evidence.combined). With `one refutes`, one network that
        misses the bound refutes the reading, and no number of networks supports it.
    side, bound: every part must lie above the bound (`>`) or below it (`<`).
    """

    name: str
    exhibit: str
    value: str
    labels: tuple[str, ...]
    rivals: tuple[str, ...]
    settings: tuple[dict[str, Any], ...]
    then: str
    side: str
    bound: float

    def __post_init__(self) -> None:
        """Raise ValueError for a statistic that would be taken of something else than it says."""
        if any("domain" in setting for setting in self.settings) and self.value != "E":
            raise ValueError(f"{self.exhibit}: {self.value} is of a whole run; only E has a domain")
        parts = max(len(self.settings), 1) * len(self.labels) * max(len(self.rivals), 1)
        if self.then == "one refutes" and parts > 1:
            raise ValueError(f"{self.exhibit}: `one refutes` takes one part, not {parts}")
        if self.then == "ratio" and parts != 2:
            raise ValueError(f"{self.exhibit}: `ratio` takes two parts, not {parts}")


@dataclass(frozen=True)
class Claim:
    """A sentence that numbers can support or refute, in all its readings.

    section: the paper's section, `appendix`, or `ours`.
    dataset: the dataset of the paper that it is about.
    paper: the paper's own value of the statistic.
    ours: whether the bound is ours, because the paper states no number.
    whole: whether only runs on all examples of the paper's stream may judge it, because it is
        about drift, small batches or long streams.
    """

    section: str
    dataset: str
    exhibit: str
    identifier: str
    sentence: str
    paper: str
    ours: bool
    whole: bool
    readings: tuple[Reading, ...]

    @property
    def condition(self) -> str:
        """The condition on the statistic, as text. All readings of a claim have the same bound."""
        reading = self.readings[0]
        whose = " (our bound)" if self.ours else ""
        return f"{reading.side} {reading.bound:g}".replace("-", "−") + whose


def _readings(row: dict[str, str]) -> list[Reading]:
    """Return the readings of one line of claims.csv."""
    settings: list[dict[str, Any]] = [{}]
    if row["settings"]:
        column, _, values = row["settings"].partition("=")
        settings = [{column: parse_yaml(text)} for text in values.split("|")]
    definitions = {row["value"]: ""}
    if row["value"] == "F":
        definitions = READINGS_OF_F
    tents = {"Tent": ""}
    named = (row["labels"] + "|" + row["rivals"]).split("|")
    if "Tent" in named and row["section"] != "ours":
        tents = READINGS_OF_TENT
    readings = []
    for (value, definition), (tent, optimizer) in product(definitions.items(), tents.items()):
        parts = {}
        for field in ("labels", "rivals"):
            names = [name for name in row[field].split("|") if name]
            parts[field] = tuple(tent if name == "Tent" else name for name in names)
        words = (row["reading"], definition, optimizer)
        readings.append(
            Reading(
                name=", ".join(word for word in words if word),
                exhibit=row["exhibit"],
                value=value,
                settings=tuple(settings),
                then=row["then"],
                side=row["side"],
                bound=float(row["bound"]),
                **parts,
            )
        )
    return readings


def read_claims(path: Path) -> list[Claim]:
    """Return the claims of a table.

    A claim has one line, or a line per reading if its readings differ in several columns. The lines
    of a claim follow one another. Bars separate several names or values in a cell.
    """
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    claims = []
    lines: list[dict[str, str]] = table.to_dict("records")  # type: ignore[assignment]
    for identifier, group in groupby(lines, key=lambda line: line["identifier"]):
        of_claim = list(group)
        first = of_claim[0]
        readings: list[Reading] = []
        for line in of_claim:
            readings += _readings(line)
        claims.append(
            Claim(
                section=first["section"],
                dataset=first["dataset"],
                exhibit=first["exhibit"],
                identifier=identifier,
                sentence=first["sentence"],
                paper=first["paper"],
                ours=first["bound_from"] == "ours",
                whole=first["length"] == "whole",
                readings=tuple(readings),
            )
        )
    return claims


CLAIMS = read_claims(Path(__file__).with_name("claims.csv"))
