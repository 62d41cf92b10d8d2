"""Measure what a method costs: the work of a step, and the memory beyond the network's."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from cascadetta_lib.data.base import Dataset
from cascadetta_lib.data.streams import Domain
from cascadetta_lib.methods import Method


def cost(method: Method, batches: Sequence[Tensor]) -> dict[str, float]:
    """Return the work and the memory of a method, with the keys below.

    The method is reset before and after. If all of its steps are alike, only the first batch is
    used, because counting a step takes longer than the step.

    work: floating-point operations of a step, divided by those of one forward pass of the network,
        both summed over `batches`. It is 1 if nothing is adapted (LAME adds a little), and 3 for
        Tent, which goes forward, backward, forward. It is NaN for a network without a convolution
        or a matrix product.
    memory: how many numbers the method and its optimiser keep beyond those of the network, divided
        by how many the network has. The copy of the weights for `reset` does not count.

    batches: prepared inputs, (B, …) each.
    """
    method.reset()
    if method.steps_alike:
        batches = batches[:1]
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        for x in batches:
            method.model(x)
    with FlopCounterMode(display=False) as step:
        for x in batches:
            method.step(x)
    network = _tensors(method.model)
    kept = [value for place, value in _tensors(method).items() if place not in network]
    if method.optimizer is not None:
        for state in method.optimizer.state.values():
            kept += [value for value in state.values() if isinstance(value, Tensor)]
    method.reset()
    once = forward.get_total_flops()
    work = step.get_total_flops() / once if once else math.nan
    size = sum(value.numel() for value in network.values())
    return {"work": work, "memory": sum(value.numel() for value in kept) / size}


def batches_along(stream: Sequence[Domain], dataset: Dataset, size: int) -> list[Tensor]:
    """Return four prepared batches from domains spread evenly along the stream. A stream of fewer
    than four domains gives the same batch several times.

    There are four because the steps of some methods differ: RoTTA updates once in 64 examples, and
    CoTTA makes copies only if it is unsure.

    size: the examples per batch. At least 32 are taken, if the domain has them.
    """
    domains = [stream[place * len(stream) // 4] for place in range(4)]
    return [dataset.prepare(dataset.domain(*domain).x[: max(32, size)]) for domain in domains]


def _tensors(module: torch.nn.Module) -> dict[int, Tensor]:
    """Return the tensors in a module's state, by id."""
    state = module.state_dict(keep_vars=True).values()
    return {id(value): value for value in state if isinstance(value, Tensor)}
