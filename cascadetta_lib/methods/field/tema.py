"""TEMA (Su et al. 2024): moving averages of BatchNorm's statistics, and nothing else."""

import torch
from torch import Tensor

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.base import Method
from cascadetta_lib.methods.memory import MovingBatchNorm, give_memory, memories
from cascadetta_lib.models import Outputs

MOMENTA = ((64, 1.0), (4, 0.1), (1, 0.01))
"""The least size of a batch, and the share of such a batch that enters the averages: the release's
table for CIFAR-10-C, which has 200, 64, 16, 4, 2 and 1. A size between two takes the smaller's,
which is our choice."""


@METHODS.add("tema")
class TEMA(Method):
    """A batch is normalised by the averages that it has just entered; from 64 examples on these are
    its own statistics, as in AdaBN. The averages begin as the source's running statistics, where
    the release's begin at 0 and 1. The weighing of layers, which the same paper builds on them, is
    left out."""

    label, adapts = "TEMA", False

    def configure_model(self) -> None:
        if self.memory:
            raise ValueError(
                f"{self.label} has a memory of statistics of its own; leave memory = {self.memory} "
                "out"
            )
        give_memory(self, MovingBatchNorm)
        super().configure_model()
        self.require_batch_norm(self.model)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        for norm in memories(self):
            norm.momentum = next(share for size, share in MOMENTA if len(x) >= size)
        return super().predict(x)
