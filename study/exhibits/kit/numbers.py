"""Numbers as text: with a minus sign, and as mean ± standard deviation."""

import math
from typing import Any

import pandas as pd


def number(value: Any, digits: int = 2, *, sign: bool = False) -> str:
    """Write a number with a minus sign, not a hyphen. A zero has no sign, and NaN is a dash."""
    if math.isnan(value):
        return "–"
    plus = "+" if sign and round(value, digits) != 0 else ""
    return f"{value:{plus}z.{digits}f}".replace("-", "−")  # z: no −0


def places(half: float, most: int = 2) -> int:
    """Return how many decimals to print of a mean whose uncertainty is `half`: so many that `half`
    itself would show one digit, or two where its first digits are below 3.55 (the Particle Data
    Group's rule).

    half: half the width of an interval, or a standard deviation: 4.85 gives no decimal, 3.4 gives
    one and 0.34 two. NaN or 0, which says nothing, gives `most`.
    """
    if math.isnan(half) or half == 0:
        return most
    decimals = math.floor(math.log10(3.55 / half)) + 1
    return min(most, max(0, decimals))


def spread(values: pd.Series, digits: int = 2) -> str:
    """Write `mean ± standard deviation` of the values, as 22.84 ± 0.31; a single value alone.

    No value is a dash.
    """
    mean = number(values.mean(), digits)
    if values.count() < 2:
        return mean
    return f"{mean} ± {number(values.std(), digits)}"
