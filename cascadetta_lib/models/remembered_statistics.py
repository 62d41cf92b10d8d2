"""Statistics by which BatchNorm layers normalise in place of those of the batch alone.

A layer is not replaced, because a subclass of BatchNorm may do more than normalise, such as apply
an activation. The layer's own forward runs. In training mode its call of
`torch.nn.functional.batch_norm` is answered with other statistics, and nothing else is changed. In
evaluation mode nothing is changed, except by a class that sets `in_evaluation`.

    RememberedStatistics   the batch, blended with about N earlier examples
    MovingStatistics       moving averages of the mean and of the variance
    PriorStatistics        the batch, blended with the source; nothing is remembered

Remembered statistics are kept in the layer's running statistics and begin as the source's. The
variance of a batch divides by n, as in BatchNorm's own normalisation. PyTorch's running variances
divide by n − 1, and so do the variances in the releases of TEMA and of the source prior.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from cascadetta_lib.models.batch_norm import BatchNorm, batch_norms


class RememberedStatistics(TorchFunctionMode):
    """The batch's statistics, blended with those of about N = `examples` earlier examples.

    A batch of n examples has the weight n/(n + N), and the remembered statistics have the weight
    N/(n + N). With N = 0 the blend is the batch's statistics alone. Raises ValueError for a layer
    without running statistics.
    """

    in_evaluation: ClassVar[bool] = False
    """Whether these statistics replace the layer's own in evaluation mode too."""

    def __init__(self, norm: BatchNorm, examples: int) -> None:
        super().__init__()
        if norm.running_mean is None or norm.running_var is None:
            raise ValueError(
                "a BatchNorm has no running statistics, from which the method starts "
                "(track_running_stats=False); use adabn or tent"
            )
        self.norm = norm
        self.examples = examples
        self.seen: tuple[Tensor, Tensor] | None = None
        """The mean and variance to remember after the last forward pass, (C,) each."""
        self.active = False

    @property
    def mean(self) -> Tensor:
        assert self.norm.running_mean is not None
        return self.norm.running_mean

    @property
    def variance(self) -> Tensor:
        assert self.norm.running_var is not None
        return self.norm.running_var

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is F.batch_norm and (self.norm.training or self.in_evaluation):
            return self.answer(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))

    def answer(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """Return the result that replaces a call of `torch.nn.functional.batch_norm` with these
        arguments.
        """
        return self.normalise(x, weight, bias, eps)

    def normalise(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor:
        """Normalise x (B, C, …) by the blend. The gradient flows through the batch's share."""
        dimensions = [0, *range(2, x.ndim)]
        shape = (-1,) + (1,) * (x.ndim - 2)
        # Under autocast x is in half precision. Statistics never are.
        exact = x.to(self.mean.dtype)
        mean = exact.mean(dimensions)
        # On a CPU this takes a tenth of torch.var_mean's time.
        variance = (exact - mean.view(shape)).square().mean(dimensions)
        mean, variance = self.blend(mean, variance, len(x))
        self.seen = mean.detach(), variance.detach()
        scale = torch.rsqrt(variance + eps)
        if weight is not None:
            scale = weight * scale
        shift = -mean * scale if bias is None else bias - mean * scale
        return torch.addcmul(shift.view(shape), exact, scale.view(shape)).to(x.dtype)

    def blend(self, mean: Tensor, variance: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the mean and variance to normalise by, (C,) each: a blend of the remembered
        statistics with those of a batch.

        mean, variance: those of the batch, (C,) each. count: the number of examples in the batch.
        """
        share = count / (count + self.examples)
        apart = mean - self.mean
        # The variance of a mixture is the variance within its parts plus the variance between their
        # means.
        within = self.variance.lerp(variance, share)
        return self.mean + share * apart, within + share * (1 - share) * apart.square()

    @torch.no_grad()
    def remember(self) -> None:
        """Store the blend of the last forward pass. A second call changes nothing."""
        if self.seen is not None:
            self.mean.copy_(self.seen[0])
            self.variance.copy_(self.seen[1])
            self.seen = None


class MovingStatistics(RememberedStatistics):
    """Separate moving averages of the mean and of the variance: (1 − m)·remembered + m·batch, with
    m = `momentum`.

    With m = 1 these are the batch's statistics alone.
    """

    def __init__(self, norm: BatchNorm, momentum: float = 1.0) -> None:
        super().__init__(norm, 0)
        self.momentum = momentum

    def blend(self, mean: Tensor, variance: Tensor, count: int) -> tuple[Tensor, Tensor]:
        return self.mean.lerp(mean, self.momentum), self.variance.lerp(variance, self.momentum)


class PriorStatistics(RememberedStatistics):
    """Weighted means of the source's statistics and the batch's: (N·source + n·batch)/(N + n).

    Mean and variance are averaged separately. n is the number of examples in the batch, and N is
    `examples`.
    """

    def blend(self, mean: Tensor, variance: Tensor, count: int) -> tuple[Tensor, Tensor]:
        share = count / (count + self.examples)
        return self.mean.lerp(mean, share), self.variance.lerp(variance, share)

    def remember(self) -> None:
        """Do nothing, because the source's statistics never change."""


def give_statistics(module: nn.Module, make: Callable[[BatchNorm], RememberedStatistics]) -> None:
    """Make every BatchNorm layer of `module` normalise by the statistics that `make` returns for
    it.

    Raises ValueError for a compiled network, for a layer without running statistics, and for a
    layer whose own forward does not call F.batch_norm.
    """
    if any(_is_compiled(child) for child in module.modules()):
        raise ValueError(
            "torch.compile fixes the statistics of BatchNorm; pass the network from before "
            "torch.compile, or use adabn or tent"
        )
    made = [(norm, make(norm)) for norm in batch_norms(module)]
    for norm, statistics in made:
        norm.statistics = statistics  # type: ignore[assignment]
        norm.register_forward_pre_hook(_enter)
        norm.register_forward_hook(_leave, always_call=True)
    for norm, _ in made:
        if type(norm).forward is not _BatchNorm.forward:
            _try(norm)


def statistics_of(module: nn.Module) -> Iterator[RememberedStatistics]:
    """Yield the statistics that `give_statistics` gave to BatchNorm layers inside `module`."""
    for norm in batch_norms(module):
        statistics = getattr(norm, "statistics", None)
        if isinstance(statistics, RememberedStatistics):
            yield statistics


def remember(module: nn.Module) -> None:
    """Store the blend of the last forward pass in every BatchNorm layer of `module` to which
    `give_statistics` gave statistics.
    """
    for statistics in statistics_of(module):
        statistics.remember()


def _is_compiled(module: nn.Module) -> bool:
    """Return whether torch.compile made the module, or compiled it in place."""
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None


def _enter(norm: Any, inputs: Any) -> None:
    norm.statistics.seen = None
    norm.statistics.__enter__()
    norm.statistics.active = True


def _leave(norm: Any, inputs: Any, result: Any) -> None:
    if norm.statistics.active:  # False if another hook raised before `_enter` ran
        norm.statistics.active = False
        norm.statistics.__exit__(None, None, None)
    if result is not None and norm.training and norm.statistics.seen is None:
        raise ValueError(
            f"{type(norm).__name__} does not call F.batch_norm, so its statistics cannot be "
            "replaced; use adabn or tent"
        )


@torch.no_grad()
def _try(norm: BatchNorm) -> None:
    """Test a layer that has a forward of its own by passing two examples through it.

    `_leave` raises ValueError if the forward does not call F.batch_norm.
    """
    statistics = next(statistics_of(norm))
    pixels = {nn.BatchNorm1d: 0, nn.BatchNorm2d: 2, nn.BatchNorm3d: 3}
    dimensions = next(count for kind, count in pixels.items() if isinstance(norm, kind))
    modes = norm.training, norm.track_running_stats
    norm.training = True
    norm.track_running_stats = False
    with torch.random.fork_rng(devices=[]):
        norm(statistics.mean.new_zeros(2, norm.num_features, *[2] * dimensions))
    norm.training, norm.track_running_stats = modes
    statistics.seen = None
