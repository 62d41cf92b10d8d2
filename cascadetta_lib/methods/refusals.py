"""Checks of a method's options and model, when the method is constructed and in its steps. Each
raises ValueError.
"""

import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cascadetta_lib.allowed import require_choice, require_number, require_seed
from cascadetta_lib.methods.facts import Facts
from cascadetta_lib.methods.optimizers import OPTIMIZERS
from cascadetta_lib.models import (
    NORMALIZATION_LAYERS,
    Outputs,
    batch_norms,
    normalization_parameters,
    require_own_scales,
)
from cascadetta_lib.models.batch_norm import explaining_one_value
from cascadetta_lib.models.remembered_statistics import statistics_of
from cascadetta_lib.registry import nearest

ABOUT_DATA = ("copies", "value_range", "source")
"""Options about the data. Every method accepts them, and ignores those that it does not need."""
PREDICTIONS = ("after", "before")


def refuse_options(method: type[Facts], given: Mapping[str, Any]) -> None:
    """Refuse options that the method does not have.

    given: the values of all options that neither the method's class nor a base class takes, by
        name. The options in ABOUT_DATA pass. `diversity` and `memory` pass if they are None or 0.
        `diversity` also passes if the method never updates, since only an update uses it.
    """
    for name, value in given.items():
        if name in ABOUT_DATA or (name == "diversity" and not method.adapts):
            continue
        is_off = value is None or (isinstance(value, Real) and value == 0)
        if name in ("diversity", "memory") and is_off:
            continue
        allowed = nearest(name, method.options())
        raise ValueError(f"{method.label} has no option {name} (given {value!r}); {allowed}")


def refuse_model(label: str, model: nn.Module) -> None:
    """Refuse a model that no method can work with: a TorchScript model, or a model in which another
    method has already replaced the statistics of BatchNorm.
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
            f"{label}: SyncBatchNorm needs a process group; replace each layer by nn.BatchNorm2d "
            "with the same weights"
        )


def require_batch_norm(label: str, model: nn.Module) -> None:
    """Refuse a model without BatchNorm, for a method that needs the statistics of batches."""
    require_ordinary_batch_norm(label, model)
    if not any(batch_norms(model)):
        name = type(model).__name__
        raise ValueError(
            f"{label} needs BatchNorm, but {name} has no nn.BatchNorm1d, 2d or 3d; use tent, erm, "
            "lame or cotta"
        )


def scales_and_shifts(label: str, module: nn.Module) -> list[nn.Parameter]:
    """Return scale and shift of every normalisation layer. Refuse a module without scales and
    shifts, or with a scale or shift that is computed from other tensors.
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
            f"{label} adapts scales and shifts, but those of {name}'s normalisation layers are "
            "switched off (affine=False); use adabn, lame or cotta"
        )
    raise ValueError(
        f"{label}: {name} has no normalisation layer, such as nn.BatchNorm2d or nn.LayerNorm; "
        "use erm, lame or cotta"
    )


def require_full_precision(label: str, parameters: Iterable[Tensor]) -> None:
    """Refuse parameters in half precision, in which steps would be lost."""
    if any(parameter.dtype not in (torch.float32, torch.float64) for parameter in parameters):
        raise ValueError(
            f"{label}: its steps are too small for half precision; convert the model with "
            "model.float()"
        )


def require_gradient(label: str, reached: bool) -> None:
    """Refuse a model if `reached` is False: no gradient reaches the adapted parameters."""
    if not reached:
        raise ValueError(
            f"{label}: no gradient reaches the adapted parameters; if the network's forward uses "
            "torch.no_grad(), remove that, otherwise use adabn or erm"
        )


FINITE_REMEDY = "check the batch and the network's logits, or lower learning_rate"
"""What to do if a loss or logits are not finite. Two messages end with this text."""

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
    """Replace PyTorch's error about a single value per channel by a ValueError that says what to
    use instead.

    count: the size of the batch.
    """
    message = (
        f"{label}: with a batch of {count} a BatchNorm sees 1 value per channel, but needs at "
        "least 2; use larger batches, erm or source_prior"
    )
    with explaining_one_value(message):
        yield


class Answer(NamedTuple):
    """What a GPU says of some values.

    are_finite: whether the values are finite, as a bool tensor on the CPU. Its content is valid
        only after the event `copied`.
    copied: the event that is complete once `are_finite` has been copied to the CPU.
    """

    are_finite: Tensor
    copied: torch.cuda.Event


class Checks:
    """Check a method and its model, when the method is constructed and in its steps.

    step_taken: whether a step has been completed, with or without an update.
    gradients_checked: whether the gradients of a backward pass have been checked and accepted.
    answers: checks of `require_finite` whose results have not been read from a GPU yet, the oldest
        first.
    """

    def __init__(self, method: type[Facts], model: nn.Module, others: Mapping[str, Any]) -> None:
        """Refuse options that the method does not have, and a model that no method can work with.

        others: the values of all options that neither the method's class nor a base class takes,
            by name.
        """
        refuse_options(method, others)
        refuse_model(method.label, model)
        self.label = method.label
        self.model = model
        self.given = dict(model.named_parameters())
        self.step_taken = False
        self.gradients_checked = False
        self.answers: deque[Answer] = deque()

    def require_values(
        self, learning_rate: float, predict: str, optimizer: str | None, seed: int
    ) -> None:
        """Check the options that all methods have."""
        require_number(f"{self.label}: learning_rate", learning_rate)
        require_choice(f"{self.label}: predict", predict, PREDICTIONS)
        require_seed(f"{self.label}: seed", seed)
        if optimizer is not None and optimizer not in list(OPTIMIZERS):
            allowed = nearest(str(optimizer), OPTIMIZERS)
            raise ValueError(
                f"{self.label}: optimizer = {optimizer!r}; None means its own, otherwise {allowed}"
            )

    def require_ordinary_batch_norm(self) -> None:
        """Refuse a model with SyncBatchNorm."""
        require_ordinary_batch_norm(self.label, self.model)

    def require_own_parameters(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Refuse a model whose parameters were replaced after the method was constructed. Refuse an
        optimiser whose tensors are not the model's parameters, or are in half precision.

        optimizer: if it is None, nothing is checked.
        """
        if optimizer is None:
            return
        now = dict(self.model.named_parameters())
        others = [name for name in self.given | now if self.given.get(name) is not now.get(name)]
        if others:
            raise ValueError(
                f"{self.label}: the network's forward replaces its parameters "
                f"{', '.join(others[:3])}, so updates of them would be lost; use erm, or a network "
                "that keeps its parameters"
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

        After a backward pass has been accepted, later backward passes are not checked.
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

    def require_finite(self, values: Tensor) -> None:
        """Refuse a loss, or logits (B, C), that are not finite. Logits may be −∞ for some classes
        of an example, but not for all.

        On a GPU the step does not wait for the result. The first step that begins after the result
        has arrived reads it, and raises the error then.
        """
        largest = values.detach().amax(-1) if values.ndim else values.detach()
        are_finite = largest.isfinite().all()
        if are_finite.is_cuda:
            copied = are_finite.to("cpu", non_blocking=True)
            stream = torch.cuda.current_stream(are_finite.device)
            self.answers.append(Answer(copied, stream.record_event()))
        elif are_finite.is_cpu and not are_finite:
            raise ValueError(
                f"{self.label}: the batch or the network gave NaN or infinity; {FINITE_REMEDY}"
            )

    def require_earlier_finite(self) -> None:
        """Refuse the step if a result that has arrived from a GPU says that the values of an
        earlier step were not finite.
        """
        while self.answers and self.answers[0].copied.query():
            if not self.answers.popleft().are_finite:
                self.answers.clear()
                raise ValueError(
                    f"{self.label}: the batch or the network gave NaN or infinity in an earlier "
                    "step, from which the model may have learned; call reset(), and "
                    f"{FINITE_REMEDY}"
                )

    @contextmanager
    def step(self, count: int, optimizer: torch.optim.Optimizer | None) -> Iterator[None]:
        """Check the step inside `with`, on a batch of `count` examples.

        Refuse an empty batch, and a batch that gives a BatchNorm a single value per channel. On a
        GPU, refuse the step if a result that has arrived says that values of an earlier step were
        not finite (`require_earlier_finite`). Until a step has been completed, also refuse a model
        whose forward pass has replaced parameters (`require_own_parameters`).
        """
        if not count:
            raise ValueError(f"{self.label}: the batch is empty; allowed is at least 1 example")
        self.require_earlier_finite()
        with values_per_channel(self.label, count):
            yield
        if not self.step_taken:
            self.require_own_parameters(optimizer)
            self.step_taken = True
