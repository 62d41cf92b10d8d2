"""Augmentations, and what all of them need: random draws on the right device, and changes of some
rows of a batch.

Every draw begins at a generator on the CPU. Values that Python needs, such as the order of
operations, are drawn there and are the same on every device. Random tensors are drawn on the device
that uses them, so nothing is copied to it.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def generator_for(x: Tensor, generator: torch.Generator) -> torch.Generator:
    """Return a generator on the device of x: `generator` itself if it is on that device, else a new
    one that is seeded by a draw from `generator`.
    """
    if generator.device.type == x.device.type:
        return generator
    seed = torch.randint(2**63 - 1, (), generator=generator).item()
    return torch.Generator(x.device).manual_seed(int(seed))


def change_chosen(
    x: Tensor, chosen: Tensor, function: Callable[..., Tensor], *others: Tensor
) -> None:
    """Replace the chosen rows of x by those of function(x, *others), in place.

    On a CPU the function gets the chosen rows alone. On any other device it gets all rows, because
    counting the chosen ones would wait for the device.

    chosen: bool (N,). others: tensors with N rows each.
    """
    if x.is_cpu:
        rows = chosen.nonzero().squeeze(1)
        if len(rows):
            x[rows] = function(x[rows], *(other[rows] for other in others))
    else:
        x.copy_(torch.where(chosen.view(-1, *[1] * (x.ndim - 1)), function(x, *others), x))
