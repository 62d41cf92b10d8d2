"""The values of black and white in the images that a method gets."""

import warnings
from collections.abc import Sequence

from torch import Tensor

from cascadetta_lib.allowed import is_finite_number

USUAL = (-1.0, 1.0)
SLACK = 0.01
"""Values may exceed the range by this share of its width, because of rounding."""


class ValueRange:
    """The values of black and white in images x. The caller gives them, since images do not show
    them.

    ends: black and white.
    """

    def __init__(self, label: str, given: tuple[float, float] | None) -> None:
        """Take the option `value_range` of the method `label`. None means (−1, 1).

        Raises ValueError unless `given` is two finite numbers, the first (black) less than the
        second (white).
        """
        if given is not None and not _is_range(given):
            raise ValueError(
                f"{label}: value_range = {given!r}; allowed are a tuple or list of two finite "
                "numbers (black, white) with black < white"
            )
        self.label = label
        self.ends = given or USUAL
        self.is_given = given is not None
        self.is_checked = False

    def check(self, x: Tensor) -> None:
        """Warn if the first batch has values outside the range, or if no range was given and no
        value is negative. Later batches are not checked.
        """
        if self.is_checked:
            return
        self.is_checked = True
        black, white = self.ends
        least = float(x.min())
        most = float(x.max())
        slack = SLACK * (white - black)
        lies_within = black - slack <= least and most <= white + slack
        is_unit = not self.is_given and least >= 0
        if lies_within and not is_unit:
            return
        warnings.warn(
            f"{self.label}: the first batch has values from {least:.3g} to {most:.3g}, but images "
            f"are augmented as if {black:g} were black and {white:g} white; pass "
            "value_range=(BLACK, WHITE), such as (0, 1)",
            stacklevel=2,
        )


def _is_range(given: object) -> bool:
    if not isinstance(given, Sequence) or len(given) != 2:
        return False
    return all(map(is_finite_number, given)) and bool(given[0] < given[1])
