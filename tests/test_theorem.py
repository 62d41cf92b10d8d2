"""The check of Theorem 1, against the whole Hessian of a network that is small enough to have
one."""

from dataclasses import replace

import pytest
import torch
from conftest import seeded
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.utils.parametrizations import weight_norm

from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.losses import entropy
from cascadetta_lib.models import (
    Cascade,
    ImageNetwork,
    Outputs,
    TextNetwork,
    build_network,
    using_batch_statistics,
)
from cascadetta_lib.training import theorem
from cascadetta_lib.training.meta import (
    MetaProblem,
    flatten,
    inner_parameter_names,
    meta_gradient,
)
from cascadetta_lib.training.objectives import Half
from cascadetta_lib.training.settings import Training


def test_decompositions_and_curvatures_are_those_of_the_whole_hessian() -> None:
    model = build_network(TextNetwork(hidden=(5,)), classes=2, inputs=4, seed=0).double()
    assert isinstance(model, Cascade)
    torch.manual_seed(0)
    x = torch.randn(24, 4, dtype=torch.float64)
    y = torch.randint(2, (24,))
    names = inner_parameter_names(model, "all")
    problem = MetaProblem(Half(x[:12], y[:12]), Half(x[12:], y[12:]), names, 0.05, "paper", 0.1)
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    psi = sum(parameters[name].numel() for name in names)  # these come first

    def outputs(flat: torch.Tensor, half: Half) -> Outputs:
        parts = flat.split([value.numel() for value in parameters.values()])
        values = {
            name: part.view_as(parameters[name])
            for name, part in zip(parameters, parts, strict=True)
        }
        return functional_call(model, values, (half.x,))

    def loss(flat: torch.Tensor) -> torch.Tensor:
        return entropy(outputs(flat, problem.meta_train).auxiliary).mean()

    def outer_loss(flat: torch.Tensor) -> torch.Tensor:
        z, a = outputs(flat, problem.meta_test)
        return cross_entropy(z, problem.meta_test.y) + 0.1 * entropy(a).mean()

    def moved_by_hand(alpha: float) -> torch.Tensor:
        """All parameters at ψ′."""
        moved = flatten(parameters.values()).requires_grad_(True)
        (step,) = torch.autograd.grad(loss(moved), moved)
        with torch.no_grad():
            moved[:psi] -= alpha * step[:psi]
        return moved

    def by_hand(alpha: float, beta: float) -> tuple[float, float]:
        """error_moved_point and error_as_printed, with the Hessian at ψ′."""
        exact = flatten(
            meta_gradient(model, replace(problem, inner_learning_rate=alpha))[1].values()
        )
        moved = moved_by_hand(alpha)
        (v,) = torch.autograd.grad(outer_loss(moved), moved)
        hessian = torch.autograd.functional.hessian(loss, moved)
        decompositions = v - alpha * hessian[:, :psi] @ v[:psi], v - beta * hessian @ v
        first, second = (((one - exact).norm() / exact.norm()).item() for one in decompositions)
        return first, second

    with using_batch_statistics(model):
        moved = moved_by_hand(0.05)
        hessian = torch.autograd.functional.hessian(loss, moved)[:psi, :psi]
        (v,) = torch.autograd.grad(outer_loss(moved), moved)
        along_gradient = (v[:psi] @ hessian @ v[:psi]) / v[:psi].square().sum()
        spectrum = torch.linalg.eigvalsh(hessian)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        found = theorem.check_problem(model, problem, 0.5, seeded(), iterations=3000)
        # Of this one, the errors alone are looked at.
        equal = theorem.check_problem(model, problem, 0.05, seeded(), iterations=1)
        assert found["error_as_printed"] == pytest.approx(by_hand(0.05, 0.5)[1], rel=1e-6)
        assert found["error_moved_point"] == pytest.approx(by_hand(0.5, 0.5)[0], rel=1e-6)
    assert found["largest_curvature"] == pytest.approx(spectrum[-1].item(), rel=1e-3)
    assert found["smallest_curvature"] == pytest.approx(spectrum[0].item(), rel=1e-3)
    assert found["curvature_along_gradient"] == pytest.approx(along_gradient.item(), rel=1e-6)
    assert found["error_chain_rule"] < 1e-12
    # Another learning rate and another point are another gradient.
    assert found["error_as_printed"] > 1e-3 and found["error_first_order"] > 1e-4
    assert 1e-12 < equal["error_moved_point"] < equal["error_first_order_equal_rates"]
    assert equal["error_first_order_equal_rates"] == equal["error_first_order"]
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), "the network is where it was"


def test_a_weight_normalised_network_is_refused() -> None:
    model = build_network(TextNetwork(hidden=(5,)), classes=2, inputs=4, seed=0).double()
    assert isinstance(model, Cascade)
    weight_norm(model.auxiliary_classifier)
    half = Half(torch.randn(12, 4, dtype=torch.float64), torch.randint(2, (12,)))
    problem = MetaProblem(half, half, inner_parameter_names(model, "all"), 0.05, "paper", 0.1)
    with pytest.raises(ValueError, match="theorem 1 .* weight_norm wrongly the second time"):
        theorem.check_problem(model, problem, 0.5, seeded(), iterations=1)


def test_on_images_without_touching_the_network(dataset: ImageDataset) -> None:
    model = build_network(ImageNetwork(depth=8, width=4), classes=4, seed=0)
    assert isinstance(model, Cascade)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first = theorem.check_theorem(model, dataset, Training(), seed=0)
    assert first["error_chain_rule"] < 1e-4
    assert (
        first["smallest_curvature"]
        <= first["curvature_along_gradient"]
        <= first["largest_curvature"] + 1e-6
    )
    assert first == theorem.check_theorem(model, dataset, Training(), seed=0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
