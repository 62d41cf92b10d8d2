"""Tent (Wang et al. 2021): scale and shift of every BatchNorm by the entropy of the main prediction."""

import torch
from torch import Tensor, nn

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.base import Method
from cascadetta_lib.models import Outputs, as_outputs, batch_norm_parameters


@METHODS.add("tent")
class Tent(Method):
    """With the cascade's optimiser, so that only the loss and the parameters differ. The paper does not say which
    optimiser it ran Tent with, and Tent's number hangs on it: see `tent_adam`."""

    label, in_paper, colour = "Tent", True, 1

    def adapted_parameters(self) -> list[nn.Parameter]:
        return batch_norm_parameters(self.model)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        outputs = as_outputs(self.model(x))
        return self.uncertainty(outputs.main), outputs


@METHODS.add("tent_adam")
class TentAdam(Tent):
    """With Adam, β = (0.9, 0.999), as Tent's release has it."""

    label, in_paper, colour = "Tent (Adam)", False, 8

    def make_optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, self.learning_rate, betas=(0.9, 0.999))
