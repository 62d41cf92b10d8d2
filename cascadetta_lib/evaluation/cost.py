"""Measure what a method costs: the work of a step, and the memory beside the network."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from cascadetta_lib.data.base import Dataset
from cascadetta_lib.data.streams import Domain
from cascadetta_lib.methods import Method


def cost(method: Method, batches: Sequence[Tensor]) -> dict[str, float]:
    """Return the work and the memory of a step, as means over `batches`.

    Resets the method before and after. Where all steps of the method are alike, only the first
    batch is taken, because counting a step takes longer than the step.

    work: floating-point operations of a step over those of one forward pass of the network: 1 where
        nothing is adapted (LAME adds a little), 3 for Tent, which goes forward, backward, forward;
        NaN for a network without a convolution or a matrix product.
    memory: the numbers that it keeps beside the network, the optimiser's too, over those of the
        network; not the weights that `reset` goes back to.
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
    """Return a prepared batch from each of four domains along the stream, because steps of RoTTA
    and CoTTA differ: RoTTA updates once in 64 examples, and CoTTA makes copies where it is unsure.

    size: that of the batches; 32 if it is smaller.
    """
    domains = [stream[place * len(stream) // 4] for place in range(4)]
    return [dataset.prepare(dataset.domain(*domain).x[: max(32, size)]) for domain in domains]


def _tensors(module: torch.nn.Module) -> dict[int, Tensor]:
    """Return the tensors of a module's state by their identity."""
    state = module.state_dict(keep_vars=True).values()
    return {id(value): value for value in state if isinstance(value, Tensor)}
