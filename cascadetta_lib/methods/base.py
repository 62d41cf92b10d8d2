"""What every test-time method shares: batch statistics, one step per batch, the order of update and
prediction, and the reset.
"""

from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from cascadetta_lib.methods.facts import Facts
from cascadetta_lib.methods.optimizers import OPTIMIZERS, OptimizerName
from cascadetta_lib.methods.refusals import Checks, scales_and_shifts
from cascadetta_lib.models import Outputs, as_outputs, use_batch_statistics
from cascadetta_lib.models.snapshot import Snapshot


class Method(Facts, nn.Module):
    """Adapt a model to each batch that it predicts: `method(x)` → main logits (B, C).

    A method works on `model` itself, not on a copy, and sets the mode of its layers. The model
    keeps its modules and its parameters. What a method cannot work with is refused by ValueError
    (refusals.py).

    A subclass says what it updates (`adapted_parameters`) and by which loss (`loss`). Class
    attributes are explained in facts.py. Further options come from other base classes: `copies`
    (augmented_copies.py), `source` (source.py), `memory` (memory.py), `diversity` (diversity.py).

    learning_rate: the step size of an update; a method that never updates makes no use of it.
    predict: which prediction `step` returns. `after`: that of the updated model (the paper).
        `before`: that of the forward pass from which the update was computed (the releases of Tent
        and CoTTA).
    optimizer: `sgd` (Nesterov momentum 0.9) or `adam`; None is the method's own.
    seed: for the method's random draws, which `reset` begins again.
    """

    model: nn.Module

    @torch.inference_mode(False)
    def __init__(
        self,
        model: nn.Module,
        *,
        learning_rate: float = 1e-3,
        predict: Literal["after", "before"] = "after",
        optimizer: OptimizerName | None = None,
        seed: int = 0,
        **others: Any,
    ) -> None:
        super().__init__()
        self.checks = Checks(type(self), model, others)
        self.checks.values(learning_rate, predict, optimizer)
        self.model = model
        self.learning_rate = learning_rate
        self.prediction_time = predict
        self.seed = seed
        self.configure_model()
        parameters = list(dict.fromkeys(self.adapted_parameters()))
        make = OPTIMIZERS[optimizer] if optimizer else self.make_optimizer
        self.optimizer = make(parameters, lr=learning_rate) if self.adapts else None
        self.source_state = Snapshot(self)
        self.checks.before_first_step(self.optimizer)
        self.reset()

    def configure_model(self) -> None:
        """Make BatchNorm use batch statistics, and enable gradients for the adapted parameters
        only.
        """
        self.checks.ordinary_batch_norm()
        self.model.eval()
        use_batch_statistics(self.model)
        self.model.requires_grad_(False)
        for parameter in self.adapted_parameters():
            parameter.requires_grad_(True)

    def adapted_parameters(self) -> list[nn.Parameter]:
        """Return what the method updates: some of the model's own tensors. Nothing else of `model`
        is updated by the optimiser.
        """
        return []

    def scales_and_shifts(self, module: nn.Module) -> list[nn.Parameter]:
        """Return scale and shift of every normalisation layer of `module`.

        Raises ValueError if there are none.
        """
        return scales_and_shifts(self.label, module)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs | None]:
        """Return the loss of a batch, and the outputs for x that it was computed from.

        They are None where it was computed from something else, such as TTT's rotated images.
        """
        raise TypeError(f"{type(self).__name__} adapts, but has no loss")

    def update(self, x: Tensor) -> Outputs | None:
        """Take one step on a batch. Return the outputs of `loss`, which are from before it."""
        assert self.optimizer is not None
        with torch.enable_grad():
            loss, outputs = self.loss(x)
            self.checks.before_backward(loss)
            loss.backward()
        self.checks.after_backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return None if outputs is None else outputs.detached()

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        """Return z (B, C) and a, if there is one, of the model as it is, without an update."""
        return as_outputs(self.model(x))

    def adapt_and_predict(self, x: Tensor) -> Outputs:
        """Update on a batch, if the method adapts, and predict it. `step` calls this."""
        if not self.adapts:
            return self.predict(x)
        before = self.update(x)
        if self.prediction_time == "after":
            return self.predict(x)
        assert before is not None, f"the loss of {self.label} gives no outputs"
        return before

    @torch.inference_mode(False)
    def step(self, x: Tensor) -> Outputs:
        """Adapt to a batch and predict it. It works inside torch.inference_mode too.

        Raises ValueError where the batch gives a BatchNorm only one value per channel.
        """
        if x.is_inference():
            x = x.clone()  # the tensors of inference mode cannot take part in a backward pass
        with self.checks.step(len(x), self.optimizer):
            return self.adapt_and_predict(x)

    def forward(self, x: Tensor) -> Tensor:
        """Adapt to x (B, …), predict it, and return the main logits (B, C)."""
        return self.step(x).main

    def train(self, mode: bool = True) -> Self:
        """Change nothing, because the choice of BatchNorm's statistics is part of the method."""
        return self

    def reset(self) -> None:
        """Go back to the source, and begin the method's random draws again.

        Weights and buffers are written into the same tensors, so the optimiser, whose own state is
        emptied, still owns what it updates.
        """
        self.source_state.restore(self)
        if self.optimizer is not None:
            self.optimizer.state.clear()
            self.optimizer.zero_grad()
        self.generator = torch.Generator().manual_seed(self.seed)  # see augment.generator_for
