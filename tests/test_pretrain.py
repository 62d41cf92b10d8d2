"""Models, objectives and the meta-gradient."""

import copy
import math
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from cascadetta_lib import pretrain as module
from cascadetta_lib.data.image import ImageDataset
from cascadetta_lib.models import (
    Cascade,
    LeNetConfig,
    MLPConfig,
    Parallel,
    ResNetConfig,
    batch_norm_parameters,
    build_cascade,
    build_parallel,
    load_release_checkpoint,
)
from cascadetta_lib.pretrain import (
    META_GRADIENTS,
    OBJECTIVES,
    Half,
    MetaProblem,
    TrainingConfig,
    build_model,
    diagnose,
    difference_meta_gradient,
    entropy,
    exact_meta_gradient,
    information_loss,
    inner_parameter_names,
    learning_rate_at,
    losses,
    meta_gradient,
    pretrain,
    rotate_randomly,
    self_supervised_loss,
)

TINY = ResNetConfig(depth=8, width=4, classes=4, block="pre_activation")
SHORT = TrainingConfig(epochs=3, training_batch_size=16, learning_rate=0.05, schedule="linear")


def count(parameters: object) -> int:
    return sum(parameter.numel() for parameter in parameters)  # type: ignore[attr-defined]


@pytest.mark.parametrize("block", ["conv_bn_relu", "pre_activation"])
def test_resnet26_has_the_parameters_of_the_paper(block: str) -> None:
    model = build_cascade(ResNetConfig(block=block))  # type: ignore[arg-type]
    assert count(model.parameters()) == 368_292
    assert count(model.main_classifier.parameters()) == 650
    assert model.auxiliary_classifier is not None
    assert count(model.auxiliary_classifier.parameters()) == 1_354
    assert count(batch_norm_parameters(model)) == 1_824


def test_resnet34_is_torchvisions_with_the_papers_theta_a() -> None:
    model = build_cascade(ResNetConfig(architecture="resnet34", classes=200))
    assert count(model.feature_extractor.parameters()) + count(model.main_classifier.parameters()) == 21_387_272
    assert model.auxiliary_classifier is not None
    assert [tuple(p.shape) for p in model.auxiliary_classifier.parameters()] == [
        (1024, 200),
        (1024,),
        (200, 1024),
        (200,),
    ]
    outputs = model.eval()(torch.zeros(2, 3, 224, 224))
    assert outputs.main.shape == (2, 200)


def test_ttt_shares_all_but_the_last_stage() -> None:
    model = build_parallel(TINY)
    x = torch.randn(3, 3, 32, 32)
    assert model(x).main.shape == (3, 4) and model.rotation_logits(x).shape == (3, 4)
    model.rotation_logits(x).sum().backward()
    touched = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    shared = {n for n, p in model.named_parameters() if any(p is q for q in model.shared_parameters)}
    assert shared < touched
    assert all(name.startswith("auxiliary_") for name in touched - shared)


def test_relu_logits_change_z_itself() -> None:
    torch.manual_seed(0)
    plain, relu = build_cascade(TINY), build_cascade(TINY.model_copy(update={"main_logits": "relu"}))
    relu.load_state_dict(plain.state_dict())
    x = torch.randn(4, 3, 32, 32)
    z = plain(x).main
    assert (z < 0).any()
    assert torch.equal(relu(x).main, z.clamp_min(0))


def test_release_checkpoint_round_trip(tmp_path: Path) -> None:
    model = build_cascade(ResNetConfig(block="pre_activation", main_logits="relu"))
    theirs = {"stage1": "layer1", "stage2": "layer2", "conv1": "conv1"}
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        part, _, rest = name.partition(".")
        if part == "main_classifier":
            name = f"fc.{rest}"
        elif part == "auxiliary_classifier":
            name = f"ssh.{rest}"
        elif rest.startswith("private.blocks"):
            name = rest.replace("private.blocks", "layer3")
        elif rest.startswith("private.bn"):
            name = rest.replace("private.bn", "bn")
        else:
            head, _, tail = rest.partition(".")
            name = f"{theirs[head]}.{tail}"
        state[f"stateless.{name}"] = torch.randn_like(tensor) if tensor.is_floating_point() else tensor
        state[f"module.{name}"] = torch.zeros_like(tensor)
    torch.save({"net": state}, tmp_path / "ckpt.pth")
    loaded = load_release_checkpoint(tmp_path / "ckpt.pth")
    assert loaded.relu_logits
    assert torch.equal(loaded.main_classifier.weight, state["stateless.fc.weight"])
    assert torch.equal(
        loaded.state_dict()["feature_extractor.stage2.3.bn1.running_mean"], state["stateless.layer2.3.bn1.running_mean"]
    )

    torch.save({"model": {}}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="not the release's checkpoint"):
        load_release_checkpoint(tmp_path / "other.pth")
    torch.save({"net": {k: v for k, v in state.items() if "fc" not in k}}, tmp_path / "part.pth")
    with pytest.raises(ValueError, match="do not fit"):
        load_release_checkpoint(tmp_path / "part.pth")


def test_release_checkpoint_never_runs_pickled_code(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (pytest.fail, ("pickled code ran",))

    torch.save({"net": Bomb()}, tmp_path / "bomb.pth")
    with pytest.raises(Exception, match="(?i)weights.only"):
        load_release_checkpoint(tmp_path / "bomb.pth")


def test_entropy_in_nats() -> None:
    assert entropy(torch.zeros(2, 10)).tolist() == pytest.approx([math.log(10)] * 2)
    assert entropy(torch.tensor([[100.0, 0.0]])).item() == pytest.approx(0, abs=1e-6)


def test_rotation_turns_by_the_label() -> None:
    x = torch.randn(40, 3, 8, 8)
    rotated = rotate_randomly(x, torch.Generator().manual_seed(0))
    assert set(rotated.quarters.tolist()) == {0, 1, 2, 3}
    for image, turned, quarters in zip(x, rotated.x, rotated.quarters.tolist(), strict=True):
        assert torch.equal(turned, image.rot90(quarters, (1, 2)))


# ---------------------------------------------------------------- the meta-gradient


def smooth_network(auxiliary: bool = True) -> Cascade:
    """A small cascade without kinks, in float64, BatchNorm included."""
    torch.manual_seed(1)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Tanh())
    theta_a = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))
    return Cascade(extractor, nn.Linear(6, 3), theta_a if auxiliary else None, relu_logits=False).double()


def smooth_problem(model: Cascade, which: str, outer_loss: str, objective: str = "meta") -> MetaProblem:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 12, dtype=torch.float64, generator=generator)
    y = torch.randint(3, (16,), generator=generator)
    halves = Half(x[:8], y[:8], None), Half(x[8:], y[8:], None)
    names, kind = inner_parameter_names(model, which), OBJECTIVES[objective]
    return MetaProblem(*halves, names, 0.3, outer_loss, 0.2, kind)  # type: ignore[arg-type]


def meta_objective(model: Cascade, problem: MetaProblem, fixed: nn.Module | None = None) -> float:
    """The outer loss after one inner step, written down once more without autograd through the step. fixed: the θ_a
    that the outer entropy sees where the objective leaves θ_a out of its gradient."""
    inner = [dict(model.named_parameters())[name] for name in problem.inner_names]
    kind = problem.kind
    gradients = torch.autograd.grad(self_supervised_loss(model, problem.meta_train, kind), inner)
    at_psi = losses(model, problem.meta_train, kind).main.item() if problem.outer_loss == "release" else 0.0
    with torch.no_grad():
        for parameter, gradient in zip(inner, gradients, strict=True):
            parameter -= problem.inner_learning_rate * gradient
        main, self_supervised = losses(model, problem.meta_test, kind)
        if fixed is not None:
            self_supervised = entropy(fixed(model(problem.meta_test.x).main)).mean()
        for parameter, gradient in zip(inner, gradients, strict=True):
            parameter += problem.inner_learning_rate * gradient
    total = (main + problem.entropy_weight * self_supervised).item()
    return 0.1 * total + at_psi if problem.outer_loss == "release" else total


@pytest.mark.parametrize("outer_loss", ["paper", "release"])
@pytest.mark.parametrize("which", ["all", "batchnorm_and_classifier"])
@pytest.mark.parametrize("auxiliary", [True, False])
def test_exact_meta_gradient_against_finite_differences(which: str, outer_loss: str, auxiliary: bool) -> None:
    model = smooth_network(auxiliary)
    problem = smooth_problem(model, which, outer_loss)
    loss, gradients = exact_meta_gradient(model, problem)
    assert loss == pytest.approx(meta_objective(model, problem), rel=1e-12)
    for name, parameter in model.named_parameters():
        flat = parameter.data.view(-1)
        for index in range(0, len(flat), max(1, len(flat) // 5)):
            before = flat[index].item()
            flat[index] = before + 1e-6
            above = meta_objective(model, problem)
            flat[index] = before - 1e-6
            below = meta_objective(model, problem)
            flat[index] = before
            assert gradients[name].reshape(-1)[index].item() == pytest.approx((above - below) / 2e-6, abs=1e-7), name


META_OBJECTIVES = [name for name, kind in OBJECTIVES.items() if kind.meta and (kind.supervised or kind.diversity)]
META_OBJECTIVES.append("meta_detached")
"""All but the agreement: with no gradient through its z, it is the derivative of no function of all parameters."""


@pytest.mark.parametrize("outer_loss", ["paper", "release"])
@pytest.mark.parametrize("objective", META_OBJECTIVES)
def test_meta_gradient_of_each_candidate_against_finite_differences(objective: str, outer_loss: str) -> None:
    model = smooth_network()
    problem = smooth_problem(model, "all", outer_loss, objective)
    _, gradients = exact_meta_gradient(model, problem)
    fixed = copy.deepcopy(model.auxiliary_classifier) if problem.kind.detached else None
    for name, parameter in model.named_parameters():
        flat = parameter.data.view(-1)
        for index in range(0, len(flat), max(1, len(flat) // 5)):
            before = flat[index].item()
            flat[index] = before + 1e-6
            above = meta_objective(model, problem, fixed)
            flat[index] = before - 1e-6
            below = meta_objective(model, problem, fixed)
            flat[index] = before
            assert gradients[name].reshape(-1)[index].item() == pytest.approx((above - below) / 2e-6, abs=1e-7), name


@pytest.mark.parametrize("objective", [name for name, kind in OBJECTIVES.items() if kind.auxiliary])
def test_losses_of_each_objective_against_finite_differences(objective: str) -> None:
    kind = OBJECTIVES[objective]
    if kind.parallel or not kind.self_supervised:
        pytest.skip("its losses are the rotation's or the cross-entropy alone")
    model = smooth_network()
    half = smooth_problem(model, "all", "paper", objective).meta_test
    teacher = model(half.x).main.detach().softmax(1)

    def written_out() -> float:
        z, a = model(half.x)
        p, q = z.softmax(1), a.softmax(1)
        own = torch.arange(len(half.y)), half.y
        total = -p[own].log().mean() - 0.2 * (q * q.log()).sum(1).mean()
        if kind.supervised:
            total = total - q[own].log().mean()
        if kind.agreement:
            total = total + (teacher * (teacher.log() - q.log())).sum(1).mean()
        if kind.diversity:
            total = total + 0.2 * kind.diversity * (q.mean(0) * q.mean(0).log()).sum()
        return float(total)

    main, self_supervised = losses(model, half, kind)
    total = main + 0.2 * self_supervised
    assert total.item() == pytest.approx(written_out(), rel=1e-12)
    parameters = dict(model.named_parameters())
    gradients = dict(zip(parameters, torch.autograd.grad(total, list(parameters.values())), strict=True))
    for name, parameter in parameters.items():
        flat = parameter.data.view(-1)
        before = flat[0].item()
        flat[0] = before + 1e-6
        above = written_out()
        flat[0] = before - 1e-6
        below = written_out()
        flat[0] = before
        assert gradients[name].reshape(-1)[0].item() == pytest.approx((above - below) / 2e-6, abs=1e-7), name


def test_a_detached_entropy_has_no_gradient_on_theta_a() -> None:
    model = smooth_network()
    half = smooth_problem(model, "all", "paper").meta_test
    theta_a = list(model.auxiliary_classifier.parameters())  # type: ignore[union-attr]
    attached, detached = (losses(model, half, theta_a=on).self_supervised for on in (True, False))
    assert attached.item() == pytest.approx(detached.item(), rel=1e-12)
    assert all(g.abs().sum() > 0 for g in torch.autograd.grad(attached, theta_a))
    assert all(not g.any() for g in torch.autograd.grad(detached, theta_a, materialize_grads=True))


def test_information_has_its_optimum_at_sure_and_balanced_predictions() -> None:
    sure = 50 * torch.eye(4)
    one_class = 50 * torch.eye(4)[torch.zeros(4, dtype=torch.int64)]
    assert information_loss(sure, 1.0).item() == pytest.approx(-math.log(4), abs=1e-6)
    assert information_loss(one_class, 1.0).item() == pytest.approx(0, abs=1e-6)
    assert information_loss(one_class, 0.0).item() == information_loss(sure, 0.0).item() == pytest.approx(0, abs=1e-6)
    assert information_loss(torch.zeros(4, 4), 1.0).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("outer_loss", ["paper", "release"])
@pytest.mark.parametrize("which", ["all", "batchnorm_and_classifier"])
def test_difference_meta_gradient_against_the_exact_one(
    which: str, outer_loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DIFFERENCE_NORM", 1e-5)
    model = smooth_network()
    problem = smooth_problem(model, which, outer_loss)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    exact_loss, exact = exact_meta_gradient(model, problem)
    after_exact = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(before)
    loss, gradients = difference_meta_gradient(model, problem)
    assert loss == pytest.approx(exact_loss, rel=1e-12)
    for name in exact:
        assert torch.allclose(gradients[name], exact[name], rtol=1e-4, atol=1e-7), name
    # Both leave the parameters as they were and count the same two batches in the running statistics.
    for name, value in model.state_dict().items():
        assert torch.allclose(value, after_exact[name], rtol=0, atol=1e-12), name
    # The second-order term matters here: without it the two would not be told apart.
    first_order = exact_meta_gradient(model, replace(problem, inner_learning_rate=0.0))[1]
    assert any(not torch.allclose(first_order[name], exact[name], rtol=1e-2) for name in exact)


@pytest.mark.parametrize("which", ["all", "batchnorm_and_classifier"])
def test_difference_route_on_a_resnet_in_float32(which: str, dataset: ImageDataset) -> None:
    model = build_model(TINY, "meta", seed=0).train()
    x, y = dataset.prepare(dataset.train.x[:32]), dataset.train.y[:32]
    halves = Half(x[:16], y[:16], None), Half(x[16:], y[16:], None)
    problem = MetaProblem(*halves, inner_parameter_names(model, which), 0.01, "paper", 0.1)
    flat = [
        torch.cat([g.flatten() for g in META_GRADIENTS[r](model, problem)[1].values()]) for r in ("exact", "difference")
    ]
    assert ((flat[1] - flat[0]).norm() / flat[0].norm()).item() < 1e-2


@pytest.mark.parametrize(
    "objective, repeated", [("meta", False), ("meta", True), ("meta_supervised_information", False)]
)
@pytest.mark.parametrize("outer_loss", ["paper", "release"])
@pytest.mark.parametrize("route", META_GRADIENTS)
@pytest.mark.parametrize("which", ["all", "batchnorm_and_classifier"])
def test_a_wide_first_layer_in_the_basis_of_the_batch(
    which: str, route: str, outer_loss: str, objective: str, repeated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same loss, gradients, running statistics and parameters as without the change of basis, also where two
    examples are one and the same."""
    config = MLPConfig(inputs=40, hidden=(6, 5), classes=3)
    model = build_model(config, objective, seed=0).double().train()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 40, dtype=torch.float64, generator=generator)
    if repeated:
        x[8] = x[0]
    y = torch.randint(3, (16,), generator=generator)
    names = inner_parameter_names(model, which)
    halves = Half(x[:8], y[:8], None), Half(x[8:], y[8:], None)
    problem = MetaProblem(*halves, names, 0.3, outer_loss, 0.2, OBJECTIVES[objective])  # type: ignore[arg-type]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plain_loss, plain = META_GRADIENTS[route](model, problem)
    after_plain = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(before)
    widths, plain_route = [], META_GRADIENTS[route]
    watched = lambda model, problem: (widths.append(problem.meta_test.x.shape), plain_route(model, problem))[1]  # noqa: E731
    monkeypatch.setitem(META_GRADIENTS, route, watched)
    loss, gradients = meta_gradient(model, problem, route)
    assert widths == [(8, 16)]
    assert loss == pytest.approx(plain_loss, rel=1e-12)
    assert list(gradients) == [name for name, _ in model.named_parameters()]
    for name, parameter in model.named_parameters():
        assert gradients[name].shape == parameter.shape
        assert torch.allclose(gradients[name], plain[name], rtol=1e-6, atol=1e-9), name
    for name, value in model.state_dict().items():
        assert torch.allclose(value, after_plain[name], rtol=0, atol=1e-12), name
    assert model.feature_extractor[0].weight.shape == (6, 40)  # type: ignore[index]


def test_inner_parameters_are_told_by_module() -> None:
    model = build_model(TINY, "meta", seed=0)
    names = inner_parameter_names(model, "batchnorm_and_classifier")
    parameters = dict(model.named_parameters())
    assert count(parameters[n] for n in names) == count(batch_norm_parameters(model)) + 4 * 16 + 4
    everything = inner_parameter_names(model, "all")
    assert not any(name.startswith("auxiliary") for name in everything)
    assert len(everything) == len(parameters) - 4


# ---------------------------------------------------------------- the loop


def test_every_objective_learns(dataset: ImageDataset) -> None:
    training = SHORT.model_copy(update={"epochs": 8, "training_batch_size": 8})
    for objective in OBJECTIVES:
        model, history = pretrain(dataset, TINY, objective, training, seed=0)
        assert history["held_out_accuracy"].max() > 0.5, objective
        assert isinstance(model, Parallel) == OBJECTIVES[objective].parallel
        kind = OBJECTIVES[objective]
        has_theta_a = kind.auxiliary and kind.self_supervised and not kind.parallel
        assert ("entropy_auxiliary" in history) == has_theta_a


@pytest.mark.parametrize("objective", ["meta", "ttt"])
def test_resumed_training_ends_in_the_same_weights(
    objective: str, dataset: ImageDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, history = pretrain(dataset, TINY, objective, SHORT, seed=3)
    state_file = tmp_path / "training.safetensors"
    real = module.held_out_accuracy
    calls = []

    def killed_in_the_second_epoch(*arguments: object, **options: object) -> float:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    monkeypatch.setattr(module, "held_out_accuracy", killed_in_the_second_epoch)
    with pytest.raises(KeyboardInterrupt):
        pretrain(dataset, TINY, objective, SHORT, seed=3, state_file=state_file)
    assert state_file.exists()
    monkeypatch.setattr(module, "held_out_accuracy", real)
    resumed, resumed_history = pretrain(dataset, TINY, objective, SHORT, seed=3, state_file=state_file)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    pd.testing.assert_frame_equal(history.drop(columns="seconds"), resumed_history.drop(columns="seconds"))


@pytest.mark.parametrize(("seconds", "written"), [(3600, 0), (1.5, 2), (0, 4)])
def test_the_state_is_written_once_the_seconds_have_passed(
    dataset: ImageDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, written: int
) -> None:
    """Four epochs, and a clock that goes on by a second whenever an epoch has been judged."""
    clock, saves = [0.0], []
    real, save = module.held_out_accuracy, module.TrainingState.save

    def judged(*arguments: Any, **options: Any) -> float:
        clock[0] += 1
        return real(*arguments, **options)

    monkeypatch.setattr(module, "SAVE_SECONDS", seconds)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0], perf_counter=time.perf_counter))
    monkeypatch.setattr(module, "held_out_accuracy", judged)
    monkeypatch.setattr(module.TrainingState, "save", lambda state, path: saves.append(clock[0]) or save(state, path))
    training = SHORT.model_copy(update={"epochs": 4})
    pretrain(dataset, TINY, "erm", training, seed=0, state_file=tmp_path / "training.safetensors")
    assert len(saves) == written and (tmp_path / "training.safetensors").exists() == (written > 0)


def test_training_by_iterations_with_adam_goes_on_after_a_kill(dataset: ImageDataset, tmp_path: Path) -> None:
    # 64 training images, 4 batches of 16 an epoch: 10 iterations are two epochs and a half.
    training = SHORT.model_copy(update={"epochs": None, "iterations": 10, "optimizer": "adam", "schedule": "dann"})
    whole, history = pretrain(dataset, TINY, "meta", training, seed=0)
    assert len(history) == 3
    assert history["learning_rate"].iloc[-1] == pytest.approx(0.05 / (1 + 10 * 0.9) ** 0.75)
    state_file = tmp_path / "training.safetensors"
    epochs = iter((1, 2, 3))
    with pytest.raises(KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:
        real = module.TrainingState.save

        def save(state: module.TrainingState, path: Path) -> None:
            real(state, path)
            if next(epochs) == 2:
                raise KeyboardInterrupt

        patch.setattr(module, "SAVE_SECONDS", 0)
        patch.setattr(module.TrainingState, "save", save)
        pretrain(dataset, TINY, "meta", training, seed=0, state_file=state_file)
    resumed, _ = pretrain(dataset, TINY, "meta", training, seed=0, state_file=state_file)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    with pytest.raises(ValueError, match="epochs or of iterations"):
        TrainingConfig(epochs=1, iterations=10)


def test_the_networks_of_text_and_speech() -> None:
    text = build_model(MLPConfig(), "meta", seed=0)
    # φ: 5000-1024-512 with BN; θ_m and θ_a of 2 units.
    phi = 5000 * 1024 + 1024 + 2 * 1024 + 1024 * 512 + 512 + 2 * 512
    assert count(text.parameters()) == phi + (512 * 2 + 2) + (2 * 2 + 2)
    assert text(torch.rand(4, 5000)).auxiliary.shape == (4, 2)
    speech = build_model(LeNetConfig(), "meta", seed=0)
    assert speech.feature_extractor(torch.rand(4, 1, 32, 32)).shape == (4, 16 * 5 * 5)
    classifier = 400 * 120 + 120 + 120 * 84 + 84 + 84 * 30 + 30
    assert count(speech.parameters()) == 6 * 25 + 6 + 12 + 16 * 150 + 16 + 32 + classifier + 30 * 30 + 30
    with pytest.raises(ValueError, match="rotation of images"):
        build_model(LeNetConfig(), "ttt", seed=0)


@pytest.mark.parametrize("objective", [name for name, kind in OBJECTIVES.items() if kind.auxiliary])
def test_a_supervised_theta_a_of_one_layer_begins_as_the_identity(objective: str) -> None:
    if OBJECTIVES[objective].parallel:
        return
    outputs = build_model(MLPConfig(inputs=20, hidden=(8,)), objective, seed=0)(torch.rand(4, 20))
    assert torch.equal(outputs.auxiliary, outputs.main) == OBJECTIVES[objective].supervised


def test_seed_0_differs_from_seed_1_and_equals_itself(dataset: ImageDataset) -> None:
    first, second, other = (pretrain(dataset, TINY, "meta", SHORT, seed=seed)[0] for seed in (0, 0, 1))
    key = "main_classifier.weight"
    assert torch.equal(first.state_dict()[key], second.state_dict()[key])
    assert not torch.equal(first.state_dict()[key], other.state_dict()[key])


def test_schedules() -> None:
    linear = SHORT.model_copy(update={"learning_rate": 1.0})
    steps, dann = (linear.model_copy(update={"schedule": schedule}) for schedule in ("steps", "dann"))
    assert [learning_rate_at(linear, share) for share in (0, 0.5)] == [1.0, 0.5]
    to_a_tenth = linear.model_copy(update={"final_learning_rate": 0.1})
    assert [learning_rate_at(to_a_tenth, share) for share in (0, 0.5, 1)] == pytest.approx([1.0, 0.55, 0.1])
    # η₀/(1 + 10p)^0.75: 11^0.75 = 6.04 at the end.
    assert [learning_rate_at(dann, share) for share in (0, 1)] == pytest.approx([1.0, 1 / 6.0401], rel=1e-4)
    epochs = (0, 19, 20, 40, 50, 60, 70)
    assert [learning_rate_at(steps, e / 75) for e in epochs] == pytest.approx([1, 1, 0.1, 0.01, 1e-3, 1e-4, 1e-5])


def test_diagnostics_tell_a_collapsed_head(dataset: ImageDataset) -> None:
    model = build_model(TINY, "meta", seed=0)
    assert isinstance(model, Cascade) and model.auxiliary_classifier is not None
    half = Half(dataset.prepare(dataset.test.x), dataset.test.y, None)
    alive = diagnose(model, half)
    last = model.auxiliary_classifier[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([200.0, 0, 0, 0]))
    collapsed = diagnose(model, half)
    assert collapsed["entropy_auxiliary"] < 1e-6 < alive["entropy_auxiliary"]
    assert collapsed["entropy_of_mean_auxiliary"] < 1e-6
    assert collapsed["gradient_norm_self_supervised"] < 1e-6 < alive["gradient_norm_self_supervised"]


def test_too_few_images_is_said_before_training(dataset: ImageDataset) -> None:
    with pytest.raises(ValueError, match="64 training examples, fewer than a batch of 100"):
        pretrain(dataset, TINY, "erm", SHORT.model_copy(update={"training_batch_size": 100}), seed=0)


def test_what_of_a_batch_is_randomised(dataset: ImageDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing, all, or all of it beside the batch as it is."""
    seen: list[Tensor] = []
    monkeypatch.setattr(type(dataset), "randomise", lambda self, x, generator: torch.zeros_like(x))
    monkeypatch.setattr(type(dataset), "prepare", lambda self, x: x.float())
    indices = torch.arange(8)
    for objective in ("erm", "multi_task", "both_supervised_information"):
        model = build_model(TINY, objective, seed=0)
        model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        module._train_on(model, dataset, indices, OBJECTIVES[objective], SHORT, 0.1, torch.Generator().manual_seed(0))
    blank = [[not image.any() for image in batch] for batch in seen]
    assert blank == [[False] * 8, [True] * 8, [False] * 8 + [True] * 8]
