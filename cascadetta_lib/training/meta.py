"""Meta-learning by Algorithm 1 (Sec. 4.2): the inner and the outer loss, and the gradient of the
outer loss through the inner step.

Each batch is halved into meta-train and meta-test. With ψ = {φ, θ_m}:

    inner (Eq. 3)  ψ' = ψ − α ∇_I ENT(a; meta-train)    I: the parameters that the inner step moves
    outer (Eq. 4)  {ψ, θ_a} ← {ψ, θ_a} − β ∇[CE(z; meta-test) + λ ENT(a; meta-test)]
                   at ψ', through the inner step

Let v be the gradient of the outer loss at ψ', and v_I its part on I. The gradient through the inner
step is then v − α H v_I. H holds the second derivatives of the inner loss: a row per parameter and
a column per parameter of I.

In the code `psi` holds the parameters of θ_a too. The inner step does not move these.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor, nn

from cascadetta_lib.allowed import require_choice, require_number, require_whole
from cascadetta_lib.models import (
    Cascade,
    Parallel,
    call_with,
    normalization_parameters,
    require_own_scales,
)
from cascadetta_lib.models.batch_norm import explaining_one_value
from cascadetta_lib.models.recomputed import refuse_recomputation
from cascadetta_lib.registry import nearest
from cascadetta_lib.training.objectives import (
    PAPER,
    Half,
    Objective,
    as_half,
    losses,
    self_supervised_loss,
)
from cascadetta_lib.training.settings import InnerParameters, OuterLossName
from cascadetta_lib.training.tangents import Tape, UnknownFunctionError

ByName = dict[str, Tensor]
"""Parameters, or their gradients, by the parameter's name."""


@dataclass(frozen=True)
class MetaProblem:
    """The inner and the outer step of Algorithm 1 (Eq. 3 and 4) on one batch.

    meta_train, meta_test: the two halves of the batch.
    inner_names: the names of the parameters that the inner step moves.
    inner_learning_rate: α.
    outer_loss: `paper` or `release`: the outer loss of the paper, or of its release.
    entropy_weight: λ.
    kind: the objective, which defines the losses.

    Raises ValueError for a value that is not allowed, and for a half without examples. Its methods
    raise ValueError if a half gives a BatchNorm a single value per channel.
    """

    meta_train: Half
    meta_test: Half
    inner_names: tuple[str, ...]
    inner_learning_rate: float
    outer_loss: OuterLossName
    entropy_weight: float
    kind: Objective = PAPER

    def __post_init__(self) -> None:
        require_number("inner_learning_rate", self.inner_learning_rate)
        require_choice("outer_loss", self.outer_loss, get_args(OuterLossName))
        require_number("entropy_weight", self.entropy_weight)
        for name, half in (("meta_train", self.meta_train), ("meta_test", self.meta_test)):
            require_whole(f"examples in {name}", len(half.y), least=1)

    def losses_at_psi(self, model: nn.Module) -> tuple[Tensor, Tensor]:
        """Return two losses at ψ on the meta-train half: a part of the outer loss, and the inner
        loss.

        The release's outer loss has the supervised loss at ψ as a part. The paper's has no part at
        ψ, so the first loss is 0.
        """
        with _enough_values(self.meta_train):
            if self.outer_loss == "release":
                return losses(model, self.meta_train, self.kind)
            inner = self_supervised_loss(model, self.meta_train, self.kind)
            return torch.zeros_like(inner), inner

    def outer_at_psi_prime(self, model: nn.Module) -> Tensor:
        """Return the part of the outer loss at ψ', on the meta-test half. In the release's outer
        loss this part is multiplied by 0.1.

        model: the network with ψ' in place of ψ.
        """
        with _enough_values(self.meta_test):
            main, self_supervised = losses(model, self.meta_test, self.kind)
        total = main + self.entropy_weight * self_supervised
        return 0.1 * total if self.outer_loss == "release" else total


def _enough_values(half: Half) -> AbstractContextManager[None]:
    """Name the half in an error about a single value per channel."""
    return explaining_one_value(
        f"with {len(half.y)} example in half a batch a BatchNorm sees 1 value per channel, but "
        "needs at least 2; use larger batches"
    )


def halve(x: Tensor, y: Tensor, kind: Objective, draws: torch.Generator) -> tuple[Half, Half]:
    """Split a batch into meta-train, its first half, and meta-test, the rest.

    x: (B, …). y: (B,). draws: the generator of the random rotations, for the rotation task.
    """
    middle = len(y) // 2
    meta_train = as_half(x[:middle], y[:middle], kind, draws)
    meta_test = as_half(x[middle:], y[middle:], kind, draws)
    return meta_train, meta_test


def inner_parameter_names(model: Cascade | Parallel, which: InnerParameters) -> tuple[str, ...]:
    """Return the names of the parameters that the inner step moves.

    which: `all`: all of ψ. `batchnorm_and_classifier`: θ_m, and the scales and shifts of all
        normalisation layers of φ, of every kind, as at test time.

    For TTT's network both values stand for all parameters of φ's shared stages. Raises ValueError
    for any other value, and for a scale or shift that is not a parameter.
    """
    require_choice("which", which, get_args(InnerParameters))
    if isinstance(model, Parallel):
        moved = set(model.shared_parameters)
    elif which == "all":
        moved = {*model.feature_extractor.parameters(), *model.main_classifier.parameters()}
    else:
        require_own_scales(model.feature_extractor)
        moved = {
            *normalization_parameters(model.feature_extractor),
            *model.main_classifier.parameters(),
        }
    return tuple(name for name, parameter in model.named_parameters() if parameter in moved)


def meta_gradient(model: nn.Module, problem: MetaProblem) -> tuple[Tensor, ByName]:
    """Return the outer loss, a scalar, and its gradient with respect to every parameter, by name.
    The gradient is taken through the inner step.

    H v_I is the gradient of the slope ⟨∇L, v_I⟩, where L is the inner loss (`_slope`).

    Raises ValueError for a network that recomputes activations in the backward pass, for a network
    with a parameter that requires no gradient, for a name in `problem.inner_names` that no
    parameter has, and for a network with weight_norm and a function that tangents.py does not know.
    """
    psi: ByName = dict(model.named_parameters())
    for name in problem.inner_names:
        if name not in psi:
            raise ValueError(f"inner_names has {name!r}; {nearest(name, psi)}")
    for name, value in psi.items():
        if not value.requires_grad:
            raise ValueError(
                f"{name} requires no gradient, and the meta-gradient is that of every parameter; "
                "call requires_grad_() on the network"
            )
    inner = {name: psi[name] for name in problem.inner_names}
    with refuse_recomputation("meta_gradient"), Tape() as tape:
        outer_loss_at_psi, inner_loss = problem.losses_at_psi(model)
    inner_gradient = _gradients(inner_loss, inner, retain_graph=True)
    moved = {
        name: value - problem.inner_learning_rate * inner_gradient[name]
        for name, value in inner.items()
    }
    psi_prime = {name: value.detach().requires_grad_() for name, value in (psi | moved).items()}
    replaced = {psi[name]: value for name, value in psi_prime.items()}
    with refuse_recomputation("meta_gradient"):
        outer_loss_at_psi_prime = call_with(OuterLoss(model, problem), replaced)
    outer_gradient = _gradients(outer_loss_at_psi_prime, psi_prime)  # v
    slope = _slope(tape, inner_loss, inner, outer_gradient)
    gradient_at_psi = _gradients(outer_loss_at_psi - problem.inner_learning_rate * slope, psi)
    # Make a new tensor for each parameter, because one tensor may be the gradient of two of them.
    total = {name: outer_gradient[name] + gradient_at_psi[name] for name in psi}
    return (outer_loss_at_psi_prime + outer_loss_at_psi).detach(), total


def _slope(tape: Tape, inner_loss: Tensor, inner: ByName, v: ByName) -> Tensor:
    """Return ⟨∇L, v_I⟩ as a scalar with a graph, where L is the inner loss.

    The tape computes it. If tangents.py has no rule for a function of the network, double backward
    computes it, at twice the cost.

    inner: the parameters I. v: the gradient of the outer loss.

    Raises ValueError if double backward would be wrong (Tape.require_double_backward).
    """
    try:
        return tape.derivative(inner_loss, {inner[name]: v[name] for name in inner})
    except UnknownFunctionError as error:
        tape.require_double_backward(f"meta_gradient: {error}, so it needs double backward")
        gradient = _gradients(inner_loss, inner, create_graph=True)
        products = [(gradient[name] * v[name]).sum() for name in inner]
        return torch.stack(products).sum()


def flatten(tensors: Iterable[Tensor]) -> Tensor:
    """Return all elements of the tensors as one vector without a gradient."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


class OuterLoss(nn.Module):
    """The part of the outer loss at ψ' as a module, so that `call_with` can replace parameters."""

    def __init__(self, model: nn.Module, problem: MetaProblem) -> None:
        super().__init__()
        self.model = model
        self.problem = problem

    def forward(self) -> Tensor:
        return self.problem.outer_at_psi_prime(self.model)


def _gradients(loss: Tensor, parameters: ByName, **options: Any) -> ByName:
    found = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True, **options)
    return dict(zip(parameters, found, strict=True))
