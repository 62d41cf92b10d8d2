"""Measure how often a method predicts the class that the source model predicts."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cascadetta_lib.methods import Method
from cascadetta_lib.models import as_outputs
from cascadetta_lib.models.remembered_statistics import statistics_of
from cascadetta_lib.models.snapshot import keep_state


class SourceAgreement:
    """Compare a method's predictions with those of the source model on the same batch.

    The source model is the network with the weights and the running statistics that it has when
    this object is made. It normalises as the method does: for a method with batch statistics it is
    AdaBN, and for ERM it is ERM. So only changes by learning are counted. Changes by the batch's
    statistics are not counted, because they are large even where a method works.

    The source model predicts by one pass of the network that learns. Some methods predict in
    another way. RoTTA and PeTTA predict by a teacher with statistics of its own, and MEMO image by
    image. LAME, T3A, ROID and CMF change the logits afterwards. The agreement of these methods may
    be below 1 even before the first update.

    Make this object immediately after `method.reset()`. A call takes one forward pass of the
    network: the source's values are written into the network for the pass, and then the method's
    again. Buffers and plain attributes that the pass changes are restored, too. So the call leaves
    the method as it was. No second network is built, because not every network can be copied.
    """

    def __init__(self, method: Method) -> None:
        self.model = method.model
        self.source = _copies(_tensors(self.model))

    @torch.no_grad()
    def __call__(self, x: Tensor, z: Tensor) -> Tensor:
        """Return whether the method and the source model predict the same class, per example: bool
        (B,).

        x: the batch, (B, …). z: the method's logits, (B, C).
        """
        with keep_state(self.model):
            adapted = _copies(dict(self.model.named_parameters()))
            _write(self.source, self.model)
            try:
                predicted = as_outputs(self.model(x)).main.argmax(1)
            finally:
                _write(adapted, self.model)
                # Drop the statistics of the source's pass, or `remember` would store them.
                for statistics in statistics_of(self.model):
                    statistics.seen = None
        return predicted == z.argmax(1)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a network by name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in tensors.items()}


@torch.no_grad()
def _write(values: Mapping[str, Tensor], model: nn.Module) -> None:
    """Write values into the parameters and buffers of the same names. Others stay as they are."""
    for name, tensor in _tensors(model).items():
        if name in values:
            tensor.copy_(values[name])
