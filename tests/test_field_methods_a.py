"""EATA, ETA, SAR, RDumb, DeYO and RPL, each held to its equations worked out by hand, in NumPy and
in double precision.

The network is z = γ·x + β for each class, with the scale γ and the shift β of a BatchNorm that
normalises nothing.
"""

import copy
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from conftest import with_constants
from torch import Tensor, nn

from cascadetta_lib.data.base import Split
from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.methods.field.rdumb import RDumb
from cascadetta_lib.methods.source import WithSource, source_examples

RATE = 0.1
STEP = RATE * 1.9
"""How far the first step of Nesterov momentum 0.9 goes, in gradients."""
LARGEST = np.log(3)
ROWS = np.array(
    [[3.2, 0.1, 0.0], [0.0, 2.9, 0.2], [0.1, 0.0, 0.9], [0.0, 0.3, 3.0], [2.4, 0.0, 0.5]]
)
"""Logits: sure of the classes 0 and 1, unsure of class 2, sure of class 2, unsure of class 0."""


class Affine(nn.BatchNorm1d):
    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


def affine() -> nn.Module:
    return nn.Sequential(Affine(3).double())


def make(name: str, **options: Any) -> Method:
    return METHODS[name](affine(), learning_rate=RATE, **options)


def rows(*places: int) -> Tensor:
    return torch.from_numpy(ROWS[list(places)])


def softmax(z: np.ndarray) -> np.ndarray:
    return np.exp(z) / np.exp(z).sum(1, keepdims=True)


def entropy(z: np.ndarray) -> np.ndarray:
    return -(softmax(z) * np.log(softmax(z))).sum(1)


def gradient(x: np.ndarray, z: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of Σ w·H in γ and β: ∂H/∂z_k = −p_k (ln p_k + H)."""
    p = softmax(z)
    by_z = -weights[:, None] * p * (np.log(p) + entropy(z)[:, None])
    return (by_z * x).sum(0), by_z.sum(0)


def close(found: Tensor | None, expected: Any) -> bool:
    assert found is not None
    return np.allclose(found.detach().numpy(), expected, rtol=1e-6, atol=1e-9)


def assert_stepped(method: Method, by_scale: Any, by_shift: Any) -> None:
    """It is where a first step by these gradients leads from the source."""
    scale, shift = method.adapted_parameters()
    assert close(scale, 1 - STEP * by_scale) and close(shift, -STEP * by_shift)


# ---------------------------------------------------------------- EATA, ETA and RDumb


def test_eta_weighs_sure_examples_and_leaves_out_those_like_the_mean_prediction() -> None:
    p = softmax(ROWS)
    h = entropy(ROWS)
    limit = 0.4 * LARGEST
    assert (h < limit).tolist() == [True, True, False, True, False]
    method = make("eta")
    loss, outputs = method.loss(rows(0, 2))
    assert close(loss, np.exp(limit - h[0]) * h[0]) and close(outputs.main, ROWS[[0, 2]])
    assert close(method.mean_prediction, p[0])
    method.loss(rows(2, 4))
    assert close(method.mean_prediction, p[0]), "a batch of which nothing is chosen leaves it"
    cosine = p @ p[0] / np.linalg.norm(p, axis=1) / np.linalg.norm(p[0])
    assert (cosine < 0.4).tolist() == [False, True, False, True, False]
    loss, _ = method.loss(rows(0, 1, 2, 3))
    chosen = [1, 3]
    assert close(loss, np.mean(np.exp(limit - h[chosen]) * h[chosen]))
    assert close(method.mean_prediction, 0.9 * p[0] + 0.1 * p[chosen].mean(0))


@pytest.mark.parametrize(("first", "chosen"), [((0, 0, 0, 1), True), ((0, 0, 1), False)])
def test_unlike_is_a_cosine_below_two_fifths(first: tuple[int, ...], chosen: bool) -> None:
    p = softmax(ROWS)
    method = make("eta")
    method.loss(rows(*first))
    mean = p[list(first)].mean(0)
    cosine = p[1] @ mean / np.linalg.norm(p[1]) / np.linalg.norm(mean)
    assert 0.35 < cosine < 0.55 and (cosine < 0.4) == chosen
    assert (method.loss(rows(1))[0] > 0) == chosen


def test_the_step_of_eta_takes_the_weights_of_examples_as_constants() -> None:
    method = make("eta")
    h = entropy(ROWS)
    method(rows(0, 1, 2))
    assert_stepped(method, *gradient(ROWS[:2], ROWS[:2], np.exp(0.4 * LARGEST - h[:2]) / 2))


def test_without_a_sure_example_eta_and_sar_stay_where_they_are() -> None:
    for name in ("eta", "sar"):
        method = make(name)
        method(rows(2, 4))
        assert_stepped(method, np.zeros(3), np.zeros(3))


def test_the_fisher_information_is_that_of_one_example_at_a_time() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 4)).double()
    with torch.no_grad():
        model[0].running_mean.uniform_(-1, 1)
        model[0].running_var.uniform_(0.5, 2)
        model[0].weight.uniform_(0.5, 2)
        model[0].bias.uniform_(-1, 1)
    source = 3 * torch.randn(60, 3, dtype=torch.float64)
    total = torch.zeros(6, dtype=torch.float64)
    model.eval()
    for x in source:
        logits = model(x[None])[0]
        loss = logits.exp().sum().log() - logits.max()
        total += torch.cat(torch.autograd.grad(loss, [model[0].weight, model[0].bias])) ** 2
    method = METHODS["eata"](
        model.train(), source=source
    )  # In whichever mode it comes, the source's statistics count.
    assert close(method.fisher, total / 60) and (method.fisher > 1e-4).all()
    assert close(method.anchor, torch.cat([model[0].weight, model[0].bias]).detach().numpy())


class TooLarge(nn.Module):
    """Scales and shifts that a memory holds for one pass, and not for the gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        if self.passes > 1:
            raise torch.OutOfMemoryError("made up")
        return cast(Tensor, self.norm(x))


def test_eata_names_what_stops_its_fisher_information() -> None:
    network = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3))
    for name in ("eata", "petta"):
        with pytest.raises(
            ValueError, match=r"cannot take source examples of shape \(5,\) \(.+\)$"
        ):
            METHODS[name](copy.deepcopy(network), source=torch.ones(4, 5))
    with pytest.raises(torch.OutOfMemoryError, match="made up"):
        METHODS["eata"](TooLarge(), source=torch.ones(4, 3))


def test_eata_adds_the_weighted_distance_from_the_source() -> None:
    method = make("eata", source=rows(0, 1, 2, 3))
    without = make("eta")
    apart = np.array([0.3, -0.2, 0.1, 0.05, -0.4, 0.2])
    with torch.no_grad():
        for each in (method, without):
            for parameter, part in zip(
                each.adapted_parameters(), (apart[:3], apart[3:]), strict=True
            ):
                parameter += torch.from_numpy(part)
    p = softmax(ROWS[:4])
    by_z = p - (p == p.max(1, keepdims=True))
    fisher = np.concatenate([(by_z * ROWS[:4]) ** 2, by_z**2], 1).mean(0)
    assert close(method.fisher, fisher)
    assert close(
        method.loss(rows(0, 2))[0] - without.loss(rows(0, 2))[0], (fisher * apart**2).sum()
    )


def test_rdumb_starts_anew_before_every_update_that_follows_so_many() -> None:
    assert RDumb.reset_every == 1000
    with with_constants("rdumb", reset_every=3):
        method = make("rdumb")
    other = make("eta")
    x = rows(0, 1, 3)
    once, *_, thrice = [other(x) for _ in range(3)]
    assert [torch.equal(method(x), once) for _ in range(7)] == [
        True,
        False,
        False,
        True,
        False,
        False,
        True,
    ]
    method(x)
    method.reset()
    assert torch.equal([method(x) for _ in range(3)][-1], thrice), (
        "a reset by hand begins the count again"
    )


# ---------------------------------------------------------------- SAR


def test_sar_descends_by_the_gradient_at_the_weights_above() -> None:
    # The fourth row is sure at the weights and no longer above, and the last one the other way
    # round.
    x = np.concatenate([ROWS[[0, 2, 3]], [[3.0, 0.0, 0.5], [0.0, 2.98, 0.5]]])
    limit = 0.4 * LARGEST
    h = entropy(x)
    assert (h < limit).tolist() == [True, False, True, True, False]
    by_scale, by_shift = gradient(x, x, (h < limit) / 3)
    length = np.sqrt((by_scale**2).sum() + (by_shift**2).sum())
    z = x * (1 + 0.05 * by_scale / length) + 0.05 * by_shift / length
    assert (entropy(z) < limit).tolist() == [True, False, True, False, True]
    method = make("sar")
    method(torch.from_numpy(x))
    mean = entropy(z)[[0, 2]].mean()
    assert mean > 0.2 and close(method.mean_entropy, mean)
    assert_stepped(method, *gradient(x, z, np.array([0.5, 0, 0.5, 0, 0])))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_sar_takes_its_weights_back_while_the_mean_entropy_is_low(optimizer: str) -> None:
    method = make("sar", optimizer=optimizer)
    method(rows(0, 1, 3))
    scale, _ = method.adapted_parameters()
    assert method.mean_entropy > 0.2 and not close(scale, np.ones(3))
    x = 3 * rows(0, 1, 3)
    low = make("sar")
    low(x)
    lowest = low.mean_entropy.item()
    assert 0 < lowest < 0.05
    for _ in range(20):
        method(x)
    assert_stepped(method, np.zeros(3), np.zeros(3))
    assert method.mean_entropy < 0.2
    states = [value for state in method.optimizer.state.values() for value in state.values()]
    assert states and not any(state.any() for state in states), "Adam's count of steps too"
    mean = method.mean_entropy.item()
    method(x)
    assert close(method.mean_entropy, 0.9 * mean + 0.1 * lowest), (
        "measured at the source's weights again"
    )


# ---------------------------------------------------------------- DeYO and RPL


class Corner(nn.Module):
    """The logits of an RGB image are what its first pixel has, which is the first of the patches of
    4×4 images.
    """

    def __init__(self) -> None:
        super().__init__()
        self.affine = Affine(3).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.affine(x[:, :, 0, 0])


def test_deyo_weighs_by_certainty_and_by_what_the_shuffling_takes() -> None:
    pixels = np.zeros((5, 3, 16))
    pixels[:, :, 0] = [
        [3.2, 0.1, 0.0],
        [0.0, 2.9, 0.2],
        [2.7, 0.0, 0.5],
        [0.1, 0.0, 0.9],
        [0.0, 0.3, 3.0],
    ]
    pixels[1] = pixels[1, :, :1]  # all patches alike
    pixels[4] = pixels[4, :, :1] * 0.9
    pixels[4, :, 0] = [0.0, 0.3, 3.0]
    z = pixels[:, :, 0]
    order = torch.rand(5, 16, generator=torch.Generator().manual_seed(7)).argsort(1)
    assert (order[:, 0] != 0).all()
    destroyed = np.stack([pixels[image, :, order[image, 0]] for image in range(5)])
    h = entropy(z)
    image = np.arange(5)
    predicted = z.argmax(1)
    drop = softmax(z)[image, predicted] - softmax(destroyed)[image, predicted]
    assert (h < 0.4 * LARGEST).tolist() == [True, True, False, False, True]
    assert (h < 0.5 * LARGEST).tolist() == [True, True, True, False, True]
    assert (drop > 0.2).tolist() == [True, False, True, True, False] and 0 < drop[4] < 0.2
    weights = np.where([1, 0, 1, 0, 0], np.exp(0.4 * LARGEST - h) + np.exp(drop), 0) / 2
    method = METHODS["deyo"](Corner(), learning_rate=RATE, seed=7)
    x = torch.from_numpy(pixels.reshape(5, 3, 4, 4))
    assert close(method.loss(x)[0], (weights * h).sum())
    method.reset()
    method(x)
    assert_stepped(method, *gradient(z, z, weights))


def test_deyo_moves_whole_patches_and_each_image_in_its_own_order() -> None:
    method = METHODS["deyo"](Corner(), seed=3)
    x = torch.arange(2 * 3 * 8 * 12).reshape(2, 3, 8, 12)
    order = torch.rand(2, 16, generator=torch.Generator().manual_seed(3)).argsort(1).tolist()
    expected = torch.empty_like(x)
    for image in range(2):
        for place, taken in enumerate(order[image]):
            (row, column), (from_row, from_column) = divmod(place, 4), divmod(taken, 4)
            patch = x[
                image, :, 2 * from_row : 2 * from_row + 2, 3 * from_column : 3 * from_column + 3
            ]
            expected[image, :, 2 * row : 2 * row + 2, 3 * column : 3 * column + 3] = patch
    assert order[0] != order[1] and torch.equal(method.shuffled(x), expected)


def test_deyo_refuses_what_it_cannot_cut() -> None:
    for shape in ((2, 3, 30, 32), (2, 3, 32, 30), (2, 20)):
        with pytest.raises(ValueError, match="images .* whose sides are multiples of 4, not"):
            METHODS["deyo"](Corner())(torch.zeros(shape))


def test_the_step_of_rpl() -> None:
    method = make("rpl")
    x = ROWS[[0, 2]]
    p = softmax(x)
    best = np.eye(3)[x.argmax(1)]
    q = (p * best).sum(1, keepdims=True)
    assert close(method.loss(rows(0, 2))[0], ((1 - q**0.8) / 0.8).mean())
    method(rows(0, 2))
    by_z = -(q**0.8) * (best - p) / 2  # of −p^0.8/0.8, whose derivative in p is −p^−0.2
    assert_stepped(method, (by_z * x).sum(0), by_z.sum(0))


# ---------------------------------------------------------------- source examples


class Needy(WithSource, METHODS["adabn"]):  # type: ignore[misc, valid-type]
    label = "Needy"


def test_source_is_of_the_held_out_examples(dataset: ImageDataset) -> None:
    assert source_examples(METHODS["adabn"], dataset) is None
    assert torch.equal(source_examples(Needy, dataset), dataset.prepare(dataset.held_out.x))


def test_of_a_long_source_the_first_two_thousand_are_taken() -> None:
    split = Split(torch.arange(2500), torch.zeros(2500))
    dataset = SimpleNamespace(held_out=split, prepare=lambda x: x)
    assert len(source_examples(Needy, dataset)) == 2000


def test_without_its_source_a_method_is_refused() -> None:
    for source in (None, torch.empty(0, 4)):
        with pytest.raises(
            ValueError, match="Needy needs examples that the model.*pass them as source="
        ):
            Needy(nn.BatchNorm1d(4), source=source)
    assert Needy(nn.BatchNorm1d(4), source=torch.ones(2, 4)).source is not None
