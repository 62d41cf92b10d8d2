"""BatchNorm that remembers: the statistics of a batch, blended with those of the batches before it.

A batch of n examples counts n/(n + N) against what is remembered, which thus counts as N examples,
whatever n is. It begins as the source's running statistics. With N = 0 these are the statistics of
the batch alone.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.models import BatchNorm


class MemoryBatchNorm(nn.BatchNorm2d):
    """Takes the place of `norm`, a BatchNorm1d, 2d or 3d, and shares its tensors. The memory is its
    running statistics. Raises ValueError for a BatchNorm without scale, shift or running
    statistics."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, norm: BatchNorm, examples: int) -> None:
        super().__init__(norm.num_features, norm.eps, device="meta")
        if norm.running_mean is None or norm.running_var is None or not norm.affine:
            raise ValueError(
                "a memory of statistics needs BatchNorm with scale, shift and running statistics"
            )
        self.weight, self.bias = norm.weight, norm.bias
        self.running_mean, self.running_var = norm.running_mean, norm.running_var
        self.num_batches_tracked = norm.num_batches_tracked
        self.examples = examples
        self.seen: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """x, normalised by the blend; the gradient flows through the batch's part of it."""
        dimensions, shape = [0, *range(2, x.ndim)], (-1,) + (1,) * (x.ndim - 2)
        exact = x.to(
            self.running_mean.dtype
        )  # Under autocast x is in half precision, and statistics never are.
        mean = exact.mean(dimensions)
        variance = (
            (exact - mean.view(shape)).square().mean(dimensions)
        )  # a tenth of torch.var_mean's time on a CPU
        mean, variance = self.blend(mean, variance, len(x))
        self.seen = mean.detach(), variance.detach()
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return torch.addcmul((self.bias - mean * scale).view(shape), exact, scale.view(shape)).to(
            x.dtype
        )

    def blend(self, mean: Tensor, variance: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """What is remembered, blended with mean and variance of a batch of `count` examples."""
        share = count / (count + self.examples)
        apart = mean - self.running_mean
        # The variance of a mixture: that within its parts, and that between their means.
        within = self.running_var.lerp(variance, share)
        return self.running_mean + share * apart, within + share * (1 - share) * apart.square()

    @torch.no_grad()
    def remember(self) -> None:
        """Store the blend of the last forward pass; a second call changes nothing."""
        if self.seen is not None:
            self.running_mean.copy_(self.seen[0])
            self.running_var.copy_(self.seen[1])
            self.seen = None


class MovingBatchNorm(MemoryBatchNorm):
    """Remembers moving averages, each of its own: (1 − m)·remembered + m·batch, of the mean and of
    the variance, with m the attribute `momentum`. In evaluation mode it normalises by what is
    remembered."""

    def __init__(self, norm: BatchNorm, momentum: float = 1.0) -> None:
        super().__init__(norm, 0)
        self.momentum: float = momentum

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return super().forward(x)
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )

    def blend(self, mean: Tensor, variance: Tensor, count: int) -> tuple[Tensor, Tensor]:
        return self.running_mean.lerp(mean, self.momentum), self.running_var.lerp(
            variance, self.momentum
        )


def give_memory(module: nn.Module, make: Callable[[BatchNorm], MemoryBatchNorm]) -> None:
    """Put what `make` makes of it in the place of every BatchNorm inside `module`."""
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, BatchNorm):
                setattr(parent, name, make(child))


def memories(module: nn.Module) -> Iterator[MemoryBatchNorm]:
    """Every BatchNorm inside `module` that remembers."""
    return (child for child in module.modules() if isinstance(child, MemoryBatchNorm))
