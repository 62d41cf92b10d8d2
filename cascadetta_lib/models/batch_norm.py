"""BatchNorm layers and their parameters."""

from collections.abc import Iterator

from torch import nn

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


def batch_norms(module: nn.Module) -> Iterator[BatchNorm]:
    """Every BatchNorm layer of `module`."""
    return (child for child in module.modules() if isinstance(child, BatchNorm))


def batch_norm_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Scale and shift of every BatchNorm layer of `module` that has them."""
    return [
        parameter
        for norm in batch_norms(module)
        if norm.affine
        for parameter in (norm.weight, norm.bias)
    ]
