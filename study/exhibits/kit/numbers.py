"""Numbers as text: with a minus sign, and as mean ± standard deviation."""

import math
from typing import Any

import pandas as pd


def number(value: Any, digits: int = 2, *, sign: bool = False) -> str:
    """Write a number with a minus sign, not a hyphen. A zero has no sign, and NaN is a dash."""
    if math.isnan(value):
        return "–"
    sign = sign and round(value, digits) != 0
    return f"{value:{'+' if sign else ''}z.{digits}f}".replace("-", "−")


def spread(values: pd.Series, digits: int = 2) -> str:
    """Write `mean ± standard deviation` of the values, as 22.84 ± 0.31; a single value alone.

    No value is a dash.
    """
    mean = number(values.mean(), digits)
    if values.count() < 2:
        return mean
    return f"{mean} ± {number(values.std(), digits)}"
