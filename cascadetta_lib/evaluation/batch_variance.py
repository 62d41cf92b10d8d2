"""Measure how far a batch's variance is from the whole domain's, at each BatchNorm layer."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cascadetta_lib.allowed import require_whole
from cascadetta_lib.data.base import Dataset
from cascadetta_lib.data.streams import Domain
from cascadetta_lib.models.batch_norm import BatchNorm, batch_norms, use_batch_statistics

EXAMPLES = 1024
"""The most examples of a domain that are used. The statistics of batches are compared with those of
all used examples.
"""
LayerErrors = dict[str, Any]
"""The errors at one layer, as `batch_variance` describes them."""


def batch_variance(
    model: nn.Module, dataset: Dataset, stream: Sequence[Domain], batch_size: int
) -> list[LayerErrors]:
    """Compare the statistics of batches with those of all examples, at each BatchNorm layer.

    All examples of a domain pass through the network together, and each layer normalises by the
    statistics of all of them. So a layer's inputs do not depend on the batch size, and only the
    layer's own error is measured. The result has a dictionary per layer:

    layer: the layer's name.
    channels: the number of channels.
    values: the number of values of an example in a channel, such as its pixels.
    variance_error: the error of a batch's variance, divided by the variance of all examples; root
        mean square over batches, channels and domains.
    mean_error: the error of a batch's mean, in standard deviations; also a root mean square.
    independent_error: the variance_error that independent, normal values would have. For n values
        in a batch it is √(2n − 1) / n, since the variance divides by n.

    Only the first EXAMPLES examples of each domain are used, in whole batches. If no channel of a
    layer varies on a domain, the domain does not count for that layer. A layer that varies on no
    domain, or that the forward pass does not use, is left out.

    Raises ValueError if there is no domain, if a domain has fewer than two batches, if no layer is
    left, if the inputs of a layer hold NaN or infinity, or if `batch_size` is not a whole number
    ≥ 1.
    """
    require_whole("batch_size", batch_size, least=1)
    if not stream:
        raise ValueError(f"stream = {stream!r}; allowed is at least one domain")
    network = copy.deepcopy(model).eval()
    use_batch_statistics(network)
    names = {module: name for name, module in network.named_modules()}
    layers = {names[norm]: norm for norm in batch_norms(network)}
    if not layers:
        raise ValueError("the network has no BatchNorm layer, whose statistics could be compared")
    squares: dict[str, list[tuple[float, float]]] = {name: [] for name in layers}
    shapes: dict[str, tuple[int, int]] = {}

    def hold(norm: BatchNorm, inputs: tuple[Tensor, ...]) -> None:
        name = names[norm]
        if not inputs[0].isfinite().all():
            raise ValueError(f"the inputs of the BatchNorm layer {name} hold NaN or infinity")
        variance, mean = squared_errors(inputs[0], batch_size)
        if math.isnan(variance):
            return
        squares[name].append((variance, mean))
        shapes[name] = (inputs[0].shape[1], inputs[0][0, 0].numel())

    handles = [norm.register_forward_pre_hook(hold) for norm in layers.values()]
    for domain in dict.fromkeys(stream):
        x = dataset.domain(*domain).x[:EXAMPLES]
        count = len(x) // batch_size * batch_size
        if count < 2 * batch_size:
            raise ValueError(
                f"{domain.name}: the comparison needs two batches of {batch_size} among the first "
                f"{EXAMPLES} examples; there are {len(x)}; use a smaller batch size"
            )
        with torch.no_grad():
            network(dataset.prepare(x[:count]))
    for handle in handles:
        handle.remove()
    if not shapes:
        raise ValueError("every BatchNorm layer is unused or has constant inputs")
    return [
        _described(name, squares[name], shapes[name], batch_size)
        for name in layers
        if name in shapes
    ]


def squared_errors(x: Tensor, batch_size: int) -> tuple[float, float]:
    """Return the mean squares, over batches and channels, of two errors of a batch.

    The first is the error of the batch's variance, divided by the variance of all examples. The
    second is the error of the batch's mean, in standard deviations. Channels that are constant over
    all examples do not count. If all channels are constant, both results are NaN.

    x: (N, C, …), where N is a multiple of `batch_size`.
    """
    values = x.flatten(2) if x.dim() > 2 else x[:, :, None]
    whole = values.transpose(0, 1).flatten(1)
    variance = whole.var(dim=1, correction=0)
    # The variance of equal values may round to more than 0, and that of unequal ones to 0.
    varies = (whole.amax(1) > whole.amin(1)) & (variance > 0)
    batches = values.unflatten(0, (-1, batch_size)).transpose(1, 2).flatten(2)
    of_variance = batches.var(dim=2, correction=0) / variance - 1
    of_mean = (batches.mean(dim=2) - whole.mean(dim=1)) / variance.sqrt()
    return (
        float(of_variance[:, varies].square().mean()),
        float(of_mean[:, varies].square().mean()),
    )


def _described(
    name: str, squares: Sequence[tuple[float, float]], shape: tuple[int, int], batch_size: int
) -> LayerErrors:
    channels, values = shape
    count = batch_size * values
    of_variance, of_mean = (sum(each) / len(each) for each in zip(*squares, strict=True))
    return {
        "layer": name,
        "channels": channels,
        "values": values,
        "variance_error": math.sqrt(of_variance),
        "mean_error": math.sqrt(of_mean),
        "independent_error": math.sqrt(2 * count - 1) / count,
    }
