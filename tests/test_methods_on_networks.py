"""One table: networks that people bring × all methods. Each cell runs right or is refused with the
expected words.

What runs is held to five things: before any step it predicts what the untouched network does, by
the source's statistics or by the batch's; the optimiser owns the model's own tensors; the names and
types of the parameters stay; `reset` is exact, into the same tensors; and all numbers are finite.
"""

import copy
import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import torch
from conftest import same, seeded, with_constants
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

import cascadetta_lib
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.methods.field import memo, note, roid
from cascadetta_lib.models import Cascade, batch_norms, use_batch_statistics
from cascadetta_lib.models.functional import call_with
from cascadetta_lib.training.meta import MetaProblem, inner_parameter_names, meta_gradient
from cascadetta_lib.training.objectives import Half

pytestmark = pytest.mark.usefixtures("small_updates")
CLASSES = 4
CHANNELS = 6
CASCADES = {name for name in METHODS if name.startswith("cascade")}
REMEMBER = {"cascade_plus", "cascade_source_prior", "source_prior", "tent_source_prior"}
OTHER_STATISTICS = REMEMBER | {"rotta", "petta", "note", "tema"}
"""Methods whose BatchNorm uses other statistics than the batch's alone."""
BY_SOURCE = {"erm", "lame", "t3a", "memo", "rotta", "petta", "note"}
"""Methods that begin with the source's running statistics."""
STILL = {name for name in METHODS if not METHODS[name].adapts}
"""Methods that never update."""
LEARN_ALL = {"cotta", "memo", "shot_im"}
"""Methods that update more than scales and shifts, and so need none."""
READ_THETA_A = CASCADES - {"cascade_no_auxiliary", "cascade_same_weights"}
"""Methods whose loss is that of θ_a's output."""
LEARN_SCALES = set(METHODS) - STILL - LEARN_ALL - {"ttt"}
"""Methods that update scales and shifts."""
ALWAYS_MOVE = {"tent", "tent_adam", "cotta", "rpl", "cascade", "cascade_no_auxiliary"}
"""Methods that learn from every batch, sure or not."""


class NeverCorrected(note.InstanceAwareStatistics):
    """IABN that corrects nothing: no image is so many standard errors from the source."""

    k = 1e9


SOURCE_ALONE = {
    "note": partial(NeverCorrected, momentum=note.MOMENTUM),
    "memo": partial(memo.CountedAsOne, examples=10**9),
}
"""Methods that begin with the source's statistics, each with a function that makes statistics that
stay the source's, whatever the examples are.
"""


class Fused(nn.BatchNorm2d):
    """A BatchNorm that also holds an activation, as timm's BatchNormAct2d does.

    The activation is SiLU, because the trunk applies ReLU next. A ReLU in its place could be lost
    without changing any output.
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(super().forward(x))


class Dropping(nn.BatchNorm2d):
    """A BatchNorm with a forward of its own that calls F.batch_norm, and with dropout."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        tracked = not self.training or self.track_running_stats
        mean = self.running_mean if tracked else None
        variance = self.running_var if tracked else None
        x = F.batch_norm(
            x, mean, variance, self.weight, self.bias, self.training, self.momentum or 0.0, self.eps
        )
        return self.drop(x.clamp(-1, 1))


class ByHand(nn.BatchNorm2d):
    """A BatchNorm that does the arithmetic itself."""

    def forward(self, x: Tensor) -> Tensor:
        mean = self.running_mean
        variance = self.running_var
        if self.training:
            variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
        assert mean is not None and variance is not None
        x = (x - mean[:, None, None]) / (variance[:, None, None] + self.eps).sqrt()
        return x * self.weight[:, None, None] + self.bias[:, None, None]


class Trunk(nn.Module):
    """Two convolutions, each followed by a BatchNorm: images (B, 3, 8, 8) → features (B, 6)."""

    def __init__(self, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.bn1 = norm(CHANNELS)
        self.second = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.bn2 = norm(CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.first(x)).relu()
        return self.bn2(self.second(x)).relu().mean((2, 3))


class ToOnePixel(Trunk):
    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.first(x)).relu().mean((2, 3), keepdim=True)
        return self.bn2(self.second(x)).relu().flatten(1)


class Frozen(Trunk):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(x)


class Counting(Trunk):
    """Keeps something that is no tensor, and a buffer that no state_dict has, and changes both."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.calls = [0]
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def get_extra_state(self) -> dict[str, list[int]]:
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, list[int]]) -> None:
        self.calls = state["calls"]

    def forward(self, x: Tensor) -> Tensor:
        self.calls[0] += 1
        self.seen += 1
        return super().forward(x) * (1 + 0.1 * self.seen.detach())


class TwoNames(Trunk):
    """Has one parameter under two names, and uses both."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(CHANNELS))
        self.again = self.scale
        self.bn2.weight = self.scale

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.first(x)).relu() * self.again[:, None, None]
        return self.bn2(self.second(x)).relu().mean((2, 3))


class Recomputing(Trunk):
    """Computes its first half again in the backward pass, to save memory."""

    def forward(self, x: Tensor) -> Tensor:
        def half(x: Tensor) -> Tensor:
            return self.bn1(self.first(x)).relu()

        x = checkpoint(half, x, use_reentrant=False) if torch.is_grad_enabled() else half(x)
        return self.bn2(self.second(x)).relu().mean((2, 3))


class Reentrant(Trunk):
    """Computes its first half again by a checkpoint that saves no tensors by hooks."""

    def forward(self, x: Tensor) -> Tensor:
        def half(x: Tensor) -> Tensor:
            return self.bn1(self.first(x)).relu()

        x = x.clone().requires_grad_(torch.is_grad_enabled())  # else the half gets no gradient
        x = checkpoint(half, x, use_reentrant=True) if torch.is_grad_enabled() else half(x)
        return self.bn2(self.second(x)).relu().mean((2, 3))


class ReentrantLater(Reentrant):
    """Computes its second half again, behind a layer that SAR adapts."""

    def forward(self, x: Tensor) -> Tensor:
        def half(x: Tensor) -> Tensor:
            return self.bn2(self.second(x)).relu().mean((2, 3))

        x = self.bn1(self.first(x)).relu()
        return checkpoint(half, x, use_reentrant=True) if torch.is_grad_enabled() else half(x)


class Stubborn(nn.BatchNorm2d):
    """Stays in evaluation mode, like the BatchNorm layers of detectors in training."""

    def train(self, mode: bool = True) -> "Stubborn":
        return super().train(False)


class InPlace(Trunk):
    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.first(x)).relu_()
        return self.bn2(self.second(x)).relu_().mean((2, 3))


class Losing(Trunk):
    """Puts another tensor in the place of a parameter while it runs."""

    def forward(self, x: Tensor) -> Tensor:
        self.bn1.weight = nn.Parameter(self.bn1.weight.detach().clone())
        return super().forward(x)


def shared() -> nn.Module:
    trunk = Trunk()
    trunk.bn2 = trunk.bn1
    return trunk


def tied() -> nn.Module:
    trunk = Trunk()
    trunk.bn2.weight = trunk.bn1.weight
    trunk.second.bias = trunk.first.bias
    return trunk


def one_memory() -> nn.Module:
    trunk = Trunk()
    trunk.bn2.running_mean = trunk.bn1.running_mean
    trunk.bn2.running_var = trunk.bn1.running_var
    return trunk


def hooked() -> nn.Module:
    trunk = Trunk()
    for norm in (trunk.bn1, trunk.bn2):
        norm.register_forward_hook(lambda module, inputs, x: x.clamp(-1, 1))
    return trunk


def with_norms_of_weights() -> nn.Module:
    trunk = Trunk()
    for layer in (trunk.first, trunk.second):
        nn.utils.parametrizations.weight_norm(layer)
    return trunk


def with_old_norms_of_weights() -> nn.Module:
    """Its weights are no leaves of the graph, so PyTorch does not copy it."""
    trunk = Trunk()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        for layer in (trunk.first, trunk.second):
            nn.utils.weight_norm(layer)
    return trunk


class Positive(nn.Module):
    """A parametrisation by which a scale cannot be negative."""

    def forward(self, x: Tensor) -> Tensor:
        return x.abs()

    def right_inverse(self, x: Tensor) -> Tensor:
        return x


def with_positive_scales() -> nn.Module:
    trunk = Trunk()
    for norm in (trunk.bn1, trunk.bn2):
        parametrize.register_parametrization(norm, "weight", Positive())
    return trunk


def frozen_by_its_user() -> nn.Module:
    return Trunk().requires_grad_(False)


def negative_zeros() -> nn.Module:
    trunk = Trunk()
    for parameter in (trunk.first.bias, trunk.bn1.bias, trunk.bn2.bias):
        parameter.data.fill_(-0.0)
    return trunk


def without_momentum() -> nn.Module:
    return Trunk(lambda channels: nn.BatchNorm2d(channels, momentum=None))


TRUNKS: dict[str, Callable[[], nn.Module]] = {
    "plain": Trunk,
    "activation in BatchNorm": lambda: Trunk(Fused),
    "dropout in BatchNorm": lambda: Trunk(Dropping),
    "BatchNorm by hand": lambda: Trunk(ByHand),
    "one BatchNorm at two places": shared,
    "tied weights": tied,
    "no shift": lambda: Trunk(lambda channels: nn.BatchNorm2d(channels, bias=False)),
    "no scale": lambda: Trunk(lambda channels: nn.BatchNorm2d(channels, affine=False)),
    "no running statistics": lambda: Trunk(
        lambda channels: nn.BatchNorm2d(channels, track_running_stats=False)
    ),
    "momentum None": without_momentum,
    "DataParallel": lambda: nn.DataParallel(Trunk()),
    "DataParallel around all": Trunk,
    "extra state": Counting,
    "compiled": lambda: torch.compile(Trunk(), backend="eager"),  # type: ignore[dict-item]
    "under no_grad": Frozen,
    "1 × 1 pixels": ToOnePixel,
    "−∞": Trunk,
    "−∞ before θ_a": Trunk,
    "−0.0": negative_zeros,
    "float64": Trunk,
    "float16": Trunk,
    "loses a parameter": Losing,
    "SyncBatchNorm": lambda: Trunk(nn.SyncBatchNorm),
    "one parameter by two names": TwoNames,
    "computed again in the backward pass": Recomputing,
    "computed again by a reentrant checkpoint": Reentrant,
    "BatchNorm that stays in evaluation mode": lambda: Trunk(Stubborn),
    "activation in place": InPlace,
    "one set of running statistics for two": one_memory,
    "hook on BatchNorm": hooked,
    "weight_norm": with_norms_of_weights,
    "weight_norm that cannot be copied": with_old_norms_of_weights,
    "scales by a parametrisation": with_positive_scales,
    "frozen by its user": frozen_by_its_user,
    "TorchScript": lambda: torch.jit.script(Trunk()),
    "no normalisation": lambda: Trunk(lambda channels: nn.Identity()),
    "GroupNorm": lambda: Trunk(lambda channels: nn.GroupNorm(2, channels)),
    "LayerNorm": lambda: Trunk(lambda channels: nn.LayerNorm([channels, 8, 8])),
    "InstanceNorm": lambda: Trunk(lambda channels: nn.InstanceNorm2d(channels, affine=True)),
}


COMPUTED_AGAIN = (
    "computed again in the backward pass",
    "computed again by a reentrant checkpoint",
)
TOLD_BY_A_BATCH = (
    "under no_grad",
    "loses a parameter",
    "−∞ before θ_a",
    *COMPUTED_AGAIN,
)
"""Networks whose fault shows only in a forward pass."""
OTHER_NORMS = ("GroupNorm", "LayerNorm", "InstanceNorm")


class Masked(nn.Linear):
    """Logits of which two are masked, as on a subset of the classes."""

    def __init__(self, features: int) -> None:
        super().__init__(features, CLASSES + 2)

    def forward(self, x: Tensor) -> Tensor:
        z = super().forward(x)
        return torch.cat([z[:, :CLASSES], torch.full_like(z[:, CLASSES:], -math.inf)], 1)


def refusal(kind: str, name: str) -> str | None:
    """Words of the message with which a method refuses a network, or None if the method runs."""
    learns = name in LEARN_SCALES
    if kind == "TorchScript":
        return "pass the nn.Module that was scripted"
    if name == "ttt":
        return "use tent"
    if kind == "−∞ before θ_a" and name in READ_THETA_A:
        return "z holds −∞, and θ_a returns NaN for it; mask classes after θ_a"
    if name in ("erm", "lame", "t3a"):
        return "use adabn" if kind == "no running statistics" else None
    if kind == "no normalisation" and name not in LEARN_ALL:
        return "erm, lame or cotta"
    if kind in OTHER_NORMS and (name == "adabn" or name in OTHER_STATISTICS):
        return "use tent, erm, lame or cotta"
    if kind == "SyncBatchNorm":
        return "nn.BatchNorm2d"
    if kind == "compiled" and name in OTHER_STATISTICS | {"memo"}:
        return "the network from before torch.compile"
    if kind == "BatchNorm by hand" and name in OTHER_STATISTICS | {"memo"}:
        return "does not call F.batch_norm"
    if kind == "no running statistics" and name in OTHER_STATISTICS | {"eata", "memo"}:
        return "running statistics"
    if kind == "no scale" and learns:
        return "use adabn"
    if kind == "scales by a parametrisation" and learns:
        return "remove_parametrizations to the layer, or use adabn or cotta"
    if kind == "float16" and name not in STILL:
        return "model.float()"
    if kind in ("extra state", *COMPUTED_AGAIN) and name == "eata":
        return "use eta"
    if kind in COMPUTED_AGAIN and name == "sar":
        return "recomputes activations in the backward pass"
    if kind == "weight_norm that cannot be copied" and name in ("cotta", "petta", "rotta"):
        return "use tent"
    if kind == "under no_grad" and name not in STILL:
        return "torch.no_grad()"
    if kind == "loses a parameter" and name not in STILL:
        return "keeps its parameters"
    return None


def build(kind: str, name: str) -> nn.Module:
    """The network, with running statistics of its own; a cascade for the methods that need one."""
    torch.manual_seed(0)
    trunk = TRUNKS[kind]()
    head = Masked(CHANNELS) if kind.startswith("−∞") else nn.Linear(CHANNELS, CLASSES)
    model: nn.Module = nn.Sequential(trunk, head)
    if name in CASCADES:
        masked = kind == "−∞ before θ_a"
        head = Masked(CHANNELS) if masked else nn.Linear(CHANNELS, CLASSES)
        classes = CLASSES + 2 if masked else CLASSES
        theta_a = Masked(classes) if kind == "−∞" else nn.Linear(classes, CLASSES)
        without = name == "cascade_no_auxiliary"
        model = Cascade(trunk, head, None if without else theta_a)
    if kind == "DataParallel around all" and name not in CASCADES:
        model = nn.DataParallel(model)
    with torch.no_grad():
        head.weight.mul_(8)
        settle(model)
        if kind == "compiled":
            model.eval()(batch(kind, 2))  # compiled for evaluation mode, before any method sees it
    if kind == "float64":
        model.double()
    if kind == "float16":
        model.half()
    return model


def settle(model: nn.Module) -> None:
    """Running statistics some way from those of any batch."""
    generator = seeded(3)
    for norm in batch_norms(model):
        if norm.running_mean is not None and norm.running_var is not None:
            norm.running_mean.normal_(0.0, 0.1, generator=generator)
            norm.running_var.uniform_(0.2, 0.4, generator=generator)


def batch(kind: str, count: int, seed: int = 1) -> Tensor:
    x = torch.rand(count, 3, 8, 8, generator=seeded(seed)) * 2 - 1
    if kind == "−0.0":
        x = torch.where(x.abs() < 0.3, torch.tensor(-0.0), x)
    return x.to({"float64": torch.float64, "float16": torch.float16}.get(kind, torch.float32))


def make(name: str, model: nn.Module, kind: str, **options: Any) -> Method:
    source = batch(kind, 8) if METHODS[name].needs_source else None
    return METHODS[name](model, learning_rate=0.01, source=source, **options)


def logits_of(result: Any) -> Tensor:
    return getattr(result, "main", result)


@torch.no_grad()
def untouched(kind: str, name: str, x: Tensor) -> Tensor:
    """The logits of the network itself, by the statistics that the method begins with."""
    model = build(kind, name).eval()
    if name not in REMEMBER | BY_SOURCE:
        use_batch_statistics(model)
    parts = x.split(1) if name == "memo" else [x]
    z = torch.cat([logits_of(model(part)) for part in parts])
    return roid.corrected_by_prior(z) if name in ("roid", "cmf") else z


def check_before_any_step(kind: str, name: str) -> None:
    # From 64 examples on, TEMA's averages are the statistics of the batch. A source that counts as
    # 10⁹ examples outweighs the batch.
    x = batch(kind, 64 if name == "tema" else 8)
    options = {"memory": 10**9} if name in REMEMBER else {}
    tolerance = 0.01 if kind == "float16" else 1e-4
    with ExitStack() as changed:
        if name in SOURCE_ALONE:
            changed.enter_context(with_constants(name, make_statistics=SOURCE_ALONE[name]))
        method = make(name, build(kind, name), kind, **options)
        found = method.predict(x).main
    if name in ("lame", "t3a"):
        assert found.shape == (8, CLASSES + 2 * kind.startswith("−∞"))
    else:
        assert torch.allclose(found, untouched(kind, name, x), atol=tolerance), (
            "as the network itself"
        )


def check_steps(kind: str, name: str) -> None:
    model = build(kind, name)
    given = dict(model.named_parameters())
    method = make(name, model, kind)
    before = dict(method.state_dict(keep_vars=True))
    source = copy.deepcopy(method.state_dict())
    batches = [batch(kind, count, count) for count in (8, 5, 9)]
    first = [method(x) for x in batches]
    assert all(z.amax(1).isfinite().all() for z in first)
    now = dict(model.named_parameters())
    if kind != "loses a parameter":  # This network changes its parameters with any method.
        assert list(now) == list(given) and all(now[key] is given[key] for key in given)
    assert all(type(value) is nn.Parameter for value in now.values())
    if method.optimizer is not None:
        owned = [one for group in method.optimizer.param_groups for one in group["params"]]
        assert {id(one) for one in owned} <= {id(value) for value in now.values()}
        assert {id(one) for one in owned} == {id(one) for one in method.adapted_parameters()}
    changed = [key for key in given if not torch.equal(source[f"model.{key}"], now[key])]
    assert all(value.isfinite().all() for value in now.values())
    assert changed or name not in ALWAYS_MOVE
    assert method.adapts or not changed
    extra = source.pop("model.0._extra_state", None)
    method.reset()
    after = method.state_dict(keep_vars=True)
    assert extra is None or after.pop("model.0._extra_state") == extra
    source = {key: value for key, value in source.items() if isinstance(value, Tensor)}
    after = {key: value for key, value in after.items() if isinstance(value, Tensor)}
    assert same(after, source)
    kept = {key: value for key, value in after.items() if key != "bank"}
    if kind != "loses a parameter":
        assert all(value is before[key] for key, value in kept.items())
    assert all(torch.equal(method(x), z) for x, z in zip(batches, first, strict=True))


@pytest.mark.parametrize("name", list(METHODS))
@pytest.mark.parametrize("kind", TRUNKS)
def test_a_network_runs_right_or_is_refused(kind: str, name: str) -> None:
    words = refusal(kind, name)
    if words is None:
        check_before_any_step(kind, name)
        check_steps(kind, name)
        return
    with pytest.raises(ValueError) as refused:
        method = make(name, build(kind, name), kind)
        # A fault that shows only in a forward pass is found by the first update.
        assert kind in TOLD_BY_A_BATCH, "refused before any batch"
        method(batch(kind, 8))
    message = str(refused.value)
    assert words in message and message.startswith(f"{METHODS[name].label}")
    assert "\n" not in message and ". " not in message


@pytest.mark.parametrize(
    "name", [name for name in METHODS if name not in ("ttt", "rotta", "petta")]
)
def test_a_last_batch_of_one_works_or_says_what_would(name: str) -> None:
    method = make(name, build("1 × 1 pixels", name), "1 × 1 pixels")
    method(batch("", 8))
    if name in BY_SOURCE | OTHER_STATISTICS:
        assert method(batch("", 1)).isfinite().all()
    else:
        with pytest.raises(
            ValueError, match="BatchNorm sees 1 value per channel.*use larger batches"
        ):
            method(batch("", 1))


def test_an_option_that_a_method_does_not_take_is_refused() -> None:
    for name, option in (
        ("erm", {"memory": 8}),
        ("rpl", {"diversity": 1.0}),
        ("cotta", {"diversity": 1.0}),
        ("tent", {"learning_rates": 0.1}),
    ):
        (key,) = option
        with pytest.raises(
            ValueError, match=f"{METHODS[name].label} has no option {key} .*allowed"
        ):
            METHODS[name](build("plain", name), **option)


def test_other_tensors_stand_in_wherever_a_parameter_is_used() -> None:
    for kind in (
        "one BatchNorm at two places",
        "tied weights",
        "one parameter by two names",
        "DataParallel",
        "DataParallel around all",
        "compiled",
    ):
        model = build(kind, "tent").eval()
        x = batch(kind, 4)
        given = dict(model.named_parameters())
        halved = {value: (value / 2).detach() for value in given.values()}
        other = copy.deepcopy(model)
        with torch.no_grad():
            for value in other.parameters():
                value.div_(2)
        assert torch.allclose(call_with(model, halved, x), other(x), atol=1e-6), kind
        assert all(value is given[key] for key, value in model.named_parameters()), kind


@pytest.mark.parametrize(
    "kind",
    [
        "one BatchNorm at two places",
        "tied weights",
        "one parameter by two names",
        *COMPUTED_AGAIN,
    ],
)
def test_the_meta_gradient_leaves_the_parameters_where_they_were(kind: str) -> None:
    """The meta-gradient is also compared with the change of the loss over a small step along it."""
    model = build(kind, "cascade").double()
    given = dict(model.named_parameters())
    halves = []
    for seed in (1, 2):
        x = batch("float64", 8, seed)
        halves.append(Half(x, torch.arange(8) % CLASSES))
    names = inner_parameter_names(model, "all")  # type: ignore[arg-type]
    problem = MetaProblem(*halves, names, 0.1, "paper", 0.2)
    if kind in COMPUTED_AGAIN:
        with pytest.raises(ValueError, match="meta_gradient: the network recomputes activations"):
            meta_gradient(model, problem)
        return
    loss, gradient = meta_gradient(model, problem)
    assert all(value is given[key] for key, value in model.named_parameters())
    assert list(given) == [key for key, _ in model.named_parameters()]
    length = sum(value.square().sum().item() for value in gradient.values())
    with torch.no_grad():
        for key, value in given.items():
            value.add_(gradient[key], alpha=1e-6)
    change = (meta_gradient(model, problem)[0] - loss).item()
    assert change == pytest.approx(1e-6 * length, rel=1e-2)


def test_an_inner_step_on_scales_that_are_computed_is_refused() -> None:
    model = build("scales by a parametrisation", "cascade")
    with pytest.raises(ValueError, match="weight of a ParametrizedBatchNorm2d is computed"):
        inner_parameter_names(model, "batchnorm_and_classifier")  # type: ignore[arg-type]


def test_the_public_names_are_those_of_the_library_and_cost_no_torchvision() -> None:
    code = "import sys, cascadetta_lib; assert 'torchvision' not in sys.modules\n"
    code += "from cascadetta_lib import METHODS, Cascade, evaluate, meta_gradient\n"
    code += "assert 'tent' in METHODS and callable(evaluate) and callable(meta_gradient)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'cascade_of'"):
        cascadetta_lib.cascade_of  # noqa: B018


def test_sar_refuses_a_reentrant_checkpoint_behind_a_layer_that_it_adapts() -> None:
    method = METHODS["sar"](nn.Sequential(ReentrantLater(), nn.Linear(CHANNELS, 3)))
    with pytest.raises(ValueError, match="SAR: the network recomputes activations"):
        method.step(batch("", 8))
