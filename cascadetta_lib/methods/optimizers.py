"""The optimisers that can take the place of a method's own."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch

MakeOptimizer = Callable[..., torch.optim.Optimizer]
"""A function that makes an optimiser from the parameters and lr."""
OptimizerName = Literal["sgd", "adam"]
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": partial(torch.optim.SGD, momentum=0.9, nesterov=True),
    "adam": torch.optim.Adam,
}
"""Optimisers by name. `sgd` has Nesterov momentum 0.9, as in the paper (Sec. 6.1)."""


def forget(optimizer: torch.optim.Optimizer | None) -> None:
    """Empty an optimiser's state, such as its momentum, and the gradients of its parameters."""
    if optimizer is not None:
        optimizer.state.clear()
        optimizer.zero_grad()
