"""The losses of every objective and the meta-gradient, against finite differences on a network
without kinks.
"""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.models import Cascade, ImageNetwork, batch_norm_parameters, build_network
from cascadetta_lib.training import meta
from cascadetta_lib.training.meta import (
    MetaProblem,
    difference_meta_gradient,
    exact_meta_gradient,
    inner_parameter_names,
)
from cascadetta_lib.training.objectives import OBJECTIVES, Half, losses, self_supervised_loss

TINY = ImageNetwork(depth=8, width=4, block="pre_activation")
both_outer_losses = pytest.mark.parametrize("outer_loss", ["paper", "release"])
both_inner_steps = pytest.mark.parametrize("which", ["all", "batchnorm_and_classifier"])


def smooth_network(auxiliary: bool = True) -> Cascade:
    """A small cascade without kinks, in float64, BatchNorm included."""
    torch.manual_seed(1)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Tanh())
    theta_a = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))
    return Cascade(extractor, nn.Linear(6, 3), theta_a if auxiliary else None).double()


def smooth_problem(
    model: Cascade, which: str, outer_loss: str, objective: str = "meta"
) -> MetaProblem:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 12, dtype=torch.float64, generator=generator)
    y = torch.randint(3, (16,), generator=generator)
    names, kind = inner_parameter_names(model, which), OBJECTIVES[objective]
    halves = Half(x[:8], y[:8]), Half(x[8:], y[8:])
    return MetaProblem(*halves, names, 0.3, outer_loss, 0.2, kind)  # type: ignore[arg-type]


def outer_loss_after_the_step(model: Cascade, problem: MetaProblem) -> float:
    """The outer loss after one inner step, written down once more without autograd through the
    step.
    """
    kind, moved = problem.kind, copy.deepcopy(model)
    at_psi = (
        losses(moved, problem.meta_train, kind)[0].item()
        if problem.outer_loss == "release"
        else 0.0
    )
    inner = [dict(moved.named_parameters())[name] for name in problem.inner_names]
    gradients = torch.autograd.grad(self_supervised_loss(moved, problem.meta_train, kind), inner)
    with torch.no_grad():
        for parameter, gradient in zip(inner, gradients, strict=True):
            parameter -= problem.inner_learning_rate * gradient
        main, self_supervised = losses(moved, problem.meta_test, kind)
    total = (main + problem.entropy_weight * self_supervised).item()
    return 0.1 * total + at_psi if problem.outer_loss == "release" else total


def assert_gradients(
    model: nn.Module, gradients: meta.Gradients, function: Callable[[], float]
) -> None:
    """Hold some elements of each parameter's gradient against central differences of `function`."""
    for name, parameter in model.named_parameters():
        flat = parameter.data.view(-1)
        for index in range(0, len(flat), max(1, len(flat) // 3)):
            before = flat[index].item()
            flat[index] = before + 1e-6
            above = function()
            flat[index] = before - 1e-6
            below = function()
            flat[index] = before
            assert gradients[name].reshape(-1)[index].item() == pytest.approx(
                (above - below) / 2e-6, abs=1e-7
            ), name


META_OBJECTIVES = [name for name, kind in OBJECTIVES.items() if kind.meta and not kind.parallel]


@both_outer_losses
@both_inner_steps
@pytest.mark.parametrize("objective", META_OBJECTIVES)
def test_exact_meta_gradient_against_finite_differences(
    objective: str, which: str, outer_loss: str
) -> None:
    model = smooth_network(OBJECTIVES[objective].auxiliary)
    problem = smooth_problem(model, which, outer_loss, objective)
    loss, gradients = exact_meta_gradient(model, problem)
    assert loss.item() == pytest.approx(outer_loss_after_the_step(model, problem), rel=1e-12)
    assert_gradients(model, gradients, lambda: outer_loss_after_the_step(model, problem))


WITH_THETA_A = [
    name
    for name, kind in OBJECTIVES.items()
    if kind.auxiliary and kind.self_supervised and not kind.parallel
]


@pytest.mark.parametrize("objective", WITH_THETA_A)
def test_losses_of_each_objective_against_finite_differences(objective: str) -> None:
    kind, model = OBJECTIVES[objective], smooth_network()
    half = smooth_problem(model, "all", "paper", objective).meta_test

    def written_out() -> float:
        z, a = model(half.x)
        p, q = z.softmax(1), a.softmax(1)
        own = torch.arange(len(half.y)), half.y
        total = -p[own].log().mean() - 0.2 * (q * q.log()).sum(1).mean()
        if kind.supervised:
            total = total - q[own].log().mean()
        return (total + 0.2 * kind.diversity * (q.mean(0) * q.mean(0).log()).sum()).item()

    main, self_supervised = losses(model, half, kind)
    total = main + 0.2 * self_supervised
    assert total.item() == pytest.approx(written_out(), rel=1e-12)
    parameters = dict(model.named_parameters())
    gradients = dict(
        zip(parameters, torch.autograd.grad(total, list(parameters.values())), strict=True)
    )
    assert_gradients(model, gradients, written_out)


@both_outer_losses
@both_inner_steps
def test_difference_meta_gradient_against_the_exact_one(
    which: str, outer_loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meta, "DIFFERENCE_NORM", 1e-5)
    model = smooth_network()
    problem = smooth_problem(model, which, outer_loss)
    other = copy.deepcopy(model)
    exact_loss, exact = exact_meta_gradient(model, problem)
    loss, gradients = difference_meta_gradient(other, problem)
    assert loss.item() == pytest.approx(exact_loss.item(), rel=1e-12)
    for name in exact:
        assert torch.allclose(gradients[name], exact[name], rtol=1e-4, atol=1e-7), name
    # Both leave the parameters as they were and count the same two batches in the running
    # statistics.
    for name, value in model.state_dict().items():
        assert torch.allclose(value, other.state_dict()[name], rtol=0, atol=1e-12), name
    # The second-order term matters here: without it the two would not be told apart.
    first_order = exact_meta_gradient(model, replace(problem, inner_learning_rate=0.0))[1]
    assert any(not torch.allclose(first_order[name], exact[name], rtol=1e-2) for name in exact)


no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=no_gpu)])
@both_inner_steps
def test_difference_meta_gradient_of_a_resnet_in_float32(
    which: str, device: str, dataset: ImageDataset
) -> None:
    model = build_network(TINY, classes=4, seed=0).train().to(device)
    x, y = dataset.prepare(dataset.train.x[:32]).to(device), dataset.train.y[:32].to(device)
    names = inner_parameter_names(model, which)
    problem = MetaProblem(Half(x[:16], y[:16]), Half(x[16:], y[16:]), names, 0.01, "paper", 0.1)
    exact, difference = (
        meta.flatten(route(model, problem)[1].values()) for route in meta.META_GRADIENTS.values()
    )
    moved = copy.deepcopy(model)
    inner = [dict(moved.named_parameters())[name] for name in names]
    steps = torch.autograd.grad(
        self_supervised_loss(moved, problem.meta_train, problem.kind), inner
    )
    with torch.no_grad():
        for parameter, step in zip(inner, steps, strict=True):
            parameter -= 0.01 * step
    first_order = meta.flatten(torch.autograd.grad(problem.outer(moved), list(moved.parameters())))
    # It has more than a third of the second-order term, the rest of which the kinks of the ReLU
    # take.
    assert (difference - exact).norm() < 2 / 3 * (first_order - exact).norm()


def test_inner_parameters_are_told_by_module() -> None:
    model = build_network(TINY, classes=4, seed=0)
    parameters = dict(model.named_parameters())
    moved = {parameters[name] for name in inner_parameter_names(model, "batchnorm_and_classifier")}
    assert moved == {*batch_norm_parameters(model), *model.main_classifier.parameters()}
    everything = inner_parameter_names(model, "all")
    assert (
        not any(name.startswith("auxiliary") for name in everything)
        and len(everything) == len(parameters) - 4
    )
    parallel = build_network(TINY, classes=4, parallel=True, seed=0)
    assert all(
        name.startswith("feature_extractor.") for name in inner_parameter_names(parallel, "all")
    )
