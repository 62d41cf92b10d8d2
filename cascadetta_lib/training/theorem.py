"""Theorem 1, checked numerically on one batch: how the meta-gradient decomposes, and whether its
assumption holds.

The theorem writes the meta-gradient as (I − βH)ᵀ(∇L_main + λ∇L_SSL) with β, the outer learning
rate, and H the Hessian of the self-supervised loss at ψ′, which it assumes to be positive
semi-definite. By the chain rule through Eq. 3 it is (I − αH)ᵀ(…), with α, the inner learning rate,
and H at ψ.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.data.base import Dataset
from cascadetta_lib.models import Cascade, using_batch_statistics
from cascadetta_lib.training.meta import (
    MetaProblem,
    flatten,
    halve,
    inner_parameter_names,
    meta_gradient,
)
from cascadetta_lib.training.objectives import PAPER, self_supervised_loss
from cascadetta_lib.training.settings import Training

EXAMPLES = 64  # of the source, half of them meta-train


def check_theorem(
    model: Cascade, dataset: Dataset, training: Training, seed: int, iterations: int = 10
) -> dict[str, float]:
    """Return errors of the decompositions, and curvatures, of a pre-trained network on randomised
    source examples.

    Each error is the distance from the exact meta-gradient, divided by the norm of that; about 1e-6
    is rounding error. The first three are at the training's α and β:

    error_chain_rule: with α, and H at ψ.
    error_as_printed: with β, and H at ψ′, over θ_a as well.
    error_first_order: without H.

    The last two are at α = β, so that the choice of the two plays no part:

    error_moved_point: with H at ψ′ in place of ψ.
    error_first_order_equal_rates: without H.

    The curvatures are of H at ψ′, where the theorem assumes it to be positive semi-definite.
    curvature_along_gradient: along the gradient of the outer loss. smallest_curvature,
    largest_curvature: the smallest and the largest Rayleigh quotient among that along the gradient
    and those of the power iteration; one below 0 by more than rounding refutes the assumption.

    iterations: of the power iteration, at either end of the spectrum.
    """
    generator = torch.Generator().manual_seed(seed)
    x, y = dataset.train.take(torch.randperm(len(dataset.train.y), generator=generator)[:EXAMPLES])
    prepared = dataset.prepare(dataset.randomise(dataset.weak_augment(x, generator), generator))
    meta_train, meta_test = halve(prepared, y, PAPER, generator)
    network = copy.deepcopy(model).requires_grad_(True)
    problem = MetaProblem(
        meta_train,
        meta_test,
        inner_parameter_names(network, "all"),
        training.inner_learning_rate_ratio * training.learning_rate,
        "paper",
        training.entropy_weight,
    )
    with using_batch_statistics(network):
        return check_problem(network, problem, training.learning_rate, generator, iterations)


def check_problem(
    network: Cascade,
    problem: MetaProblem,
    beta: float,
    generator: torch.Generator,
    iterations: int,
) -> dict[str, float]:
    """Return what `check_theorem` finds for one batch at the learning rate β."""
    moved = _after_inner_step(network, problem)
    found = _errors(network, moved, problem, beta)
    equal_rates = replace(problem, inner_learning_rate=beta)
    equal = _errors(network, _after_inner_step(network, equal_rates), equal_rates, beta)
    curvatures = _curvatures(moved, problem, generator, iterations)
    return {
        "error_chain_rule": found["chain_rule"],
        "error_as_printed": found["as_printed"],
        "error_first_order": found["first_order"],
        "error_moved_point": equal["moved_point"],
        "error_first_order_equal_rates": equal["first_order"],
        "curvature_along_gradient": curvatures[0],
        "smallest_curvature": min(curvatures),
        "largest_curvature": max(curvatures),
    }


def _after_inner_step(network: Cascade, problem: MetaProblem) -> Cascade:
    """Return a copy of the network, which is at ψ, at ψ′."""
    moved = copy.deepcopy(network)
    steps = torch.autograd.grad(self_supervised_loss(network, problem.meta_train), _psi(network))
    with torch.no_grad():
        for parameter, step in zip(_psi(moved), steps, strict=True):
            parameter.sub_(step, alpha=problem.inner_learning_rate)
    return moved


def _outer_gradient(moved: Cascade, problem: MetaProblem) -> tuple[Tensor, Tensor]:
    """Return the gradient of the outer loss at ψ′, by all parameters and by φ and θ_m alone."""
    v = flatten(torch.autograd.grad(problem.outer_at_psi_prime(moved), list(moved.parameters())))
    return v, v[: sum(parameter.numel() for parameter in _psi(moved))]


def _errors(
    network: Cascade, moved: Cascade, problem: MetaProblem, beta: float
) -> dict[str, float]:
    """Return the errors of the decompositions for one α. `moved` is the network at ψ′."""
    exact = flatten(meta_gradient(network, problem)[1].values())
    alpha = problem.inner_learning_rate
    v, on_psi = _outer_gradient(moved, problem)
    decompositions = {
        "chain_rule": v - alpha * _hessian_times(network, problem, on_psi, _psi(network)),
        "moved_point": v - alpha * _hessian_times(moved, problem, on_psi, _psi(moved)),
        "as_printed": v - beta * _hessian_times(moved, problem, v, list(moved.parameters())),
        "first_order": v,
    }
    return {
        name: ((gradient - exact).norm() / exact.norm()).item()
        for name, gradient in decompositions.items()
    }


def _curvatures(
    moved: Cascade, problem: MetaProblem, generator: torch.Generator, iterations: int
) -> list[float]:
    """Return curvatures of the inner loss at ψ′: along the gradient of the outer loss, and on power
    iteration's way to the spectrum's ends.
    """

    seen = list[float]()

    def measure(direction: Tensor) -> Tensor:
        product = _hessian_times(moved, problem, direction, _psi(moved))[: len(direction)]
        seen.append((direction @ product / direction.square().sum()).item())
        return product

    shift = 0.0
    _, direction = _outer_gradient(moved, problem)
    measure(direction)
    for _ in range(2):
        # The first time, find c, the eigenvalue of H of largest magnitude. The second time, take
        # H − cI, so that the eigenvalue of largest magnitude is the other end of the spectrum.
        direction = torch.randn(len(direction), generator=generator).to(direction)
        for _ in range(iterations):
            direction = F.normalize(measure(direction) - shift * direction, dim=0)
        shift = seen[-1]
    return seen


def _psi(network: Cascade) -> list[nn.Parameter]:
    """Return the parameters of φ and θ_m, which come before those of θ_a."""
    return [*network.feature_extractor.parameters(), *network.main_classifier.parameters()]


def _hessian_times(
    network: Cascade, problem: MetaProblem, direction: Tensor, along: Sequence[nn.Parameter]
) -> Tensor:
    """Return H·direction, all rows, by double backward: `direction` is a change of the parameters
    `along`, and H the Hessian of the inner loss of `network`.
    """
    first = torch.autograd.grad(
        self_supervised_loss(network, problem.meta_train), along, create_graph=True
    )
    slope = torch.cat([gradient.flatten() for gradient in first]) @ direction
    return flatten(torch.autograd.grad(slope, list(network.parameters()), materialize_grads=True))
