"""BatchNorm layers and their parameters. Whose statistics a layer may use is in statistics.py."""

from collections.abc import Iterator

from torch import nn

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


def batch_norms(module: nn.Module) -> Iterator[BatchNorm]:
    """Yield every BatchNorm layer of `module` once, subclasses included."""
    return (child for child in module.modules() if isinstance(child, BatchNorm))


def batch_norm_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Return scale and shift of every BatchNorm layer of `module`, where it has them, each once."""
    found: dict[nn.Parameter, None] = {}
    for norm in batch_norms(module):
        for parameter in (norm.weight, norm.bias):
            if parameter is not None:
                found[parameter] = None
    return list(found)


def use_batch_statistics(module: nn.Module) -> None:
    """Let every BatchNorm layer normalise by its batch and leave its running statistics alone."""
    for norm in batch_norms(module):
        norm.training = True
        norm.track_running_stats = False
