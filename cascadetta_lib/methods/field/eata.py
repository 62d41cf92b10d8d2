"""ETA and EATA (Niu et al. 2022): minimise the entropy of examples whose predictions are sure, and
unlike the predictions chosen before. EATA also keeps the weights near the source's, most of all the
weights with large Fisher information.
"""

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
from cascadetta_lib.models.snapshot import keep_state

SURE = 0.4
"""E₀ as a share of ln C, the largest possible entropy (Eq. 3 and the authors' settings)."""
SIMILARITY = 0.4
"""d: an example is left out if the cosine of its prediction and the mean prediction is d or more
(Eq. 5). The value is the authors' for CIFAR-10.
"""
MOMENTUM = 0.9
"""The share of the old mean in a moving mean, such as that of the chosen predictions (Eq. 4)."""
FISHER_WEIGHT = 1.0
"""β of Eq. 8, as the authors set it for CIFAR-10. For ImageNet they set 2,000."""


def follow(mean: Tensor, value: Tensor, weights: Tensor) -> None:
    """Update a moving mean, in place, by the value of a batch.

    A mean of 0 has had no value yet, and takes the value of the batch. The mean does not change if
    the value is not finite.

    weights: the weights of the batch's examples. If all are 0, the mean does not change.
    """
    moved = torch.where(mean.any(), value.lerp(mean, MOMENTUM), value)
    counts = weights.any() & value.isfinite().all()
    mean.copy_(torch.where(counts, moved, mean))


@METHODS.add("eta")
class ETA(Tent):
    """Minimise the mean of exp(E₀ − H)·H over the chosen examples: those with entropy H < E₀ whose
    prediction is unlike the moving mean of the predictions chosen before.

    If no example is chosen, only the term of `diversity` remains. If `diversity` is 0 as well, the
    loss is 0, and only the optimiser's momentum moves the weights. The release takes no step if no
    example is chosen. The authors use SGD with plain momentum 0.9, not Nesterov momentum, and a
    learning rate of 0.00025 on ImageNet.
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
        # Before an example was chosen, the mean is 0, and so is its cosine with any prediction.
        unlike = F.cosine_similarity(self.mean_prediction[None], prediction) < SIMILARITY
        weights = mean_weights((unsure.detach() < limit) & unlike, unsure.dtype)
        follow(self.mean_prediction, (weights[:, None] * prediction).sum(0), weights)
        weights = weights * (limit - unsure.detach()).exp()
        return (weights * unsure).sum() - self.diversity * entropy_of_mean(z), outputs


@METHODS.add("eata")
class EATA(WithSource, ETA):
    """Minimise the sum of ETA's loss and β·Σ ω·(θ − θ₀)² (Eq. 8), where ω is the Fisher information
    of the source model's own predictions (Eq. 9).

    ω is the mean over source examples of the squared gradient of a single example, as in Eq. 9,
    with the source's BatchNorm statistics. The authors' code squares the mean gradient of a batch
    of 64, with the batch's statistics. This makes ω smaller by two orders of magnitude, and the
    authors chose β for the smaller ω.

    If no example is chosen and `diversity` is 0, only the second term is minimised. The authors'
    code takes no step if no example is chosen.

    Raises ValueError if a BatchNorm has no running statistics, or if torch.func.vmap cannot go
    through the network.
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
            norm.training = False  # so no gradient depends on the other examples
        assert self.source is not None
        # A forward pass may change plain attributes and buffers of the network.
        with keep_state(self.model):
            fisher = self.read_source(self.source)
        self.register_buffer("fisher", fisher)
        for norm in norms:
            norm.training = True
        self.source = None
        self.register_buffer("anchor", parameters_to_vector(self.adapted_parameters()).detach())

    def read_source(self, source: Tensor) -> Tensor:
        """Return the Fisher information of the source examples.

        Raises ValueError if the network cannot take them, or if torch.func.vmap cannot go through
        the network.
        """
        with self.reading_source(source), torch.no_grad():
            self.model(source[:1])
        try:
            return self.fisher_information()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise ValueError(
                f"{self.label} needs the gradient of each example by torch.func.vmap, which cannot "
                f"go through this network ({first_sentence(error)}); use eta"
            ) from error

    @torch.no_grad()
    def fisher_information(self) -> Tensor:
        """Return ω (P,) for the P adapted numbers. ω is the mean over source examples of the
        squared gradient of −ln p(ŷ), with ŷ = argmax p. torch.func.vmap must work on the model.
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
