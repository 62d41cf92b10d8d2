"""Theorem 1, checked numerically on one batch: does the meta-gradient decompose as printed, and
does the theorem's assumption hold?

The theorem writes the meta-gradient as (I − βH)ᵀ(∇L_main + λ∇L_SSL). Here β is the outer learning
rate, and H is the Hessian of the self-supervised loss at ψ′. The theorem assumes that H is positive
semi-definite. By the chain rule through Eq. 3 the meta-gradient is (I − αH)ᵀ(…), with the inner
learning rate α, and H at ψ.
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
from cascadetta_lib.training.tangents import Tape

EXAMPLES = 64  # of the source, half of them meta-train


def check_theorem(
    model: Cascade, dataset: Dataset, training: Training, seed: int, iterations: int = 10
) -> dict[str, float]:
    """Measure errors of decompositions of the meta-gradient, and curvatures of the inner loss, for
    a pre-trained network on randomised source examples.

    Each error is the distance from the exact meta-gradient, divided by the norm of the exact
    meta-gradient. About 1e-6 is rounding error. The first three errors are at the training's α and
    β:

    error_chain_rule: with α, and H at ψ.
    error_as_printed: with β, and with H at ψ′ with respect to all parameters, those of θ_a
        included.
    error_first_order: without H.

    The other two errors are at α = β, so that the choice between the two rates plays no part:

    error_moved_point: with H at ψ′ in place of ψ.
    error_first_order_equal_rates: without H.

    The curvatures are of H at ψ′, which the theorem assumes to be positive semi-definite there:

    curvature_along_gradient: along the gradient of the outer loss.
    smallest_curvature, largest_curvature: the extremes of all measured Rayleigh quotients, which
        are the curvature along the gradient and those of the power iteration. A value below 0 by
        more than rounding refutes the assumption.

    seed: draws the examples and their augmentation.
    iterations: the steps of the power iteration, at either end of the spectrum.
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
    """Return what `check_theorem` returns, for one batch at the learning rate β.

    Raises ValueError for a network with weight_norm (Tape.require_double_backward).
    """
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
    """Return a copy of the network at ψ′, after the inner step. `network` is at ψ."""
    moved = copy.deepcopy(network)
    steps = torch.autograd.grad(self_supervised_loss(network, problem.meta_train), _psi(network))
    with torch.no_grad():
        for parameter, step in zip(_psi(moved), steps, strict=True):
            parameter.sub_(step, alpha=problem.inner_learning_rate)
    return moved


def _outer_gradient(moved: Cascade, problem: MetaProblem) -> tuple[Tensor, Tensor]:
    """Return the gradient of the outer loss at ψ′: with respect to all parameters, and with respect
    to φ and θ_m alone.
    """
    v = flatten(torch.autograd.grad(problem.outer_at_psi_prime(moved), list(moved.parameters())))
    return v, v[: sum(parameter.numel() for parameter in _psi(moved))]


def _errors(
    network: Cascade, moved: Cascade, problem: MetaProblem, beta: float
) -> dict[str, float]:
    """Return the errors of the decompositions at one α. `moved` is the network at ψ′."""
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
    """Return Rayleigh quotients of the Hessian H of the inner loss at ψ′.

    The first is along the gradient of the outer loss. The others are the steps of a power iteration
    to either end of the spectrum.
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
        # The first time, find c, the eigenvalue of H with the largest magnitude. The second time,
        # take H − cI. Its eigenvalue with the largest magnitude belongs to the other end of the
        # spectrum.
        direction = torch.randn(len(direction), generator=generator).to(direction)
        for _ in range(iterations):
            direction = F.normalize(measure(direction) - shift * direction, dim=0)
        shift = seen[-1]
    return seen


def _psi(network: Cascade) -> list[nn.Parameter]:
    """Return the parameters of φ and θ_m. They come before those of θ_a."""
    return [*network.feature_extractor.parameters(), *network.main_classifier.parameters()]


def _hessian_times(
    network: Cascade, problem: MetaProblem, direction: Tensor, along: Sequence[nn.Parameter]
) -> Tensor:
    """Return H·direction by double backward, with a row per parameter of the network. H is the
    Hessian of the inner loss.

    direction: a change of the parameters `along`, as one vector.

    Raises ValueError for a network with weight_norm (Tape.require_double_backward).
    """
    with Tape() as tape:
        loss = self_supervised_loss(network, problem.meta_train)
    tape.require_double_backward("theorem 1 is checked by double backward")
    first = torch.autograd.grad(loss, along, create_graph=True)
    slope = torch.cat([gradient.flatten() for gradient in first]) @ direction
    return flatten(torch.autograd.grad(slope, list(network.parameters()), materialize_grads=True))
