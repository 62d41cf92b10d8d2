"""Contracts that hold for every registered method, and what is particular to one."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import Tensor

from cascadetta_lib.augment.image import cotta_copies
from cascadetta_lib.data.image import ImageDataset
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.methods.cotta import bernoulli_places
from cascadetta_lib.models import LeNetConfig, MLPConfig, ModelConfig, ResNetConfig
from cascadetta_lib.pretrain import OBJECTIVES, build_model, entropy

CONFIGS: dict[str, ModelConfig] = {
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


def make(name: str, modality: str = "image", **options: object) -> Method:
    """The method on a fresh network whose running statistics are not those of any batch."""
    model = build_model(CONFIGS[modality], METHODS[name].objective, seed=0)
    copies = None if modality == "image" else noisy_copies
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
    assert {"tent_adam", "cascade_fixed_classifier", "cascade_no_auxiliary"} <= set(METHODS)


def test_labels_and_colours_are_each_taken_once() -> None:
    assert len({METHODS[name].label for name in METHODS}) == len(list(METHODS))
    assert len({METHODS[name].colour for name in METHODS}) == len(list(METHODS))


@pytest.mark.parametrize("name", METHODS)
def test_the_objective_exists(name: str) -> None:
    assert METHODS[name].objective in OBJECTIVES


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
    for n, (value, old) in before.items():
        assert id(value) in declared or torch.equal(value, old), n
    assert bool(declared) == method.adapts


@pytest.mark.parametrize(("name", "modality"), ADAPTING)
def test_with_learning_rate_0_a_method_is_adabn(name: str, modality: str, batch: Tensor) -> None:
    method = make(name, modality, learning_rate=0.0)
    adabn = METHODS["adabn"](build_model(CONFIGS[modality], method.objective, seed=0))
    for _ in range(2):
        assert torch.allclose(method(batch), adabn(batch), atol=1e-6)


@pytest.mark.parametrize(("name", "modality"), CASES)
def test_same_seed_same_bits(name: str, modality: str, batch: Tensor) -> None:
    first, second = make(name, modality, seed=0), make(name, modality, seed=0)
    for _ in range(2):
        assert torch.equal(first(batch), second(batch))


@pytest.mark.parametrize(("name", "modality"), CASES)
def test_a_batch_of_one_works(name: str, modality: str, batch: Tensor) -> None:
    if modality == "text" and name != "erm":
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
    assert torch.equal(method.step(batch).main, method.predict(batch).main)


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
