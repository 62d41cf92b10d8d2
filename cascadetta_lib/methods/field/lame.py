"""LAME (Boudiaf et al. 2022): change no weight, and draw each prediction towards those of its
nearest neighbours in the batch.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from cascadetta_lib.losses import at_least_float32, full_precision
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.features import FeatureReader
from cascadetta_lib.methods.unadapted import ERM
from cascadetta_lib.models import Outputs

NEIGHBOURS = 5
ITERATIONS = 100
"""The release's maximum. The release stops earlier, once its objective has settled. Here all
iterations are made, since a check would wait for the device, and at the fixed point an iteration
changes nothing.
"""


@METHODS.add("lame")
class LAME(ERM):
    """Smooth the predictions of a batch over nearest neighbours; see `smoothed`.

    BatchNorm uses the source's running statistics, as in the release. The affinity w_ij is 1 if j
    is one of the five nearest neighbours of i, and otherwise 0. It is not symmetric. The release
    offers this affinity and two others; its default is a Gaussian kernel.

    Two examples are near if the angle between their features is small. The features are the inputs
    of the nn.Linear that the model calls last, or, in a Cascade, that θ_m calls last.
    """

    objective = "meta"
    label = "LAME"

    def configure_model(self) -> None:
        super().configure_model()
        self.read = FeatureReader(self.model, self.label, "compares the inputs of", "erm")

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        outputs, features, _ = self.read(x)
        return Outputs(smoothed(outputs.main, features), outputs.auxiliary)


def smoothed(z: Tensor, features: Tensor) -> Tensor:
    """Return ln y (B, C), where y is the fixed point of y_i ∝ p_i·exp(Σ_j w_ij·y_j). As in the
    release, y is found by iteration.

    z: logits of the predictions p, (B, C).
    features: (B, D).
    """
    directions = F.normalize(at_least_float32(features), dim=1)
    log_p = at_least_float32(z).log_softmax(1)
    with full_precision(z):
        cosines = (directions @ directions.T).fill_diagonal_(-torch.inf)
        neighbours = cosines.topk(min(NEIGHBOURS, len(z) - 1)).indices
        affinity = torch.zeros_like(cosines).scatter_(1, neighbours, 1.0).to(log_p.dtype)
        y = log_p.exp()
        for _ in range(ITERATIONS - 1):
            y = torch.addmm(log_p, affinity, y).softmax(1)
        return torch.addmm(log_p, affinity, y).log_softmax(1)
