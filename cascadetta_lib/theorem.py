"""Theorem 1, checked numerically on one batch: how the meta-gradient decomposes, and whether its assumption holds.

The theorem writes the meta-gradient as (I − βH)ᵀ(∇L_main + λ∇L_SSL) with β, the outer learning rate, and H the Hessian
of the self-supervised loss at ψ′. By the chain rule through Eq. 3 it is (I − αH)ᵀ(…), with α, the inner learning rate,
and H at ψ. Both are held against the gradient of automatic differentiation (in float32, so 1e-6 is rounding). The
theorem then assumes H positive semi-definite; the smallest curvature that is found here says whether it is.
"""

import copy
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from cascadetta_lib.data.base import Dataset
from cascadetta_lib.models import Cascade
from cascadetta_lib.pretrain import (
    Half,
    MetaProblem,
    TrainingConfig,
    batch_statistics,
    exact_meta_gradient,
    inner_parameter_names,
    self_supervised_loss,
)

ITERATIONS = 10
"""Of the power iteration, at either end of the spectrum."""
EXAMPLES = 64
"""Source examples of the check, half of them meta-train."""


def check_theorem(model: Cascade, dataset: Dataset, training: TrainingConfig, seed: int) -> dict[str, float]:
    """Relative errors of the decompositions, and curvatures, of a pre-trained network on randomised source examples.

    error_chain_rule: with α and H at ψ. error_as_printed: with β and H at ψ′, over θ_a as well. error_first_order:
    without H.
    curvature_along_gradient: of H at ψ along the gradient at ψ′. smallest_curvature, largest_curvature: the extreme
    Rayleigh quotients that power iteration finds; one below 0 refutes that H is positive semi-definite.
    """
    generator = torch.Generator().manual_seed(seed)
    x, y = dataset.train.take(torch.randperm(len(dataset.train.y), generator=generator)[:EXAMPLES])
    prepared = dataset.prepare(dataset.randomise(dataset.weak_augment(x, generator), generator))
    middle = len(y) // 2
    network = copy.deepcopy(model).requires_grad_(True)
    alpha = training.inner_learning_rate_ratio * training.learning_rate
    problem = MetaProblem(
        Half(prepared[:middle], y[:middle], None),
        Half(prepared[middle:], y[middle:], None),
        inner_parameter_names(network, "all"),
        alpha,
        "paper",
        training.entropy_weight,
    )
    with batch_statistics(network):
        return _check(network, problem, training.learning_rate, generator)


def _check(network: Cascade, problem: MetaProblem, beta: float, generator: torch.Generator) -> dict[str, float]:
    parameters = dict(network.named_parameters())
    inner, everything = [parameters[name] for name in problem.inner_names], list(parameters.values())
    exact = _flat([exact_meta_gradient(network, problem)[1][name] for name in parameters])

    def inner_loss() -> Tensor:
        return self_supervised_loss(network, problem.meta_train)

    def hessian_times(direction: Tensor, along: list[nn.Parameter]) -> Tensor:
        """The rows of all parameters of H·direction, `direction` a change of the parameters `along`, where ψ stands
        now; by double backward."""
        first = torch.autograd.grad(inner_loss(), along, create_graph=True)
        product = sum((part * g).sum() for part, g in zip(_unflat(direction, along), first, strict=True))
        return _flat(list(torch.autograd.grad(cast(Tensor, product), everything, materialize_grads=True)))

    def step(length: float, direction: Tensor) -> None:
        """ψ ← ψ + length·direction, on what the inner step moves."""
        with torch.no_grad():
            for parameter, part in zip(inner, _unflat(direction, inner), strict=True):
                parameter.add_(part, alpha=length)

    moves = _gradient(inner_loss, inner)
    step(-problem.inner_learning_rate, moves)  # to ψ′
    outer = _gradient(lambda: problem.outer(network), everything)
    chosen = set(problem.inner_names)
    mask = torch.cat([torch.full((p.numel(),), name in chosen) for name, p in parameters.items()]).to(outer.device)
    at_moved = hessian_times(outer, everything)  # of (ψ, θ_a), as the theorem writes it
    step(problem.inner_learning_rate, moves)  # and back
    at_psi = hessian_times(outer[mask], inner)

    def error(found: Tensor) -> float:
        return ((found - exact).norm() / exact.norm()).item()

    def curvature(direction: Tensor, product: Tensor) -> float:
        return (direction @ product / direction.square().sum()).item()

    seen = [curvature(outer[mask], at_psi[mask])]
    shift = 0.0
    for _ in range(2):
        # H − cI, with c the curvature of the largest size, has the other end of the spectrum as its largest size.
        direction = torch.randn(int(mask.sum()), generator=generator).to(outer)
        for _ in range(ITERATIONS):
            product = hessian_times(direction, inner)[mask]
            seen.append(curvature(direction, product))
            direction = torch.nn.functional.normalize(product - shift * direction, dim=0)
        shift = seen[-1]
    return {
        "error_chain_rule": error(outer - problem.inner_learning_rate * at_psi),
        "error_as_printed": error(outer - beta * at_moved),
        "error_first_order": error(outer),
        "curvature_along_gradient": seen[0],
        "smallest_curvature": min(seen),
        "largest_curvature": max(seen),
    }


def _flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def _unflat(vector: Tensor, like: list[nn.Parameter]) -> list[Tensor]:
    parts = vector.split([parameter.numel() for parameter in like])
    return [part.view(parameter.shape) for part, parameter in zip(parts, like, strict=True)]


def _gradient(loss: Callable[[], Tensor], parameters: list[nn.Parameter]) -> Tensor:
    return _flat(list(torch.autograd.grad(loss(), parameters, materialize_grads=True)))
