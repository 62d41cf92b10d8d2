"""ETA and EATA (Niu et al. 2022): entropy of examples that are sure and unlike the earlier ones,
and, for EATA, Fisher information that keeps the weights that matter near the source."""

import math

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector

from cascadetta_lib.losses import (
    at_least_float32,
    entropy,
    entropy_of_mean,
    mean_weights,
    probabilities,
)
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.refusals import require_gradient
from cascadetta_lib.methods.source import WithSource, first_sentence
from cascadetta_lib.methods.tent import Tent
from cascadetta_lib.models import Outputs, as_outputs, batch_norms, call_with

SURE = 0.4
"""E₀ as a share of ln C, the largest entropy there is (Eq. 3 and the authors' settings)."""
SIMILARITY = 0.4
"""d: an example whose prediction has this cosine or more with the mean prediction is left out (Eq.
5, CIFAR-10).
"""
MOMENTUM = 0.9
"""Momentum of the moving means, such as that of the chosen predictions (Eq. 4)."""
FISHER_WEIGHT = 1.0
"""β of Eq. 8 in the authors' setting for CIFAR-10; 2,000 for ImageNet."""


def follow(mean: Tensor, value: Tensor, weights: Tensor) -> None:
    """Update a moving mean, in place, by a batch's value.

    A mean of 0 has had no value yet and becomes the batch's. If no example of the batch has a
    weight, the mean stays as it is.
    """
    moved = torch.where(mean.any(), value.lerp(mean, MOMENTUM), value)
    mean.copy_(torch.where(weights.any(), moved, mean))


@METHODS.add("eta")
class ETA(Tent):
    """Minimise the mean of exp(E₀ − H)·H over the examples with entropy H < E₀ whose prediction is
    unlike the moving mean.

    If no example is chosen the loss is 0, and only the optimiser's momentum moves the weights; the
    release takes no step. The authors use SGD with momentum 0.9, not Nesterov's, and a learning
    rate of 0.00025 on ImageNet.
    """

    label = "ETA"
    mean_prediction: Tensor | None

    def configure_model(self) -> None:
        super().configure_model()
        # The first batch tells how many classes there are.
        self.register_buffer("mean_prediction", None)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        outputs = as_outputs(self.model(x))
        z = at_least_float32(outputs.main)
        prediction = probabilities(z.detach())
        unsure = entropy(z)
        if self.mean_prediction is None:
            self.mean_prediction = torch.zeros_like(prediction[0])
        limit = SURE * math.log(prediction.shape[1])
        # A mean of zeros, before anything was chosen, has the cosine 0 with everything.
        unlike = F.cosine_similarity(self.mean_prediction[None], prediction) < SIMILARITY
        weights = mean_weights((unsure.detach() < limit) & unlike, unsure.dtype)
        follow(self.mean_prediction, (weights[:, None] * prediction).sum(0), weights)
        weights = weights * (limit - unsure.detach()).exp()
        return (weights * unsure).sum() - self.diversity * entropy_of_mean(z), outputs


@METHODS.add("eata")
class EATA(WithSource, ETA):
    """Minimise the loss of ETA and β·Σ ω·(θ − θ₀)², where ω is the Fisher information of the
    source model's own predictions (Eq. 8 and 9).

    ω is the mean of the squared gradients of single source examples, as in Eq. 9, with the source's
    BatchNorm statistics. The authors' code, with which they chose β, squares the mean gradient of a
    batch of 64 under the batch's statistics; its ω is smaller by two orders of magnitude. If no
    example is chosen, only the second term is minimised; the authors' code takes no step then.
    """

    label = "EATA"
    fisher: Tensor
    anchor: Tensor

    def configure_model(self) -> None:
        super().configure_model()
        norms = list(batch_norms(self.model))
        if any(norm.running_mean is None for norm in norms):
            raise ValueError(
                f"{self.label} needs the running statistics of the source, and a BatchNorm has "
                "none; use eta"
            )
        for norm in norms:
            norm.training = False  # an example's gradient does not depend on its companions
        assert self.source is not None
        with self.reading_source(self.source), torch.no_grad():
            self.model(self.source[:1])
        try:
            self.register_buffer("fisher", self.fisher_information())
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise ValueError(
                f"{self.label} needs the gradient of each example by torch.func.vmap, which cannot "
                f"go through this network ({first_sentence(error)}); use eta"
            ) from error
        for norm in norms:
            norm.training = True
        self.source = None
        self.register_buffer("anchor", parameters_to_vector(self.adapted_parameters()).detach())

    @torch.no_grad()
    def fisher_information(self) -> Tensor:
        """Return ω (P,) for the P adapted numbers: the mean over source examples of the squared
        gradient of −ln p(ŷ), with ŷ = argmax p. torch.func.vmap must work on the model.
        """
        assert self.source is not None
        parameters = self.adapted_parameters()
        values = [parameter.detach() for parameter in parameters]

        def loss(values: list[Tensor], x: Tensor) -> Tensor:
            replaced = dict(zip(parameters, values, strict=True))
            logits = as_outputs(call_with(self.model, replaced, x[None])).main
            return F.cross_entropy(logits, logits.detach().argmax(1))

        total = torch.zeros_like(parameters_to_vector(values))
        for examples in self.source.split(50):
            gradients = vmap(grad(loss), (None, 0))(values, examples)
            of_each = torch.cat([gradient.flatten(1) for gradient in gradients], 1)
            total += of_each.square().sum(0)
        return total / len(self.source)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        loss, outputs = super().loss(x)
        require_gradient(self.label, loss.requires_grad)
        apart = parameters_to_vector(self.adapted_parameters()) - self.anchor
        return loss + FISHER_WEIGHT * (self.fisher * apart.square()).sum(), outputs
