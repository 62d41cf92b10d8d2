"""Contracts that hold for every registered method, and what is particular to one."""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from conftest import make_sure, same, seeded, with_constants
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from cascadetta_lib.augment.image import cotta_copies, crop_and_flip
from cascadetta_lib.data.base import Modality
from cascadetta_lib.losses import entropy
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.methods.diversity import WithDiversity
from cascadetta_lib.methods.field import sar
from cascadetta_lib.methods.refusals import Answer
from cascadetta_lib.models import (
    Cascade,
    ImageNetwork,
    Network,
    SpeechNetwork,
    TextNetwork,
    build_network,
)
from cascadetta_lib.models.remembered_statistics import (
    RememberedStatistics,
    give_statistics,
    remember,
    statistics_of,
)
from cascadetta_lib.models.snapshot import keep_state
from cascadetta_lib.training.objectives import OBJECTIVES

pytestmark = pytest.mark.usefixtures("small_updates")
COPIES = METHODS["cotta"].copy_count  # type: ignore[attr-defined]
NETWORKS: dict[Modality, tuple[Network, dict[str, int]]] = {
    "image": (ImageNetwork(depth=8, width=4), {"classes": 4}),
    "text": (TextNetwork(hidden=(12, 6)), {"classes": 2, "inputs": 20}),
    "speech": (SpeechNetwork(), {"classes": 4}),
}
CASES = [(name, modality) for name in METHODS for modality in METHODS[name].modalities]
ADAPTING = [(name, modality) for name, modality in CASES if METHODS[name].adapts]
NOT_ADABN = {"roid", "cmf", "rotta", "petta", "note", "memo"}
"""Methods whose predictions differ from AdaBN's even before any step: ROID and CMF use a prior, and
the others the source's statistics.
"""
ONE_BY_ONE = {"erm", "t3a", "rotta", "petta", "note", "memo"}
"""Methods that predict an example without its companions."""


def noisy_copies(x: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Something for CoTTA to average over that is no image."""
    for _ in range(count):
        yield x + 0.01 * torch.randn(x.shape, generator=generator)


def network(objective: str, modality: Modality = "image") -> Any:
    kind, (config, facts) = OBJECTIVES[objective], NETWORKS[modality]
    model = build_network(config, **facts, parallel=kind.parallel, auxiliary=kind.auxiliary, seed=0)
    make_sure(model, model.main_classifier, made_up(modality))
    return model


def make(name: str, modality: Modality = "image", **options: Any) -> Method:
    """The method on a network, by default a new one. The running statistics of a new network are
    still 0 and 1, so no batch has changed them.
    """
    model = options.pop("model", None) or network(METHODS[name].objective_on(modality), modality)
    copies = "image" if modality == "image" else noisy_copies
    source = made_up(modality) if METHODS[name].needs_source else None
    return METHODS[name](
        model, **({"learning_rate": 0.05, "copies": copies, "source": source} | options)
    )


def made_up(modality: Modality) -> Tensor:
    """Eight prepared examples of a modality."""
    generator = torch.Generator().manual_seed(0)
    if modality == "text":
        return torch.rand(8, 20, generator=generator)
    return torch.randn(8, 3 if modality == "image" else 1, 32, 32, generator=generator)


@pytest.fixture
def batch(modality: Modality, images: Tensor) -> Tensor:
    return images if modality == "image" else made_up(modality)


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def flat(parameters: Iterable[Tensor]) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in parameters])


# ---------------------------------------------------------------- contracts


def test_the_six_of_the_paper_and_the_variants_are_there() -> None:
    variants = {
        "tent_adam",
        "cascade_fixed_classifier",
        "cascade_no_auxiliary",
        "cascade_same_weights",
        "cascade_plus",
    }
    assert {"erm", "adabn", "ttt", "tent", "cotta", "cascade"} | variants <= set(METHODS)
    assert len({METHODS[name].label for name in METHODS}) == len(list(METHODS))
    assert all(METHODS[name].objective_on(modality) in OBJECTIVES for name, modality in CASES)


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize(("name", "modality"), CASES)
def test_a_tool_that_leaves_all_layers_in_one_mode_changes_no_prediction(
    name: str, modality: Modality, batch: Tensor, mode: bool
) -> None:
    undisturbed = make(name, modality)
    looked_at = make(name, modality)
    for x in (batch, batch.flip(0)):
        for child in looked_at.children():
            child.train(mode)
        assert torch.equal(looked_at(x), undisturbed(x))


@pytest.mark.parametrize(("name", "modality"), CASES)
def test_reset_is_bit_exact_and_repeats_the_same_predictions(
    name: str, modality: Modality, batch: Tensor
) -> None:
    method = make(name, modality)
    source = snapshot(method)
    tensors = {n: v.data_ptr() for n, v in method.state_dict().items()}
    batches = (batch, batch[:3], batch)
    classes = NETWORKS[modality][1]["classes"]
    first = [method(x) for x in batches]
    assert [z.shape for z in first] == [(count, classes) for count in (8, 3, 8)]
    assert not any(z.requires_grad for z in first)
    method.reset()
    assert same(snapshot(method), source)
    assert {n: v.data_ptr() for n, v in method.state_dict().items()} == tensors
    assert all(torch.equal(method(x), z) for x, z in zip(batches, first, strict=True))
    other = make(name, modality)
    assert all(torch.equal(other(x), z) for x, z in zip(batches, first, strict=True)), (
        "the same seed, the same bits"
    )


@pytest.mark.parametrize(("name", "modality"), CASES)
def test_nothing_but_the_declared_parameters_changes(
    name: str, modality: Modality, batch: Tensor
) -> None:
    method = make(name, modality)
    declared = {id(p) for p in method.adapted_parameters()}
    before = {
        n: (v, v.detach().clone()) for n, v in method.model.state_dict(keep_vars=True).items()
    }
    for _ in range(3):
        method(batch)
    memory = {id(buffer) for given in statistics_of(method) for buffer in given.norm.buffers()}
    remembers = bool(getattr(method, "memory", 0)) or any(statistics_of(method))
    assert bool(memory) == remembers and bool(declared) == method.adapts
    for n, (value, old) in before.items():
        assert id(value) in declared | memory or torch.equal(value, old), n


SHARED = (
    "conv1",
    "bn1",
    "stage1.0.conv1",
    "stage1.0.bn1",
    "stage1.0.conv2",
    "stage1.0.bn2",
    "stage2.0.conv1",
    "stage2.0.bn1",
    "stage2.0.conv2",
    "stage2.0.bn2",
)
PRIVATE = (
    "private.blocks.0.conv1",
    "private.blocks.0.bn1",
    "private.blocks.0.conv2",
    "private.blocks.0.bn2",
)
"""The layers of φ in the tests' network of images: those that TTT shares between its two heads, and
its last stage.
"""
BATCH_NORMS = tuple(name for name in SHARED + PRIVATE if "bn" in name)
MOVED: dict[str, tuple[tuple[str, ...], bool]] = {
    "erm": ((), False),
    "adabn": ((), False),
    "ttt": (SHARED, False),
    "tent": (BATCH_NORMS, False),
    "tent_adam": (BATCH_NORMS, False),
    "tent_rate_selection": (BATCH_NORMS, False),
    "cotta": (SHARED + PRIVATE, True),
    "cascade": (BATCH_NORMS, True),
    "cascade_fixed_classifier": (BATCH_NORMS, False),
    "cascade_no_auxiliary": (BATCH_NORMS, True),
    "cascade_same_weights": (BATCH_NORMS, True),
    "cascade_source_prior": (BATCH_NORMS, True),
    "cascade_plus": (BATCH_NORMS, True),
    "cascade_rate_selection": (BATCH_NORMS, True),
}
"""By method, the layers of φ whose parameters an update moves, and whether it moves θ_m. None moves
θ_a.
"""


@pytest.mark.parametrize("name", MOVED)
def test_what_the_methods_of_the_paper_and_the_cascades_move(name: str, images: Tensor) -> None:
    layers, moves_theta_m = MOVED[name]
    method = make(name)
    before = {name: value.clone() for name, value in method.model.named_parameters()}
    for _ in range(3):
        method(images)
    moved = {
        name
        for name, value in method.model.named_parameters()
        if not torch.equal(value, before[name])
    }
    expected = {f"feature_extractor.{layer}.weight" for layer in layers}
    expected |= {f"feature_extractor.{layer}.bias" for layer in layers if "bn" in layer}
    assert moved == expected | (
        {"main_classifier.weight", "main_classifier.bias"} if moves_theta_m else set()
    )


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].adapts])
def test_a_method_has_the_optimiser_of_its_source(name: str) -> None:
    optimizer = make(name, METHODS[name].modalities[0]).optimizer
    adam = name in ("tent_adam", "cotta", "roid", "cmf", "rotta", "petta", "note")
    settings = optimizer.param_groups[0]
    assert (
        type(optimizer) is (torch.optim.Adam if adam else torch.optim.SGD)
        and settings["lr"] == 0.05
    )
    if not adam:
        assert (settings["momentum"], settings["nesterov"]) == (
            (0, False) if name in ("ttt", "memo") else (0.9, True)
        )


@pytest.mark.parametrize(("name", "modality"), ADAPTING)
def test_any_method_takes_another_optimiser(name: str, modality: Modality, batch: Tensor) -> None:
    for optimizer, kind in (("sgd", torch.optim.SGD), ("adam", torch.optim.Adam)):
        method = make(name, modality, optimizer=optimizer)
        assert type(method.optimizer) is kind and method.optimizer.param_groups[0]["lr"] == 0.05
        before = flat(method.adapted_parameters())
        assert method(batch).isfinite().all()
        moved = not torch.equal(flat(method.adapted_parameters()), before)
        assert moved == (name != "memo"), "which forgets each image"


@pytest.mark.parametrize(
    ("name", "modality"), [case for case in ADAPTING if case[0] not in NOT_ADABN]
)
def test_with_learning_rate_0_a_method_is_adabn(
    name: str, modality: Modality, batch: Tensor
) -> None:
    method = make(name, modality, learning_rate=0.0)
    still = "source_prior" if name.endswith("source_prior") else "adabn"
    memory = getattr(method, "memory", 0)
    adabn = METHODS[still](network(method.objective_on(modality), modality), memory=memory)
    for _ in range(2):
        assert torch.allclose(method(batch), adabn(batch), atol=1e-6)


@pytest.mark.parametrize(("name", "modality"), CASES)
def test_a_batch_of_one_works(name: str, modality: Modality, batch: Tensor) -> None:
    method = make(name, modality)
    if modality == "text" and name not in ("erm", "lame", "t3a") and not any(statistics_of(method)):
        # A single vector has no variance, so BatchNorm refuses it.
        with pytest.raises(ValueError, match="1 value per channel"):
            method(batch[:1])
    else:
        assert method(batch[:1]).isfinite().all()


@pytest.mark.parametrize(("name", "modality"), CASES)
def test_predict_changes_nothing_and_has_the_batchnorm_mode_of_step(
    name: str, modality: Modality, batch: Tensor
) -> None:
    method = make(name, modality)
    before = snapshot(method)
    predicted = method.predict(batch).main
    assert same(snapshot(method), before)
    # An image's logits depend on its companions exactly where the batch's statistics, or LAME's
    # neighbours, are used.
    assert torch.allclose(predicted[:4], method.predict(batch[:4]).main, atol=1e-4) == (
        name in ONE_BY_ONE
    )
    stepped = method.step(batch).main
    if not any(statistics_of(method)):  # which have the batch in them from now on
        assert torch.equal(stepped, method.predict(batch).main)


@pytest.mark.parametrize(("name", "modality"), CASES)
def test_train_and_eval_and_inference_mode_change_nothing(
    name: str, modality: Modality, batch: Tensor
) -> None:
    expected = make(name, modality)(batch)
    method = make(name, modality)
    inside = make(name, modality)
    for call in (method.train, method.eval, lambda: method.eval().train()):
        method.reset()
        assert torch.equal(call()(batch), expected)
    with torch.inference_mode():
        for _ in range(2):
            assert torch.equal(inside(batch.clone()), expected)
            inside.reset()


@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_can_be_made_inside_inference_mode(name: str, images: Tensor) -> None:
    given = {"model": network(METHODS[name].objective), "source": made_up("image")}
    with torch.inference_mode():
        method = make(name, **given)
        first = [method(x) for x in (images, images)]
    method.reset()
    assert all(torch.equal(method(images), z) for z in first)


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].steps_alike])
def test_steps_that_are_said_to_be_alike_take_the_same_work(name: str, images: Tensor) -> None:
    """The cost of such a method is measured on its first step alone, so no later step may cost more
    or less, whatever its batch holds. The 72 examples fill a memory of 64.
    """
    method = make(name)
    work = []
    for x in (images, torch.zeros_like(images), -images, *images.expand(6, *images.shape)):
        with FlopCounterMode(display=False) as counter:
            method.step(x)
        work.append(counter.get_total_flops())
    assert len(set(work)) == 1


class WatchDtypes(TorchFunctionMode):
    """Note the dtypes of probabilities, and of products of matrices outside the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = set[torch.dtype]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in ("softmax", "log_softmax", "logsumexp", "matmul", "__matmul__", "addmm", "mm"):
            self.seen.add(found.dtype)
        return found


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_works_under_autocast(name: str, images: Tensor) -> None:
    """On a CPU autocast leaves softmax in bfloat16, where an entropy of 0.0111 becomes 0.0099."""
    method = make(name)
    with torch.autocast("cpu", torch.bfloat16), WatchDtypes() as watch:
        assert all(method(images).isfinite().all() for _ in range(3))
    assert watch.seen <= {torch.float32}
    assert all(value.dtype != torch.bfloat16 for value in method.state_dict().values())


def convolutions(*last: nn.Module, norm: nn.Module | None = None) -> nn.Sequential:
    """A small network for images that is nobody's cascade: RGB images to logits (B, 4)."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4) if norm is None else norm
    return nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *last)


REFUSED = [
    ("adabn", lambda: convolutions(norm=nn.Identity()), "has no nn.BatchNorm1d"),
    ("tent", lambda: convolutions(norm=nn.Identity()), "has no normalisation layer"),
    (
        "cascade",
        lambda: Cascade(nn.Flatten(), nn.Linear(9, 4), nn.Linear(4, 4)),
        "has no normalisation layer",
    ),
    ("tent", lambda: convolutions(norm=nn.BatchNorm2d(4, affine=False)), "use adabn"),
    *((name, lambda: convolutions().half(), "with model.float()") for name in ("tent", "cotta")),
    *((name, convolutions, "use tent, or wrap") for name in METHODS if name.startswith("cascade")),
    (
        "cascade",
        lambda: network("meta_no_auxiliary"),
        "Cascade without θ_a; use cascade_no_auxiliary",
    ),
    ("ttt", lambda: network("meta"), "models.Parallel"),
    *(
        (name, lambda: convolutions(norm=nn.SyncBatchNorm(4)), "each layer by nn.BatchNorm2d")
        for name in ("adabn", "tent", "cotta", "roid", "rotta", "tema")
    ),
    *(
        (
            name,
            lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten()),
            "pass copies=None or a function",
        )
        for name in ("cotta", "roid", "rotta")
    ),
    ("lame", convolutions, "nn.Linear, and Sequential has none; use erm"),
    ("tema", lambda: convolutions(norm=nn.Identity()), "has no nn.BatchNorm1d, 2d"),
    *(
        (name, lambda: convolutions(norm=nn.Identity()), "no normalisation layer")
        for name in ("roid", "rotta")
    ),
    ("rotta", lambda: convolutions(norm=nn.GroupNorm(2, 4)), "has no nn.BatchNorm1d, 2d"),
    (
        "cascade_plus",
        lambda: Cascade(
            convolutions(norm=nn.BatchNorm2d(4, track_running_stats=False)),
            nn.Linear(4, 4),
            nn.Linear(4, 4),
        ),
        "running statistics",
    ),
]


@pytest.mark.parametrize(("name", "model", "reason"), REFUSED)
def test_a_network_that_cannot_work_is_refused_in_one_sentence(
    name: str, model: Callable[[], nn.Module], reason: str
) -> None:
    with pytest.raises(ValueError) as refused:
        METHODS[name](model())
    message = str(refused.value)
    assert reason in message and "\n" not in message and ". " not in message and len(message) < 300


def test_a_model_that_another_method_has_changed_is_refused() -> None:
    options: dict[str, Any]
    for name, options in (("cascade_plus", {}), ("tent", {"memory": 8}), ("tema", {})):
        METHODS[name](model := network("meta"), **options)
        with pytest.raises(
            ValueError, match="ERM: another method gave this model's BatchNorm a memory"
        ):
            METHODS["erm"](model)


def test_a_borrowed_memory_is_that_of_the_last_prediction(images: Tensor) -> None:
    for name in ("cotta", "ttt", "roid", "sar"):
        with pytest.raises(
            ValueError,
            match="memory needs predict='after'.*BatchNorm would remember",
        ):
            make(name, memory=8, predict="before")
    for name in ("cascade_plus", "adabn", "tent", "deyo"):
        method = make(name, memory=8, predict="before")
        adabn = METHODS["adabn"](network(method.objective), memory=8)
        assert torch.allclose(method(images), adabn(images), atol=1e-6)
        assert torch.allclose(*(next(statistics_of(each)).mean for each in (method, adabn)))


def test_erm_takes_what_the_others_refuse(images: Tensor) -> None:
    for norm in (nn.SyncBatchNorm(4), nn.BatchNorm2d(4, affine=False), nn.Identity()):
        assert METHODS["erm"](convolutions(norm=norm))(images).shape == (8, 4)


# ---------------------------------------------------------------- single methods


@pytest.mark.parametrize(
    "name", ["tent", "tent_adam", "cascade", "ttt", "eata", "rdumb", "sar", "deyo", "rpl"]
)
def test_before_is_the_prediction_of_the_model_before_the_update(name: str, images: Tensor) -> None:
    method = make(name, predict="before")
    expected = method.predict(images).main
    assert torch.allclose(method(images), expected, atol=1e-6)
    assert not torch.allclose(method.predict(images).main, expected, atol=1e-6)


def test_the_cascade_step_written_by_hand(images: Tensor) -> None:
    method = make("cascade", learning_rate=0.1)
    model = network("meta").train()
    theta_m = model.main_classifier.weight
    (gradient,) = torch.autograd.grad(entropy(model(images).auxiliary).mean(), theta_m)
    method(images)
    # The first step of Nesterov momentum 0.9 moves by (1 + 0.9) times the gradient.
    assert torch.allclose(
        method.model.main_classifier.weight, theta_m - 0.1 * 1.9 * gradient, atol=1e-6
    )


def test_the_ttt_step_written_by_hand(images: Tensor) -> None:
    """Images are cropped, flipped and turned. Plain SGD takes one step on the shared stages."""
    method = make("ttt", seed=3, value_range=(-2.0, 1.0))
    model = network("ttt").train()
    draws = seeded(3)
    cropped = crop_and_flip(images, draws, black=-2.0)
    quarters = torch.randint(4, (8,), generator=draws)
    turned = torch.stack(
        [x.rot90(count, (1, 2)) for x, count in zip(cropped, quarters.tolist(), strict=True)]
    )
    shared = model.shared_parameters
    gradients = torch.autograd.grad(
        nn.functional.cross_entropy(model.rotation_logits(turned), quarters), shared
    )
    method(images)
    for own, before, gradient in zip(
        method.model.shared_parameters, shared, gradients, strict=True
    ):
        assert gradient.abs().max() > 1e-5 and torch.allclose(
            own, before - 0.05 * gradient, atol=1e-7
        )


def test_without_theta_a_the_same_weights_adapt_by_the_entropy_of_z(images: Tensor) -> None:
    method = make("cascade_same_weights")
    without = network("meta")
    without.auxiliary_classifier = None
    other = METHODS["cascade_no_auxiliary"](without, learning_rate=0.05)
    cascade = make("cascade")
    for _ in range(2):
        logits = method(images)
        assert torch.equal(logits, other(images)) and not torch.allclose(
            logits, cascade(images), atol=1e-4
        )


def test_cotta_teacher_is_the_moving_average_and_some_weights_are_restored(images: Tensor) -> None:
    method = make("cotta")
    student = flat(method.adapted_parameters())
    method(images)
    moved = flat(method.adapted_parameters()) - student
    teacher = flat(triple[1] for triple in method.triples) - student
    # Where nothing was restored, the teacher moved by 1 − 0.999 of what the student moved.
    kept = moved != 0
    assert torch.allclose(teacher[kept], 0.001 * moved[kept], rtol=1e-2, atol=1e-6)
    restored = ((moved == 0) & (teacher != 0)).sum().item()
    expected = 0.01 * len(student)
    assert abs(restored - expected) < 5 * expected**0.5


def test_cotta_averages_over_copies_only_where_the_anchor_is_unsure(images: Tensor) -> None:
    calls: list[int] = []

    def counted(x: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
        calls.append(count)
        return cotta_copies(x, count, generator, value_range=(-1.0, 1.0))

    with with_constants("cotta", copy_count=COPIES):
        expected = make("cotta")(images)
        assert torch.equal(make("cotta", copies=counted)(images), expected), (
            "without copies of one's own: for images"
        )
    assert calls == [COPIES] == [32]
    with with_constants("cotta", confidence=0.0):
        make("cotta", copies=counted)(images)
    assert calls == [32]


def test_cotta_augments_rgb_images_only(images: Tensor) -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 1), convolutions())
    assert all(
        METHODS[name](model, copies=None)(images[:, :1]).shape == (8, 4)
        for name in ("cotta", "roid")
    )
    with pytest.raises(ValueError, match="RGB images.*copies=None"):
        METHODS["cotta"](model)(images[:, :1])


# ---------------------------------------------------------------- diversity and memory


@pytest.mark.parametrize(
    ("name", "modality"),
    [(name, modality) for name, modality in CASES if issubclass(METHODS[name], WithDiversity)],
)
def test_diversity_is_in_the_loss_of_every_method_that_takes_it(
    name: str, modality: Modality, batch: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With `diversity` SAR's ascent leads to other weights. There the loss would differ by more than
    # the term.
    monkeypatch.setattr(sar, "RADIUS", 0.0)
    plain = make(name, modality, diversity=0.0)
    diverse = make(name, modality, diversity=1.0)
    outputs = plain.predict(batch)
    logits = outputs.auxiliary if METHODS[name].uses_auxiliary else outputs.main
    assert logits is not None
    mean = logits.softmax(1).mean(0)
    expected = plain.loss(batch)[0] + (mean * mean.log()).sum()
    assert torch.allclose(diverse.loss(batch)[0], expected, atol=1e-5)


def test_a_memory_blends_the_batch_with_what_it_has_seen() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(3)
    norm.running_mean.uniform_()
    norm.running_var.uniform_(0.5, 2)
    mean = norm.running_mean.clone()
    variance = norm.running_var.clone()
    model = nn.Sequential(norm)
    names = list(model.state_dict())
    give_statistics(model, lambda norm: RememberedStatistics(norm, examples=24))
    assert model[0] is norm and list(model.state_dict()) == names
    x = 3 * torch.randn(8, 3, 5, 5) + 1
    share = 8 / (8 + 24)
    # The mixture of two groups: the remembered one and the batch, written out.
    own_mean = x.mean((0, 2, 3))
    own_variance = x.var((0, 2, 3), correction=0)
    both = (1 - share) * mean + share * own_mean
    spread = (1 - share) * (variance + (mean - both) ** 2) + share * (
        own_variance + (own_mean - both) ** 2
    )
    expected = (x - both[:, None, None]) / (spread + norm.eps).sqrt()[:, None, None]
    assert torch.allclose(model(x), expected, atol=1e-5)
    assert torch.equal(norm.running_mean, mean), "not before `remember`"
    next(statistics_of(model)).remember()
    assert torch.allclose(norm.running_mean, both) and torch.allclose(norm.running_var, spread)


@pytest.mark.parametrize("shape", [(8, 3), (8, 3, 5, 5), (8, 3, 2, 5, 5)])
def test_a_memory_of_nothing_is_the_batch(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    norm = {2: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)](3)
    expected = norm.train()(x)
    give_statistics(norm, lambda norm: RememberedStatistics(norm, examples=0))
    assert torch.allclose(norm(x), expected, atol=1e-5)


def test_measuring_leaves_no_trace_in_the_memory(images: Tensor) -> None:
    method = make("adabn", memory=16)
    method(images)
    before = snapshot(method)
    with keep_state(method):
        method.predict(images + 1)
        remember(method)
        assert not same(snapshot(method), before)
    assert same(snapshot(method), before)


# ---------------------------------------------------------------- what is not finite, and nothing


NEVER_SPOILT = {"erm", "adabn", "lame"}
"""Methods that keep nothing from one batch to the next, and learn nothing."""


@pytest.mark.parametrize("name", list(METHODS))
def test_a_batch_that_is_not_finite_spoils_nothing(name: str) -> None:
    """Such a batch was once learned from without an error, and every later prediction was NaN."""
    modality = METHODS[name].modalities[0]
    x = made_up(modality).repeat(8, *[1] * (made_up(modality).ndim - 1))
    bad = x.clone()
    bad[0] = torch.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that are outside the range of images
        method = make(name, modality)
        undisturbed = make(name, modality)
        method(x)
        undisturbed(x)
        before = snapshot(method)
        if name in NEVER_SPOILT:
            method(bad)
        else:
            label = re.escape(method.label)
            with pytest.raises(ValueError, match=f"{label}: the batch or the network gave NaN or"):
                method(bad)
        after = snapshot(method)
        if "bank" in before:  # its free places may hold anything
            count = len(method.kept)
            after["bank"] = after["bank"][:count]
            before["bank"] = before["bank"][:count]
        assert same(after, before)
        method.reset()
        undisturbed.reset()
        assert torch.equal(method(x), undisturbed(x))


@pytest.mark.parametrize("name", ["tent", "eta", "roid", "sar", "tent_rate_selection"])
def test_one_example_that_is_not_finite_spoils_nothing_where_none_meets_the_others(
    name: str,
) -> None:
    """In a network without BatchNorm, an example that is not finite leaves the logits of the others
    finite. Moving means must not take in such a batch.
    """
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    x = made_up("image")
    bad = torch.cat([x, torch.full_like(x[:1], torch.inf)])
    method = METHODS[name](model, learning_rate=0.05, copies=None)
    for _ in range(2):
        method(x)
    before = snapshot(method)
    with pytest.raises(ValueError, match="the batch or the network gave NaN or infinity"):
        method(bad)
    assert same(snapshot(method), before)


@pytest.mark.parametrize("name", ["adabn", "tema"])
def test_statistics_that_are_not_finite_are_not_remembered(name: str) -> None:
    x = made_up("image")
    method = make(name, memory=8) if name == "adabn" else make(name)
    method(x)
    before = snapshot(method)
    with pytest.raises(ValueError, match="the batch or the network gave NaN or infinity"):
        method(x.masked_fill(x > 1, torch.nan))
    assert same(snapshot(method), before)


@pytest.mark.parametrize("memory", [0, 8])
@pytest.mark.parametrize("name", list(METHODS))
def test_an_empty_batch_is_refused(name: str, memory: int) -> None:
    """An empty batch once got an empty prediction, and later predictions with a memory were NaN."""
    if memory and "memory" not in METHODS[name].options():
        return
    method = make(name, METHODS[name].modalities[0], **({"memory": memory} if memory else {}))
    label = re.escape(method.label)
    with pytest.raises(ValueError, match=f"{label}: the batch is empty; allowed is at least 1"):
        method(made_up(METHODS[name].modalities[0])[:0])


def test_before_needs_the_outputs_of_the_loss() -> None:
    class Mute(METHODS["tent"]):  # type: ignore[misc, valid-type]
        def loss(self, x: Tensor) -> tuple[Tensor, None]:
            return super().loss(x)[0], None

    method = Mute(network("meta"), predict="before")
    with pytest.raises(ValueError, match="predict='before', loss must return outputs, not None"):
        method(made_up("image"))


@pytest.mark.parametrize(("name", "told"), [("deyo", "shuffles 4×4"), ("ttt", "needs models.Par")])
def test_a_method_of_ones_own_is_named_in_what_its_base_refuses(name: str, told: str) -> None:
    mine = type("Mine", (METHODS[name],), {"label": "Mine"})
    with pytest.raises(ValueError, match=f"Mine {told}"):
        mine(network("meta"))(made_up("image")[:, :, :7])


class Event:
    """An event of a GPU that is complete as soon as a test sets `passed`."""

    passed = False

    def query(self) -> bool:
        return self.passed


def test_what_a_gpu_says_later_is_told_by_the_step_after() -> None:
    method = METHODS["tent"](network("meta"))
    x = made_up("image")
    first, second = Event(), Event()
    method.checks.answers += [
        Answer(torch.tensor(True), first),
        Answer(torch.tensor(False), second),
    ]
    first.passed = True
    method(x)
    method(x)
    second.passed = True
    with pytest.raises(ValueError, match=r"Tent: .* in an earlier step, .*; call reset\(\), and"):
        method(x)
    method(x)
    method.checks.answers.append(Answer(torch.tensor(False), second))
    method.reset()
    method(x)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_gpu_a_later_step_tells_it_and_none_waits() -> None:
    x = made_up("image").cuda()
    method = METHODS["tent"](network("meta").cuda())
    method(x)
    torch.cuda.set_sync_debug_mode("error")
    try:
        method(x)
        method(torch.full_like(x, torch.nan))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match=r"in an earlier step.*call reset\(\)"):
        method(x)
    method.reset()
    assert method(x).isfinite().all()
