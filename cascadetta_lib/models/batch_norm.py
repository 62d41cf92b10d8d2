"""Find normalisation layers and their scales and shifts, and let BatchNorm use batch statistics.

remembered_statistics.py has the other statistics that BatchNorm can use.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
NORMALIZATION_LAYERS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)
"""The layers whose scales and shifts methods adapt."""


def batch_norms(module: nn.Module) -> Iterator[BatchNorm]:
    """Yield every BatchNorm layer of `module` once, subclasses included."""
    return (child for child in module.modules() if isinstance(child, BatchNorm))


def normalization_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Return the scales and shifts of all normalisation layers of `module`, each once. Layers
    without them are skipped.
    """
    found: dict[nn.Parameter, None] = {}
    for layer in module.modules():
        if not isinstance(layer, NORMALIZATION_LAYERS):
            continue
        for parameter in (layer.weight, getattr(layer, "bias", None)):
            if isinstance(parameter, nn.Parameter):
                found[parameter] = None
    return list(found)


def require_own_scales(module: nn.Module) -> None:
    """Raise ValueError if the scale or shift of a normalisation layer is not a parameter, as under
    a parametrisation. A step would not move it.
    """
    for layer in module.modules():
        if not isinstance(layer, NORMALIZATION_LAYERS):
            continue
        for name in ("weight", "bias"):
            tensor = getattr(layer, name, None)
            if isinstance(tensor, Tensor) and not isinstance(tensor, nn.Parameter):
                raise ValueError(
                    f"{name} of a {type(layer).__name__} is computed from other tensors, so a step "
                    "would not move it; apply "
                    "torch.nn.utils.parametrize.remove_parametrizations to the layer, or use adabn "
                    "or cotta"
                )


@contextmanager
def explaining_one_value(message: str) -> Iterator[None]:
    """Replace PyTorch's error that a BatchNorm gets a single value per channel by a ValueError that
    says `message`.
    """
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise ValueError(message) from error


def use_batch_statistics(module: nn.Module) -> None:
    """Set every BatchNorm layer to normalise by its batch. Running statistics are neither used nor
    changed.
    """
    for norm in batch_norms(module):
        norm.training = True
        norm.track_running_stats = False


@contextmanager
def using_batch_statistics(module: nn.Module) -> Iterator[None]:
    """Use batch statistics inside `with`. Restore each BatchNorm layer's mode afterwards."""
    before = [(norm, norm.training, norm.track_running_stats) for norm in batch_norms(module)]
    use_batch_statistics(module)
    try:
        yield
    finally:
        for norm, training, tracking in before:
            norm.training = training
            norm.track_running_stats = tracking
