"""TEMA (Su et al. 2024): moving averages of BatchNorm's statistics, and nothing else."""

import torch
from torch import Tensor

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.memory import WithStatistics
from cascadetta_lib.models import Outputs
from cascadetta_lib.models.remembered_statistics import MovingStatistics, statistics_of

MOMENTA = ((64, 1.0), (4, 0.1), (1, 0.01))
"""The least size of a batch, and the share of such a batch that enters the averages: the release's
table for CIFAR-10-C, which has 200, 64, 16, 4, 2 and 1. A size between two takes the smaller's,
which is our choice."""


@METHODS.add("tema")
class TEMA(WithStatistics):
    """A batch is normalised by the averages that it has just entered; from 64 examples on these are
    its own statistics, as in AdaBN. The averages begin as the source's running statistics, where
    the release's begin at 0 and 1. The weighing of layers, which the same paper builds on them, is
    left out."""

    label = "TEMA"
    adapts = False

    def configure_model(self) -> None:
        self.give_statistics(MovingStatistics)
        super().configure_model()

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        share = next(share for size, share in MOMENTA if len(x) >= size)
        for statistics in statistics_of(self):
            assert isinstance(statistics, MovingStatistics)
            statistics.momentum = share
        return super().predict(x)
