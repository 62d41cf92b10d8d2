"""TEMA (Su et al. 2024): normalise by moving averages of BatchNorm's statistics; learn nothing."""

import torch
from torch import Tensor

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.statistics_memory import WithStatistics
from cascadetta_lib.models import Outputs
from cascadetta_lib.models.remembered_statistics import MovingStatistics, statistics_of

MOMENTA = ((64, 1.0), (4, 0.1), (1, 0.01))
"""Pairs of a batch size and a weight: a batch of at least this size has this weight in the
averages. The weights are those of the release for CIFAR-10-C. The release lists the sizes 200, 64,
16, 4, 2 and 1. A size between two of these takes the weight of the smaller one, which is our
choice.
"""


@METHODS.add("tema")
class TEMA(WithStatistics):
    """Update moving averages by each batch, and normalise the batch by the averages. From 64
    examples on, the averages are the batch's own statistics, as in AdaBN.

    The averages begin as the source's running statistics; the release's begin at 0 and 1. TEMA's
    weighting of layers, which builds on the averages, is left out.
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
