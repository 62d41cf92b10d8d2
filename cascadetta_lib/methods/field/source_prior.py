"""AdaBN with a source prior (Schneider et al. 2020): blend the source's statistics with those of
the batch.
"""

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.cascade import CascadeMethod
from cascadetta_lib.methods.tent import Tent
from cascadetta_lib.methods.unadapted import AdaBN
from cascadetta_lib.models.remembered_statistics import PriorStatistics


@METHODS.add("source_prior")
class SourcePrior(AdaBN):
    """Normalise by the batch's statistics blended with the source's, which count as N = `memory`
    examples.

    Nothing is remembered. N = 16 is our choice. N = 0 is AdaBN, and N → ∞ is ERM on the same
    network. The batch's variance divides by n here, and by n − 1 in the release.
    """

    label = "AdaBN, source prior"
    memory = 16
    memory_statistics = PriorStatistics


@METHODS.add("tent_source_prior")
class TentSourcePrior(Tent):
    """Tent with the statistics of `source_prior`, to see whether learning improves on them."""

    label = "Tent, source prior"
    memory = 16
    memory_statistics = PriorStatistics


@METHODS.add("cascade_source_prior")
class CascadeSourcePrior(CascadeMethod):
    """The cascade with the statistics of `source_prior`."""

    label = "Cascade, source prior"
    memory = 16
    memory_statistics = PriorStatistics
