"""Measure how often a method still says what the network said before it adapted."""

import torch
from torch import Tensor

from cascadetta_lib.methods import Method
from cascadetta_lib.models import as_outputs
from cascadetta_lib.models.remembered_statistics import statistics_of


class SourceAgreement:
    """Compare a method's predictions with those of the source model on the same batch.

    The source model is the network with the weights and the running statistics that it has when
    this object is made, normalised as the method normalises. A method with batch statistics is
    compared with AdaBN, ERM with itself. So only what learning has changed is counted. What the
    batch's statistics change is not counted; they change much even where a method works.

    The source model predicts by one pass of the network that learns. So the agreement may be below
    1 even before the first update for methods that predict otherwise: RoTTA and PeTTA, by a teacher
    with statistics of its own; MEMO, image by image; LAME, T3A, ROID and CMF, which change the
    logits afterwards.

    Make it right after `method.reset()`. A call takes one forward pass of the network and leaves
    the method as it was: the source's values are written into the network for the pass, and then
    the method's again. No second network is built, because not every network can be copied.
    """

    def __init__(self, method: Method) -> None:
        self.model = method.model
        self.tensors = [*self.model.parameters(), *self.model.buffers()]
        self.source = _copies(self.tensors)

    @torch.no_grad()
    def __call__(self, x: Tensor, z: Tensor) -> Tensor:
        """Return for each example of a batch x (B, …) whether the method's logits z (B, C) and the
        source model name one class: (B,), bool.
        """
        adapted = _copies(self.tensors)
        _write(self.source, self.tensors)
        try:
            predicted = as_outputs(self.model(x)).main.argmax(1)
        finally:
            _write(adapted, self.tensors)
            # Drop the statistics of the source's pass, or `remember` would store them.
            for statistics in statistics_of(self.model):
                statistics.seen = None
        return predicted == z.argmax(1)


def _copies(tensors: list[Tensor]) -> list[Tensor]:
    return [each.detach().clone() for each in tensors]


@torch.no_grad()
def _write(values: list[Tensor], tensors: list[Tensor]) -> None:
    for value, tensor in zip(values, tensors, strict=True):
        tensor.copy_(value)
