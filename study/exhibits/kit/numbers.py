"""Numbers as text: with a minus sign, and with the decimals that their uncertainty supports."""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

FULL = 6
"""Decimals of numbers in CSV files, which are not rounded for readers."""
ALONE = 1
"""Decimals of a percentage whose uncertainty is not known."""


@dataclass(frozen=True, eq=False)
class Rounded:
    """A cell of a table. It compares equal to its text.

    text: what is shown.
    full: the same with FULL decimals, for CSV files.
    """

    text: str
    full: str

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self.text == str(other)

    def __hash__(self) -> int:
        return hash(self.text)


def in_full(cell: object) -> str:
    """Return a cell of a table as text, with FULL decimals if it is `Rounded`."""
    return cell.full if isinstance(cell, Rounded) else str(cell)


def round_half_up(value: float, digits: int) -> float:
    """Round a number to `digits` decimals, halves away from zero: 14.25 to 14.3, −14.25 to −14.3.

    The number is first rounded to FULL decimals, as in CSV files. So a mean that has just been
    computed, such as 14.250000000000002, gives the same text as the mean read from a CSV file.
    """
    full = round(value, FULL)
    past_half = full + math.copysign(10 ** -(FULL + 2), full)
    return round(past_half, digits)


def number(value: Any, digits: int = 2, *, sign: bool = False) -> str:
    """Write a number with a minus sign, not a hyphen. A zero has no sign, and NaN is a dash.

    Rounds by `round_half_up` to `digits` decimals.

    sign: whether to write the plus sign of a positive number.
    """
    if math.isnan(value):
        return "–"
    nearest = round_half_up(value, digits)
    plus = "+" if sign and nearest != 0 else ""
    return f"{nearest:{plus}z.{digits}f}".replace("-", "−")  # z: no −0


def places(uncertainty: float, most: int = 2) -> int:
    """Return how many decimals of an uncertain mean to print: at most `most`.

    By the rule of the Particle Data Group, the uncertainty keeps two digits if its leading digits
    are below 3.55, and otherwise one. A mean has as many decimals as its uncertainty.

    uncertainty: half the width of an interval, or a standard deviation. 4.85 gives no decimal, 3.4
        gives one and 0.34 two. NaN and 0 give `most`, because they say nothing about the mean.
    """
    if math.isnan(uncertainty) or uncertainty == 0:
        return most
    decimals = math.floor(math.log10(3.55 / uncertainty)) + 1
    return min(most, max(0, decimals))


def rounded(
    value: float, uncertainty: float = math.nan, *, alone: int = ALONE, sign: bool = False
) -> Rounded:
    """Write a number with the decimals that its uncertainty supports (see `places`), or with
    `alone` decimals if the uncertainty is NaN.
    """
    digits = alone if math.isnan(uncertainty) else places(uncertainty)
    return Rounded(number(value, digits, sign=sign), number(value, FULL, sign=sign))


def interval(low: float, high: float) -> Rounded:
    """Write `[low, high]` with the decimals that the width supports; a dash if `low` is NaN."""
    if math.isnan(low):
        return Rounded("–", "–")
    digits = places((high - low) / 2)
    shown = f"[{number(low, digits)}, {number(high, digits)}]"
    return Rounded(shown, f"[{number(low, FULL)}, {number(high, FULL)}]")


def spread(
    values: pd.Series,
    uncertainty: float = math.nan,
    most: int = 2,
    alone: int = ALONE,
    mark: str = "",
) -> Rounded:
    """Write `mean ± standard deviation` of the values, such as 22.8 ± 0.4.

    A single value has no deviation, and no value gives a dash. The larger of the deviation and
    `uncertainty` decides the number of decimals; see `places`.

    uncertainty: another uncertainty of the mean, such as half of an interval over images.
    most: the largest number of decimals.
    alone: the number of decimals if no uncertainty is known.
    mark: a text to append.
    """
    several = values.count() > 1
    known = [each for each in (values.std(), uncertainty) if not math.isnan(each)]
    digits = places(max(known), most) if known else alone

    def written(digits: int) -> str:
        mean = number(values.mean(), digits)
        deviation = f" ± {number(values.std(), digits)}" if several else ""
        return f"{mean}{deviation}{mark}"

    return Rounded(written(digits), written(FULL))
