"""What every test-time method shares: batch statistics, one step a batch, the order of prediction, and the reset."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from cascadetta_lib.augment.image import cotta_copies
from cascadetta_lib.data.base import Modality
from cascadetta_lib.models import Outputs, as_outputs, batch_norms

Order = Literal["after", "before"]
Copies = Callable[[Tensor, int, torch.Generator], Iterator[Tensor]]
"""copies(x, count, generator): that many versions of a batch that keep its labels, or none."""


class Method(nn.Module):
    """A model that adapts to each batch that it predicts: `method(x)` → main logits (B, C).

    The method works on `model` itself, not on a copy. ERM, AdaBN, Tent and CoTTA take any model that maps a batch to
    logits (B, C) or to `models.Outputs`; the cascade and TTT need the parts of theirs. Subclasses say what they update
    (`adapted_parameters`), how (`make_optimizer`) and by which loss (`loss`); one with `adapts` false never updates.

    predict: `after` records the prediction of the updated model (the paper), `before` that of the forward pass which
    the update was computed from (the releases of Tent and CoTTA).

    What some methods do to images: value_range is black and white in x; copies makes the augmented copies that CoTTA
    averages over (None: its own for images). Other data needs copies of its own, such as Dataset.augmented_copies.
    """

    objective: ClassVar[str] = "meta"
    """The pre-training that the method starts from (a name in pretrain.OBJECTIVES)."""
    label: ClassVar[str]
    """As the paper's tables write it, or our own where the paper has none."""
    in_paper: ClassVar[bool] = False
    """Whether the paper's tables have it as one of the six methods."""
    colour: ClassVar[int]
    """Its colour in every figure: a place in seaborn's palette `colorblind` (0..9), each taken once."""
    adapts: ClassVar[bool] = True
    modalities: ClassVar[tuple[Modality, ...]] = ("image", "text", "speech")
    """What the method is defined for."""
    model: nn.Module

    def __init__(
        self,
        model: nn.Module,
        *,
        learning_rate: float = 1e-3,
        predict: Order = "after",
        value_range: tuple[float, float] = (-1.0, 1.0),
        copies: Copies | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.model = model
        self.learning_rate, self.order, self.value_range, self.seed = learning_rate, predict, value_range, seed
        self.copies = partial(cotta_copies, value_range=value_range) if copies is None else copies
        self.configure_model()
        self.optimizer = self.make_optimizer(self.adapted_parameters()) if self.adapts else None
        self._source = {name: value.detach().clone() for name, value in self.state_dict().items()}
        self.reset()

    def configure_model(self) -> None:
        """Statistics of the current batch in every BatchNorm; gradients for the adapted parameters alone."""
        self.model.eval()
        for norm in batch_norms(self.model):
            # Training mode without tracking: the batch's statistics are used, the running ones stay as they were.
            norm.training, norm.track_running_stats = True, False
        self.model.requires_grad_(False)
        for parameter in self.adapted_parameters():
            parameter.requires_grad_(True)

    def adapted_parameters(self) -> list[nn.Parameter]:
        """The parameters that the method updates: part of the model's own tensors, nothing else changes."""
        return []

    def make_optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """SGD with Nesterov momentum 0.9 (Sec. 6.1)."""
        return torch.optim.SGD(parameters, self.learning_rate, momentum=0.9, nesterov=True)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs | None]:
        """The loss that a batch is adapted by, and the outputs of the same forward pass where it has them."""
        raise TypeError(f"{type(self).__name__} does not adapt")

    def update(self, x: Tensor) -> Outputs | None:
        """One step on a batch; the outputs from before the step where the step computed them."""
        assert self.optimizer is not None
        with torch.enable_grad():
            loss, outputs = self.loss(x)
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if outputs is None:
            return None
        auxiliary = outputs.auxiliary
        return Outputs(outputs.main.detach(), None if auxiliary is None else auxiliary.detach())

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        """z (B, C) and a, if there is one, of the model as it is, without an update."""
        return as_outputs(self.model(x))

    def step(self, x: Tensor) -> Outputs:
        """Adapt to a batch and predict it, in the order that was asked for."""
        if not self.adapts:
            return self.predict(x)
        if self.order == "after":
            self.update(x)
            return self.predict(x)
        before = self.update(x)
        if before is None:
            raise ValueError(f"{self.label} has no prediction before its update; use predict='after'")
        return before

    def forward(self, x: Tensor) -> Tensor:
        """Main logits (B, C)."""
        return self.step(x).main

    def reset(self) -> None:
        """Back to the source: weights and buffers are written into the same tensors, so that the optimiser still owns
        what it updates; its own state is emptied and the method's random draws start again."""
        with torch.no_grad():
            for name, value in self.state_dict().items():
                value.copy_(self._source[name])
        if self.optimizer is not None:
            self.optimizer.state.clear()
            self.optimizer.zero_grad()
        self.generator = torch.Generator().manual_seed(self.seed)
