"""SAR (Niu et al. 2023): sharpness-aware minimisation of the entropy of sure examples."""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from cascadetta_lib.losses import entropy, entropy_of_mean, mean_weights
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.field.eata import SURE, follow
from cascadetta_lib.methods.refusals import require_gradient
from cascadetta_lib.methods.tent import Tent
from cascadetta_lib.models import Outputs, as_outputs, call_with
from cascadetta_lib.models.recomputed import refuse_recomputation

RADIUS = 0.05
"""ρ, the length of the ascent (Eq. 4)."""


@METHODS.add("sar")
class SAR(Tent):
    """Minimise the mean entropy at the shifted weights θ + ρ·g/|g|, where g is the gradient of the
    mean entropy at θ.

    At θ the mean is over the examples with entropy H < E₀. At the shifted weights it is over the
    examples with H < E₀ both at θ and at the shifted weights. E₀ is as in eata.py.

    If a moving mean of the entropy falls below `least_entropy`, the weights go back to the source,
    and the optimiser's momentum is emptied. As in SAR's Algorithm 1, the moving mean is not reset.
    So the weights go back after each batch until the moving mean has risen. The release keeps the
    momentum, since its sharpness-aware optimiser does not restore the state of the SGD inside it.

    With two classes E₀ is 0.28 nats. The mean of entropies below 0.28 is nearly always below the
    limit of 0.2, so the weights go back after every batch, and SAR equals AdaBN.

    The authors use SGD with plain momentum 0.9, not Nesterov momentum, and do not adapt the last
    stage of networks for ImageNet.
    """

    label = "SAR"
    least_entropy: ClassVar[float] = 0.2
    """The limit of the moving mean of the entropy, in nats. Below it the weights go back to the
    source.
    """
    ends_with_batch = False
    mean_entropy: Tensor

    def configure_model(self) -> None:
        super().configure_model()
        self.adapted = {
            name: value for name, value in self.model.named_parameters() if value.requires_grad
        }
        self.register_buffer("mean_entropy", next(iter(self.adapted.values())).new_zeros(()))

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        with refuse_recomputation(self.label):
            outputs = as_outputs(self.model(x))
        limit = SURE * math.log(outputs.main.shape[1])
        unsure = entropy(outputs.main)
        sure = unsure.detach() < limit
        mean = (mean_weights(sure, unsure.dtype) * unsure).sum()
        below = mean - self.diversity * entropy_of_mean(outputs.main)
        require_gradient(self.label, below.requires_grad)
        values = list(self.adapted.values())
        gradients = torch.autograd.grad(below, values, materialize_grads=True)
        length = torch.stack([gradient.norm() for gradient in gradients]).norm() + 1e-12
        above: dict[nn.Parameter, Tensor] = {}
        for value, gradient in zip(values, gradients, strict=True):
            above[value] = value + RADIUS * gradient / length
        with refuse_recomputation(self.label):
            logits = as_outputs(call_with(self.model, above, x)).main
        unsure = entropy(logits)
        weights = mean_weights(sure & (unsure.detach() < limit), unsure.dtype)
        mean = (weights * unsure).sum()
        follow(self.mean_entropy, mean.detach(), weights)
        return mean - self.diversity * entropy_of_mean(logits), outputs

    @torch.no_grad()
    def update(self, x: Tensor) -> Outputs | None:
        outputs = super().update(x)
        assert self.optimizer is not None
        collapsed = (self.mean_entropy > 0) & (self.mean_entropy < self.least_entropy)
        source = self.source_state.values
        for name, value in self.adapted.items():
            value.copy_(torch.where(collapsed, source[f"model.{name}"].to(value), value))
        states = [value for state in self.optimizer.state.values() for value in state.values()]
        states = [value for value in states if isinstance(value, Tensor)]
        # Adam counts its steps on the CPU, so this waits for the device once.
        where = {device: collapsed.to(device) for device in {state.device for state in states}}
        for state in states:
            state.masked_fill_(where[state.device], 0)
        return outputs
