"""The update of a method: which parameters change, and by which loss."""

import torch
from torch import Tensor, nn

from cascadetta_lib.methods.facts import Facts
from cascadetta_lib.methods.optimizers import OPTIMIZERS, OptimizerName
from cascadetta_lib.methods.refusals import Checks, scales_and_shifts
from cascadetta_lib.models import Outputs


def finite_logits(z: Tensor) -> Tensor:
    """Return logits (B, C) with the lowest number in place of −∞, which masks a class.

    A cross-entropy whose target gives a masked class the probability 0 is then finite. With −∞ it
    would contain 0·(−∞), which is NaN. The gradient is the one that −∞ would give.
    """
    return z.masked_fill(z.isneginf(), torch.finfo(z.dtype).min)


class Updates(Facts, nn.Module):
    """Update the model by one step of an optimiser per batch.

    A subclass defines `adapted_parameters` and `loss`.
    """

    model: nn.Module
    checks: Checks
    learning_rate: float
    optimizer: torch.optim.Optimizer | None

    def adapted_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that the optimiser updates. They must be the model's own."""
        return []

    def scales_and_shifts(self, module: nn.Module) -> list[nn.Parameter]:
        """Return scale and shift of every normalisation layer of `module`.

        Raises ValueError if there are none, or if a scale or shift is not a parameter but computed
        from other tensors.
        """
        return scales_and_shifts(self.label, module)

    def build_optimizer(self, name: OptimizerName | None) -> torch.optim.Optimizer | None:
        """Return an optimiser of the adapted parameters. Return None if the method never updates.

        name: a name in OPTIMIZERS. None: the method's own optimiser.
        """
        if not self.adapts:
            return None
        parameters = list(dict.fromkeys(self.adapted_parameters()))
        make = self.make_optimizer if name is None else OPTIMIZERS[name]
        return make(parameters, lr=self.learning_rate)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs | None]:
        """Return the loss of a batch x, a scalar, and the prediction of x for `predict="before"`.

        Usually the loss is computed from this prediction. If the loss is computed from other
        inputs, such as TTT's rotated images, the prediction may be None with `predict="after"`.
        """
        raise TypeError(f"{type(self).__name__} adapts, but has no loss")

    def require_finite(self, values: Tensor) -> None:
        """Refuse a loss or logits (B, C) that are not finite. See Checks.require_finite."""
        self.checks.require_finite(values)

    def update(self, x: Tensor) -> Outputs | None:
        """Take one step on a batch. Return the prediction that `loss` returned, detached.

        Raises ValueError before the step if the loss is not finite.
        """
        assert self.optimizer is not None
        with torch.enable_grad():
            loss, outputs = self.loss(x)
            self.checks.before_backward(loss)
            self.require_finite(loss)
            loss.backward()
        self.checks.after_backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return None if outputs is None else outputs.detached()
