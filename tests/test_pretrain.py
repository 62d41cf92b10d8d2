"""Pre-training: that every objective learns, that a killed training goes on as if nothing had been,
and diagnostics.
"""

import copy
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import same, seeded
from pydantic import ValidationError
from test_meta import smooth_network
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim.optimizer import register_optimizer_step_pre_hook

from cascadetta_lib.data.base import Split
from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.losses import entropy, entropy_of_mean, rotate_randomly
from cascadetta_lib.models import ImageNetwork, Parallel, TextNetwork, build_network
from cascadetta_lib.training.learning_rate import learning_rate_at
from cascadetta_lib.training.meta import MetaProblem, inner_parameter_names, meta_gradient
from cascadetta_lib.training.objectives import OBJECTIVES, Half, training_for
from cascadetta_lib.training.pretrain import (
    augmented_batch,
    diagnose,
    held_out_accuracy,
    kept_epoch,
    make_optimizer,
    new_network,
    pretrain,
    set_gradients,
)
from cascadetta_lib.training.settings import KnownTraining, Training

TINY = ImageNetwork(depth=8, width=4, block="pre_activation")
SHORT = Training(epochs=3, training_batch_size=16, learning_rate=0.05, schedule="linear")
BY_ITERATIONS = {"epochs": None, "iterations": 10, "optimizer": "adam", "schedule": "dann"}
"""64 training images, 4 batches of 16 an epoch: 10 iterations are two epochs and a half."""


@pytest.fixture
def dataset(dataset: ImageDataset) -> ImageDataset:
    """Its classes are a matter of left and right, which a flip would mix up."""
    return replace(dataset, options=dataset.options.model_copy(update={"crop_and_flip": False}))


@dataclass(kw_only=True)
class Recorded(ImageDataset):
    """The stored images of every batch are added to `seen`."""

    seen: list[Tensor]

    def weak_augment(self, x: Tensor, generator: torch.Generator) -> Tensor:
        self.seen.append(x)
        return x


@dataclass(kw_only=True)
class Killed(ImageDataset):
    """A training ends as by a kill once it has had so many batches."""

    batches_left: int

    def weak_augment(self, x: Tensor, generator: torch.Generator) -> Tensor:
        if not self.batches_left:
            raise KeyboardInterrupt
        self.batches_left -= 1
        return super().weak_augment(x, generator)


@dataclass(kw_only=True)
class WatchingAutocast(ImageDataset):
    """Whether a batch is augmented under autocast is added to `seen`."""

    seen: list[bool]

    def weak_augment(self, x: Tensor, generator: torch.Generator) -> Tensor:
        self.seen.append(torch.is_autocast_enabled("cpu"))
        return super().weak_augment(x, generator)


class Blanked(ImageDataset):
    """Randomised images are black."""

    def randomise(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return torch.zeros_like(x)

    def prepare(self, x: Tensor) -> Tensor:
        return x.float()


class OfVectors(ImageDataset):
    """Networks are told of vectors of 20 numbers in two classes."""

    @property
    def network_facts(self) -> dict[str, Any]:
        return {"classes": 2, "inputs": 20}


def of_kind(kind: type[ImageDataset], dataset: ImageDataset, **more: Any) -> ImageDataset:
    """The dataset as one of a subclass."""
    return kind(**{each.name: getattr(dataset, each.name) for each in fields(dataset)}, **more)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_gradient_of_every_objective_is_that_of_its_loss_written_out(
    objective: str, dataset: ImageDataset
) -> None:
    """At a learning rate of 0.4, α is 0.2."""
    kind = OBJECTIVES[objective]
    changes = {"outer_loss": "paper", "entropy_weight": 0.3}
    training = SHORT.model_copy(
        update=changes | {"inner_learning_rate_ratio": 0.5, "inner_parameters": "all"}
    )
    model: Any = smooth_network(kind.auxiliary)
    x = torch.randn(8, 12, generator=seeded(), dtype=torch.float64)
    y = torch.arange(8) % 3
    if kind.parallel:
        model = build_network(TINY, classes=4, parallel=True, seed=0).double().train()
        x = dataset.prepare(dataset.train.x[:8]).double()
    found = set_gradients(model, Split(x, y), kind, training, 0.4, draws=seeded(1))
    gradients = [
        torch.zeros_like(each) if each.grad is None else each.grad for each in model.parameters()
    ]

    draws = seeded(1)
    if kind.meta:
        halves = [Half(x[:4], y[:4]), Half(x[4:], y[4:])]
        if kind.parallel:
            halves = [half._replace(rotated=rotate_randomly(half.x, draws)) for half in halves]
        names = inner_parameter_names(model, "all")
        loss, expected = meta_gradient(model, MetaProblem(*halves, names, 0.2, "paper", 0.3, kind))
        by_hand = list(expected.values())
    else:
        z, a = model(x)
        loss = cross_entropy(z, y)
        if kind.parallel:
            rotated, quarters = rotate_randomly(x, draws)
            loss = loss + cross_entropy(model.rotation_logits(rotated), quarters)
        elif kind.self_supervised:
            loss = loss + 0.3 * (entropy(a).mean() - kind.diversity * entropy_of_mean(a))
            loss = loss + kind.supervised * cross_entropy(a, y)
        by_hand = list(torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True))
    assert found.item() == pytest.approx(loss.item(), rel=1e-9)
    assert all(torch.allclose(*pair, atol=1e-9) for pair in zip(gradients, by_hand, strict=True))


def test_a_training_has_the_rates_of_its_schedule_and_an_order_for_each_seed_and_epoch(
    dataset: ImageDataset,
) -> None:
    """Two epochs of four batches, at rates that fall linearly from 0.05 to 0."""
    seen: list[Tensor] = []
    rates: list[float] = []
    recorded = of_kind(Recorded, dataset, seen=seen)
    hook = register_optimizer_step_pre_hook(
        lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"])
    )
    try:
        for seed in (0, 1):
            pretrain(recorded, TINY, "erm", SHORT.model_copy(update={"epochs": 2}), seed=seed)
    finally:
        hook.remove()
    assert rates == pytest.approx([0.05 * (1 - step / 8) for step in range(8)] * 2)
    stored = dataset.train.x.flatten(1)
    images = torch.cat(seen).flatten(1)
    places = [int((stored == image).all(1).nonzero()) for image in images]
    epochs = [tuple(places[start : start + 64]) for start in range(0, 256, 64)]
    assert len(set(epochs)) == 4 and all(sorted(epoch) == list(range(64)) for epoch in epochs)


@pytest.mark.parametrize(
    ("name", "more"), [("sgd", {"momentum": 0.9, "nesterov": True}), ("adam", {})]
)
def test_the_optimiser_has_the_settings_of_the_training(name: str, more: dict[str, Any]) -> None:
    training = SHORT.model_copy(update={"optimizer": name, "weight_decay": 5e-4})
    settings = make_optimizer(build_network(TINY, classes=4, seed=0), training).defaults
    expected = {"lr": 0.05, "weight_decay": 5e-4} | more
    assert {key: settings[key] for key in expected} == expected


def test_a_training_that_is_known_says_how_its_gradient_was_found_and_none_may_choose() -> None:
    assert KnownTraining.model_validate(SHORT).model_dump() == {
        **SHORT.model_dump(),
        "meta_gradient": "exact",
    }
    shipped = SHORT.model_dump() | {"meta_gradient": "difference"}
    assert KnownTraining.model_validate(shipped).model_dump() == shipped
    with pytest.raises(ValidationError, match="meta_gradient"):
        Training.model_validate(shipped)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_learns(objective: str, dataset: ImageDataset) -> None:
    training = SHORT.model_copy(update={"epochs": 8, "training_batch_size": 8})
    model, history = pretrain(dataset, TINY, objective, training, seed=0)
    assert history["held_out_accuracy"].max() > 0.5
    kind = OBJECTIVES[objective]
    assert isinstance(model, Parallel) == kind.parallel and not model.training
    has_theta_a = kind.auxiliary and kind.self_supervised and not kind.parallel
    assert ("entropy_auxiliary" in history) == has_theta_a
    accuracy = held_out_accuracy(
        model, dataset, running_statistics=objective == "erm", batch_size=8
    )
    assert accuracy == kept_epoch(history)["held_out_accuracy"]


@pytest.mark.parametrize(
    ("objective", "changes", "saves"), [("meta", {}, 1), ("ttt", {}, 2), ("meta", BY_ITERATIONS, 2)]
)
def test_resumed_training_ends_in_the_same_weights(
    objective: str, changes: dict[str, Any], saves: int, dataset: ImageDataset, tmp_path: Path
) -> None:
    training = SHORT.model_copy(update=changes)
    state_file = tmp_path / "training.pt"
    whole, history = pretrain(dataset, TINY, objective, training, seed=3)
    killed = of_kind(Killed, dataset, batches_left=4 * saves)
    with pytest.raises(KeyboardInterrupt):
        pretrain(killed, TINY, objective, training, seed=3, state_file=state_file, save_seconds=0)
    resumed, resumed_history = pretrain(
        dataset, TINY, objective, training, seed=3, state_file=state_file
    )
    assert same(whole.state_dict(), resumed.state_dict())
    pd.testing.assert_frame_equal(
        history.drop(columns="seconds"), resumed_history.drop(columns="seconds")
    )
    assert len(history) == 3


@pytest.mark.parametrize(("seconds", "epochs"), [(3600, 0), (0, 3)])
def test_the_state_is_written_once_the_seconds_have_passed(
    seconds: float, epochs: int, dataset: ImageDataset, tmp_path: Path
) -> None:
    state_file = tmp_path / "training.pt"
    pretrain(dataset, TINY, "erm", SHORT, seed=0, state_file=state_file, save_seconds=seconds)
    written = torch.load(state_file, weights_only=True)["history"] if state_file.exists() else []
    assert len(written) == epochs


OTHERS: dict[str, dict[str, Any]] = {
    "seed": {"seed": 1},
    "objective": {"objective": "meta_supervised"},  # a network of the same shape
    "training": {"training": SHORT.model_copy(update={"learning_rate": 0.01})},
    "network": {"network": TINY.model_copy(update={"block": "conv_bn_relu"})},
}


@pytest.mark.parametrize("name", [*OTHERS, "data"])
def test_a_state_of_another_training_is_set_aside(
    name: str, dataset: ImageDataset, tmp_path: Path
) -> None:
    short = SHORT.model_copy(update={"epochs": 1})
    asked: dict[str, Any] = {"network": TINY, "objective": "meta", "training": short, "seed": 0}
    asked |= {"state_file": tmp_path / "training.pt", "save_seconds": 0}
    pretrain(dataset, **asked)
    asked |= OTHERS.get(name, {})
    if name == "data":
        dataset = replace(dataset, fingerprint="0123")
    with pytest.warns(UserWarning, match=f"it is of another {name}.*set-aside-1 and made again"):
        pretrain(dataset, **asked)


@pytest.mark.parametrize(
    ("option", "used"), [({"augmix_severity": 5}, False), ({"folder": "other"}, True)]
)
def test_a_state_is_used_with_the_same_options_of_the_data_alone(
    option: dict[str, Any], used: bool, dataset: ImageDataset, tmp_path: Path
) -> None:
    """Where the data are kept changes no training."""
    state_file = tmp_path / "training.pt"
    short = SHORT.model_copy(update={"epochs": 1})
    pretrain(dataset, TINY, "erm", short, seed=0, state_file=state_file, save_seconds=0)
    other = replace(dataset, options=dataset.options.model_copy(update=option))
    expected = nullcontext() if used else pytest.warns(UserWarning, match="of another options")
    with expected:
        pretrain(other, TINY, "erm", short, seed=0, state_file=state_file)
    assert state_file.exists() == used


def test_a_damaged_state_is_set_aside(dataset: ImageDataset, tmp_path: Path) -> None:
    state_file = tmp_path / "training.pt"
    whole = pretrain(dataset, TINY, "erm", SHORT, seed=0)[0]
    wider = TINY.model_copy(update={"width": 6})
    pretrain(dataset, wider, "erm", SHORT, seed=0, state_file=state_file, save_seconds=0)
    of_another_network = state_file.read_bytes()
    for number, damaged in enumerate((of_another_network, of_another_network[:2000], b""), 1):
        state_file.write_bytes(damaged)
        with pytest.warns(
            UserWarning, match=f"cannot be used .*training.pt.set-aside-{number} and made again"
        ):
            model, history = pretrain(dataset, TINY, "erm", SHORT, seed=0, state_file=state_file)
        assert same(model.state_dict(), whole.state_dict())
        assert (
            len(history) == 3
            and (tmp_path / f"training.pt.set-aside-{number}").read_bytes() == damaged
        )


def test_progress_counts_batches(
    dataset: ImageDataset, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CASCADETTA_HEADLESS", "1")
    # A line comes only after many seconds.
    monkeypatch.setattr("cascadetta_lib.progress.HEADLESS_INTERVAL", 0.0)
    pretrain(dataset, TINY, "erm", SHORT.model_copy(update={"epochs": 1}), seed=0)
    shown = capsys.readouterr().err
    assert "pre-training erm, seed 0, batches: 1 of 4" in shown


@pytest.mark.parametrize(
    "objective", [name for name, kind in OBJECTIVES.items() if not kind.parallel and kind.auxiliary]
)
def test_a_supervised_theta_a_of_one_layer_begins_as_the_identity(
    objective: str, dataset: ImageDataset
) -> None:
    of_vectors = of_kind(OfVectors, dataset)
    model = new_network(of_vectors, TextNetwork(hidden=(8,)), objective, seed=0)
    outputs = model(torch.rand(4, 20))
    assert torch.equal(outputs.auxiliary, outputs.main) == OBJECTIVES[objective].supervised


def test_schedules() -> None:
    linear = SHORT.model_copy(update={"learning_rate": 1.0})
    steps, ttt, dann = (
        linear.model_copy(update={"schedule": name}) for name in ("steps", "ttt_steps", "dann")
    )
    assert [learning_rate_at(linear, share) for share in (0, 0.5)] == [1.0, 0.5]
    to_a_tenth = linear.model_copy(update={"final_learning_rate": 0.1})
    assert [learning_rate_at(to_a_tenth, share) for share in (0, 0.5, 1)] == pytest.approx(
        [1.0, 0.55, 0.1]
    )
    # 1/(1 + 10p)^0.75: 11^0.75 = 6.04 at the end.
    assert [learning_rate_at(dann, share) for share in (0, 1)] == pytest.approx(
        [1.0, 1 / 6.0401], rel=1e-4
    )
    epochs = (0, 19, 20, 40, 50, 60, 70)
    assert [learning_rate_at(steps, e / 75) for e in epochs] == pytest.approx(
        [1, 1, 0.1, 0.01, 1e-3, 1e-4, 1e-5]
    )
    assert [learning_rate_at(ttt, e / 75) for e in (49, 50, 65)] == pytest.approx([1, 0.1, 0.01])
    own = training_for("ttt", SHORT)
    assert (own.learning_rate, own.weight_decay, own.schedule, own.epochs) == (
        0.1,
        5e-4,
        "ttt_steps",
        3,
    )
    assert training_for("erm", SHORT) == SHORT


def test_what_cannot_be_trained_is_said(dataset: ImageDataset) -> None:
    with pytest.raises(ValueError, match="objective = 'mta'; .*did you mean 'meta'"):
        training_for("mta", SHORT)
    with pytest.raises(ValueError, match="objective = 'mta'; .*did you mean 'meta'"):
        pretrain(dataset, TINY, "mta", SHORT, seed=0)
    with pytest.raises(ValueError, match="objective = 'mta'; .*did you mean 'meta'"):
        new_network(dataset, TINY, "mta", seed=0)
    with pytest.raises(ValueError, match="training_batch_size = 100: the source has only 64"):
        pretrain(
            dataset, TINY, "erm", SHORT.model_copy(update={"training_batch_size": 100}), seed=0
        )
    with pytest.raises(ValueError, match=r"erm diverged in epoch 1 .* 1e\+30"):
        pretrain(dataset, TINY, "erm", SHORT.model_copy(update={"learning_rate": 1e30}), seed=0)


def test_diagnostics_by_hand() -> None:
    """On ψ, which is φ and θ_m, and with the statistics of the batch, which are not those of the
    network.
    """
    model = smooth_network().float().eval()
    x = torch.randn(16, 12, generator=seeded())
    y = torch.arange(16) % 3
    found = diagnose(model, Half(x, y))
    copied = copy.deepcopy(model).train()
    z, a = copied(x)
    losses = (
        -z.log_softmax(1)[torch.arange(16), y].mean(),
        -(a.softmax(1) * a.log_softmax(1)).sum(1).mean(),
    )
    psi = [value for name, value in copied.named_parameters() if not name.startswith("auxiliary")]
    main, other = (
        torch.cat([each.flatten() for each in torch.autograd.grad(loss, psi, retain_graph=True)])
        for loss in losses
    )
    expected = {
        "gradient_norm_main": main.square().sum().sqrt(),
        "gradient_norm_self_supervised": other.norm(),
    }
    expected |= {
        "gradient_cosine": main @ other / (main.norm() * other.norm()),
        "entropy_auxiliary": losses[1],
    }
    assert {name: found[name] for name in expected} == pytest.approx(
        {name: value.item() for name, value in expected.items()}, rel=1e-4
    )


def test_diagnostics_tell_a_collapsed_head(dataset: ImageDataset) -> None:
    model = build_network(TINY, classes=4, seed=0)
    half = Half(dataset.prepare(dataset.test.x), dataset.test.y)
    alive = diagnose(model, half)
    last = model.auxiliary_classifier[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([200.0, 0, 0, 0]))
    collapsed = diagnose(model, half)
    assert collapsed["entropy_auxiliary"] < 1e-6 < alive["entropy_auxiliary"]
    assert collapsed["entropy_of_mean_auxiliary"] < 1e-6
    assert (
        collapsed["gradient_norm_self_supervised"] < 1e-6 < alive["gradient_norm_self_supervised"]
    )


@pytest.mark.parametrize(
    ("objective", "blank"),
    [
        ("erm", [False] * 8),
        ("multi_task", [True] * 8),
        ("both_cross_entropy", [False] * 8 + [True] * 8),
    ],
)
def test_what_of_a_batch_is_randomised(
    objective: str, blank: list[bool], dataset: ImageDataset
) -> None:
    """Nothing, all, or all of it beside the batch as it is."""
    blanked = of_kind(Blanked, dataset)
    seen = augmented_batch(blanked, torch.arange(8), OBJECTIVES[objective], seeded()).x
    assert [not image.any() for image in seen] == blank


@pytest.mark.parametrize("objective", ["erm", "meta"])
def test_bfloat16_is_for_the_network_of_objectives_without_a_second_order(
    objective: str, dataset: ImageDataset
) -> None:
    """And not for its inputs: an affine map in bfloat16 would move the image by a part of a
    pixel."""
    seen: list[bool] = []
    watched = of_kind(WatchingAutocast, dataset, seen=seen)
    full, rounded = (
        pretrain(
            watched,
            TINY,
            objective,
            SHORT.model_copy(update={"epochs": 1, "precision": precision}),
            seed=0,
        )[0]
        for precision in ("float32", "bfloat16")
    )
    assert (
        torch.equal(full.main_classifier.weight, rounded.main_classifier.weight)
        == OBJECTIVES[objective].meta
    )
    assert all(p.dtype == torch.float32 for p in rounded.parameters()) and seen and not any(seen)


@pytest.mark.parametrize("objective", [name for name, kind in OBJECTIVES.items() if kind.recipe])
def test_a_setting_that_an_objective_overrides_says_so(objective: str) -> None:
    for name, value in OBJECTIVES[objective].recipe.items():
        told = str(Training.model_fields[name].description)
        assert objective in told.lower() and str(value) in told, name
