"""What every test-time method shares: batch statistics, one step a batch, the order of prediction, and the reset."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from cascadetta_lib.augment.image import cotta_copies
from cascadetta_lib.data.base import Copies, Modality
from cascadetta_lib.methods.memory import give_memory, memories
from cascadetta_lib.models import Outputs, as_outputs, batch_norms
from cascadetta_lib.pretrain import information_loss

Order = Literal["after", "before"]


class Method(nn.Module):
    """A model that adapts to each batch that it predicts: `method(x)` → main logits (B, C).

    The method works on `model` itself, not on a copy. ERM, AdaBN, Tent and CoTTA take any model that maps a batch to
    logits (B, C) or to `models.Outputs`; the cascade and TTT need the parts of theirs. Subclasses say what they update
    (`adapted_parameters`), how (`make_optimizer`) and by which loss (`loss`); one with `adapts` false never updates.

    predict: `after` records the prediction of the updated model (the paper), `before` that of the forward pass which
    the update was computed from (the releases of Tent and CoTTA).

    value_range: black and white in images x. copies: makes the augmented copies that CoTTA averages over. "image" is
    its own augmentation of images; other data needs its own, such as Dataset.augmented_copies, or None for no copies.

    Three things that the paper does not have, each None for the method's own value (class attributes, off unless a
    method says otherwise):
    diversity: the weight of the entropy of the mean prediction, which entropy-based losses then also raise.
    drift_bound: after each step the adapted parameters are brought back to within this share of their source norm.
    memory: statistics of about this many earlier examples are blended with the batch's (see methods/memory.py).
    """

    objective: ClassVar[str] = "meta"
    """The pre-training that the method starts from (a name in pretrain.OBJECTIVES) …"""
    objective_elsewhere: ClassVar[Mapping[Modality, str]] = {}
    """… and where data of a modality calls for another; `objective_on` reads both."""
    label: ClassVar[str]
    """As the paper's tables write it, or our own where the paper has none."""
    in_paper: ClassVar[bool] = False
    """Whether the paper's tables have it as one of the six methods."""
    colour: ClassVar[int]
    """Its colour in every figure: a place in report.PALETTE (0..17), each taken once."""
    adapts: ClassVar[bool] = True
    modalities: ClassVar[tuple[Modality, ...]] = ("image", "text", "speech")
    """What the method is defined for."""
    diversity: float = 0.0
    drift_bound: float = math.inf
    memory: int = 0
    model: nn.Module

    def __init__(
        self,
        model: nn.Module,
        *,
        learning_rate: float = 1e-3,
        predict: Order = "after",
        value_range: tuple[float, float] = (-1.0, 1.0),
        copies: Copies | Literal["image"] | None = "image",
        diversity: float | None = None,
        drift_bound: float | None = None,
        memory: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.model = model
        self.diversity = self.diversity if diversity is None else diversity
        self.drift_bound = self.drift_bound if drift_bound is None else drift_bound
        self.memory = self.memory if memory is None else memory
        self.learning_rate, self.order, self.value_range, self.seed = learning_rate, predict, value_range, seed
        self.copies = partial(cotta_copies, value_range=value_range) if copies == "image" else copies
        self.configure_model()
        parameters = self.adapted_parameters()
        self.optimizer = self.make_optimizer(parameters) if self.adapts else None
        self._adapted = [(parameter, parameter.detach().clone()) for parameter in parameters]
        self._source = {name: value.detach().clone() for name, value in self.state_dict().items()}
        self.reset()

    @classmethod
    def objective_on(cls, modality: Modality) -> str:
        """The pre-training that the method starts from on data of a modality."""
        return cls.objective_elsewhere.get(modality, cls.objective)

    def configure_model(self) -> None:
        """Statistics of the current batch in every BatchNorm; gradients for the adapted parameters alone."""
        if self.memory:
            give_memory(self.model, self.memory)
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

    def uncertainty(self, logits: Tensor) -> Tensor:
        """What entropy-based methods minimise, of logits (B, C): the mean entropy, less `diversity` times that of the
        mean prediction."""
        return information_loss(logits, self.diversity)

    def update(self, x: Tensor) -> Outputs | None:
        """One step on a batch; the outputs from before the step where the step computed them."""
        assert self.optimizer is not None
        with torch.enable_grad():
            loss, outputs = self.loss(x)
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._bound_drift()
        if outputs is None:
            return None
        auxiliary = outputs.auxiliary
        return Outputs(outputs.main.detach(), None if auxiliary is None else auxiliary.detach())

    @torch.no_grad()
    def _bound_drift(self) -> None:
        """Where the adapted parameters, as one vector, are too far from the source's, the nearest point that is not."""
        if math.isinf(self.drift_bound):
            return
        drift = math.sqrt(sum((now - source).square().sum().item() for now, source in self._adapted))
        allowed = self.drift_bound * math.sqrt(sum(source.square().sum().item() for _, source in self._adapted))
        if drift > allowed:
            for now, source in self._adapted:
                now.copy_(torch.lerp(source, now, allowed / drift))

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        """z (B, C) and a, if there is one, of the model as it is, without an update."""
        return as_outputs(self.model(x))

    def step(self, x: Tensor) -> Outputs:
        """Adapt to a batch and predict it, in the order that was asked for."""
        before = self.update(x) if self.adapts else None
        if self.adapts and self.order == "before":
            if before is None:
                raise ValueError(f"{self.label} has no prediction before its update; use predict='after'")
            outputs = before
        else:
            outputs = self.predict(x)
        self.remember()
        return outputs

    def remember(self) -> None:
        """Take the batch just seen into the memory of statistics, if there is one; `step` does it by itself."""
        for norm in memories(self):
            norm.remember()

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Inside, `predict` followed by `remember` leaves no trace: the memory is as before on leaving."""
        kept = [(buffer, buffer.clone()) for norm in memories(self) for buffer in norm.buffers()]
        try:
            yield
        finally:
            for buffer, value in kept:
                buffer.copy_(value)

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
