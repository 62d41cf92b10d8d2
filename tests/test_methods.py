"""Contracts that hold for every registered method, and what is particular to one."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import Tensor

from cascadetta_lib.augment.image import cotta_copies
from cascadetta_lib.data.base import Modality
from cascadetta_lib.data.image import ImageDataset
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.methods.cotta import bernoulli_places
from cascadetta_lib.methods.memory import MemoryBatchNorm2d, give_memory, memories
from cascadetta_lib.models import LeNetConfig, MLPConfig, ModelConfig, ResNetConfig
from cascadetta_lib.pretrain import OBJECTIVES, build_model, entropy

CONFIGS: dict[Modality, ModelConfig] = {
    "image": ResNetConfig(depth=8, width=4, classes=4),
    "text": MLPConfig(inputs=20, hidden=(12, 6)),
    "speech": LeNetConfig(classes=4),
}
CONFIG = CONFIGS["image"]
CASES = [(name, modality) for name in METHODS for modality in METHODS[name].modalities]
ADAPTING = [(name, modality) for name, modality in CASES if METHODS[name].adapts]


def noisy_copies(x: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Something for CoTTA to average over that is no picture."""
    for _ in range(count):
        yield x + 0.01 * torch.randn(x.shape, generator=generator)


def make(name: str, modality: Modality = "image", **options: object) -> Method:
    """The method on a fresh network whose running statistics are not those of any batch."""
    model = build_model(CONFIGS[modality], METHODS[name].objective_on(modality), seed=0)
    copies = "image" if modality == "image" else noisy_copies
    return METHODS[name](model, **({"learning_rate": 0.05, "copies": copies} | options))  # type: ignore[arg-type]


@pytest.fixture
def batch(modality: str, images: Tensor) -> Tensor:
    """Eight prepared examples of a modality."""
    generator = torch.Generator().manual_seed(0)
    if modality == "text":
        return torch.rand(8, 20, generator=generator)
    return images if modality == "image" else torch.randn(8, 1, 32, 32, generator=generator)


def snapshot(method: Method) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in method.state_dict().items()}


def test_the_six_of_the_paper_and_the_variants_are_there() -> None:
    assert {name for name in METHODS if METHODS[name].in_paper} == {"erm", "adabn", "ttt", "tent", "cotta", "cascade"}
    assert {"tent_adam", "cascade_fixed_classifier", "cascade_no_auxiliary", "cascade_plus"} <= set(METHODS)


def test_labels_and_colours_are_each_taken_once() -> None:
    assert len({METHODS[name].label for name in METHODS}) == len(list(METHODS))
    assert len({METHODS[name].colour for name in METHODS}) == len(list(METHODS))


@pytest.mark.parametrize("name", METHODS)
def test_the_objective_exists(name: str) -> None:
    for modality in METHODS[name].modalities:
        assert METHODS[name].objective_on(modality) in OBJECTIVES


@pytest.mark.parametrize(("name", "modality"), CASES)
def test_logits_have_the_shape_of_the_classes(name: str, modality: str, batch: Tensor) -> None:
    logits = make(name, modality)(batch)
    assert logits.shape == (8, CONFIGS[modality].classes) and not logits.requires_grad


@pytest.mark.parametrize(("name", "modality"), CASES)
def test_reset_is_bit_exact_and_repeats_the_same_predictions(name: str, modality: str, batch: Tensor) -> None:
    method = make(name, modality)
    source, tensors = snapshot(method), {n: v.data_ptr() for n, v in method.state_dict().items()}
    first = [method(batch) for _ in range(3)]
    method.reset()
    for n, value in method.state_dict().items():
        assert torch.equal(value, source[n]), n
        assert value.data_ptr() == tensors[n], n
    again = [method(batch) for _ in range(3)]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize(("name", "modality"), ADAPTING)
def test_the_optimiser_owns_the_models_tensors_after_a_reset(name: str, modality: str, batch: Tensor) -> None:
    method = make(name, modality)
    method(batch)
    method.reset()
    assert method.optimizer is not None
    owned = [p for group in method.optimizer.param_groups for p in group["params"]]
    model = {id(p) for p in method.model.parameters()}
    assert owned and all(id(p) in model for p in owned)
    assert {id(p) for p in owned} == {id(p) for p in method.adapted_parameters()}
    before = [p.detach().clone() for p in owned]
    method(batch)
    assert any(not torch.equal(a, b) for a, b in zip(before, owned, strict=True))


@pytest.mark.parametrize(("name", "modality"), CASES)
def test_nothing_but_the_declared_parameters_changes(name: str, modality: str, batch: Tensor) -> None:
    method = make(name, modality)
    declared = {id(p) for p in method.adapted_parameters()}
    before = {n: (v, v.detach().clone()) for n, v in method.model.state_dict(keep_vars=True).items()}
    for _ in range(3):
        method(batch)
    memory = {id(buffer) for norm in memories(method) for buffer in norm.buffers()}
    assert bool(memory) == bool(method.memory)
    for n, (value, old) in before.items():
        assert id(value) in declared | memory or torch.equal(value, old), n
    assert bool(declared) == method.adapts


@pytest.mark.parametrize(("name", "modality"), ADAPTING)
def test_with_learning_rate_0_a_method_is_adabn(name: str, modality: str, batch: Tensor) -> None:
    method = make(name, modality, learning_rate=0.0)
    source = build_model(CONFIGS[modality], method.objective_on(modality), seed=0)
    adabn = METHODS["adabn"](source, memory=method.memory)
    for _ in range(2):
        assert torch.allclose(method(batch), adabn(batch), atol=1e-6)


@pytest.mark.parametrize(("name", "modality"), CASES)
def test_same_seed_same_bits(name: str, modality: str, batch: Tensor) -> None:
    first, second = make(name, modality, seed=0), make(name, modality, seed=0)
    for _ in range(2):
        assert torch.equal(first(batch), second(batch))


@pytest.mark.parametrize(("name", "modality"), CASES)
def test_a_batch_of_one_works(name: str, modality: str, batch: Tensor) -> None:
    if modality == "text" and name != "erm" and not METHODS[name].memory:
        # One vector has no variance: torch says so, and the evaluator before anything starts.
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            make(name, modality)(batch[:1])
    else:
        assert make(name, modality)(batch[:1]).isfinite().all()


@pytest.mark.parametrize(("name", "modality"), CASES)
def test_predict_changes_nothing_and_has_the_batchnorm_mode_of_step(name: str, modality: str, batch: Tensor) -> None:
    method = make(name, modality)
    before = snapshot(method)
    predicted = method.predict(batch).main
    for n, value in method.state_dict().items():
        assert torch.equal(value, before[n]), n
    if name == "erm":
        assert torch.equal(predicted, method.model(batch).main)
    else:
        # Batch statistics: an image's logits depend on its companions.
        assert not torch.allclose(predicted[:4], method.predict(batch[:4]).main, atol=1e-4)
    stepped = method.step(batch).main
    if not method.memory:  # which has the batch in it from now on
        assert torch.equal(stepped, method.predict(batch).main)


@pytest.mark.parametrize("name", ["tent", "tent_adam", "cascade", "ttt"])
def test_before_is_the_prediction_of_the_model_before_the_update(name: str, images: Tensor) -> None:
    method = make(name, predict="before")
    expected = method.predict(images).main
    assert torch.allclose(method(images), expected, atol=1e-6)
    assert not torch.allclose(method.predict(images).main, expected, atol=1e-6)


def test_erm_uses_running_statistics(images: Tensor) -> None:
    method = make("erm")
    assert torch.allclose(method(images)[:3], method(images[:3]), atol=1e-5)


def test_the_cascade_step_written_by_hand(images: Tensor) -> None:
    method = make("cascade", learning_rate=0.1)
    model = build_model(CONFIG, "meta", seed=0).train()
    outputs = model(images)
    theta_m = model.main_classifier.weight
    (gradient,) = torch.autograd.grad(entropy(outputs.auxiliary).mean(), theta_m)
    method(images)
    # The first step of Nesterov momentum 0.9 moves by (1 + 0.9) times the gradient.
    assert torch.allclose(method.model.main_classifier.weight, theta_m - 0.1 * 1.9 * gradient, atol=1e-6)


def test_the_cascade_needs_theta_a(images: Tensor) -> None:
    method = METHODS["cascade"](build_model(CONFIG, "meta_no_auxiliary", seed=0))
    with pytest.raises(ValueError, match="cascade_no_auxiliary"):
        method(images)


def test_cotta_teacher_is_the_moving_average(images: Tensor) -> None:
    method = make("cotta")
    student = method.model.main_classifier.weight
    teacher = method.teacher.main_classifier.weight  # type: ignore[union-attr]
    source = teacher.detach().clone()
    method(images)
    moved = (teacher - source).abs().sum()
    assert moved > 0
    # Where nothing was restored, the teacher moved by 1 − 0.999 of what the student moved.
    kept = student != source
    assert torch.allclose((teacher - source)[kept], (0.001 * (student - source))[kept], rtol=1e-2, atol=1e-6)


def test_each_place_is_chosen_on_its_own_with_the_same_probability() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = [bernoulli_places(400, 0.01, generator) for _ in range(20_000)]
    assert all((places.diff() > 0).all() and (places >= 0).all() and (places < 400).all() for places in drawn)
    # Counts are binomial: mean 4, variance 3.96; each bound is five standard errors.
    counts = torch.tensor([len(places) for places in drawn]).double()
    assert abs(counts.mean() - 4) < 5 * (3.96 / 20_000) ** 0.5
    assert abs(counts.var() - 3.96) < 5 * 3.96 * (2 / 20_000) ** 0.5
    share = torch.cat(drawn).bincount(minlength=400) / 20_000
    assert (share - 0.01).abs().max() < 5 * (0.01 * 0.99 / 20_000) ** 0.5
    # Neighbours are independent of each other.
    both = sum(((places.diff() == 1).sum().item() for places in drawn), 0) / (20_000 * 399)
    assert abs(both - 1e-4) < 5 * (1e-4 / (20_000 * 399)) ** 0.5


def test_cotta_averages_over_copies_only_where_the_anchor_is_unsure(
    images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cascadetta_lib.methods import cotta

    calls: list[int] = []
    copies = partial(cotta_copies, value_range=(-1.0, 1.0))

    def counted(x: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
        calls.append(count)
        return copies(x, count, generator)

    expected = make("cotta")(images)
    assert torch.equal(make("cotta", copies=counted)(images), expected), "without copies of one's own: for images"
    assert calls == [cotta.COPIES] == [32]
    monkeypatch.setattr(cotta, "CONFIDENCE", 0.0)
    make("cotta", copies=counted)(images)
    assert calls == [32]


@pytest.mark.parametrize("name", ["erm", "adabn", "tent", "tent_adam", "cotta"])
def test_a_network_of_somebody_elses_that_returns_logits(name: str, images: Tensor) -> None:
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    )
    assert METHODS[name](network)(images).shape == (8, 4)


def test_a_method_in_a_loop_of_ones_own(dataset: ImageDataset) -> None:
    method = METHODS["tent"](build_model(CONFIG, "meta", seed=0), learning_rate=1e-3)
    labels = [method(dataset.prepare(x)).argmax(1) for x in dataset.test.x.split(8)]
    method.reset()
    assert torch.cat(labels).shape == (22,)


# ---------------------------------------------------------------- diversity, drift bound, memory


@pytest.mark.parametrize("name", ["tent", "cascade", "cascade_fixed_classifier", "cascade_no_auxiliary"])
def test_diversity_is_in_the_loss_of_every_entropy_based_method(name: str, images: Tensor) -> None:
    plain, diverse = make(name), make(name, diversity=1.0)
    outputs = plain.model(images)
    logits = outputs.main if name in ("tent", "cascade_no_auxiliary") else outputs.auxiliary
    mean = logits.softmax(1).mean(0)
    expected = plain.loss(images)[0] + (mean * mean.log()).sum()
    assert torch.allclose(diverse.loss(images)[0], expected, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].adapts])
def test_the_drift_is_bounded(name: str, images: Tensor) -> None:
    free = make(name)

    def drift(method: Method) -> float:
        moved = sum((p - source).square().sum().item() for p, source in method._adapted)
        return float((moved / sum(source.square().sum().item() for _, source in method._adapted)) ** 0.5)

    for _ in range(5):
        free(images)
    allowed = drift(free) / 2
    bound = make(name, drift_bound=allowed)
    for _ in range(5):
        bound(images)
    # CoTTA brings some weights back after the step.
    assert 0.8 * allowed < drift(bound) < 1.001 * allowed


def test_a_memory_blends_the_batch_with_what_it_has_seen() -> None:
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm2d(3)
    norm.running_mean.uniform_()
    norm.running_var.uniform_(0.5, 2)
    model = torch.nn.Sequential(norm)
    mean, variance = norm.running_mean.clone(), norm.running_var.clone()
    give_memory(model, 24)
    x = 3 * torch.randn(8, 3, 5, 5) + 1
    share = 8 / (8 + 24)
    # The mixture of two groups: the remembered one and the batch, written out.
    own_mean, own_variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
    both = (1 - share) * mean + share * own_mean
    spread = (1 - share) * (variance + (mean - both) ** 2) + share * (own_variance + (own_mean - both) ** 2)
    expected = (x - both[:, None, None]) / (spread + norm.eps).sqrt()[:, None, None]
    assert torch.allclose(model(x), expected, atol=1e-5)
    assert torch.equal(norm.running_mean, mean), "not before `remember`"
    norm.remember()
    assert torch.allclose(norm.running_mean, both) and torch.allclose(norm.running_var, spread)


def test_a_memory_of_nothing_is_the_batch() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 3, 5, 5)
    norm = torch.nn.BatchNorm2d(3)
    expected = norm.train()(x)
    other = torch.nn.BatchNorm2d(3)
    give_memory(other, 0)
    assert isinstance(other, MemoryBatchNorm2d) and torch.allclose(other(x), expected, atol=1e-5)


def test_a_memory_needs_running_statistics() -> None:
    with pytest.raises(ValueError, match="running statistics"):
        give_memory(torch.nn.Sequential(torch.nn.BatchNorm2d(3, track_running_stats=False)), 8)


def test_measuring_leaves_no_trace_in_the_memory(images: Tensor) -> None:
    method = make("adabn", memory=16)
    method(images)
    before = snapshot(method)
    with method.measuring():
        method.predict(images + 1)
        method.remember()
        assert any(not torch.equal(value, before[name]) for name, value in snapshot(method).items())
    assert all(torch.equal(value, before[name]) for name, value in snapshot(method).items())


def test_a_memory_makes_small_batches_bearable(images: Tensor) -> None:
    """After enough of a domain, a single image is normalised nearly as in a large batch."""
    method, large = make("adabn", memory=64), make("adabn")
    for _ in range(60):
        method(images)
    expected = large(images)
    alone = torch.cat([method.predict(image[None]).main for image in images])
    without = torch.cat([large.predict(image[None]).main for image in images])
    assert (alone - expected).abs().mean() < 0.2 * (without - expected).abs().mean()
