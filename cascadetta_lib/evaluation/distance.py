"""Measure how far a method has moved its parameters, to tell a small step from no step."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from cascadetta_lib.methods import Method
from cascadetta_lib.models import NORMALIZATION_LAYERS


class Moved(NamedTuple):
    """Euclidean distances from the source, scalars ≥ 0 on the device.

    normalization: the distance of the adapted scales and shifts of normalisation layers.
    others: the distance of all other adapted parameters, such as those of θ_m.
    """

    normalization: Tensor
    others: Tensor


class Distance:
    """Measure how far a method's adapted parameters are from the values that they had when this
    object was made.

    Make this object immediately after `method.reset()`, so that these values are the source's.
    """

    def __init__(self, method: Method) -> None:
        layers = [child for child in method.modules() if isinstance(child, NORMALIZATION_LAYERS)]
        of_layers = {id(each) for layer in layers for each in layer.parameters(recurse=False)}
        groups = method.optimizer.param_groups if method.optimizer is not None else []
        adapted = [parameter for group in groups for parameter in group["params"]]
        self.normalization = [each for each in adapted if id(each) in of_layers]
        self.others = [each for each in adapted if id(each) not in of_layers]
        self.zero = next(method.parameters(), torch.zeros(())).new_zeros(())
        self.sources = {id(each): each.detach().clone() for each in adapted}

    @torch.no_grad()
    def __call__(self) -> Moved:
        """Return the distances now. A distance over no parameters is 0."""
        return Moved(self._of(self.normalization), self._of(self.others))

    def _of(self, parameters: list[nn.Parameter]) -> Tensor:
        if not parameters:
            return self.zero
        return get_total_norm([each - self.sources[id(each)] for each in parameters])
