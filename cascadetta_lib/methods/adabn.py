"""AdaBN (Li et al. 2018): the statistics of the current batch in every BatchNorm, no update."""

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.base import Method


@METHODS.add("adabn")
class AdaBN(Method):
    """What every method below does to BatchNorm, and nothing more."""

    label, in_paper, colour, adapts = "AdaBN", True, 0, False
