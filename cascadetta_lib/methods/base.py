"""The base class of all test-time methods: batch statistics, the order of update and prediction,
and the reset.
"""

from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from cascadetta_lib.methods.optimizers import OptimizerName, forget
from cascadetta_lib.methods.refusals import Checks
from cascadetta_lib.methods.updates import Updates
from cascadetta_lib.models import Outputs, as_outputs, use_batch_statistics
from cascadetta_lib.models.snapshot import Snapshot


class Method(Updates):
    """Adapt a model to each batch, and predict the batch: `method(x)` returns main logits (B, C).

    A method works on `model` itself, not on a copy. It changes the modes of the layers, and the
    values of the parameters and their `requires_grad`. A method that blends statistics also adds
    hooks and an attribute `statistics` to the BatchNorm layers. No module and no parameter is
    replaced. Raises ValueError for a model or an option that the method cannot work with
    (refusals.py).

    A subclass defines which parameters are updated, and the loss (updates.py). facts.py explains
    the class attributes. Further base classes add options: `copies` and `value_range`
    (augmented_copies.py), `source` (source.py), `memory` (statistics_memory.py), and `diversity`
    (diversity.py).

    learning_rate: the step size of an update, a number from 0 on. Methods that never update ignore
        it.
    predict: which prediction `step` returns. `after`: the prediction of the updated model, as in
        the paper. `before`: the prediction that the update was computed from, as in the releases of
        Tent and CoTTA.
    optimizer: `sgd` (with Nesterov momentum 0.9) or `adam`, both without weight decay. None: the
        method's own optimiser.
    seed: the seed of the method's random draws, a whole number from 0 on. `reset` starts the draws
        over.
    """

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
        self.checks.require_values(learning_rate, predict, optimizer, seed)
        self.model = model
        self.learning_rate = learning_rate
        self.prediction_time = predict
        self.seed = seed
        self.configure_model()
        self.optimizer = self.build_optimizer(optimizer)
        self.source_state = Snapshot(self)
        self.checks.require_own_parameters(self.optimizer)
        self.modes = [(part, part.training) for part in self.modules() if part is not self]
        self.reset()

    def configure_model(self) -> None:
        """Set BatchNorm to batch statistics, and enable gradients for adapted parameters only."""
        self.checks.require_ordinary_batch_norm()
        self.model.eval()
        use_batch_statistics(self.model)
        self.model.requires_grad_(False)
        for parameter in self.adapted_parameters():
            parameter.requires_grad_(True)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        """Predict a batch (B, …) without an update. Return z (B, C) and a, which is None without
        θ_a.
        """
        return as_outputs(self.model(x))

    def adapt_and_predict(self, x: Tensor) -> Outputs:
        """Update on a batch, if the method ever updates, and predict it. Called by `step`."""
        if not self.adapts:
            return self.predict(x)
        before = self.update(x)
        if self.prediction_time == "after":
            return self.predict(x)
        if before is None:
            raise ValueError(
                f"{self.label}: with predict='before', loss must return outputs, not None"
            )
        return before

    @torch.inference_mode(False)
    def step(self, x: Tensor) -> Outputs:
        """Adapt to a batch (B, …) and return its prediction. Works inside torch.inference_mode,
        too.

        Raises ValueError if the batch is empty, if it gives a BatchNorm only one value per channel,
        or if its loss is not finite (refusals.Checks.require_finite). The first step also raises
        ValueError if the forward pass has replaced parameters of the model, because updates of them
        would be lost (refusals.Checks.require_own_parameters).
        """
        self.restore_modes()
        if x.is_inference():
            x = x.clone()  # tensors of inference mode have no backward pass
        with self.checks.step(len(x), self.optimizer):
            return self.adapt_and_predict(x)

    def forward(self, x: Tensor) -> Tensor:
        """Adapt to x (B, …), predict it, and return the main logits (B, C)."""
        return self.step(x).main

    def train(self, mode: bool = True) -> Self:
        """Change nothing: the method itself chooses the mode of each layer. Return the method."""
        return self

    def restore_modes(self) -> None:
        """Put each layer back into the mode that `configure_model` chose.

        Tools that look at a network, such as torchinfo or a feature extractor, leave all of its
        layers in one mode (findings/looking-at-adabn-switches-it-off.sh). In evaluation mode
        BatchNorm would silently use the source's statistics.
        """
        for part, training in self.modes:
            part.training = training

    def reset(self) -> None:
        """Restore the source's weights and buffers, empty the optimiser's state, and start the
        random draws over.

        The values are written into the existing tensors. So the optimiser still updates the
        parameters of the model.
        """
        self.source_state.restore(self)
        forget(self.optimizer)
        self.checks.answers.clear()
        self.generator = torch.Generator().manual_seed(self.seed)  # see augment.generator_for
