"""Augmentations, and what they share: where random numbers are drawn, and how a part of a batch is
changed.

Every draw begins at a generator of the CPU. What Python has to know, such as the order of
operations, is drawn there and is the same on every device. Tensors are drawn on the device that
they are for, so that nothing is copied there.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def generator_for(x: Tensor, generator: torch.Generator) -> torch.Generator:
    """Return the generator of draws on the device of x: `generator` itself if it is on that device,
    otherwise a new one, seeded by a draw from `generator`.
    """
    if generator.device.type == x.device.type:
        return generator
    seed = torch.randint(2**63 - 1, (), generator=generator).item()
    return torch.Generator(x.device).manual_seed(int(seed))


def change_chosen(
    x: Tensor, chosen: Tensor, function: Callable[..., Tensor], *others: Tensor
) -> None:
    """Put function(x, *others) in the place of x, in place, in the rows that are `chosen`, bool
    (N,).

    A CPU computes these rows alone. Any other device computes all, because counting the chosen ones
    would wait for it.
    """
    if x.is_cpu:
        rows = chosen.nonzero().squeeze(1)
        if len(rows):
            x[rows] = function(x[rows], *(other[rows] for other in others))
    else:
        x.copy_(torch.where(chosen.view(-1, *[1] * (x.ndim - 1)), function(x, *others), x))
