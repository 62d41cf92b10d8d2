"""BatchNorm that remembers: the statistics of a batch, blended with those of the batches before it.

A batch of n examples counts n/(n + N) against what is remembered, so the memory holds about N examples whatever the
size of a batch; it begins as the source's running statistics. With N = 0 these are the statistics of the batch alone.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cascadetta_lib.models import batch_norms


class _Memory(_BatchNorm):
    """The memory is the layer's own running statistics, so whatever restores these restores the memory."""

    examples: int
    seen: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(N, C) or (N, C, H, W), normalised by the blend; the gradient flows through the batch's part of it."""
        assert self.running_mean is not None and self.running_var is not None  # give_memory has seen to it
        dimensions = [0, *range(2, x.ndim)]
        variance, mean = torch.var_mean(x, dimensions, correction=0)
        share = len(x) / (len(x) + self.examples)
        apart = mean - self.running_mean
        mean = self.running_mean + share * apart
        # The variance of a mixture: within its parts, and between their means.
        variance = self.running_var.lerp(variance, share) + share * (1 - share) * apart.square()
        self.seen = mean.detach(), variance.detach()
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shape = (-1,) + (1,) * (x.ndim - 2)
        return torch.addcmul((self.bias - mean * scale).view(shape), x, scale.view(shape))

    @torch.no_grad()
    def remember(self) -> None:
        """Keep the blend of the last forward pass."""
        if self.seen is not None and self.running_mean is not None and self.running_var is not None:
            self.running_mean.copy_(self.seen[0])
            self.running_var.copy_(self.seen[1])


class MemoryBatchNorm1d(_Memory, nn.BatchNorm1d):
    """For (N, C)."""


class MemoryBatchNorm2d(_Memory, nn.BatchNorm2d):
    """For (N, C, H, W)."""


def give_memory(model: nn.Module, examples: int) -> None:
    """Turn every BatchNorm of `model` into one that remembers about `examples` examples, over the same tensors.

    Raises ValueError for a BatchNorm without scale, shift or running statistics.
    """
    for norm in list(batch_norms(model)):
        if norm.running_mean is None or not norm.affine:
            raise ValueError("a memory of statistics needs BatchNorm with scale, shift and running statistics")
        norm.__class__ = MemoryBatchNorm1d if isinstance(norm, nn.BatchNorm1d) else MemoryBatchNorm2d
        norm.examples = examples  # type: ignore[assignment]


def memories(model: nn.Module) -> Iterator[_Memory]:
    """Every BatchNorm of `model` that remembers."""
    return (module for module in model.modules() if isinstance(module, _Memory))
