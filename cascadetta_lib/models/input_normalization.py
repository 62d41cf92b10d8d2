"""Put the normalisation of images in front of a network that was trained with it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cascadetta_lib.allowed import is_finite_number
from cascadetta_lib.models.cascade import Cascade
from cascadetta_lib.registry import nearest


class Normalization(NamedTuple):
    """The normalisation (x − mean)/deviation of images x in [0, 1].

    mean, deviation: a number per channel, or one number for all channels.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


INPUT_NORMALIZATIONS = {
    "unit": Normalization((0.0,), (1.0,)),
    "symmetric": Normalization((0.5,), (0.5,)),
    "imagenet": Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": Normalization((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "levels": Normalization((0.0,), (1 / 255,)),
}
"""Normalisations by name.

unit: x stays in 0..1.
symmetric: x is mapped to −1..1.
imagenet, cifar10: by the mean and the standard deviation of each channel of that dataset.
levels: x is mapped to 0..255.
"""


class Normalize(nn.Module):
    """Normalise images x (B, C, H, W) in [0, 1]: (x − mean)/deviation."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, normalization: Normalization) -> None:
        super().__init__()
        self.normalization = normalization
        for name, values in normalization._asdict().items():
            # Not in the state_dict, so that files of weights still fit.
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1), persistent=False)

    def extra_repr(self) -> str:
        return f"mean={self.normalization.mean}, deviation={self.normalization.deviation}"

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.deviation


def read_normalization(given: Any) -> Normalization:
    """Return the normalisation that `given` describes, for images in [0, 1].

    given: a name in INPUT_NORMALIZATIONS; or a pair (mean, deviation), each a number or a number
        per channel; or a mapping with `mean` and `std`, such as timm's `model.pretrained_cfg`; or
        an object with the attributes `mean` and `std`, such as torchvision's
        `weights.transforms()`.

    Raises ValueError for anything else.
    """
    if isinstance(given, str):
        if given not in INPUT_NORMALIZATIONS:
            raise ValueError(f"normalization = {given!r}: {nearest(given, INPUT_NORMALIZATIONS)}")
        return INPUT_NORMALIZATIONS[given]
    if isinstance(given, Mapping):
        pair = (given.get("mean"), given.get("std"))
    elif isinstance(given, Sequence) and len(given) == 2:
        pair = (given[0], given[1])
    else:
        pair = (getattr(given, "mean", None), getattr(given, "std", None))
    mean, deviation = (_channels(values) for values in pair)
    if not mean or not deviation or min(deviation) <= 0:
        raise ValueError(
            f"normalization = {given!r}: allowed are {', '.join(INPUT_NORMALIZATIONS)}, a pair "
            "(mean, deviation) of images in 0…1, or a configuration with mean and std"
        )
    if len(mean) != len(deviation) and 1 not in (len(mean), len(deviation)):
        raise ValueError(
            f"normalization = {given!r}: {len(mean)} means and {len(deviation)} deviations; "
            "allowed is one of each per channel, or one for all"
        )
    return Normalization(mean, deviation)


def _channels(values: Any) -> tuple[float, ...]:
    """Return a finite number, or a sequence of finite numbers, as a tuple. Return an empty tuple
    for anything else.
    """
    if is_finite_number(values):
        return (float(values),)
    if not isinstance(values, Sequence) or isinstance(values, str):
        return ()
    if not all(is_finite_number(value) for value in values):
        return ()
    return tuple(float(value) for value in values)


def normalized(network: nn.Module, normalization: Any) -> nn.Module:
    """Return `network` with its normalisation in front, so that it takes images x in [0, 1].

    A Cascade stays a Cascade, and its φ begins with the normalisation. Any other network becomes a
    Sequential. So does a subclass of Cascade, whose forward may do more, and a Cascade with forward
    hooks. Modules and parameters are those of `network`, not copies.

    normalization: whatever `read_normalization` takes. Raises ValueError for anything else.
    """
    first = Normalize(read_normalization(normalization))
    if type(network) is not Cascade or network._forward_pre_hooks or network._forward_hooks:
        return nn.Sequential(first, network)
    phi = nn.Sequential(first, network.feature_extractor)
    theta_m = network.main_classifier
    return Cascade(phi, theta_m, network.auxiliary_classifier, network.relu_logits)


def normalization_of(network: nn.Module) -> Normalization | None:
    """Return the normalisation that `normalized` put in front of a network, or None."""
    found = [child for child in network.modules() if isinstance(child, Normalize)]
    return found[0].normalization if found else None
