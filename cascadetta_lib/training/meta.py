"""Meta-learning by Algorithm 1 (Sec. 4.2): the two losses of a batch that is halved, and the
gradient through both.

With ψ = {φ, θ_m}, a batch is halved into meta-train and meta-test:

    inner (Eq. 3)  ψ' = ψ − α ∇_I ENT(a; meta-train)    I: what the inner step moves, θ_a fixed
    outer (Eq. 4)  {ψ, θ_a} ← {ψ, θ_a} − β ∇[CE(z; meta-test) + λ ENT(a; meta-test)]
                   at ψ', through the inner step

With v the gradient of the outer loss at ψ', that through the inner step is v − α H v_I, where H
holds the second derivatives of the inner loss between I and all parameters.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cascadetta_lib.models import Cascade, Parallel, batch_norm_parameters, batch_norms, call_with
from cascadetta_lib.training.objectives import PAPER, Half, Objective, losses, self_supervised_loss

Gradients = dict[str, Tensor]  # by the parameter's name

DIFFERENCE_NORM = 0.1
"""Norm of the parameter step of the difference. On the trained ResNet-26 the second-order term is
then off by about its own size (0.4 to 1.8 of it, by the exact route at most 0.06;
benchmarks/meta_gradient.py), presumably since the step passes kinks of the ReLU, which the exact
route does not see. Larger norms are as bad, smaller ones are worse."""


@dataclass(frozen=True)
class MetaProblem:
    """Eq. 3 and 4 for one batch. inner_names: the parameters that the inner step moves;
    inner_learning_rate: α.
    """

    meta_train: Half
    meta_test: Half
    inner_names: tuple[str, ...]
    inner_learning_rate: float
    outer_loss: Literal["paper", "release"]
    entropy_weight: float
    kind: Objective = PAPER

    def at_psi(self, model: nn.Module) -> tuple[Tensor, Tensor]:
        """What the outer loss adds at ψ (the release's cross-entropy, else 0), and the inner
        loss."""
        if self.outer_loss == "release":
            return losses(model, self.meta_train, self.kind)
        inner = self_supervised_loss(model, self.meta_train, self.kind)
        return torch.zeros_like(inner), inner

    def outer(self, model: nn.Module) -> Tensor:
        """The loss at ψ' on the meta-test half, which the release weights by 0.1."""
        main, self_supervised = losses(model, self.meta_test, self.kind)
        total = main + self.entropy_weight * self_supervised
        return 0.1 * total if self.outer_loss == "release" else total


def inner_parameter_names(model: Cascade | Parallel, which: str) -> tuple[str, ...]:
    """What the inner step moves: `all` of ψ, or `batchnorm_and_classifier`. For TTT, all of φ's
    shared stages.
    """
    if isinstance(model, Parallel):
        moved = set(model.shared_parameters)
    elif which == "all":
        moved = {*model.feature_extractor.parameters(), *model.main_classifier.parameters()}
    else:
        moved = {
            *batch_norm_parameters(model.feature_extractor),
            *model.main_classifier.parameters(),
        }
    return tuple(name for name, parameter in model.named_parameters() if parameter in moved)


def exact_meta_gradient(model: nn.Module, problem: MetaProblem) -> tuple[Tensor, Gradients]:
    """The outer loss and its gradient on every parameter, by double backward through the inner
    step: the reference.
    """
    parameters: Gradients = dict(model.named_parameters())
    inner = {name: parameters[name] for name in problem.inner_names}
    main, inner_loss = problem.at_psi(model)
    steps = _gradients(inner_loss, inner, create_graph=True)
    moved = {name: inner[name] - problem.inner_learning_rate * steps[name] for name in inner}
    at_moved = {inner[name]: value for name, value in moved.items()}
    total = call_with(_OuterLoss(model, problem), at_moved) + main
    return total.detach(), _gradients(total, parameters)


def difference_meta_gradient(model: nn.Module, problem: MetaProblem) -> tuple[Tensor, Gradients]:
    """As exact_meta_gradient, with H v_I = |v_I| (∇L(ψ + ε u) − ∇L(ψ)) / ε, L the inner loss, u =
    v_I / |v_I| and ε DIFFERENCE_NORM. It is faster, since it takes only one more plain gradient."""
    parameters: Gradients = dict(model.named_parameters())
    inner = {name: parameters[name] for name in problem.inner_names}
    before = {name: value.detach().clone() for name, value in inner.items()}

    def move(direction: Gradients, length: float) -> None:
        with torch.no_grad():
            for name, value in inner.items():
                torch.add(before[name], direction[name], alpha=length, out=value)

    main, inner_loss = problem.at_psi(model)
    release = problem.outer_loss == "release"
    inner_gradient = _gradients(inner_loss, parameters, retain_graph=release)
    main_gradient = _gradients(main, parameters) if release else {}
    move(inner_gradient, -problem.inner_learning_rate)
    outer = problem.outer(model)
    total = _gradients(outer, parameters)
    norm = torch.sqrt(torch.stack([total[name].square().sum() for name in inner]).sum())
    # Clamped, so that a gradient of zero gives a direction of zero without a read from the device.
    move({name: total[name] / norm.clamp_min(1e-30) for name in inner}, DIFFERENCE_NORM)
    with batch_statistics(model):
        beyond = _gradients(
            self_supervised_loss(model, problem.meta_train, problem.kind), parameters
        )
    for name, gradient in total.items():
        change = (beyond[name] - inner_gradient[name]) * norm
        gradient.sub_(change, alpha=problem.inner_learning_rate / DIFFERENCE_NORM)
    with torch.no_grad():
        for name, value in inner.items():
            value.copy_(before[name])
    for name, gradient in main_gradient.items():
        total[name] += gradient
    return (outer + main).detach(), total


META_GRADIENTS = {"exact": exact_meta_gradient, "difference": difference_meta_gradient}


@contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """Inside, BatchNorm uses the statistics of the batch and leaves its running statistics
    alone."""
    norms = [(norm, norm.training, norm.track_running_stats) for norm in batch_norms(model)]
    for norm, _, _ in norms:
        norm.training, norm.track_running_stats = True, False
    try:
        yield
    finally:
        for norm, training, tracking in norms:
            norm.training, norm.track_running_stats = training, tracking


def flatten(tensors: Iterable[Tensor]) -> Tensor:
    """All elements as one vector without a gradient; the strides of the tensors do not matter."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


class _OuterLoss(nn.Module):
    """The outer loss as a module, so that `call_with` can compute it with other
    parameters."""

    def __init__(self, model: nn.Module, problem: MetaProblem) -> None:
        super().__init__()
        self.model, self.problem = model, problem

    def forward(self) -> Tensor:
        return self.problem.outer(self.model)


def _gradients(loss: Tensor, parameters: Gradients, **options: Any) -> Gradients:
    found = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True, **options)
    return dict(zip(parameters, found, strict=True))
