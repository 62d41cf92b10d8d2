"""The losses of every objective and the meta-gradient: against finite differences on a network
without kinks, and against double backward on networks of every kind."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from cascadetta_lib.methods.cascade import CascadeMethod
from cascadetta_lib.models import (
    Cascade,
    ImageNetwork,
    SpeechNetwork,
    TextNetwork,
    build_network,
    normalization_parameters,
)
from cascadetta_lib.models.backbones import WideResNet
from cascadetta_lib.training import meta
from cascadetta_lib.training.meta import (
    ByName,
    MetaProblem,
    OuterLoss,
    flatten,
    inner_parameter_names,
    meta_gradient,
)
from cascadetta_lib.training.objectives import (
    OBJECTIVES,
    PAPER,
    Half,
    Objective,
    losses,
    self_supervised_loss,
)
from cascadetta_lib.training.tangents import Tape, UnknownFunctionError

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
    names = inner_parameter_names(model, which)
    kind = OBJECTIVES[objective]
    halves = Half(x[:8], y[:8]), Half(x[8:], y[8:])
    return MetaProblem(*halves, names, 0.3, outer_loss, 0.2, kind)  # type: ignore[arg-type]


def outer_loss_after_the_step(model: Cascade, problem: MetaProblem) -> float:
    """The outer loss after one inner step, written down once more without autograd through the
    step.
    """
    kind = problem.kind
    moved = copy.deepcopy(model)
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
    model: nn.Module, gradients: meta.ByName, function: Callable[[], float]
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
    loss, gradients = meta_gradient(model, problem)
    assert loss.item() == pytest.approx(outer_loss_after_the_step(model, problem), rel=1e-12)
    assert_gradients(model, gradients, lambda: outer_loss_after_the_step(model, problem))


@both_inner_steps
@pytest.mark.parametrize("dim", [0, 1, None])
def test_meta_gradient_of_weight_normalised_layers_against_finite_differences(
    dim: int | None, which: str
) -> None:
    """By double backward the gradient of the weight's length is off by percents."""
    model = smooth_network()
    weight_norm(model.feature_extractor[1], dim=dim)
    weight_norm(model.main_classifier, dim=dim)
    problem = smooth_problem(model, which, "paper")
    _, gradients = meta_gradient(model, problem)
    assert_gradients(model, gradients, lambda: outer_loss_after_the_step(model, problem))


def test_meta_gradient_of_the_older_weight_norm_is_that_of_the_newer() -> None:
    model = smooth_network()
    with pytest.warns(FutureWarning, match="weight_norm"):
        nn.utils.weight_norm(model.main_classifier)
    _, gradients = meta_gradient(model, smooth_problem(model, "all", "paper"))
    newer = smooth_network()
    weight_norm(newer.main_classifier)
    _, expected = meta_gradient(newer, smooth_problem(newer, "all", "paper"))
    names = {"weight_g": "original0", "weight_v": "original1"}
    for name, new in names.items():
        found = gradients[f"main_classifier.{name}"]
        torch.testing.assert_close(
            found, expected[f"main_classifier.parametrizations.weight.{new}"]
        )


def test_double_backward_through_weight_norm_is_refused() -> None:
    model = smooth_network()
    weight_norm(model.main_classifier)
    model.feature_extractor.append(nn.Mish())
    with pytest.raises(
        ValueError, match="meta_gradient: mish has no tangent here, .* weight_norm wrongly"
    ):
        meta_gradient(model, smooth_problem(model, "all", "paper"))


WITH_THETA_A = [
    name
    for name, kind in OBJECTIVES.items()
    if kind.auxiliary and kind.self_supervised and not kind.parallel
]


@pytest.mark.parametrize("objective", WITH_THETA_A)
def test_losses_of_each_objective_against_finite_differences(objective: str) -> None:
    kind = OBJECTIVES[objective]
    model = smooth_network()
    half = smooth_problem(model, "all", "paper", objective).meta_test

    def written_out() -> float:
        z, a = model(half.x)
        p = z.softmax(1)
        q = a.softmax(1)
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


def by_double_backward(model: nn.Module, problem: MetaProblem) -> tuple[Tensor, ByName]:
    """The reference of meta_gradient: the inner step itself is differentiated."""
    parameters = dict(model.named_parameters())
    inner = {name: parameters[name] for name in problem.inner_names}
    main, inner_loss = problem.losses_at_psi(model)
    steps = torch.autograd.grad(inner_loss, list(inner.values()), create_graph=True)
    moved = {
        name: value - problem.inner_learning_rate * step
        for (name, value), step in zip(inner.items(), steps, strict=True)
    }
    at_moved = {f"model.{name}": value for name, value in (parameters | moved).items()}
    loss = functional_call(OuterLoss(model, problem), at_moved, ()) + main
    values = list(parameters.values())
    gradients = torch.autograd.grad(loss, values, materialize_grads=True)
    return loss.detach(), dict(zip(parameters, gradients, strict=True))


def assert_as_by_double_backward(model: nn.Module, problem: MetaProblem, error: float) -> None:
    """Loss, gradient (the error as a share of its norm), parameters and running statistics."""
    other = copy.deepcopy(model)
    expected_loss, expected = by_double_backward(other, problem)
    loss, gradients = meta_gradient(model, problem)
    assert loss.item() == pytest.approx(expected_loss.item(), rel=error)
    assert list(gradients) == list(expected)
    exact = flatten(expected.values())
    found = flatten(gradients.values())
    assert (found - exact).norm() <= error * exact.norm()
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    # Without the second-order term the two would be told apart.
    unmoved = by_double_backward(other, replace(problem, inner_learning_rate=0.0))[1]
    assert (flatten(unmoved.values()) - exact).norm() > 10 * error * exact.norm()


def assert_every_function_has_a_rule(model: nn.Module, problem: MetaProblem) -> None:
    """So that meta_gradient goes its own way, and not that of double backward."""
    with Tape() as tape:
        loss = problem.losses_at_psi(model)[1]
    parameters = dict(model.named_parameters())
    along = {parameters[name]: torch.ones_like(parameters[name]) for name in problem.inner_names}
    tape.derivative(loss, along)


class Features(nn.Module):
    """Blocks as those who share a φ write them: ReLU in place on what was added in place, a
    BatchNorm without scale and shift, one with running statistics, and a layer that is used twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(4, affine=False)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(4)
        self.bn3 = nn.BatchNorm2d(4).eval()
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.relu(self.bn1(self.conv1(x))))
        for _ in range(2):
            residual = self.bn2(self.conv2(x))
            residual += x
            x = self.relu(residual)
        return self.bn3(self.conv2(x)).mean((2, 3))

    def train(self, mode: bool = True) -> "Features":
        super().train(mode)
        self.bn3.eval()
        return self


def own_network(features: nn.Module) -> Cascade:
    torch.manual_seed(3)
    return Cascade(features, nn.Linear(4, 4), nn.Linear(4, 4))


NETWORKS: dict[str, Callable[[bool], nn.Module]] = {
    "pre_activation": lambda head: build_network(TINY, classes=4, auxiliary=head, seed=0),
    "conv_bn_relu": lambda head: build_network(
        ImageNetwork(depth=8, width=4), classes=4, auxiliary=head, seed=0
    ),
    "wide": lambda head: Cascade(WideResNet(10, 1), nn.Linear(64, 4), nn.Linear(4, 4)),
    "relu_logits": lambda head: build_network(
        ImageNetwork(depth=8, width=4, main_logits="relu"), classes=4, auxiliary=head, seed=0
    ),
    "in_place": lambda head: own_network(Features()),
    "text": lambda head: build_network(
        TextNetwork(hidden=(5, 4)), classes=4, inputs=7, auxiliary=head, seed=0
    ),
    "speech": lambda head: build_network(SpeechNetwork(), classes=4, auxiliary=head, seed=0),
    "parallel": lambda head: build_network(TINY, classes=4, parallel=True, seed=0),
}
SHAPES = {"text": (7,), "speech": (1, 32, 32)}
OF_NETWORK = {"parallel": ("meta_ttt",), "wide": ("meta",), "in_place": ("meta_supervised",)}


def problem_of(
    model: nn.Module, x: Tensor, which: str, outer_loss: str, kind: Objective, rate: float = 1.0
) -> MetaProblem:
    """Both halves of x, with labels, and for TTT as if each image had been turned."""
    y = torch.arange(len(x)) % 4
    halves = [Half(x[:8], y[:8]), Half(x[8:], y[8:])]
    if kind.parallel:
        halves = [half._replace(rotated=(half.x.flip(2), half.y)) for half in halves]
    names = inner_parameter_names(model, which)  # type: ignore[arg-type]
    return MetaProblem(halves[0], halves[1], names, rate, outer_loss, 0.3, kind)  # type: ignore[arg-type]


no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=no_gpu)])
@both_inner_steps
@both_outer_losses
@pytest.mark.parametrize(
    ("name", "objective"),
    [
        (name, objective)
        for name in NETWORKS
        for objective in OF_NETWORK.get(name, ("meta", "meta_no_auxiliary", "meta_information"))
    ],
)
def test_meta_gradient_of_each_network_against_double_backward(
    name: str,
    objective: str,
    outer_loss: str,
    which: str,
    device: str,
) -> None:
    kind = OBJECTIVES[objective]
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = NETWORKS[name](kind.auxiliary).train().to(device)
    x = torch.rand(16, *SHAPES.get(name, (3, 32, 32)), generator=generator).to(device)
    for dtype, error in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        model.to(dtype)
        problem = problem_of(model, x.to(dtype), which, outer_loss, kind)
        assert_as_by_double_backward(model, problem, error)
    assert_every_function_has_a_rule(model, problem)


class Doubled(torch.autograd.Function):
    """2 x, of which nothing is recorded."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return 2 * gradients[0]


class Then(nn.Module):
    """A linear layer of 12 features, and a function of what it gives."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 4)
        self.bn = nn.BatchNorm1d(4)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.bn(self.linear(x)))


def negated_in_a_view(x: Tensor) -> Tensor:
    x[:, 0].neg_()
    return x


CONSTANT = torch.rand(16, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
UNKNOWN = {
    "no rule": F.mish,
    "a tensor in a list": lambda x: torch.stack([x, 2 * x]).sum(0),
    "padded by a value": lambda x: F.pad(x, (1, 1), value=1.0)[:, 1:-1] ** 3,
    "not recorded": Doubled.apply,
    "changed by a view": negated_in_a_view,
    "several results": lambda x: x.sort(1)[0] ** 2,
    "written into": lambda x: torch.zeros_like(x).copy_(x),
    "called by names": lambda x: F.linear(torch.exp(input=x), weight=CONSTANT[:4]),
    "a constant by its name": lambda x: x.masked_fill(x > 0.5, value=0.0) ** 2,
    "a sum with options": lambda x: torch.add(x, x.exp(), alpha=0.5),
    "activated in place": lambda x: F.leaky_relu(x, inplace=True),
    "a third derivative that torch has not": lambda x: F.layer_norm(x, (4,)),
}


@both_inner_steps
@pytest.mark.parametrize("name", UNKNOWN)
def test_meta_gradient_is_exact_where_a_function_has_no_rule(name: str, which: str) -> None:
    model = own_network(Then(UNKNOWN[name])).double().train()
    x = torch.randn(16, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = problem_of(model, x, which, "release", PAPER)
    assert_as_by_double_backward(model, problem, 1e-12)
    with Tape() as tape:
        loss = problem.losses_at_psi(model)[1]
    moved = dict(model.named_parameters())["feature_extractor.bn.weight"]
    with pytest.raises(UnknownFunctionError):
        tape.derivative(loss, {moved: torch.ones_like(moved)})


KNOWN = {
    "products": lambda x: (x * x.exp() - 3 * x / (2 + x.square())).matmul(CONSTANT[:4]),
    "activations": lambda x: F.gelu(x).sigmoid().log() + F.max_pool2d(x.unsqueeze(0), 1).squeeze(0),
    "softmax": lambda x: x.softmax(1) + F.log_softmax(x, 1) - F.softmax(2 * x, 1).square(),
    "broadcast sum": lambda x: x.mean(1, keepdim=True) + CONSTANT[:8],
    "shared by two": lambda x: F.relu(x) + x.relu() * x.tanh(),
    "detached": lambda x: x.detach() * x,
    "without a gradient": lambda x: x * 0 + CONSTANT[:8] * x.sum().item(),
    "shapes": lambda x: x.reshape(2, 16).transpose(0, 1).contiguous().flatten().view(8, 4),
}


@pytest.mark.parametrize("name", KNOWN)
def test_meta_gradient_through_other_functions(name: str) -> None:
    model = own_network(Then(KNOWN[name])).double().train()
    x = torch.randn(16, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = problem_of(model, x, "all", "paper", PAPER)
    assert_as_by_double_backward(model, problem, 1e-12)
    assert_every_function_has_a_rule(model, problem)


class Shifts(nn.Module):
    """A sum of parameters, which have one gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 4)
        self.bn = nn.BatchNorm1d(4)
        self.first = nn.Parameter(torch.zeros(8, 4))
        self.second = nn.Parameter(torch.ones(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        return (self.bn(self.linear(x)) + self.first + self.second).tanh()


def test_parameters_with_one_gradient_have_it_once() -> None:
    model = own_network(Shifts()).double().train()
    x = torch.randn(16, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_as_by_double_backward(model, problem_of(model, x, "all", "release", PAPER), 1e-12)


def test_meta_gradient_under_autocast_is_that_of_double_backward() -> None:
    """BatchNorm's input has another precision than its parameters there."""
    model = build_network(TINY, classes=4, seed=0).train()
    x = torch.rand(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        problem = problem_of(model, x, "all", "paper", PAPER)
        assert_as_by_double_backward(model, problem, 1e-2)


def test_a_value_that_a_rule_needs_must_be_what_it_was() -> None:
    """A product's tangent needs both factors; the tape has been read too late."""
    weight = torch.ones(3, requires_grad=True)
    scale = torch.ones(3)
    with Tape() as tape:
        loss = (weight * scale).sum()
    assert tape.derivative(loss, {weight: torch.full((3,), 2.0)}).item() == 6
    scale.mul_(2)
    with pytest.raises(UnknownFunctionError, match="changed in place"):
        tape.derivative(loss, {weight: torch.full((3,), 2.0)})


def test_of_a_loss_that_does_not_move_the_derivative_is_zero() -> None:
    weight = torch.ones(3, requires_grad=True)
    other = torch.ones(3, requires_grad=True)
    with Tape() as tape:
        loss = weight.sum()
    assert tape.derivative(loss, {other: torch.ones(3)}).item() == 0


def test_inner_parameters_are_told_by_module() -> None:
    model = build_network(TINY, classes=4, seed=0)
    parameters = dict(model.named_parameters())
    moved = {parameters[name] for name in inner_parameter_names(model, "batchnorm_and_classifier")}
    assert moved == {*normalization_parameters(model), *model.main_classifier.parameters()}
    with pytest.raises(ValueError, match="which = 'al'; .*did you mean 'all'"):
        inner_parameter_names(model, "al")  # type: ignore[arg-type]
    everything = inner_parameter_names(model, "all")
    assert (
        not any(name.startswith("auxiliary") for name in everything)
        and len(everything) == len(parameters) - 4
    )
    parallel = build_network(TINY, classes=4, parallel=True, seed=0)
    assert all(
        name.startswith("feature_extractor.") for name in inner_parameter_names(parallel, "all")
    )


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)]
)
def test_the_inner_step_moves_the_normalisation_that_the_cascade_adapts(layer: nn.Module) -> None:
    phi = nn.Sequential(nn.Conv2d(3, 4, 1), layer, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    cascade = Cascade(phi, nn.Linear(4, 3), nn.Linear(3, 3))
    moved = set(inner_parameter_names(cascade, "batchnorm_and_classifier"))
    adapted = set(CascadeMethod(cascade).adapted_parameters())
    assert {name for name, each in cascade.named_parameters() if each in adapted} <= moved
    assert {"feature_extractor.1.weight", "feature_extractor.1.bias"} <= moved


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outer_loss": "relese"}, "outer_loss = 'relese'; .*did you mean 'release'"),
        ({"inner_learning_rate": float("nan")}, "inner_learning_rate = nan; allowed is"),
        ({"entropy_weight": -1}, "entropy_weight = -1; allowed is a finite number from 0 on"),
    ],
)
def test_a_meta_problem_that_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    model = smooth_network()
    with pytest.raises(ValueError, match=words):
        replace(smooth_problem(model, "all", "paper"), **changes)


def test_a_half_that_is_too_small_is_refused() -> None:
    model = smooth_network()
    problem = smooth_problem(model, "all", "paper")
    for count, words in (
        (0, "examples in meta_test = 0; allowed is a whole number from 1 on"),
        (1, "with 1 example in half a batch a BatchNorm sees 1 value per channel"),
    ):
        half = Half(problem.meta_test.x[:count], problem.meta_test.y[:count])
        with pytest.raises(ValueError, match=words):
            meta_gradient(model, replace(problem, meta_test=half))


def test_a_parameter_without_a_gradient_or_of_another_name_is_refused() -> None:
    model = smooth_network()
    problem = smooth_problem(model, "all", "paper")
    with pytest.raises(ValueError, match="inner_names has 'nope'; "):
        meta_gradient(model, replace(problem, inner_names=(*problem.inner_names, "nope")))
    model.auxiliary_classifier.requires_grad_(False)
    with pytest.raises(ValueError, match=r"auxiliary_classifier\.\S* requires no gradient"):
        meta_gradient(model, problem)
