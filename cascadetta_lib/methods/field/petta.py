"""PeTTA (Hoang et al. 2024): RoTTA, but the further the features have moved from the source's, the
stronger the regularisation towards the source and the slower the teacher.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.losses import at_least_float32, full_precision, log_probabilities, probabilities
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.features import FeatureReader
from cascadetta_lib.methods.field.roid import symmetric_cross_entropy
from cascadetta_lib.methods.field.rotta import RoTTA
from cascadetta_lib.methods.refusals import require_gradient
from cascadetta_lib.methods.source import WithSource
from cascadetta_lib.models import Outputs, as_outputs
from cascadetta_lib.models.remembered_statistics import statistics_of

ALPHA_0 = 0.001
"""The teacher's step towards the student if the features have not moved (γ = 0)."""
LAMBDA_0 = 10.0
"""The weight λ of the distance from the source's weights if γ = 1."""
FOLLOW = 0.05
"""The share of a batch in the moving mean of a class's features."""
EPSILON = 1e-6
"""Added to a variance of the source's features before a division by it."""


@METHODS.add("petta")
class PeTTA(WithSource, RoTTA):
    """After each batch, minimise L on the examples x in RoTTA's memory:

        L = (sce(z, t) + sce(z′, t)) / 2 + ce(z′, s) + λ·R

    z and z′ are the student's logits of x and of an augmented copy of x. t are the teacher's logits
    of x, and s those of the source network. sce is the symmetric cross-entropy. ce is the
    cross-entropy with the source network's prediction as the target. R is the mean of −cos(θ, θ₀)
    over the adapted tensors θ, where θ₀ is the same tensor of the source network.

    γ = 1 − exp(−d) says how far the features have moved. d is the mean of (μ_t − μ_0)²/σ_0² over
    the features and over the classes predicted in the batch. μ_0 and σ_0² are the mean and the
    variance of a class's features in the source, over the examples for which the source network
    predicts the class. μ_t is a moving mean of the teacher's features of the class. After γ is
    computed, the batch enters μ_t. Then λ = 10·γ, and the teacher's step is 0.001·(1 − γ).

    The settings are those of the release for CIFAR-10. Adam updates the scales and shifts of the
    normalisation layers. The release takes μ_0 and σ_0² from the source's test images; here they
    come from the option `source`. A class with fewer than two examples in `source` takes no part in
    d. As in the release, the memory updates the moving statistics of all three networks, and the
    moving statistics of the student twice.
    """

    label = "PeTTA"
    source_mean: Tensor
    source_variance: Tensor
    known: Tensor
    """For each class, whether it has at least two source examples and so a variance, bool (C,)."""
    moving_mean: Tensor

    def configure_model(self) -> None:
        super().configure_model()
        self.initial = copy.deepcopy(self.model).requires_grad_(False)
        self.anchors = [
            (student, source)
            for student, source in zip(
                self.model.parameters(), self.initial.parameters(), strict=True
            )
            if student.requires_grad
        ]
        self.read = self.reader(self.teacher)
        assert self.source is not None
        read = self.reader(copy.deepcopy(self.teacher))  # a forward pass may change a network
        with self.reading_source(self.source):
            readings = [read(part) for part in self.source.split(100)]
        self.source = None
        features = at_least_float32(torch.cat([reading.features for reading in readings]))
        members = members_of(torch.cat([reading.outputs.main for reading in readings]))
        weights = members.to(features.dtype)
        counts = weights.sum(1, keepdim=True)
        with full_precision(features):
            mean = weights @ features / counts.clamp(min=1)
            squares = weights @ (features - weights.T @ mean).square()
        self.register_buffer("source_mean", mean)
        self.register_buffer("source_variance", squares / (counts - 1).clamp(min=1))
        self.register_buffer("known", counts[:, 0] >= 2)
        self.register_buffer("moving_mean", mean.clone())

    def reader(self, network: nn.Module) -> FeatureReader:
        return FeatureReader(network, self.label, "compares the inputs of", "rotta")

    @torch.no_grad()
    def divergence(self, members: Tensor) -> Tensor:
        """Return γ, a scalar in [0, 1], for a batch.

        members: for which examples of the batch each class is predicted, bool (C, B).
        """
        apart = (self.moving_mean - self.source_mean).square() / (self.source_variance + EPSILON)
        counted = members.any(1) & self.known
        return 1 - (-(apart.mean(1) * counted).sum() / counted.sum().clamp(min=1)).exp()

    @torch.no_grad()
    def follow(self, features: Tensor, members: Tensor) -> None:
        """Update the moving mean of each class that is predicted in a batch, by the features (B,
        D).

        members: for which examples of the batch each class is predicted, bool (C, B).
        """
        counts = members.sum(1, keepdim=True)
        features = features.to(self.moving_mean.dtype)
        with full_precision(features):
            means = members.to(features.dtype) @ features / counts.clamp(min=1)
        moved = self.moving_mean.lerp(means, FOLLOW)
        self.moving_mean.copy_(torch.where(counts > 0, moved, self.moving_mean))

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        target = self.target(x)
        student = as_outputs(self.model(x))
        require_gradient(self.label, student.main.requires_grad)
        for statistics in statistics_of(self.model):
            statistics.remember()
        source_logits = as_outputs(self.initial(x)).main
        copied = as_outputs(self.model(self.copy_of(x))).main
        classes = symmetric_cross_entropy(student.main, target)
        classes = (classes + symmetric_cross_entropy(copied, target)) / 2
        anchor = -(probabilities(source_logits) * log_probabilities(copied)).sum(1)
        cosines = [
            F.cosine_similarity(weight.flatten(), source_weight.flatten(), dim=0)
            for weight, source_weight in self.anchors
        ]
        distance = -torch.stack(cosines).mean()
        return (classes + anchor).mean() + LAMBDA_0 * self.moved * distance, student

    def update(self, x: Tensor) -> Outputs:
        outputs, features, _ = self.read(x)
        self.require_finite(outputs.main)
        for example, known in zip(x, self.described(outputs.main), strict=True):
            self.take_in(example, known)
        members = members_of(outputs.main)
        self.moved = self.divergence(members)
        self.follow(features, members)
        self.learn(ALPHA_0 * (1 - self.moved))
        return outputs


def members_of(z: Tensor) -> Tensor:
    """Return for which examples each class is predicted: logits (B, C) → bool (C, B)."""
    return z.argmax(1) == torch.arange(z.shape[1], device=z.device)[:, None]
