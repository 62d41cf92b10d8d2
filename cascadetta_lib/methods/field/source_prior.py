"""AdaBN with a source prior (Schneider et al. 2020): the source's statistics, blended with those of
the batch.
"""

from torch import Tensor

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.cascade import CascadeMethod
from cascadetta_lib.methods.memory import MemoryBatchNorm
from cascadetta_lib.methods.tent import Tent
from cascadetta_lib.methods.unadapted import AdaBN


class PriorBatchNorm(MemoryBatchNorm):
    """(N·source + n·batch)/(N + n), of the mean and of the variance, for a batch of n examples."""

    def blend(self, mean: Tensor, variance: Tensor, count: int) -> tuple[Tensor, Tensor]:
        share = count / (count + self.examples)
        return self.running_mean.lerp(mean, share), self.running_var.lerp(variance, share)

    def remember(self) -> None:
        """Nothing: what is blended in stays the source's."""


@METHODS.add("source_prior")
class SourcePrior(AdaBN):
    """The source counts as much as N examples, at every batch: N is `memory`, but nothing is
    remembered. 16 is our choice; N = 0 is AdaBN, and N → ∞ is ERM on the same network."""

    label, memory = "AdaBN, source prior", 16
    memory_norm = PriorBatchNorm


@METHODS.add("tent_source_prior")
class TentSourcePrior(Tent):
    """Tent on these statistics, to see whether learning adds to them."""

    label, memory = "Tent, source prior", 16
    memory_norm = PriorBatchNorm


@METHODS.add("cascade_source_prior")
class CascadeSourcePrior(CascadeMethod):
    """The cascade on these statistics, likewise."""

    label, memory = "Cascade, source prior", 16
    memory_norm = PriorBatchNorm
