"""The optimisers that can replace a method's own."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch

MakeOptimizer = Callable[..., torch.optim.Optimizer]
"""Makes an optimiser from parameters and lr."""
OptimizerName = Literal["sgd", "adam"]
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": partial(torch.optim.SGD, momentum=0.9, nesterov=True),
    "adam": torch.optim.Adam,
}
"""sgd is the paper's: with Nesterov momentum 0.9 (Sec. 6.1)."""


def forget(optimizer: torch.optim.Optimizer | None) -> None:
    """Empty the state of an optimiser, such as its momentum, and its gradients."""
    if optimizer is not None:
        optimizer.state.clear()
        optimizer.zero_grad()
