"""Read claims.csv: the paper's claims, and ours about Cascade+ and the field. VERDICTS.md states
the rules in words.
"""

import math
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from typing import Any

import pandas as pd

from cascadetta_lib.allowed import require_choice
from study.yaml12 import parse_yaml

SIDES = ("<", ">")
TOGETHER = ("growth", "deviation", "ratio", "median")
"""The values of `then` by which the parts of a reading are combined before they are judged
(evidence.combined). A replicate, which is a seed or an order of the stream, is left out if it
lacks one of the parts.
"""
EXACT = ("ratio", "one refutes")
"""The values of `Reading.then` with which a reading has no interval: `ratio`, because work is
counted, and `one refutes`, because one network is enough to refute the reading.
"""
THEN = ("", *TOGETHER, "one refutes")
"""What a line of claims.csv may have in the column `then`."""

READINGS_OF_F = {"F": "F of Eq. 2", "F_final": "F of the final model"}
READINGS_OF_TENT = {"Tent": "Tent with SGD", "Tent (Adam)": "Tent with Adam"}
"""The names of readings. A claim about F has a reading per definition of F. A claim of the paper
about `Tent` has a reading with SGD, the cascade's optimiser, and a reading with Adam, as in Tent's
release. In a claim of our own (section `ours`) `Tent` means Tent with SGD, and there is no reading
with Adam.
"""


@dataclass(frozen=True)
class Reading:
    """One way to take a sentence: a statistic, and the bound that the statistic must meet.

    name: what distinguishes the reading from the claim's other readings; empty if there is only
        one.
    exhibit: the exhibit whose runs judge the reading.
    value: a metric of stored_runs.METRICS or a name of evidence.VALUES.
    labels, rivals, settings: without rivals the statistic has a part for each label and setting,
        such as the severities 1 to 5. With rivals it has a part for each rival and setting: by how
        much the label is better than the rival.
    then: how the parts are combined (evidence.combined). With `one refutes`, one network that
        misses the bound refutes the reading, and no number of networks supports it.
    side, bound: every part must lie above the bound (`>`) or below the bound (`<`).
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
        """Raise ValueError if `side` or `then` is unknown, if a setting names a domain and the
        value is not E, if several labels have rivals, or if `then` needs another number of parts.
        """
        require_choice(f"{self.exhibit}: side", self.side, SIDES)
        require_choice(f"{self.exhibit}: then", self.then, THEN)
        if len(self.labels) > 1 and self.rivals:
            several = ", ".join(self.labels)
            raise ValueError(f"{self.exhibit}: rivals are those of one label, not of {several}")
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

    section: the paper's section, `appendix`, or `ours` for a claim of our own, on Cascade+ or on
        the field.
    dataset: the dataset of the paper that the claim is about.
    paper: the paper's own value of the statistic, as text. With rivals it is a lead. If there are
        several parts, it is the value of the worst one: if parts are on the wrong side of the
        bound, the one furthest from it; if all are on the right side, the one nearest to it.
    bound_is_ours: whether the bound is ours, because the paper states no number. Whose claim it is
        does not matter: many claims of the paper have a bound of ours.
    whole: whether only runs on all examples of the paper's stream may judge the claim. VERDICTS.md
        says which claims these are.
    """

    section: str
    dataset: str
    exhibit: str
    identifier: str
    sentence: str
    paper: str
    bound_is_ours: bool
    whole: bool
    readings: tuple[Reading, ...]

    @property
    def condition(self) -> str:
        """The bound and its side, as text. They are the same in all readings of a claim."""
        reading = self.readings[0]
        whose = " (our bound)" if self.bound_is_ours else ""
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
                bound=_bound(row),
                **parts,
            )
        )
    return readings


def _bound(row: dict[str, str]) -> float:
    """Return the bound of one line of claims.csv, also if it is written with the sign −.

    Raises ValueError if it is no finite number.
    """
    try:
        bound = float(row["bound"].replace("−", "-"))
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound):
        raise ValueError(
            f"{row['identifier']}: bound = {row['bound']!r} in claims.csv; allowed are finite "
            "numbers such as −0.5"
        )
    return bound


def read_claims(path: Path) -> list[Claim]:
    """Return the claims of a table.

    A claim has one line. If its readings differ in several columns, it has a line per reading, and
    these lines follow one another. Bars separate the names or values in a cell.
    """
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    claims = []
    lines: list[dict[str, str]] = table.to_dict("records")  # type: ignore[assignment]
    for identifier, group in groupby(lines, key=lambda line: line["identifier"]):
        of_claim = list(group)
        first = of_claim[0]
        for column, allowed in (("length", ("", "whole")), ("bound_from", ("", "ours"))):
            for line in of_claim:
                require_choice(f"{identifier}: {column}", line[column], allowed)
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
                bound_is_ours=first["bound_from"] == "ours",
                whole=first["length"] == "whole",
                readings=tuple(readings),
            )
        )
    return claims


CLAIMS = read_claims(Path(__file__).with_name("claims.csv"))
