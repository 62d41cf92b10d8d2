"""TEMA (Su et al. 2024): moving averages of BatchNorm's statistics, and nothing else."""

import torch
from torch import Tensor

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.statistics_memory import WithStatistics
from cascadetta_lib.models import Outputs
from cascadetta_lib.models.remembered_statistics import MovingStatistics, statistics_of

MOMENTA = ((64, 1.0), (4, 0.1), (1, 0.01))
"""Batch sizes from which on a batch has a weight in the averages, and the weight. They are the
release's for CIFAR-10-C, which lists the sizes 200, 64, 16, 4, 2 and 1. A size between two takes
the smaller one's weight, which is our choice.
"""


@METHODS.add("tema")
class TEMA(WithStatistics):
    """Update moving averages by each batch, and normalise the batch by them. From 64 examples on
    they are the batch's own statistics, as in AdaBN.

    The averages begin as the source's running statistics; the release's begin at 0 and 1. The
    paper's weighting of layers, which builds on the averages, is left out.
    """

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
