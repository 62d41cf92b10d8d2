"""CoTTA, ROID, RoTTA, LAME, TEMA and a source prior against their equations, worked out by hand on
tiny networks.
"""

import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import with_constants
from test_field_methods_a import entropy, softmax
from torch import Tensor, nn

from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.methods.field import lame, roid
from cascadetta_lib.methods.field.rotta import Example, place_for
from cascadetta_lib.models import Cascade

CENTRE = torch.tensor([0.5, -1.0])
VARIANCE = torch.tensor([2.0, 0.5])
"""The source's running statistics."""


class Small(nn.Module):
    """Two numbers, normalised and scaled, to logits of three classes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.last = nn.Linear(2, 3)
        self.norm.running_mean.copy_(CENTRE)
        self.norm.running_var.copy_(VARIANCE)
        self.norm.weight.data, self.norm.bias.data = (
            torch.tensor([0.8, 0.3]),
            torch.tensor([-0.1, -0.4]),
        )
        self.last.weight.data = torch.tensor([[1.2, 0.0], [-0.6, 1.0], [-0.6, -1.0]])
        self.last.bias.data = torch.tensor([0.0, 0.3, -0.2])

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(x))


def numbers(count: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(count, 2, generator=torch.Generator().manual_seed(seed)) + 1


def swapped(x: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Copies of which everybody knows what they are, and which BatchNorm does not make the same
    again.
    """
    for _ in range(count):
        yield x.flip(1)


def make(name: str, **options: Any) -> Method:
    return METHODS[name](Small(), **({"copies": swapped, "learning_rate": 0.1} | options))


def normalised(x: Tensor, centre: Tensor, variance: Tensor, norm: nn.BatchNorm1d) -> Tensor:
    return (x - centre) / (variance + norm.eps).sqrt() * norm.weight + norm.bias


# ---------------------------------------------------------------- CoTTA


@pytest.mark.parametrize("sure", [True, False])
def test_cotta_step_written_by_hand(sure: bool) -> None:
    """Where the anchor is sure, the target is the teacher's on x; else the mean of its logits over
    the copies.
    """

    def two_copies(x: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
        yield from (x.flip(1), x.square())[:count]

    with with_constants("cotta", copy_count=2, restore_probability=0.0):
        method = make("cotta", copies=two_copies, predict="before", optimizer="sgd")
    x = numbers(8)
    (method.anchor if sure else method.teacher).last.weight.data *= 20
    student = Small()
    teacher = copy.deepcopy(method.teacher)
    target = teacher(x) if sure else (teacher(x.flip(1)) + teacher(x.square())) / 2
    loss = -(target.softmax(1) * student(x).log_softmax(1)).sum(1).mean()
    gradients = torch.autograd.grad(loss, list(student.parameters()))
    assert torch.allclose(method(x), target, atol=1e-5)
    networks = (method.model, method.teacher, student, teacher)
    for gradient, own, average, before, old in zip(
        gradients, *(each.parameters() for each in networks), strict=True
    ):
        # The first step of Nesterov momentum 0.9 moves by 1.9 times the gradient, at a learning
        # rate of 0.1.
        assert torch.allclose(own, before - 0.19 * gradient, atol=1e-6)
        assert torch.allclose(average, 0.999 * old + 0.001 * own, atol=1e-6)


# ---------------------------------------------------------------- ROID

LOGITS = np.array([[2.0, 0.0, -1.0], [1.9, 0.1, -1.0], [0.0, 3.0, 0.5], [0.1, 0.2, 0.0]])
UNIFORM = np.full(3, 1 / 3)


def roid_weights(z: np.ndarray, average: np.ndarray) -> np.ndarray:
    """exp(3·d·c) where d, 1 − cosine to the average, is not below its mean; d and c are scaled to
    0…1.
    """

    def scaled(values: np.ndarray) -> np.ndarray:
        return (values - values.min()) / (values.max() - values.min())

    p = softmax(z)
    diversity = scaled(1 - p @ average / np.linalg.norm(p, axis=1) / np.linalg.norm(average))
    return np.exp(3 * diversity * scaled(-entropy(z))) * (diversity >= diversity.mean())


def test_roid_weights_are_those_of_certainty_and_diversity() -> None:
    method = make("roid")
    expected = roid_weights(LOGITS, UNIFORM)
    assert 0 < (expected == 0).sum() < 4, "some are filtered, some are not"
    assert method.weights(torch.from_numpy(LOGITS)).numpy() == pytest.approx(expected)
    average = 0.9 * UNIFORM + 0.1 * softmax(LOGITS).mean(0)
    assert method.mean_prediction.numpy() == pytest.approx(average)
    assert method.weights(torch.from_numpy(LOGITS[::-1].copy())).numpy() == pytest.approx(
        roid_weights(LOGITS[::-1], average)
    )


def test_roid_weighs_equal_predictions_alike() -> None:
    assert make("roid").weights(torch.tensor([[2.0, 0.0, -1.0]] * 3)).tolist() == [1.0] * 3
    assert make("roid").weights(torch.tensor([[2.0, 0.0, -1.0]])).tolist() == [1.0]


@pytest.mark.parametrize("copies", [swapped, None])
def test_roid_loss_is_the_weighted_sum_over_the_batch_by_its_size(copies: Any) -> None:
    method = make("roid", copies=copies).double()
    x = numbers(5).double()
    method.model.last.weight.data *= 4
    model = copy.deepcopy(method.model)
    z, other = (model(each).detach().numpy() for each in (x, x.flip(1)))
    p = softmax(z)
    q = softmax(other)
    weights = roid_weights(z, UNIFORM)
    assert weights[p.max(1) > 0.99].any(), "is taken for 0.99, where the ratio's gradient ends"
    clipped = p.clip(max=0.99)
    losses = -(clipped * np.log(clipped / (1 - clipped) + 1e-5)).sum(1)
    if copies is not None:
        losses -= (p * np.log(q) + q * np.log(p)).sum(1) / 2
    assert method.loss(x)[0].item() == pytest.approx((weights * losses).mean())


@pytest.mark.parametrize(("examples", "least"), [(4, 1 / 3), (2, 1 / 2)])
def test_roid_corrects_by_the_smoothed_prior(examples: int, least: float) -> None:
    """γ is the larger of a share of the three classes and one of the examples, by the largest
    prior.
    """
    p = softmax(LOGITS[:examples])
    prior = p.mean(0)
    gamma = least / prior.max()
    products = p * (prior + gamma) / (1 + 3 * gamma)
    expected = products / products.sum(1, keepdims=True)
    found = roid.corrected_by_prior(torch.from_numpy(LOGITS[:examples]))
    assert found.softmax(1).numpy() == pytest.approx(expected)


@pytest.mark.parametrize("order", ["before", "after"])
def test_roid_predicts_with_the_prior_in_both_orders(order: str) -> None:
    method = make("roid", predict=order)
    x = numbers(8)
    plain = copy.deepcopy(method.model)
    found = method(x)
    z = (method.model if order == "after" else plain)(x)
    assert torch.allclose(found, roid.corrected_by_prior(z), atol=1e-6)


def test_roid_draws_the_updated_weights_to_the_source() -> None:
    method = make("roid")
    x = numbers(8)
    source = copy.deepcopy(method.model)
    stepped = copy.deepcopy(method.model)
    method.loss(x)[0].backward()
    scale, shift = method.model.norm.parameters()
    # Adam's first step is the learning rate in the direction of the gradient.
    for name, gradient in (("weight", scale.grad), ("bias", shift.grad)):
        getattr(stepped.norm, name).data -= 0.1 * gradient / (gradient.abs() + 1e-8)
    method.reset()
    method(x)
    for name in ("weight", "bias"):
        own = getattr(stepped.norm, name)
        old = getattr(source.norm, name)
        assert torch.allclose(getattr(method.model.norm, name), 0.99 * own + 0.01 * old, atol=1e-6)
        assert not torch.allclose(0.99 * own + 0.01 * old, own, atol=1e-5)


# ---------------------------------------------------------------- RoTTA


def score(age: float, uncertainty: float) -> float:
    return 1 / (1 + math.exp(-age / 64)) + uncertainty


def test_rotta_memory_takes_a_free_place_while_the_class_is_below_its_share() -> None:
    kept = [Example(0, arrival, 0.0) for arrival in range(6)]
    assert place_for(Example(0, 6, 0.9), kept, 10) == 6, "a share of 6.4 has room for a seventh"
    assert place_for(Example(1, 6, 0.9), [*kept, kept[0]], 10) == 7


def test_rotta_memory_replaces_the_worst_of_a_class_that_has_its_share() -> None:
    kept = [
        Example(0, 0, 0.10),
        Example(0, 1, 0.50),
        Example(1, 0, 0.99),
        *(Example(0, 2, 0.0) for _ in range(30)),
    ]
    # Of class 0: ages 40 and 39. The old one is worth 0.651 + 0.10, the unsure one 0.648 + 0.50;
    # class 1 is spared.
    assert score(40, 0.10) < score(39, 0.50) and 32 / 2 < 32
    assert place_for(Example(0, 40, 0.60), kept, 2) == 1, "0.5 + 0.60 is less than 1.148"
    assert score(39, 0.50) < 0.5 + 0.65
    assert place_for(Example(0, 40, 0.65), kept, 2) is None
    aged = [Example(0, arrival, 0.3) for arrival in (5, 3, 4)] + [Example(0, 6, 0.3)] * 29
    assert place_for(Example(0, 50, 0.3), aged, 2) == 1, "of equally sure ones the oldest"


def test_rotta_full_memory_replaces_the_worst_of_the_largest_classes() -> None:
    counts = {0: 20, 1: 20, 2: 14, 3: 10}
    kept = [Example(label, 0, 0.2) for label, count in counts.items() for _ in range(count)]
    kept[25], kept[45] = Example(1, 0, 0.4), Example(2, 0, 0.9)
    assert len(kept) == 64
    # Three classes: a share of 21.3, which class 3 has not reached; the largest are 0 and 1.
    assert place_for(Example(3, 10, 0.3), kept, 3) == 25
    assert score(10, 0.4) < 0.5 + 0.45 and place_for(Example(3, 10, 0.45), kept, 3) is None


def replayed(stream: list[tuple[int, float]], classes: int) -> list[tuple[int, float, int]]:
    """The memory after a stream of (class, uncertainty), kept as a list for each class as the paper
    describes it: (class, uncertainty, age). An example is one step old when the next one comes."""
    lists: dict[int, list[list[float]]] = {label: [] for label in range(classes)}
    for label, uncertainty in stream:
        full = sum(map(len, lists.values())) == 64
        room = len(lists[label]) < 64 / classes
        if room and not full:
            lists[label].append([uncertainty, 0])
        else:
            largest = max(map(len, lists.values()))
            rivals = (
                [label] if not room else [each for each in lists if len(lists[each]) == largest]
            )
            worst, where, what = max(
                (score(one[1], one[0]), each, one) for each in rivals for one in lists[each]
            )
            if worst > score(0, uncertainty):
                lists[where].remove(what)
                lists[label].append([uncertainty, 0])
        for each in lists.values():
            for one in each:
                one[1] += 1
    return sorted((label, one[0], int(one[1])) for label, each in lists.items() for one in each)


def test_rotta_memory_after_a_long_stream() -> None:
    with with_constants("rotta", update_every=10**9):
        method = make("rotta")
    batches = [numbers(count, seed) for seed, count in enumerate((30, 50, 1, 70, 64, 300))]
    stream: list[tuple[int, float]] = []
    for x in batches:
        method(x)
        z = method.teacher(x).detach().double().numpy()
        stream += zip(z.argmax(1).tolist(), (entropy(z) / math.log(3)).tolist(), strict=True)
    expected = replayed(stream, 3)
    found = sorted(
        (one.label, one.uncertainty, method.arrived - one.arrival) for one in method.kept
    )
    assert len(expected) == 64 and {each[0] for each in expected} == {0, 1, 2}
    assert [each[::2] for each in found] == [each[::2] for each in expected]
    assert [each[1] for each in found] == pytest.approx([each[1] for each in expected], abs=1e-5)
    examples = torch.cat(batches)
    assert all(
        torch.equal(row, examples[one.arrival])
        for row, one in zip(method.bank, method.kept, strict=True)
    )


def test_rotta_step_written_by_hand() -> None:
    method = make("rotta", predict="before")
    x = numbers(64)
    student = Small()
    source = Small()
    before = method(x[:63])
    norm = source.norm
    last = source.last
    assert torch.allclose(before, last(normalised(x[:63], CENTRE, VARIANCE, norm)), atol=1e-5), (
        "by the source's statistics"
    )
    assert torch.equal(method.model.norm.weight, norm.weight), "63 examples are not enough"
    method(x[63:])
    clean = torch.stack([x[one.arrival] for one in method.kept])
    ages = [64 - one.arrival for one in method.kept]

    def blended(inputs: Tensor, network: Small) -> tuple[Tensor, Tensor, Tensor]:
        own = inputs.mean(0)
        spread = inputs.var(0, correction=0)
        average = 0.95 * CENTRE + 0.05 * own
        averaged = 0.95 * VARIANCE + 0.05 * spread
        return network.last(normalised(inputs, average, averaged, network.norm)), average, averaged

    z, average, averaged = blended(clean.flip(1), student)
    target, average_of_teacher, averaged_of_teacher = blended(clean, source)
    weights = torch.tensor([math.exp(-age / 64) / (1 + math.exp(-age / 64)) for age in ages])
    losses = -(target.softmax(1) * z.log_softmax(1)).sum(1)
    gradients = torch.autograd.grad(
        (weights * losses).sum() / len(ages), list(student.norm.parameters())
    )
    pairs = zip(gradients, student.norm.parameters(), strict=True)
    stepped = [
        parameter - 0.1 * gradient / (gradient.abs() + 1e-8) for gradient, parameter in pairs
    ]
    for name, expected in zip(("weight", "bias"), stepped, strict=True):
        own = getattr(method.model.norm, name)
        old = getattr(norm, name)
        assert torch.allclose(own, expected, atol=1e-5)
        assert torch.allclose(
            getattr(method.teacher.norm, name) - old, 0.001 * (expected - old), atol=1e-6
        )
        assert (own - old).abs().min() > 0.09
    for found, expected in (
        (method.model.norm, (average, averaged)),
        (method.teacher.norm, (average_of_teacher, averaged_of_teacher)),
    ):
        assert torch.allclose(found.running_mean, expected[0]) and torch.allclose(
            found.running_var, expected[1]
        )
    moved = normalised(x, average_of_teacher, averaged_of_teacher, method.teacher.norm)
    assert torch.allclose(method.predict(x).main, method.teacher.last(moved), atol=1e-5), (
        "by the teacher's moving ones"
    )


def test_rotta_updates_wherever_in_a_batch_the_64th_example_is() -> None:
    """A batch of 200 brings three updates, and one that ends at 128 as many as two of 64."""
    method = make("rotta")
    updates: list[int] = []
    assert method.optimizer is not None
    method.optimizer.register_step_pre_hook(lambda *_: updates.append(method.arrived))
    method(numbers(200))
    method(numbers(56, 1))
    assert updates == [64, 128, 192, 256]


@pytest.mark.parametrize("place", ["teacher", "optimizer"])
def test_rotta_starts_anew_after_an_update_that_was_interrupted(
    place: str,
) -> None:
    def interrupt(*_: Any) -> None:
        # The teacher is in training for as long as it sees the memory.
        if place == "optimizer" or method.teacher.norm.training:
            raise KeyboardInterrupt

    method = make("rotta")
    batches = [numbers(count, count) for count in (32, 64, 64)]
    if place == "optimizer":
        hook = method.optimizer.register_step_pre_hook(interrupt)
    else:
        hook = method.teacher.last.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        method(numbers(64))
    hook.remove()
    method.reset()
    fresh = make("rotta")
    assert all(torch.equal(method(x), fresh(x)) for x in batches)


# ---------------------------------------------------------------- LAME


def test_lame_is_the_fixed_point_that_is_reached_from_the_prediction() -> None:
    """Near are the five others at the smallest angles; the lengths of the features do not
    matter."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(12, 3, generator=generator)
    features = torch.randn(12, 4, generator=generator)
    units = features.numpy() / np.linalg.norm(features.numpy(), axis=1, keepdims=True)
    near = np.linalg.norm(units[:, None] - units, axis=2).argsort(1)[:, 1:6]
    y = p = softmax(z.double().numpy())
    for _ in range(1000):
        drawn = p * np.exp(y[near].sum(1))
        y = drawn / drawn.sum(1, keepdims=True)
    assert lame.smoothed(z, features).exp().numpy() == pytest.approx(y, abs=1e-4)
    assert np.abs(y - p).max() > 0.1, "drawn to its neighbours"


def test_lame_is_erm_smoothed_over_the_inputs_of_the_last_linear_layer() -> None:
    x = numbers(9)
    for wrap in (
        lambda model: model,
        lambda model: Cascade(model.norm, model.last, nn.Linear(3, 3)),
    ):
        model = wrap(Small())
        method = METHODS["lame"](model)
        inside = Small().eval()
        expected = lame.smoothed(inside(x), inside.norm(x))
        assert torch.allclose(method(x), expected, atol=1e-5)
        assert not any(module._forward_pre_hooks for module in model.modules()), (
            "the network is left as it was"
        )


class ByName(Small):
    """It gives its last layer the input by name."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(input=self.norm(x))


@pytest.mark.parametrize("name", ["lame", "t3a", "shot_im"])
def test_an_input_by_name_is_read_like_any(name: str) -> None:
    x = numbers(6)
    assert torch.equal(METHODS[name](ByName())(x), METHODS[name](Small())(x))


class ByTokens(Small):
    """It gives its last layer each example as two tokens: `apart` as examples of their own."""

    def __init__(self, apart: bool) -> None:
        super().__init__()
        self.apart = apart

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.stack([self.norm(x), x], 1)
        logits = self.last(tokens.flatten(0, 1) if self.apart else tokens)
        return logits.view(len(x), 2, 3).mean(1)


class Cut(Small):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, :2]


@pytest.mark.parametrize(
    ("name", "model", "told"),
    [
        ("t3a", Cut(), "found 2 logits, 3 rows of 2 numbers, and features of 2; use erm or lame"),
        ("t3a", ByTokens(False), "found 3 logits, 3 rows of 2 numbers, and features of 4"),
        ("t3a", ByTokens(True), "T3A: ByTokens gives its last nn.Linear 12 inputs for 6 examples"),
        ("lame", ByTokens(True), "LAME: ByTokens gives its last nn.Linear 12 inputs"),
    ],
)
def test_features_that_do_not_fit_are_refused(name: str, model: nn.Module, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        METHODS[name](model)(numbers(6))
    assert METHODS["lame"](ByTokens(False))(numbers(6)).shape == (6, 3)


def test_lame_of_one_or_of_equal_examples_is_the_prediction() -> None:
    x = numbers(1)
    assert torch.allclose(make("lame")(x).softmax(1), METHODS["erm"](Small())(x).softmax(1))
    assert make("lame")(x.expand(4, 2)).isfinite().all()


# ---------------------------------------------------------------- TEMA


@pytest.mark.parametrize(
    ("counts", "shares"), [((8, 8), (0.1, 0.1)), ((2, 16), (0.01, 0.1)), ((64, 3), (1, 0.01))]
)
def test_tema_statistics_after_two_batches(
    counts: tuple[int, int], shares: tuple[float, float]
) -> None:
    method = make("tema")
    source = Small()
    centre = CENTRE
    variance = VARIANCE
    for seed, (count, share) in enumerate(zip(counts, shares, strict=True)):
        x = numbers(count, seed)
        found = method(x)
        own = x.sum(0) / count
        centre = centre + share * (own - centre)
        variance = (1 - share) * variance + share * ((x - own) ** 2).sum(0) / count
        assert torch.allclose(
            found, source.last(normalised(x, centre, variance, source.norm)), atol=1e-5
        )
        assert torch.allclose(method.model.norm.running_mean, centre)
        assert torch.allclose(method.model.norm.running_var, variance)


def test_tema_momentum_by_batch_size() -> None:
    found = {}
    for count in (1, 2, 3, 4, 16, 63, 64, 200):
        method = make("tema")
        method(torch.zeros(count, 2))
        found[count] = round(1 - (method.model.norm.running_mean[0] / 0.5).item(), 6)
    assert found == {1: 0.01, 2: 0.01, 3: 0.01, 4: 0.1, 16: 0.1, 63: 0.1, 64: 1.0, 200: 1.0}


# ---------------------------------------------------------------- a source prior


def test_a_source_prior_counts_the_source_as_n_examples_at_every_batch() -> None:
    method = make("source_prior", memory=6)
    source = Small()
    for seed, count in enumerate((8, 2)):
        x = numbers(count, seed)
        own = x.mean(0)
        centre = (6 * CENTRE + count * own) / (6 + count)
        variance = (6 * VARIANCE + count * ((x - own) ** 2).mean(0)) / (6 + count)
        assert torch.allclose(
            method(x), source.last(normalised(x, centre, variance, source.norm)), atol=1e-5
        )
    assert make("source_prior").memory == 16
    assert torch.allclose(make("source_prior", memory=0)(x), make("adabn")(x))


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", ["rotta", "tema"])
def test_moving_statistics_take_no_memory_beside_them(name: str) -> None:
    with pytest.raises(ValueError, match=r"has no option memory \(given 8\); allowed are"):
        make(name, memory=8)


def test_rotta_needs_copies() -> None:
    with pytest.raises(ValueError, match="pass a function as copies, or use tent"):
        make("rotta", copies=None)


class Headed(nn.Module):
    """A classifier, and after it two layers that are not called as modules or not last."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Small()
        self.unused = nn.Linear(2, 9)
        self.bypassed = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) @ self.bypassed.weight


def test_lame_takes_the_linear_layer_that_is_called_last() -> None:
    x = numbers(9)
    model = Headed()
    expected = lame.smoothed(copy.deepcopy(model).eval()(x), Small().eval().norm(x))
    assert torch.allclose(METHODS["lame"](model)(x), expected, atol=1e-5)
    model.inner = nn.BatchNorm1d(3)  # type: ignore[assignment]
    with pytest.raises(
        ValueError, match="LAME: Headed calls none of its nn.Linear as a module; use erm"
    ):
        METHODS["lame"](model)(torch.ones(4, 3))
