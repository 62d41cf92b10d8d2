"""Statistics that BatchNorm layers normalise by instead of those of the batch alone.

A layer is never replaced, since a subclass of BatchNorm may do more than normalise: it may apply an
activation. The layer's own forward runs, and only its call of `torch.nn.functional.batch_norm` is
answered with other statistics, in training mode. In evaluation mode nothing changes, unless
`in_evaluation` is set.

    RememberedStatistics   the batch, blended with about N earlier examples
    MovingStatistics       moving averages of the mean and of the variance
    PriorStatistics        the batch, blended with the source, and nothing is remembered

What is remembered is kept in the layer's running statistics and begins as the source's. A variance
divides by n, as in BatchNorm's own normalisation. PyTorch's running variances divide by n − 1, and
the releases of TEMA and of the source prior use those.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from cascadetta_lib.models.batch_norm import BatchNorm, batch_norms


class RememberedStatistics(TorchFunctionMode):
    """The batch's statistics, blended with those of about `examples` earlier examples.

    A batch of n examples has the weight n/(n + N), with N = `examples`, and what is remembered has
    the weight N/(n + N). With N = 0 these are the batch's statistics alone. Raises ValueError for a
    layer without running statistics.
    """

    in_evaluation: ClassVar[bool] = False
    """Whether it takes the place of batch_norm in evaluation mode too."""

    def __init__(self, norm: BatchNorm, examples: int) -> None:
        super().__init__()
        if norm.running_mean is None or norm.running_var is None:
            raise ValueError(
                "a BatchNorm has no running statistics to begin with (track_running_stats=False); "
                "use adabn or tent"
            )
        self.norm = norm
        self.examples = examples
        self.seen: tuple[Tensor, Tensor] | None = None
        """Mean and variance that the last forward pass normalised by, (C,) each."""
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
        """Return what takes the place of `torch.nn.functional.batch_norm` with these arguments."""
        return self.normalise(x, weight, bias, eps)

    def normalise(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor:
        """Normalise x (B, C, …) by the blend. The gradient flows through the batch's share."""
        dimensions = [0, *range(2, x.ndim)]
        shape = (-1,) + (1,) * (x.ndim - 2)
        # Under autocast x is in half precision, and statistics never are.
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
        """Return the blend of what is remembered with a batch's mean and variance, (C,) each.

        count: the examples of the batch.
        """
        share = count / (count + self.examples)
        apart = mean - self.mean
        # The variance of a mixture: variance within its parts, plus variance between their means.
        within = self.variance.lerp(variance, share)
        return self.mean + share * apart, within + share * (1 - share) * apart.square()

    @torch.no_grad()
    def remember(self) -> None:
        """Store the blend of the last forward pass; a second call changes nothing."""
        if self.seen is not None:
            self.mean.copy_(self.seen[0])
            self.variance.copy_(self.seen[1])
            self.seen = None


class MovingStatistics(RememberedStatistics):
    """Separate moving averages of the mean and of the variance: (1 − m)·remembered + m·batch, with
    m = `momentum`.
    """

    def __init__(self, norm: BatchNorm, momentum: float = 1.0) -> None:
        super().__init__(norm, 0)
        self.momentum = momentum

    def blend(self, mean: Tensor, variance: Tensor, count: int) -> tuple[Tensor, Tensor]:
        return self.mean.lerp(mean, self.momentum), self.variance.lerp(variance, self.momentum)


class PriorStatistics(RememberedStatistics):
    """(N·source + n·batch)/(N + n), of the mean and of the variance, for a batch of n examples."""

    def blend(self, mean: Tensor, variance: Tensor, count: int) -> tuple[Tensor, Tensor]:
        share = count / (count + self.examples)
        return self.mean.lerp(mean, share), self.variance.lerp(variance, share)

    def remember(self) -> None:
        """Do nothing, since the source's statistics are blended in and never change."""


def give_statistics(module: nn.Module, make: Callable[[BatchNorm], RememberedStatistics]) -> None:
    """Let every BatchNorm layer of `module` normalise by the statistics that `make` returns for it.

    Raises ValueError for a layer without running statistics, for a forward of its own that does not
    call F.batch_norm, and for a compiled network.
    """
    if any(_is_compiled(child) for child in module.modules()):
        raise ValueError(
            "a compiled network keeps BatchNorm's own statistics; pass the network that was "
            "compiled, or use adabn or tent"
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
    """Let every BatchNorm layer inside `module` that has a memory remember its last batch."""
    for statistics in statistics_of(module):
        statistics.remember()


@contextmanager
def keep_statistics(module: nn.Module) -> Iterator[None]:
    """Restore, on leaving `with`, what a module remembered before it."""
    kept = [(given, given.mean.clone(), given.variance.clone()) for given in statistics_of(module)]
    try:
        yield
    finally:
        for given, mean, variance in kept:
            given.mean.copy_(mean)
            given.variance.copy_(variance)


def _is_compiled(module: nn.Module) -> bool:
    """Return whether torch.compile made the module, or compiled it in place."""
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None


def _enter(norm: Any, inputs: Any) -> None:
    norm.statistics.seen = None
    norm.statistics.__enter__()
    norm.statistics.active = True


def _leave(norm: Any, inputs: Any, result: Any) -> None:
    if norm.statistics.active:  # False if an earlier hook raised, so that `_enter` never ran
        norm.statistics.active = False
        norm.statistics.__exit__(None, None, None)
    if result is not None and norm.training and norm.statistics.seen is None:
        raise ValueError(
            f"{type(norm).__name__} does not call F.batch_norm, which alone can be given other "
            "statistics; use adabn or tent"
        )


@torch.no_grad()
def _try(norm: BatchNorm) -> None:
    """Pass two examples through a layer with a forward of its own.

    Raises ValueError if that does not call F.batch_norm; see `_leave`.
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
