"""Check values that a user gives.

Each function raises ValueError if the value is not allowed. The message names the value and says
what is allowed.
"""

import math
from collections.abc import Iterable
from numbers import Integral, Real

from cascadetta_lib.registry import nearest


def require_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a value that is not in `choices`."""
    known = list(choices)
    if value not in known:
        raise ValueError(f"{name} = {value!r}; {nearest(value, known)}")


def is_finite_number(value: object) -> bool:
    """Return whether a value is a finite number that a float can hold. A bool is none."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def require_number(name: str, value: object, *, positive: bool = False) -> None:
    """Refuse a value that is not a finite number ≥ 0, or > 0 if `positive`. A bool is refused."""
    if not is_finite_number(value) or value < 0 or (positive and value == 0):  # type: ignore[operator]
        allowed = "above 0" if positive else "from 0 on"
        raise ValueError(f"{name} = {value!r}; allowed is a finite number {allowed}")


def require_seed(name: str, value: object) -> None:
    """Refuse a value that is not a whole number from 0 to 2⁶⁴ − 1, the largest seed that PyTorch
    takes. A bool is refused.
    """
    require_whole(name, value)
    if value >= 2**64:  # type: ignore[operator]
        raise ValueError(f"{name} = {value!r}; allowed is a whole number from 0 to 2⁶⁴ − 1")


def require_whole(name: str, value: object, least: int = 0) -> None:
    """Refuse a value that is not a whole number ≥ `least`. A bool is refused."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < least:  # type: ignore[operator]
        raise ValueError(f"{name} = {value!r}; allowed is a whole number from {least} on")
