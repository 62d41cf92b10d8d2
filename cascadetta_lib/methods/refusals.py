"""Checks of a method's options and model, when the method is constructed and in its steps. Each
raises ValueError.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cascadetta_lib.allowed import require_choice, require_number, require_whole
from cascadetta_lib.methods.facts import Facts
from cascadetta_lib.methods.optimizers import OPTIMIZERS
from cascadetta_lib.models import (
    NORMALIZATION_LAYERS,
    Outputs,
    batch_norms,
    normalization_parameters,
    require_own_scales,
)
from cascadetta_lib.models.remembered_statistics import statistics_of
from cascadetta_lib.registry import nearest

ABOUT_DATA = ("copies", "value_range", "source")
"""Options about the data. Every method accepts them, and ignores those that it does not need."""
PREDICTIONS = ("after", "before")


def refuse_options(method: type[Facts], given: Mapping[str, Any]) -> None:
    """Refuse options that the method does not have.

    given: the values, by name, of the options that no class of the method takes. Those in
        ABOUT_DATA pass. `diversity` and `memory` pass if they are None or 0. `diversity` also
        passes if the method never updates, since only an update uses it.
    """
    for name, value in given.items():
        if name in ABOUT_DATA or (name == "diversity" and not method.adapts):
            continue
        if name in ("diversity", "memory") and not value:
            continue
        allowed = nearest(name, method.options())
        raise ValueError(f"{method.label} takes no {name} = {value!r}; {allowed}")


def refuse_model(label: str, model: nn.Module) -> None:
    """Refuse a model that no method can work with: TorchScript, or one whose BatchNorm another
    method has given other statistics.
    """
    if any(isinstance(child, torch.jit.ScriptModule) for child in model.modules()):
        raise ValueError(
            f"{label}: TorchScript cannot be adapted; pass the nn.Module that was scripted"
        )
    if any(statistics_of(model)):
        raise ValueError(
            f"{label}: another method gave this model's BatchNorm a memory; take a fresh copy"
        )


def require_ordinary_batch_norm(label: str, model: nn.Module) -> None:
    """Refuse a model with SyncBatchNorm."""
    if any(isinstance(child, nn.SyncBatchNorm) for child in model.modules()):
        raise ValueError(
            f"{label}: SyncBatchNorm needs a process group; give its weights to nn.BatchNorm2d"
        )


def require_batch_norm(label: str, model: nn.Module) -> None:
    """Refuse a model without BatchNorm, for a method that needs the statistics of batches."""
    require_ordinary_batch_norm(label, model)
    if not any(batch_norms(model)):
        name = type(model).__name__
        raise ValueError(
            f"{label} works by the statistics of batches, and {name} has no layer of "
            "nn.BatchNorm1d, 2d or 3d; use tent, erm, lame or cotta"
        )


def scales_and_shifts(label: str, module: nn.Module) -> list[nn.Parameter]:
    """Return scale and shift of every normalisation layer. Refuse a module that has none, or in
    which one is computed from other tensors.
    """
    try:
        require_own_scales(module)
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None
    parameters = normalization_parameters(module)
    if parameters:
        return parameters
    name = type(module).__name__
    if any(isinstance(child, NORMALIZATION_LAYERS) for child in module.modules()):
        raise ValueError(
            f"{label} adapts scales and shifts, and no normalisation layer of {name} has any "
            "(affine=False); use adabn, lame or cotta"
        )
    raise ValueError(
        f"{label}: {name} has no normalisation layer, such as nn.BatchNorm2d or nn.LayerNorm; "
        "use erm, lame or cotta"
    )


def require_full_precision(label: str, parameters: Iterable[Tensor]) -> None:
    """Refuse parameters in half precision, in which steps would be lost."""
    if any(parameter.dtype not in (torch.float32, torch.float64) for parameter in parameters):
        raise ValueError(f"{label} takes steps that are lost in half precision; use model.float()")


def require_gradient(label: str, reached: bool) -> None:
    """Refuse a model if no gradient reaches the adapted parameters, that is if not `reached`."""
    if not reached:
        raise ValueError(
            f"{label}: no gradient reaches the adapted parameters, as happens under "
            "torch.no_grad() in the network's forward; remove it, or use adabn or erm"
        )


MASKING_REMEDY = "mask classes after θ_a, or leave θ_a out (auxiliary_classifier=None)"
"""What to do if θ_a returns NaN because z holds −∞. Two messages end with this text."""


def require_readable_logits(label: str, outputs: Outputs) -> None:
    """Refuse main logits z that hold −∞ if θ_a returns NaN for them."""
    main, auxiliary = outputs
    if auxiliary is None or auxiliary.amax(1).isfinite().all():
        return
    if main.isneginf().any():
        raise ValueError(f"{label}: z holds −∞, and θ_a returns NaN for it; {MASKING_REMEDY}")


@contextmanager
def values_per_channel(label: str, count: int) -> Iterator[None]:
    """Replace PyTorch's error about a single value per channel by one that says what to use
    instead.

    count: the size of the batch.
    """
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise ValueError(
            f"{label}: a batch of {count} gives a BatchNorm 1 value per channel, and it needs at "
            "least 2; use larger batches, erm or source_prior"
        ) from error


class Checks:
    """Check a method and its model, when the method is constructed and in its steps.

    step_taken: whether a step has passed, with or without an update.
    gradients_checked: whether a backward pass has passed the check of gradients.
    """

    def __init__(self, method: type[Facts], model: nn.Module, others: Mapping[str, Any]) -> None:
        """Refuse options that the method does not have, and a model that no method can work with.

        others: the values, by name, of the options that no class of the method takes.
        """
        refuse_options(method, others)
        refuse_model(method.label, model)
        self.label = method.label
        self.model = model
        self.given = dict(model.named_parameters())
        self.step_taken = False
        self.gradients_checked = False

    def require_values(
        self, learning_rate: float, predict: str, optimizer: str | None, seed: int
    ) -> None:
        """Check the options that all methods have."""
        require_number(f"{self.label}: learning_rate", learning_rate)
        require_choice(f"{self.label}: predict", predict, PREDICTIONS)
        require_whole(f"{self.label}: seed", seed)
        if optimizer is not None and optimizer not in list(OPTIMIZERS):
            allowed = nearest(str(optimizer), OPTIMIZERS)
            raise ValueError(
                f"{self.label}: optimizer = {optimizer!r}; {allowed}, or None for its own"
            )

    def require_ordinary_batch_norm(self) -> None:
        """Refuse a model with SyncBatchNorm."""
        require_ordinary_batch_norm(self.label, self.model)

    def require_own_parameters(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Refuse a model whose parameters were replaced since the method began. Refuse an optimiser
        whose tensors are not the model's parameters, or are in half precision.

        optimizer: None checks nothing.
        """
        if optimizer is None:
            return
        now = dict(self.model.named_parameters())
        others = [name for name in self.given | now if self.given.get(name) is not now.get(name)]
        if others:
            raise ValueError(
                f"{self.label}: the network's forward put other tensors in the place of "
                f"{', '.join(others[:3])}, so that steps would be lost; use erm, or a network that "
                "keeps its parameters"
            )
        owned = {id(parameter) for parameter in now.values()}
        for group in optimizer.param_groups:
            require_full_precision(self.label, group["params"])
            if any(id(parameter) not in owned for parameter in group["params"]):
                raise ValueError(
                    f"{self.label}: adapted_parameters returned tensors that are not the model's "
                    "own"
                )

    def before_backward(self, loss: Tensor) -> None:
        """Refuse a loss through which no gradient flows to a parameter."""
        require_gradient(self.label, loss.requires_grad)

    def after_backward(self) -> None:
        """Refuse a model if none of its adapted scales and shifts has a gradient. If some have
        none, warn and name the first of them.

        After one backward pass has passed, later ones are not checked.
        """
        if self.gradients_checked:
            return
        scales = [one for one in normalization_parameters(self.model) if one.requires_grad]
        unreached = {id(scale) for scale in scales if scale.grad is None}
        require_gradient(self.label, not scales or len(unreached) < len(scales))
        self.gradients_checked = True
        if unreached:
            parameters = self.model.named_parameters()
            names = [name for name, parameter in parameters if id(parameter) in unreached]
            warnings.warn(
                f"{self.label}: no gradient reaches {len(unreached)} of {len(scales)} scales and "
                f"shifts, such as {names[0]}: they stay as they are",
                stacklevel=2,
            )

    @contextmanager
    def step(self, count: int, optimizer: torch.optim.Optimizer | None) -> Iterator[None]:
        """Check the step inside `with`, on a batch of `count` examples.

        Refuse a batch that gives a BatchNorm one value per channel. Until one step has passed, also
        refuse a model whose forward pass has replaced parameters.
        """
        with values_per_channel(self.label, count):
            yield
        if not self.step_taken:
            self.require_own_parameters(optimizer)
            self.step_taken = True
