"""ROID (Marsden et al. 2024): sharpen confident and diverse predictions, keep the weights near the
source's, and correct the predictions by a class prior.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector

from cascadetta_lib.losses import at_least_float32, entropy, log_probabilities, probabilities
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.augmented_copies import WithCopies
from cascadetta_lib.methods.statistics_memory import WithMemory
from cascadetta_lib.models import Outputs, as_outputs

SOURCE_MOMENTUM = 0.99
"""The share of the updated weights in the average after each step; the source has the rest."""
MEAN_MOMENTUM = 0.9
"""The share of the old mean in the moving mean prediction."""
TEMPERATURE = 1 / 3
CLIP = 0.99
"""The largest probability in the soft likelihood ratio."""
EPSILON = 1e-5
"""Added to a ratio before its logarithm."""


@METHODS.add("roid")
class ROID(WithCopies, WithMemory):
    """Update scales and shifts by Adam. The settings are those of ROID's release for CIFAR-10.

    Differences from the release:

    - The augmented copy is CoTTA's, or the dataset's own. Without copies the loss has no
      consistency term.
    - Examples with weight 0 stay in the batch of copies, so they count in its statistics.
    - The loss is the mean over the batch. The release divides by the full batch size, even for a
      shorter last batch.
    - The prior multiplies probabilities, as in Bayes' rule. The release multiplies logits.
    """

    label = "ROID"
    ends_with_batch = False
    make_optimizer = torch.optim.Adam
    anchor: Tensor
    mean_prediction: Tensor | None
    """Moving mean of softmax(z), (C,). None before the first batch, which tells the number of
    classes C.
    """

    def configure_model(self) -> None:
        super().configure_model()
        self.register_buffer("mean_prediction", None)
        self.register_buffer("anchor", parameters_to_vector(self.adapted_parameters()).detach())

    def adapted_parameters(self) -> list[nn.Parameter]:
        return self.scales_and_shifts(self.model)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        z, a = super().predict(x)
        return Outputs(corrected_by_prior(z), a)

    @torch.no_grad()
    def weights(self, z: Tensor) -> Tensor:
        """Return the weight of each prediction, (B, C) → (B,): exp(diversity · certainty / T), or 0
        if the diversity is below the mean of the batch.

        The diversity of a prediction is 1 minus its cosine with the moving mean prediction. The
        certainty is the negative entropy. Both are scaled to reach from 0 to 1 within the batch.
        Then the moving mean prediction is updated by the batch, unless a prediction is not finite.
        """
        p = probabilities(z)
        if self.mean_prediction is None:
            self.mean_prediction = torch.full_like(p[0], 1 / p.shape[1])
        diversity = from_0_to_1(-F.cosine_similarity(self.mean_prediction, p, dim=1))
        moved = self.mean_prediction.lerp(p.mean(0), 1 - MEAN_MOMENTUM)
        self.mean_prediction.copy_(moved.where(moved.isfinite().all(), self.mean_prediction))
        weights = (diversity * from_0_to_1(-entropy(z)) / TEMPERATURE).exp()
        return weights * (diversity >= diversity.mean())

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        copies = self.copies_of(x)
        outputs = as_outputs(self.model(x))
        z = at_least_float32(outputs.main)
        losses = soft_likelihood_ratio(z)
        if copies is not None:
            copy = next(iter(copies(x, 1, self.generator)))
            losses = losses + symmetric_cross_entropy(
                z, at_least_float32(as_outputs(self.model(copy)).main)
            )
        return (self.weights(z) * losses).mean(), Outputs(corrected_by_prior(z), outputs.auxiliary)

    def update(self, x: Tensor) -> Outputs | None:
        outputs = super().update(x)
        self.draw_back()
        return outputs

    def draw_back(self) -> None:
        """Move the updated weights towards the source's."""
        self.draw_to(self.anchor, 1 - SOURCE_MOMENTUM)

    @torch.no_grad()
    def draw_to(self, values: Tensor, share: float) -> None:
        """Replace the adapted weights by (1 − share)·weights + share·values.

        values: (P,), in the order of `adapted_parameters`.
        """
        parameters = self.adapted_parameters()
        parts = values.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.lerp_(part.view_as(parameter), share)


def from_0_to_1(values: Tensor) -> Tensor:
    """Shift and scale values so that the smallest is 0 and the largest 1. Equal values become 0."""
    low, high = values.aminmax()
    return (values - low) / (high - low).clamp_min(torch.finfo(values.dtype).tiny)


def soft_likelihood_ratio(z: Tensor) -> Tensor:
    """Return −Σ_c p_c·ln(p_c/(1 − p_c)) of p = softmax(z), clipped at CLIP: (B, C) → (B,)."""
    p = probabilities(z).clamp_max(CLIP)
    return -(p * (p / (1 - p) + EPSILON).log()).sum(1)


def symmetric_cross_entropy(z: Tensor, other: Tensor) -> Tensor:
    """Return the mean of the cross-entropies H(p, q) and H(q, p) of p = softmax(z) and q =
    softmax(other): (B, C), (B, C) → (B,).
    """
    z_first = probabilities(z) * log_probabilities(other)
    other_first = probabilities(other) * log_probabilities(z)
    return -(z_first + other_first).sum(1) / 2


def corrected_by_prior(z: Tensor) -> Tensor:
    """Return z + ln π (B, C), the logits of p_c · π_c, from logits z (B, C) of predictions p.

    The prior π is m, the batch's mean of p, smoothed towards the uniform distribution: π = (m + γ)
    / (1 + γC) with γ = max(1/B, 1/C) / max_c m_c.
    """
    prior = probabilities(z).mean(0)
    examples, classes = z.shape
    gamma = max(1 / examples, 1 / classes) / prior.amax()
    return z + ((prior + gamma) / (1 + gamma * classes)).log()
