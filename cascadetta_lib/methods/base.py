"""What every test-time method shares: batch statistics, one step a batch, the order of prediction,
and the reset.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from cascadetta_lib.augment.image import cotta_copies
from cascadetta_lib.data.base import Copies, Dataset, Modality
from cascadetta_lib.methods.memory import MemoryBatchNorm, give_memory, memories
from cascadetta_lib.models import Outputs, as_outputs, batch_norm_parameters, batch_norms

OptimizerName = Literal["sgd", "adam"]
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, momentum=0.9, nesterov=True),
    "adam": torch.optim.Adam,
}
"""What can take the place of a method's own; sgd is the paper's (Sec. 6.1)."""


class Method(nn.Module):
    """A model that adapts to each batch that it predicts: `method(x)` → main logits (B, C).

    It works on `model` itself, not on a copy, and sets the mode of its layers. All but TTT and the
    cascades take any model whose result `models.as_outputs` understands. A model that a method
    cannot work with is refused by ValueError. A subclass says what it updates
    (`adapted_parameters`), how (`make_optimizer`) and by which loss (`loss`).

    predict: `after` gives the prediction of the updated model (the paper), `before` that of the
        forward pass which the update was computed from (the releases of Tent and CoTTA).
        value_range: black and white in images x.
    copies: makes the augmented copies that CoTTA, RoTTA and ROID learn from. "image" is CoTTA's
        augmentation of RGB images; other data needs its own, such as Dataset.augmented_copies, or
        None for no copies. diversity: the weight of the entropy of the mean prediction, which
        entropy-based losses then also raise. memory: BatchNorm blends the batch's statistics with
        those of about this many earlier examples (methods/memory.py). The paper has neither of
        these two.
    optimizer: see OPTIMIZERS. None is the method's own, of these three. source: examples of what
    the model was trained on, prepared and without labels, (N, …); for methods that need them.

    Class attributes: its name in tables (`label`), the pre-training that it starts from
    (`objective`, of a modality `objective_elsewhere`), whether it ever updates (`adapts`), for what
    it is defined (`modalities`), whether it needs `source`, and whether the last forward pass of an
    update is that of the batch as it is, which a memory takes in (`ends_with_batch`); and the
    BatchNorm that a memory makes (`memory_norm`).
    """

    label: ClassVar[str]
    objective: ClassVar[str] = "meta"
    objective_elsewhere: ClassVar[Mapping[Modality, str]] = {}
    adapts: ClassVar[bool] = True
    modalities: ClassVar[tuple[Modality, ...]] = ("image", "text", "speech")
    needs_source: ClassVar[bool] = False
    ends_with_batch: ClassVar[bool] = True
    make_optimizer: ClassVar[Callable[..., torch.optim.Optimizer]] = staticmethod(OPTIMIZERS["sgd"])
    """The method's own optimiser, called with parameters and lr: here SGD with Nesterov momentum
    0.9 (Sec. 6.1).
    """
    diversity: float = 0.0
    memory: int = 0
    memory_norm: ClassVar[type[MemoryBatchNorm]] = MemoryBatchNorm
    model: nn.Module

    @torch.inference_mode(False)
    def __init__(
        self,
        model: nn.Module,
        *,
        learning_rate: float = 1e-3,
        predict: Literal["after", "before"] = "after",
        value_range: tuple[float, float] = (-1.0, 1.0),
        copies: Copies | Literal["image"] | None = "image",
        diversity: float | None = None,
        memory: int | None = None,
        optimizer: OptimizerName | None = None,
        source: Tensor | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.model = model
        self.diversity = self.diversity if diversity is None else diversity
        self.memory = self.memory if memory is None else memory
        self.learning_rate, self.prediction_time, self.seed = learning_rate, predict, seed
        self.value_range, self.copies, self.source = value_range, copies, source
        if self.needs_source and (source is None or not len(source)):
            raise ValueError(
                f"{self.label} needs examples that the model was trained on; pass them as source="
            )
        if any(memories(model)):
            raise ValueError(
                f"{self.label}: another method gave this model's BatchNorm a memory; take a fresh "
                "copy"
            )
        if self.memory and predict == "before" and not self.ends_with_batch:
            raise ValueError(
                f"{self.label} would remember other examples than the batch; memory needs "
                "predict='after'"
            )
        self.configure_model()
        parameters = self.adapted_parameters()
        if any(parameter.dtype not in (torch.float32, torch.float64) for parameter in parameters):
            raise ValueError(
                f"{self.label} takes steps that are lost in half precision; use model.float()"
            )
        make = OPTIMIZERS[optimizer] if optimizer else self.make_optimizer
        self.optimizer = make(parameters, lr=learning_rate) if self.adapts else None
        self._source = {name: value.detach().clone() for name, value in self.state_dict().items()}
        self.reset()

    @classmethod
    def objective_on(cls, modality: Modality) -> str:
        return cls.objective_elsewhere.get(modality, cls.objective)

    @classmethod
    def source_of(cls, dataset: Dataset, most: int = 2000) -> Tensor | None:
        """What `source` is on a dataset: its first `most` held-out source examples, or None for a
        method that does without. ValueError where the dataset has no source."""
        if not cls.needs_source:
            return None
        if not len(dataset.held_out.x):
            lack = f"{cls.label} needs {dataset.unit} of the source, and {dataset.name} has none"
            raise ValueError(f"{lack}; another dataset has them, or another method needs none")
        return dataset.prepare(dataset.held_out.x[:most])

    def configure_model(self) -> None:
        """Statistics of the current batch in every BatchNorm; gradients for the adapted parameters
        alone.
        """
        if any(isinstance(child, nn.SyncBatchNorm) for child in self.model.modules()):
            raise ValueError(
                f"{self.label}: SyncBatchNorm needs a process group; give its weights to "
                "nn.BatchNorm2d"
            )
        if self.memory:
            give_memory(self, partial(self.memory_norm, examples=self.memory))
        self.model.eval()
        for norm in batch_norms(self.model):
            # Training mode without tracking: the batch's statistics are used, the running ones stay
            # as they were.
            norm.training, norm.track_running_stats = True, False
        self.model.requires_grad_(False)
        for parameter in self.adapted_parameters():
            parameter.requires_grad_(True)

    def require_batch_norm(self, module: nn.Module) -> None:
        if not any(batch_norms(module)):
            name = type(module).__name__
            raise ValueError(
                f"{self.label}: {name} has no layer of nn.BatchNorm1d, 2d or 3d; use erm or cotta"
            )

    def require_rgb(self) -> None:
        """ValueError where the augmented copies are those of RGB images, and every convolution sees
        something else.
        """
        convolutions = [child for child in self.model.modules() if isinstance(child, nn.Conv2d)]
        if (
            self.copies == "image"
            and convolutions
            and all(child.in_channels != 3 for child in convolutions)
        ):
            name = type(self.model).__name__
            raise ValueError(
                f"{self.label} augments RGB images, but {name} takes none; pass copies=None or a "
                "function"
            )

    def scales_and_shifts(self, module: nn.Module) -> list[nn.Parameter]:
        """Scale and shift of every BatchNorm layer of `module`; ValueError where there is none, or
        one without them.
        """
        self.require_batch_norm(module)
        if not all(norm.affine for norm in batch_norms(module)):
            raise ValueError(
                f"{self.label} adapts scale and shift, and a BatchNorm has none (affine=False); "
                "use adabn"
            )
        return batch_norm_parameters(module)

    def adapted_parameters(self) -> list[nn.Parameter]:
        """The parameters that the method updates: some of the model's own tensors. Nothing else
        changes.
        """
        return []

    def copies_of(self, x: Tensor) -> Copies | None:
        """What makes augmented copies of such a batch; ValueError where that needs RGB images, and
        x is none.
        """
        if self.copies != "image":
            return self.copies
        if x.ndim != 4 or x.shape[1] != 3:
            shape = tuple(x.shape)
            raise ValueError(
                f"{self.label} augments RGB images, not {shape}; pass copies=None or a function"
            )
        return partial(cotta_copies, value_range=self.value_range)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs | None]:
        """The loss that a batch is adapted by, and the outputs of the same forward pass where it
        has them.
        """
        raise TypeError(f"{type(self).__name__} adapts, but has no loss")

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
        main, auxiliary = outputs
        return Outputs(main.detach(), None if auxiliary is None else auxiliary.detach())

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        """z (B, C) and a, if there is one, of the model as it is, without an update."""
        return as_outputs(self.model(x))

    @torch.inference_mode(False)
    def step(self, x: Tensor) -> Outputs:
        """Adapt to a batch and predict it, in the order that was asked for. Works inside
        torch.inference_mode too.
        """
        if x.is_inference():
            x = x.clone()  # the tensors of inference mode cannot take part in a backward pass
        before = self.update(x) if self.adapts else None
        if self.adapts and self.prediction_time == "before":
            assert before is not None, f"the loss of {self.label} gives no outputs"
            outputs = before
        else:
            outputs = self.predict(x)
        self.remember()
        return outputs

    def remember(self) -> None:
        """Take the batch just seen into the memory of statistics, if there is one; `step` does it
        by itself.
        """
        for norm in memories(self):
            norm.remember()

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Inside, `predict` followed by `remember` leaves no trace: the memory is as before on
        leaving.
        """
        kept = [(buffer, buffer.clone()) for norm in memories(self) for buffer in norm.buffers()]
        try:
            yield
        finally:
            for buffer, value in kept:
                buffer.copy_(value)

    def forward(self, x: Tensor) -> Tensor:
        """Main logits (B, C)."""
        return self.step(x).main

    def train(self, mode: bool = True) -> Self:
        """Changes nothing: which statistics BatchNorm uses is part of the method."""
        return self

    def reset(self) -> None:
        """Back to the source. Weights and buffers are written into the same tensors, so that the
        optimiser still owns what it updates; its own state is emptied, and the method's random
        draws start again."""
        for name in self._buffers.keys() - self._source.keys():
            setattr(self, name, None)  # Only the first batch tells its shape.
        self.load_state_dict(self._source)
        if self.optimizer is not None:
            self.optimizer.state.clear()
            self.optimizer.zero_grad()
        self.generator = torch.Generator().manual_seed(self.seed)  # see augment.generator_for

    def cost(self, batches: Sequence[Tensor]) -> dict[str, float]:
        """What adapting to a batch and predicting it takes, the mean over several. Resets the
        method before and after.

        work: floating-point operations of a step over those of one forward pass of the network: 1
        where nothing is adapted (LAME adds a little), 3 for Tent, which goes forward, backward,
        forward. memory: the numbers it keeps beside the network, the optimiser's too, over those of
        the network; not the weights that `reset` goes back to.
        """
        self.reset()
        with FlopCounterMode(display=False) as forward, torch.no_grad():
            _ = [self.model(x) for x in batches]
        with FlopCounterMode(display=False) as step:
            _ = [self.step(x) for x in batches]
        network = {id(value) for value in self.model.state_dict(keep_vars=True).values()}
        kept = [
            value for value in self.state_dict(keep_vars=True).values() if id(value) not in network
        ]
        for state in self.optimizer.state.values() if self.optimizer else ():
            kept += [value for value in state.values() if isinstance(value, Tensor)]
        self.reset()
        size = sum(value.numel() for value in self.model.state_dict().values())
        work = step.get_total_flops() / forward.get_total_flops()
        return {"work": work, "memory": sum(value.numel() for value in kept) / size}
