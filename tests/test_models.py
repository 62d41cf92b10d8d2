"""The networks, what they return, and the losses on it."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cascadetta_lib import METHODS, adapt
from cascadetta_lib.losses import (
    describe,
    entropy,
    entropy_of_mean,
    information_loss,
    mean_weights,
    rotate_randomly,
)
from cascadetta_lib.models import (
    ImageNetwork,
    Outputs,
    Parallel,
    SpeechNetwork,
    TextNetwork,
    as_outputs,
    batch_norms,
    build_network,
    normalization_parameters,
)
from cascadetta_lib.models.backbones import SmallResNet, shortcut
from cascadetta_lib.models.snapshot import Snapshot, keep_state

TINY = ImageNetwork(depth=8, width=4, block="pre_activation")


def count(parameters: Any) -> int:
    return sum(parameter.numel() for parameter in parameters)


@pytest.mark.parametrize("block", ["conv_bn_relu", "pre_activation"])
def test_resnet26_has_the_parameters_of_the_paper(block: Any) -> None:
    model = build_network(ImageNetwork(block=block), classes=10, seed=0)
    assert count(model.parameters()) == 368_292
    assert count(model.main_classifier.parameters()) == 650
    assert count(model.auxiliary_classifier.parameters()) == 1_354  # type: ignore[union-attr]
    assert count(normalization_parameters(model)) == 1_824


def test_resnet34_is_torchvisions_with_the_papers_theta_a() -> None:
    model = build_network(ImageNetwork(), classes=200, architecture="resnet34", seed=0)
    assert (
        count(model.feature_extractor.parameters()) + count(model.main_classifier.parameters())
        == 21_387_272
    )
    shapes = [tuple(p.shape) for p in model.auxiliary_classifier.parameters()]  # type: ignore[union-attr]
    assert shapes == [(1024, 200), (1024,), (200, 1024), (200,)]
    assert model.eval()(torch.zeros(2, 3, 224, 224)).main.shape == (2, 200)


def test_the_networks_of_text_and_speech() -> None:
    text = build_network(TextNetwork(), classes=2, inputs=5000, seed=0)
    # φ: 5000-1024-512 with BN; θ_m and θ_a of 2 units.
    phi = 5000 * 1024 + 1024 + 2 * 1024 + 1024 * 512 + 512 + 2 * 512
    assert count(text.parameters()) == phi + (512 * 2 + 2) + (2 * 2 + 2)
    assert text(torch.rand(4, 5000)).auxiliary.shape == (4, 2)
    speech = build_network(SpeechNetwork(), classes=30, seed=0)
    assert speech.feature_extractor(torch.rand(4, 1, 32, 32)).shape == (4, 16 * 5 * 5)
    classifier = 400 * 120 + 120 + 120 * 84 + 84 + 84 * 30 + 30
    assert (
        count(speech.parameters())
        == 6 * 25 + 6 + 12 + 16 * 150 + 16 + 32 + classifier + 30 * 30 + 30
    )


def test_ttt_shares_all_but_the_last_stage() -> None:
    model = build_network(TINY, classes=4, parallel=True, seed=0)
    assert isinstance(model, Parallel)
    x = torch.randn(3, 3, 32, 32)
    assert model(x).main.shape == (3, 4) and model.rotation_logits(x).shape == (3, 4)
    model.rotation_logits(x).sum().backward()
    touched = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    shared = {
        n for n, p in model.named_parameters() if any(p is q for q in model.shared_parameters)
    }
    assert shared < touched
    assert all(name.startswith("auxiliary_") for name in touched - shared)


def test_the_seed_decides_the_weights_and_the_global_generator_stays() -> None:
    before = torch.get_rng_state()
    first, again, other = (
        build_network(TINY, classes=4, seed=seed).main_classifier.weight for seed in (0, 0, 1)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("parallel", [False, True])
def test_relu_logits_change_z_itself(parallel: bool) -> None:
    plain, relu = (
        build_network(ImageNetwork(main_logits=name), classes=4, parallel=parallel, seed=0)
        for name in ("plain", "relu")
    )
    x = torch.randn(4, 3, 32, 32)
    z = plain(x).main
    assert (z < 0).any() and torch.equal(relu(x).main, z.clamp_min(0))


def test_only_images_are_rotated() -> None:
    with pytest.raises(ValueError, match="rotation of images"):
        build_network(SpeechNetwork(), classes=2, parallel=True, seed=0)


def test_what_a_network_of_ones_own_may_return() -> None:
    logits = torch.rand(2, 3)
    outputs = Outputs(logits, logits)
    assert as_outputs(outputs) is outputs
    for result in (logits, SimpleNamespace(logits=logits), (logits, "state"), [logits]):
        assert as_outputs(result).main is logits and as_outputs(result).auxiliary is None
    for result in (None, {"scores": logits}, ()):
        with pytest.raises(TypeError, match="or an object with the attribute logits"):
            as_outputs(result)


@pytest.mark.parametrize("shape", [(2, 1), (2,), (), (2, 3, 4, 4), (2, 0)])
def test_logits_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    """Those of a single class, too: their entropy is 0, and nothing would be learned."""
    logits = torch.zeros(shape)
    for result in (logits, (logits, "state"), Outputs(logits, None)):
        with pytest.raises(
            ValueError, match=r"logits of shape \(.*\); allowed is \(B, C\) with C ≥ 2"
        ):
            as_outputs(result)


def test_batch_norms_of_every_dimension_and_without_parameters() -> None:
    model = nn.Sequential(
        nn.BatchNorm1d(2), nn.BatchNorm2d(3), nn.BatchNorm3d(4, affine=False), nn.LayerNorm(5)
    )
    assert list(batch_norms(model)) == list(model)[:3]
    assert [p.numel() for p in normalization_parameters(model)] == [2, 2, 3, 3, 5, 5]


def test_entropy_in_nats() -> None:
    assert entropy(torch.zeros(2, 10)).tolist() == pytest.approx([math.log(10)] * 2)
    assert entropy(torch.tensor([[100.0, 0.0]])).item() == pytest.approx(0, abs=1e-6)


SURE = 50 * torch.eye(4)
ONE_CLASS = 50 * torch.eye(4)[torch.zeros(4, dtype=torch.int64)]


@pytest.mark.parametrize(
    ("logits", "diversity", "loss"),
    [
        (SURE, 1.0, -math.log(4)),
        (ONE_CLASS, 1.0, 0),
        (SURE, 0.0, 0),
        (ONE_CLASS, 0.0, 0),
        (torch.zeros(4, 4), 1.0, 0),
    ],
)
def test_information_has_its_optimum_at_sure_and_balanced_predictions(
    logits: Tensor, diversity: float, loss: float
) -> None:
    assert information_loss(logits, diversity).item() == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("diversity", [0.0, 1.0])
def test_information_has_a_gradient_where_a_class_is_never_predicted(diversity: float) -> None:
    logits = torch.tensor([[200.0, 0.0], [200.0, 0.0]], requires_grad=True)
    (information_loss(logits, diversity) - 0 * entropy_of_mean(logits)).backward()
    assert logits.grad is not None and logits.grad.isfinite().all()


def test_what_a_batch_tells_of_both_classifiers_by_hand() -> None:
    """z gives its class 3/4, a gives it 4/5, and in the last of four examples they mean another
    one.
    """
    z = torch.tensor([[0.75, 0.25], [0.25, 0.75], [0.75, 0.25], [0.75, 0.25]]).log()
    a = torch.tensor([[0.8, 0.2], [0.2, 0.8], [0.8, 0.2], [0.2, 0.8]]).log()
    found = {name: value.item() for name, value in describe(Outputs(z, a)).items()}
    expected = {
        "entropy_main": math.log(4) - 0.75 * math.log(3),
        "entropy_auxiliary": math.log(5) - 0.8 * math.log(4),
    }
    expected |= {"entropy_of_mean_auxiliary": math.log(2), "agreement": 0.75}
    assert found == pytest.approx(expected, rel=1e-5)
    assert describe(Outputs(z, None)).keys() == {"entropy_main"}


def test_rotation_turns_by_the_label() -> None:
    x = torch.randn(40, 3, 8, 8)
    rotated, quarters = rotate_randomly(x, torch.Generator().manual_seed(0))
    assert set(quarters.tolist()) == {0, 1, 2, 3}
    for image, turned, count in zip(x, rotated, quarters.tolist(), strict=True):
        assert torch.equal(turned, image.rot90(count, (1, 2)))


def test_only_square_images_are_rotated() -> None:
    with pytest.raises(ValueError, match="images of 8×6 pixels .*; allowed are square ones"):
        rotate_randomly(torch.zeros(4, 3, 8, 6), torch.Generator())


@pytest.mark.parametrize("block", ["conv_bn_relu", "pre_activation", "wide"])
@pytest.mark.parametrize("size", [(30, 30), (33, 33), (31, 34)])
def test_a_small_resnet_takes_images_of_any_size(size: tuple[int, int], block: str) -> None:
    features = SmallResNet(8, 2, block)(torch.rand(2, 3, *size))
    assert features.shape == (2, 8) and features.isfinite().all()


def test_an_odd_size_is_averaged_by_what_is_left() -> None:
    conv = nn.Conv2d(1, 1, 3, stride=2, padding=1)
    x = torch.tensor([[[[1.0, 2, 3], [4, 5, 6], [7, 8, 9]]]])
    assert shortcut(x, conv).tolist() == [[[[3, 4.5], [7.5, 9]]]]


def test_weights_of_a_mean_are_as_exact_as_its_values() -> None:
    chosen = torch.tensor([True, False, True, True])
    third = mean_weights(chosen, torch.float64)
    assert third.tolist() == [1 / 3, 0, 1 / 3, 1 / 3]  # a third in float32 is another number
    assert mean_weights(~chosen & chosen, torch.float32).tolist() == [0, 0, 0, 0]
    assert mean_weights(chosen, torch.bfloat16).dtype == torch.float32


def test_a_snapshot_goes_back_to_every_buffer() -> None:
    """Also to those of the module itself, stored or not."""
    module = nn.Linear(1, 1)
    module.register_buffer("stored", torch.ones(1))
    module.register_buffer("own", torch.ones(1), persistent=False)
    module.register_buffer("later", None)
    snapshot = Snapshot(module)
    for name in ("stored", "own", "later"):
        setattr(module, name, torch.zeros(1))
    snapshot.restore(module)
    assert module.stored.item() == 1 and module.own.item() == 1 and module.later is None


class OnGraph(nn.Module):
    """Mixes its inputs by a sparse matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("adjacency", torch.eye(12).to_sparse())
        self.same = self.adjacency
        self.norm = nn.BatchNorm1d(12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm((self.adjacency @ x.T).T)


def test_a_network_with_a_sparse_buffer_adapts_and_is_reset() -> None:
    torch.manual_seed(0)
    x = torch.randn(16, 12)
    method = METHODS["tent"](nn.Sequential(OnGraph()), learning_rate=0.1, copies=None)
    before = method.step(x).main
    with keep_state(method):
        method.step(x)
        graph = method.model.get_submodule("0")
        graph.get_buffer("adjacency").mul_(2)
    assert torch.equal(graph.get_buffer("adjacency").to_dense(), torch.eye(12))
    method.step(x)
    method.reset()
    assert torch.equal(method.step(x).main, before)


class InputNorm(nn.Module):
    """Normalises by running statistics in plain attributes, as SpeechBrain does."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(1)
        self.batches = 0
        self.deviation: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.batches += 1
        self.mean = self.mean + (x.mean() - self.mean) / self.batches
        self.deviation = x.std()
        return (x - self.mean) / self.deviation


def test_a_reset_restores_state_in_plain_attributes() -> None:
    torch.manual_seed(0)
    norm = InputNorm()
    model = nn.Sequential(norm, nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    source, target = torch.randn(16, 12), 3 + 2 * torch.randn(16, 12)
    adapted = adapt(model, "tent")
    first = adapted(source)
    adapted(target)
    adapted.reset()
    inside = next(part for part in adapted.modules() if isinstance(part, InputNorm))
    assert (inside.batches, inside.mean.item(), inside.deviation) == (0, 0, None)
    assert torch.equal(adapted(source), first)


class Lazy(nn.Module):
    """Fills its buffers in the first forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", None)
        self.register_buffer("scale", None, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.seen is None:
            self.seen, self.scale = x.mean(), x.std()
        return (x - self.seen) / self.scale


def test_a_reset_empties_buffers_that_a_forward_pass_filled() -> None:
    torch.manual_seed(0)
    lazy = Lazy()
    model = nn.Sequential(lazy, nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    adapted = adapt(model, "tent")
    adapted(torch.randn(16, 12))
    inside = next(part for part in adapted.modules() if isinstance(part, Lazy))
    assert inside.seen is not None and inside.scale is not None
    adapted.reset()
    assert inside.seen is None and inside.scale is None


class Tied(nn.Module):
    """Predicts by a plain attribute that is the memory of a layer's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(12)
        self.fc = nn.Linear(12, 3, bias=False)
        self.table = self.fc.weight.data

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x) @ self.table.T + 0 * self.fc(x)


def test_an_attribute_that_is_the_memory_of_a_weight_stays_so() -> None:
    torch.manual_seed(0)
    method = METHODS["cotta"](Tied(), learning_rate=0.1, copies=None)
    for _ in range(2):
        method.step(torch.randn(16, 12))
        assert torch.equal(method.model.table, method.model.fc.weight)
        method.reset()


def test_an_attribute_that_is_changed_in_place_is_restored_in_place() -> None:
    module = nn.Sequential(InputNorm())
    kept = module[0].mean
    snapshot = Snapshot(module)
    module[0].mean += 1
    snapshot.restore(module)
    assert module[0].mean is kept and kept.item() == 0


def test_an_architecture_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="architecture = 'resnet50'; allowed are resnet26, "):
        build_network(TINY, classes=4, architecture="resnet50", seed=0)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match="block = 'pre-activation'; .*did you mean 'pre_activation'"
    ):
        SmallResNet(8, 4, "pre-activation")


def test_sizes_that_cannot_be_are_refused() -> None:
    for inputs in (None, 0):
        with pytest.raises(
            ValueError, match=f"inputs = {inputs}; allowed is a whole number from 1"
        ):
            build_network(TextNetwork(), classes=2, inputs=inputs, seed=0)
    with pytest.raises(ValueError, match="classes = 1; allowed is a whole number from 2 on"):
        build_network(TINY, classes=1, seed=0)
