"""T3A, NOTE, SHOT-IM, MEMO, CMF and PeTTA against their equations, worked out by hand, and against
what their official code gives on one tiny network and one made-up stream.

The official numbers were made by the code of matsuolab/T3A, TaesikGong/NOTE, tim-learn/SHOT,
zhangmarvin/memo and hthieu166/petta; CMF's by that of mariodoebler/test-time-adaptation, which is
based on its authors'.
"""

import math
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from conftest import seeded, with_constants
from test_field_methods_a import entropy, softmax
from torch import Tensor, nn

from cascadetta_lib.augment.image import augmix_copies
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.methods.field import cmf, memo, note
from cascadetta_lib.models import as_outputs


def waves(*shape: int, step: float, scale: float = 1.0) -> Tensor:
    """Numbers that every version of every library makes alike."""
    places = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64)
    return scale * torch.sin(step * places**1.5).view(shape).float()


@torch.no_grad()
def tiny() -> nn.Sequential:
    """A convolution, a BatchNorm and a classifier: images (B, 3, 6, 6) → logits (B, 3)."""
    convolution = nn.Conv2d(3, 4, 3, padding=1)
    norm = nn.BatchNorm2d(4)
    linear = nn.Linear(4, 3)
    convolution.weight.copy_(waves(4, 3, 3, 3, step=0.7, scale=0.5))
    convolution.bias.copy_(waves(4, step=1.1, scale=0.2))
    norm.weight.copy_(1 + waves(4, step=0.9, scale=0.3))
    norm.bias.copy_(waves(4, step=1.3, scale=0.3))
    norm.running_mean.copy_(waves(4, step=0.4, scale=0.3))
    norm.running_var.copy_(0.6 + waves(4, step=0.6, scale=0.3))
    linear.weight.copy_(waves(3, 4, step=2.1, scale=4.0))
    linear.bias.copy_(torch.tensor([0.3, 4.0, -0.2]))
    features = (convolution, norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*features, linear).eval()


def pictures(count: int, step: float) -> Tensor:
    """Images (count, 3, 6, 6) of different contrast and brightness."""
    x = waves(count, 3, 6, 6, step=step, scale=1.5)
    return x * (1 + waves(count, 1, 1, 1, step=step / 3) / 2) + waves(count, 3, 1, 1, step=step / 5)


STREAM = (0.31, 0.37, 0.43, 0.47)
"""What makes the batches of the stream."""


def mirrored(x: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    for _ in range(count):
        yield x.flip(3)


def make(name: str, rate: float, **options: Any) -> Method:
    return METHODS[name](tiny(), learning_rate=rate, **({"copies": mirrored} | options))


def near(found: Tensor, expected: list[float], tolerance: float = 2e-5) -> bool:
    return found.detach().flatten().tolist() == pytest.approx(expected, abs=tolerance)


# ---------------------------------------------------------------- T3A


def test_t3a_gives_what_its_release_gives() -> None:
    with with_constants("t3a", most_supports=5):
        method = METHODS["t3a"](tiny())
    z = [method(pictures(12, step)) for step in STREAM[:3]][-1]
    released = [2.09654, 2.186912, 2.509898, 3.56726, 3.508546, 4.35392]
    released += [5.121942, 4.47687, 5.827646, 3.110994, 1.491211, 2.769284]
    assert near(z[:4], released)


def test_methods_without_training_start_from_the_networks_of_adabn() -> None:
    """Else their rows in a table would differ by the network, not by the method."""
    assert {METHODS[name].objective for name in ("adabn", "lame", "t3a", "memo")} == {"meta"}


def test_t3a_can_predict_a_batch_before_it_is_added() -> None:
    before, after = (METHODS["t3a"](tiny(), predict=when) for when in ("before", "after"))
    for step in STREAM:
        x = pictures(8, step)
        unadded = before.predict(x).main
        assert torch.equal(before(x), unadded)
        assert torch.equal(after(x), before.predict(x).main), "it is added afterwards"
    assert not torch.equal(unadded, before.predict(x).main)


def test_t3a_by_lists_of_supports() -> None:
    with with_constants("t3a", most_supports=3):
        method = METHODS["t3a"](tiny())
    features = tiny()[:5]
    weight, bias = (value.detach().double().numpy() for value in tiny()[5].parameters())
    lists: dict[int, list[tuple[float, np.ndarray]]] = {0: [], 1: [], 2: []}
    rows = weight
    for batch in (None, pictures(9, 0.31), pictures(7, 0.43)):
        if batch is not None:
            rows = features(batch).detach().double().numpy()
        z = rows @ weight.T + bias
        for row, label, unsure in zip(rows, z.argmax(1), entropy(z), strict=True):
            lists[label] = sorted([*lists[label], (unsure, row)], key=lambda one: one[0])[:3]
        if batch is None:
            continue
        sums = [sum(row / np.linalg.norm(row) for _, row in lists[label]) for label in lists]
        templates = np.stack([each / np.linalg.norm(each) for each in sums])
        unchanged = method.predict(batch).main
        assert torch.equal(method.predict(batch).main, unchanged), "nothing is added"
        assert near(method(batch), (rows @ templates.T).ravel().tolist())
        assert method.has_state and not torch.equal(method.predict(batch).main, unchanged)


def test_t3a_never_predicts_a_class_that_nothing_speaks_for() -> None:
    network = tiny()
    network[5].bias.data[0] = -100.0
    z = METHODS["t3a"](network)(pictures(9, 0.31))
    assert z[:, 0].isneginf().all() and z[:, 1:].isfinite().all()


# ---------------------------------------------------------------- NOTE


def test_note_gives_what_its_release_gives() -> None:
    """64 examples, one update and 16 more, as one batch after the other."""
    method = make("note", 0.01, predict="before")
    x = pictures(80, 0.29)
    z = torch.cat([method(part) for part in x.split(16)])
    assert near(z[:2], [-0.957357, -0.076852, -1.201572, -0.355757, -1.196223, -1.290147])
    assert near(z[-2:], [2.264161, -1.976982, 0.02344, -1.536457, 1.896862, -0.083693], 1e-4)
    norm = method.model[1]
    assert near(norm.weight, [1.224998, 1.158403, 0.710193, 1.2481])
    assert near(norm.bias, [0.279067, -0.163046, 0.146351, -0.238348])
    assert near(norm.running_mean, [0.117526, 0.271012, 0.258248, -0.016294])
    assert near(norm.running_var, [0.79726, 1.003105, 0.647443, 0.336822])


def test_note_memory_is_as_balanced_as_that_of_its_release() -> None:
    """By the same draws, of 162, 78 and 160 examples of three classes."""
    generator = torch.Generator().manual_seed(3)
    kept: list[int] = []
    met = Counter[int]()
    for label in (waves(400, step=0.05).abs() ** 2 * 2.999).long().tolist():
        met[label] += 1
        place = note.place_for(label, kept, met, generator)
        if place is not None:
            kept[place : place + 1] = [label]
    assert met == {0: 162, 1: 78, 2: 160} and Counter(kept) == {0: 21, 1: 21, 2: 22}


def test_note_replaces_in_the_largest_class_or_as_a_reservoir() -> None:
    kept = [0] * 40 + [1] * 24
    met = Counter({0: 400, 1: 25})
    places = {note.place_for(1, kept, met, seeded(seed)) for seed in range(60)}
    assert None not in places and places <= set(range(40)) and len(places) > 20
    drawn = [note.place_for(0, kept, met, seeded(seed)) for seed in range(600)]
    taken = [place for place in drawn if place is not None]
    assert set(taken) <= set(range(40)) and 30 < len(taken) < 90, "40 of 400 stay, a tenth of 600"


def test_iabn_corrects_what_lies_beyond_four_standard_errors() -> None:
    method = make("note", 0.01)
    x = pictures(6, 0.29)
    inner = tiny()[0](x).detach().double().numpy()
    norm = tiny()[1]
    parts = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    mean, variance, scale, shift = (part.detach().double().numpy()[:, None, None] for part in parts)
    own_mean = inner.mean((2, 3), keepdims=True)
    own_variance = inner.var((2, 3), keepdims=True, ddof=1)

    def beyond(values: np.ndarray, limit: np.ndarray) -> np.ndarray:
        return np.sign(values) * np.maximum(np.abs(values) - limit, 0)

    limit = 4 * np.sqrt((variance + 1e-5) / 36)
    limit_of_variance = 4 * (variance + 1e-5) * np.sqrt(2 / 35)
    corrected = np.abs(own_mean - mean) > limit
    assert 0 < corrected.sum() < corrected.size
    mean = mean + beyond(own_mean - mean, limit)
    variance = variance + beyond(own_variance - variance, limit_of_variance)
    expected = (inner - mean) / np.sqrt(np.maximum(variance, 0) + 1e-5) * scale + shift
    assert near(method.model[:2](x), expected.ravel().tolist())


# ---------------------------------------------------------------- SHOT-IM


def test_shot_im_loss_is_that_of_its_release() -> None:
    """Which adds 1e-5 inside a logarithm."""
    network = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3)).eval()
    with torch.no_grad():
        network[1].weight.copy_(torch.eye(3))
        network[1].bias.zero_()
    method = METHODS["shot_im"](network)
    network.eval()
    z = waves(6, 3, step=0.77, scale=3.0) * math.sqrt(1 + 1e-5)
    assert method.loss(z)[0].item() == pytest.approx(-0.5031883, abs=1e-4)
    p = softmax(z.numpy())
    mean = p.mean(0)
    expected = entropy(z.numpy()).mean() + (mean * np.log(mean)).sum()
    assert method.loss(z)[0].item() == pytest.approx(expected, abs=1e-5)


def test_shot_im_moves_all_but_the_classifier() -> None:
    method = make("shot_im", 0.01)
    source = tiny()
    x = pictures(8, 0.31)
    method.loss(x)[0].backward()
    gradients = [parameter.grad.clone() for parameter in method.adapted_parameters()]
    method.reset()
    method(x)
    moved = list(zip(method.model.parameters(), source.parameters(), strict=True))
    assert [torch.equal(*pair) for pair in moved] == [False] * 4 + [True] * 2
    for gradient, (own, old) in zip(gradients, moved[:4], strict=True):
        # The first step of Nesterov momentum 0.9, with weight decay.
        assert torch.allclose(own, old - 0.019 * (gradient + 0.001 * old), atol=1e-6)


class HeadFirst(nn.Module):
    """A network that registers its classifier before the layer that it calls first."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.embed = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.embed(x)))
        return logits


def test_shot_im_refuses_a_network_whose_classifier_is_not_registered_last() -> None:
    method = METHODS["shot_im"](HeadFirst())
    with pytest.raises(ValueError, match="registers embed last and calls head last"):
        method(waves(6, 3, step=0.77))


# ---------------------------------------------------------------- MEMO


def brighter(x: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    for place in range(1, count + 1):
        yield x * (1 + 0.05 * place) + 0.02 * place


class ByNLess1(memo.CountedAsOne):
    """Variances by n − 1, as the release's BatchNorm has them: of 36 pixels of each image."""

    def blend(self, mean: Tensor, variance: Tensor, count: int) -> tuple[Tensor, Tensor]:
        return super().blend(mean, variance * (36 * count) / (36 * count - 1), count)


def test_memo_gives_what_its_release_gives() -> None:
    assert memo.MEMO.copy_count == 32
    with with_constants("memo", make_statistics=partial(ByNLess1, examples=memo.PRIOR)):
        z = make("memo", 0.1, copies=brighter)(pictures(3, 0.53))
    released = [-6.851133, -3.748341, -3.761708, -11.55661, -5.823657, -3.454043]
    released += [-6.073136, -5.074641, -4.025928]
    assert near(z, released)


def test_memo_step_written_by_hand() -> None:
    """On a network whose statistics are those of no batch."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(108, 3))
    with torch.no_grad():
        network[1].weight.copy_(waves(3, 108, step=0.3, scale=0.2))
    weight = network[1].weight.detach().double().numpy()
    bias = network[1].bias.detach().double().numpy()
    with with_constants("memo", copy_count=3):
        method = METHODS["memo"](network, learning_rate=0.5, copies=brighter)
    x = pictures(2, 0.31)
    found = method(x)
    for image, z in zip(x.double().numpy().reshape(2, -1), found, strict=True):
        copies = np.stack([image * (1 + 0.05 * place) + 0.02 * place for place in (1, 2, 3)])
        p = softmax(copies @ weight.T + bias)
        by_p = -(np.log(p.mean(0)) + 1) / 3
        by_z = p * (by_p - (p * by_p).sum(1, keepdims=True))
        moved = weight - 0.5 * by_z.T @ copies
        expected = moved @ image + bias - 0.5 * by_z.sum(0)
        assert near(z, expected.tolist())
    assert torch.equal(method(x.flip(0)), found.flip(0)), "nothing is left of an image"


def test_memo_copies_are_those_of_one_image_each() -> None:
    x = torch.rand(2, 3, 32, 32, generator=seeded()) * 2 - 1
    copies = torch.stack(list(augmix_copies(x, 4, seeded(1), (-1.0, 1.0))))
    assert copies.shape == (4, 2, 3, 32, 32) and copies.abs().max() <= 1
    assert len({copy.sum().item() for copy in copies.flatten(0, 1)}) == 8, "draws of their own"
    black = torch.stack(list(augmix_copies(torch.full_like(x, 2.0), 2, seeded(1), (2.0, 3.0))))
    assert black.unique().tolist() == [2.0], "black stays black, and what is padded is black"


# ---------------------------------------------------------------- CMF


RELEASED_CMF = {
    cmf.CMF.released_parameters: (
        [1.044111, 0.980871, 0.886335, 1.432124],
        [0.095295, -0.338621, 0.325268, -0.053601],
        [1.234998, 1.168403, 0.700193, 1.2381],
        4.043933e-06,
    ),
    1: (
        [1.043356, 0.980119, 0.887067, 1.43289],
        [0.094528, -0.339366, 0.326011, -0.052834],
        [1.193222, 1.127099, 0.741294, 1.280469],
        0.121966783,
    ),
}
"""Scale, shift and hidden scale after four batches, and the filter's variance: at the release's
noise, which hides the filter on so small a network, and at one that shows it."""


@pytest.mark.parametrize("adapted", RELEASED_CMF)
def test_cmf_gives_what_its_release_gives(adapted: int) -> None:
    scale, shift, hidden, variance = RELEASED_CMF[adapted]
    with with_constants("cmf", released_parameters=adapted):
        method = make("cmf", 0.05, copies=None)
    for _ in range(2):  # and the same after a reset
        method.reset()
        for step in STREAM:
            method(pictures(12, step))
        assert near(method.model[1].weight, scale) and near(method.model[1].bias, shift)
        assert near(method.hidden[:4], hidden)
        assert method.variance == pytest.approx(variance, rel=1e-5)


def test_cmf_filter_by_hand() -> None:
    method = make("cmf", 0.1)
    norm = method.model[1]
    source = np.concatenate([value.detach().double().numpy() for value in norm.parameters()])
    noise = 0.005 * 8 / 38400
    hidden = source
    variance = 0.0
    for shift in (0.3, -0.7, 1.9):
        weights = source + shift
        with torch.no_grad():
            norm.weight.copy_(torch.from_numpy(weights[:4]))
            norm.bias.copy_(torch.from_numpy(weights[4:]))
        method.draw_back()
        hidden = 0.99 * hidden + 0.01 * source
        variance = 0.99**2 * variance + noise
        beta = (1 - noise) / (variance + 1 - noise)
        beta = 1.0 if beta >= 0.9999 else max(beta, 0.89)
        hidden = beta * hidden + (1 - beta) * weights
        variance = beta * variance
        expected = 0.99 * weights + 0.01 * hidden
        assert near(norm.weight, expected[:4].tolist()) and near(norm.bias, expected[4:].tolist())


# ---------------------------------------------------------------- PeTTA


def test_petta_gives_what_its_release_gives() -> None:
    method = make("petta", 0.02, source=pictures(60, 0.61), predict="before")
    z = [method(pictures(40, step)) for step in STREAM][-1]
    released = [-0.322207, -1.699571, -0.728696, -7.168386, -3.975595, -3.314536]
    released += [-4.630391, -6.720023, -4.387086, -2.044954, -3.742315, -1.528779]
    assert near(z[:4], released, 1e-4)
    student, teacher, initial = (each[1] for each in (method.model, method.teacher, method.initial))
    assert near(student.weight, [1.308664, 1.194115, 0.755078, 1.268612], 1e-4)
    assert near(student.bias, [0.360129, -0.127016, 0.151062, -0.232673], 1e-4)
    assert near(student.running_mean, [0.146401, 0.234968, 0.132988, 0.025806], 1e-4)
    assert near(student.running_var, [1.869302, 3.932566, 2.138096, 1.73853], 1e-4)
    assert near(teacher.weight, [1.235183, 1.168411, 0.700336, 1.238216])
    for network in (teacher, initial):
        assert near(network.running_mean, [0.13299, 0.249522, 0.189362, 0.00744], 1e-4)
        assert near(network.running_var, [1.3898, 2.591337, 1.443005, 1.110319], 1e-4)
    means = [1.450969, 1.292415, 0.259472, 0.65148, 0.782411, 0.553355, 0.619455, 1.953022]
    assert near(method.moving_mean, [*means, 1.545577, 1.691633, 0.830349, 1.744571], 1e-4)
    assert Counter(one.label for one in method.kept) == {0: 21, 1: 21, 2: 22}
    assert 0.001 * (1 - method.moved.item()) == pytest.approx(0.00099853273, abs=1e-8)


def test_petta_holds_the_weights_by_how_far_the_features_moved() -> None:
    """γ by hand, and both of its effects: the weight of the distance, and the teacher's step."""
    source = pictures(60, 0.61)
    method = make("petta", 0.02, source=source)
    features = tiny()[:5](source).detach().double().numpy()
    labels = tiny()(source).argmax(1).numpy()
    far = method.moving_mean.clone()
    far[0] += 0.8
    method.moving_mean.copy_(far)
    x = pictures(40, 0.31)
    present = sorted(set(tiny()(x).argmax(1).tolist()))
    assert 0 in present
    own = {label: features[labels == label] for label in present}
    apart = [
        ((far[label].double().numpy() - each.mean(0)) ** 2 / (each.var(0, ddof=1) + 1e-6)).mean()
        for label, each in own.items()
    ]
    gamma = 1 - math.exp(-np.mean(apart))
    assert 0.05 < gamma < 0.95
    method(x)
    assert method.moved.item() == pytest.approx(gamma, abs=1e-4)
    student, teacher, old = (each[1].weight for each in (method.model, method.teacher, tiny()))
    assert torch.allclose(teacher - old, 0.001 * (1 - gamma) * (student - old), atol=1e-6)
    losses = []
    with torch.no_grad():
        student.copy_(-old)
    for moved in (0.0, 1.0):
        method.moved = torch.tensor(moved)
        method.generator.manual_seed(0)
        losses.append(method.loss(x)[0].item())
    cosine = torch.cosine_similarity(method.model[1].bias, tiny()[1].bias, dim=0).item()
    assert losses[1] - losses[0] == pytest.approx(-10 * (cosine - 1) / 2, abs=0.2)


def test_a_class_without_source_examples_says_nothing_of_how_far_features_moved() -> None:
    network = tiny()
    network[5].bias.data[1] = -100.0
    method = METHODS["petta"](network, copies=mirrored, source=pictures(60, 0.61))
    assert method.known.tolist() == [True, False, True]
    x = pictures(40, 0.31)
    with torch.no_grad():
        method.teacher[5].bias[1] = 100.0
    assert as_outputs(method(x)).main.isfinite().all() and method.moved.item() == 0
