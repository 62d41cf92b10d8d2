"""Pre-training (Sec. 4.2, Algorithm 1): the objectives over one training loop, the meta-gradient, and its diagnostics.

ψ = {φ, θ_m}. A batch is drawn, randomised (images by AugMix) and halved into meta-train and meta-test:

    inner (Eq. 3)  ψ' = ψ − α ∇_I ENT(a; meta-train)              I: what the inner step moves, θ_a fixed
    outer (Eq. 4)  {ψ, θ_a} ← {ψ, θ_a} − β ∇[CE(z; meta-test) + λ ENT(a; meta-test)] at ψ', through the inner step

With v the gradient of the outer loss at ψ', that through the inner step is v − α H v_I, H the second derivatives of
the inner loss between I and all parameters. `exact_meta_gradient` gets it by double backward and is the reference;
`difference_meta_gradient` gets H v_I from one more plain gradient, which is faster.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast

import pandas as pd
import torch
from pydantic import BaseModel, ConfigDict, model_validator
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from cascadetta_lib.data.base import Dataset
from cascadetta_lib.models import (
    Cascade,
    ModelConfig,
    Outputs,
    Parallel,
    batch_norm_parameters,
    batch_norms,
    build_cascade,
    build_parallel,
    first_linear,
)
from cascadetta_lib.progress import progress

STEPS = {"steps": (20, 40, 50, 60, 70), "ttt_steps": (50, 65)}
"""The epochs of 75 at which a schedule multiplies the learning rate by 0.1: the release's, and TTT's own."""


class TrainingConfig(BaseModel):
    """How to train: for a number of epochs or of iterations. SGD has Nesterov momentum 0.9
    (appendix). The fields are explained in settings.py."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int | None = None
    iterations: int | None = None
    training_batch_size: int = 200
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 0.1
    schedule: Literal["linear", "steps", "ttt_steps", "dann"] = "steps"
    final_learning_rate: float = 0.0
    weight_decay: float = 0.0
    inner_learning_rate_ratio: float = 0.1
    inner_parameters: Literal["all", "batchnorm_and_classifier"] = "batchnorm_and_classifier"
    outer_loss: Literal["paper", "release"] = "release"
    entropy_weight: float = 0.1
    meta_gradient: Literal["exact", "difference"] = "difference"
    precision: Literal["float32", "bfloat16"] = "float32"

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.epochs is None) == (self.iterations is None):
            raise ValueError("a training has a number of epochs or of iterations")
        return self


@dataclass(frozen=True)
class Objective:
    """One way to pre-train: which network, whether it learns to be adapted, on which augmentation, by which losses.

    randomised: `all` of a batch, `none` of it, or `both`: each batch as it is and randomised, side by side.

    The paper leaves θ_a to the entropy of its own output, which is least where a says one class whatever x is. Four
    ways out:
    detached: the outer entropy has no gradient on θ_a, which then learns through the inner step alone.
    supervised: cross-entropy on a beside that on z. A θ_a of one layer (text, speech) then begins as the identity: in
        the thousand small steps of the text network it hardly leaves where it was drawn, which may be any order of the
        classes or none.
    diversity: information maximisation, ENT(a) − diversity · H(mean softmax(a)), in the inner and the outer loss.
    agreement: KL(softmax(z) ‖ softmax(a)) beside the cross-entropy on z, with no gradient through its z.

    recipe: what the objective trains by instead of the profile's values, by the names of TrainingConfig's fields.
    """

    parallel: bool = False
    auxiliary: bool = True
    self_supervised: bool = True
    meta: bool = False
    randomised: Literal["all", "none", "both"] = "all"
    detached: bool = False
    supervised: bool = False
    diversity: float = 0.0
    agreement: bool = False
    recipe: Mapping[str, Any] = field(default_factory=dict)


TTT_RECIPE = {"learning_rate": 0.1, "weight_decay": 5e-4, "schedule": "ttt_steps"}
"""TTT's own pre-training (its release); the paper says that it keeps that."""

OBJECTIVES: dict[str, Objective] = {
    "erm": Objective(auxiliary=False, self_supervised=False, randomised="none"),
    "multi_task": Objective(),
    "meta": Objective(meta=True),
    "meta_no_auxiliary": Objective(meta=True, auxiliary=False),
    "ttt": Objective(parallel=True, randomised="none", recipe=TTT_RECIPE),
    # Sec. 6.4 draws the tasks from the randomised source. The rotation counts as much as the cross-entropy, as in TTT.
    "meta_ttt": Objective(parallel=True, meta=True, recipe={"outer_loss": "paper", "entropy_weight": 1.0}),
    "meta_detached": Objective(meta=True, detached=True),
    "meta_agreement": Objective(meta=True, agreement=True),
    "meta_information": Objective(meta=True, diversity=1),
    "meta_supervised": Objective(meta=True, supervised=True),
    "meta_supervised_information": Objective(meta=True, supervised=True, diversity=1),
    "multi_task_supervised_information": Objective(supervised=True, diversity=1),
    "plain_supervised_information": Objective(supervised=True, diversity=1, randomised="none"),
    "both_supervised_information": Objective(supervised=True, diversity=1, randomised="both"),
    # What Cascade+ is held to: the same images, plain and randomised, by the cross-entropy on z alone.
    "both_cross_entropy": Objective(auxiliary=False, self_supervised=False, randomised="both"),
}


def training_for(objective: str, training: TrainingConfig) -> TrainingConfig:
    """`training` with what `objective` trains by instead."""
    return training.model_copy(update=dict(OBJECTIVES[objective].recipe))


def build_model(config: ModelConfig, objective: str, seed: int) -> Cascade | Parallel:
    """A fresh network for `objective`, initialised from `seed` without touching the global generator."""
    kind = OBJECTIVES[objective]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_parallel(config) if kind.parallel else build_cascade(config, auxiliary=kind.auxiliary)
    if kind.supervised and isinstance(model.auxiliary_classifier, nn.Linear):
        nn.init.eye_(model.auxiliary_classifier.weight)
        nn.init.zeros_(model.auxiliary_classifier.bias)
    # The convolutions of a CPU are faster with the channels last; values and results stay what they are.
    return model.to(memory_format=torch.channels_last)


# ---------------------------------------------------------------- losses


def entropy(logits: Tensor) -> Tensor:
    """Shannon entropy of softmax(logits) in nats: (B, C) → (B,)."""
    log_probabilities = logits.log_softmax(1)
    return -(log_probabilities.exp() * log_probabilities).sum(1)


def information_loss(logits: Tensor, diversity: float) -> Tensor:
    """Mean entropy less `diversity` times the entropy of the mean prediction: logits (B, C) → a scalar in nats.

    0 is the paper's entropy; 1 is the negative mutual information of x and the predicted class, which one class for
    every x does not minimise.
    """
    loss = entropy(logits).mean()
    return loss - diversity * entropy_of_mean(logits) if diversity else loss


def entropy_of_mean(logits: Tensor) -> Tensor:
    """Entropy of the mean of softmax(logits) over the batch, (B, C) → a scalar in nats: 0 where all have one class."""
    # entr(0) is 0, where a logarithm would make a fully collapsed head NaN.
    return torch.special.entr(logits.softmax(1).mean(0)).sum()


class Rotated(NamedTuple):
    """Images turned by 0, 90, 180 or 270 degrees, and by how many quarters each."""

    x: Tensor
    quarters: Tensor


def rotate_randomly(x: Tensor, generator: torch.Generator) -> Rotated:
    """Turn each image of (B, C, H, H) by a random multiple of 90°, as TTT does."""
    quarters = torch.randint(4, (len(x),), generator=generator, device=generator.device).to(x.device)
    choices = torch.stack([x, x.rot90(1, (2, 3)), x.rot90(2, (2, 3)), x.rot90(3, (2, 3))])
    return Rotated(choices[quarters, torch.arange(len(x), device=x.device)], quarters)


class Half(NamedTuple):
    """Half a batch as the network sees it; `rotated` for the rotation task only."""

    x: Tensor
    y: Tensor
    rotated: Rotated | None


class Losses(NamedTuple):
    """The supervised loss (cross-entropy of z, and what the objective adds) and the self-supervised one (mean entropy
    of a, or rotation), each a scalar in nats."""

    main: Tensor
    self_supervised: Tensor


PLAIN = Objective()
"""The paper's losses."""


def losses(model: nn.Module, half: Half, kind: Objective = PLAIN, *, theta_a: bool = True) -> Losses:
    """Both losses of one half by the objective `kind`. Without θ_a the entropy is that of z itself. theta_a: whether
    the self-supervised loss has a gradient on the parameters of θ_a."""
    outputs = in_float32(model(half.x))
    main = F.cross_entropy(outputs.main, half.y)
    if half.rotated is not None:
        return Losses(main, _rotation_loss(model, half.rotated))
    a = outputs.auxiliary
    if a is None:
        return Losses(main, information_loss(outputs.main, kind.diversity))
    if kind.supervised:
        # The sum: on held-out source images the mean of the two was worse for all but one of the candidates.
        main = main + F.cross_entropy(a, half.y)
    if kind.agreement:
        main = main + F.kl_div(a.log_softmax(1), outputs.main.detach().softmax(1), reduction="batchmean")
    if not theta_a:
        classifier = cast(nn.Module, model.auxiliary_classifier)
        fixed = {name: value.detach() for name, value in classifier.named_parameters()}
        a = functional_call(classifier, fixed, (outputs.main,)).float()
    return Losses(main, information_loss(a, kind.diversity))


def self_supervised_loss(model: nn.Module, half: Half, kind: Objective = PLAIN) -> Tensor:
    """The self-supervised loss alone, without the work for the other."""
    if half.rotated is not None:
        return _rotation_loss(model, half.rotated)
    outputs = in_float32(model(half.x))
    return information_loss(outputs.main if outputs.auxiliary is None else outputs.auxiliary, kind.diversity)


def in_float32(outputs: Outputs) -> Outputs:
    """The outputs for a loss, which is computed in float32 whatever the precision of the network."""
    return Outputs(outputs.main.float(), None if outputs.auxiliary is None else outputs.auxiliary.float())


def _rotation_loss(model: nn.Module, rotated: Rotated) -> Tensor:
    assert isinstance(model, Parallel)
    return F.cross_entropy(model.rotation_logits(rotated.x).float(), rotated.quarters)


# ---------------------------------------------------------------- the meta-gradient

Gradients = dict[str, Tensor]


@dataclass(frozen=True)
class MetaProblem:
    """Eq. 3 and 4 for one batch. `inner_names`: the parameters that the inner step moves; α its learning rate."""

    meta_train: Half
    meta_test: Half
    inner_names: tuple[str, ...]
    inner_learning_rate: float
    outer_loss: Literal["paper", "release"]
    entropy_weight: float
    kind: Objective = PLAIN

    def outer(self, model: nn.Module) -> Tensor:
        """The loss at ψ' on the meta-test half. The release weights it by 0.1 and adds the cross-entropy at ψ."""
        main, self_supervised = losses(model, self.meta_test, self.kind, theta_a=not self.kind.detached)
        total = main + self.entropy_weight * self_supervised
        return 0.1 * total if self.outer_loss == "release" else total


def inner_parameter_names(model: Cascade | Parallel, which: str) -> tuple[str, ...]:
    """What the inner step moves: `all` of ψ, or `batchnorm_and_classifier`. For TTT, `all` of φ's shared stages."""
    if isinstance(model, Parallel):
        moved = set(model.shared_parameters)
    elif which == "all":
        moved = {*model.feature_extractor.parameters(), *model.main_classifier.parameters()}
    else:
        moved = {*batch_norm_parameters(model.feature_extractor), *model.main_classifier.parameters()}
    return tuple(name for name, parameter in model.named_parameters() if parameter in moved)


class _Call(nn.Module):
    """A function of a model as a module, so that `functional_call` can run it with other parameters."""

    def __init__(self, model: nn.Module, function: Callable[[nn.Module], Tensor]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self) -> Tensor:
        return self.function(self.model)


def _gradients(loss: Tensor, parameters: dict[str, Tensor], **options: Any) -> Gradients:
    found = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True, **options)
    return dict(zip(parameters, found, strict=True))


def _inner_losses(model: nn.Module, problem: MetaProblem) -> Losses:
    """The inner loss and, where the release's outer loss needs it, the cross-entropy at ψ from the same forward."""
    if problem.outer_loss == "release":
        return losses(model, problem.meta_train, problem.kind)
    inner = self_supervised_loss(model, problem.meta_train, problem.kind)
    return Losses(torch.zeros_like(inner), inner)


def exact_meta_gradient(model: nn.Module, problem: MetaProblem) -> tuple[float, Gradients]:
    """The outer loss and its gradient on every parameter, by backward through the inner step."""
    parameters: dict[str, Tensor] = dict(model.named_parameters())
    inner = {name: parameters[name] for name in problem.inner_names}
    at_psi = _inner_losses(model, problem)
    steps = _gradients(at_psi.self_supervised, inner, create_graph=True)
    moved = {name: inner[name] - problem.inner_learning_rate * steps[name] for name in inner}
    call = _Call(model, problem.outer)
    outer = functional_call(call, {f"model.{name}": value for name, value in (parameters | moved).items()}, ())
    total = outer + at_psi.main
    return total.item(), _gradients(total, parameters)


DIFFERENCE_NORM = 0.1
"""Norm of the parameter step of the difference. For ResNet-26 in float32 the whole gradient is then within 1e-4 (inner
step on BN and θ_m) and 5e-3 (on all of ψ) of the exact one, as it is for any norm from 0.03 to 0.3, and no nearer with
a central difference, which costs a third more. The rest is no rounding: double backward ignores the kinks of the
ReLU, a difference sees them. On a smooth network both agree."""


def difference_meta_gradient(model: nn.Module, problem: MetaProblem) -> tuple[float, Gradients]:
    """The same gradient with H v_I = (∇L(ψ + ε v_I) − ∇L(ψ)) / ε, L the inner loss; ∇L(ψ) is the inner step's own."""
    parameters: dict[str, Tensor] = dict(model.named_parameters())
    inner = {name: parameters[name] for name in problem.inner_names}
    before = {name: value.detach().clone() for name, value in inner.items()}

    def move(direction: Gradients, length: float) -> None:
        with torch.no_grad():
            for name, value in inner.items():
                torch.add(before[name], direction[name], alpha=length, out=value)

    at_psi = _inner_losses(model, problem)
    release = problem.outer_loss == "release"
    inner_gradient = _gradients(at_psi.self_supervised, parameters, retain_graph=release)
    at_psi_gradient = _gradients(at_psi.main, parameters) if release else {}
    move(inner_gradient, -problem.inner_learning_rate)
    outer = problem.outer(model)
    total = _gradients(outer, parameters)
    direction = {name: total[name].clone() for name in inner}
    norm = torch.sqrt(torch.stack([value.square().sum() for value in direction.values()]).sum()).item()
    if norm > 0:
        epsilon = DIFFERENCE_NORM / norm
        move(direction, epsilon)
        with batch_statistics(model):
            beyond = _gradients(self_supervised_loss(model, problem.meta_train, problem.kind), parameters)
        for name, gradient in total.items():
            gradient.sub_(beyond[name] - inner_gradient[name], alpha=problem.inner_learning_rate / epsilon)
    with torch.no_grad():
        for name, value in inner.items():
            value.copy_(before[name])
    for name, gradient in at_psi_gradient.items():
        total[name] += gradient
    return outer.item() + at_psi.main.item(), total


META_GRADIENTS = {"exact": exact_meta_gradient, "difference": difference_meta_gradient}


def meta_gradient(model: nn.Module, problem: MetaProblem, route: str) -> tuple[float, Gradients]:
    """The outer loss and its gradient on every parameter by one of META_GRADIENTS; `problem` has to hold one batch.

    A network that begins with a wide linear layer (text: 5,000 inputs) sees of its weights W no more than X Wᵀ for the
    rows X of the batch, and every gradient on W, so the inner step too, lies in the span of these rows. With X = L Qᵀ,
    Q (inputs, B) orthonormal, the same problem is that of the inputs L (B, B) and the weights W Q, whose gradient G
    stands for G Qᵀ: the same numbers up to rounding, 1.6 times as fast.
    """
    first, size = first_linear(model), len(problem.meta_train.y) + len(problem.meta_test.y)
    if first is None or first.in_features <= size or first.weight.device.type == "mps":  # Metal has no fast QR
        return META_GRADIENTS[route](model, problem)
    rows = torch.cat([problem.meta_train.x, problem.meta_test.x])
    basis, triangle = torch.linalg.qr(rows.T)
    halves = triangle.T.split([len(problem.meta_train.y), len(problem.meta_test.y)])
    meta_train, meta_test = (
        half._replace(x=x) for half, x in zip((problem.meta_train, problem.meta_test), halves, strict=True)
    )
    weight, name = first.weight, next(name for name, p in model.named_parameters() if p is first.weight)
    first.weight = nn.Parameter(weight.detach() @ basis)
    try:
        loss, gradients = META_GRADIENTS[route](model, replace(problem, meta_train=meta_train, meta_test=meta_test))
    finally:
        first.weight = weight
    return loss, gradients | {name: gradients[name] @ basis.T}


@contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """Inside, BatchNorm uses the statistics of the batch and leaves its running statistics alone."""
    norms = [(norm, norm.training, norm.track_running_stats) for norm in batch_norms(model)]
    for norm, _, _ in norms:
        norm.training, norm.track_running_stats = True, False
    try:
        yield
    finally:
        for norm, training, tracking in norms:
            norm.training, norm.track_running_stats = training, tracking


# ---------------------------------------------------------------- diagnostics


def auxiliary_diagnostics(outputs: Outputs) -> dict[str, float]:
    """What one batch tells of θ_a: its mean entropy, that of its mean prediction (0 where all examples get one class),
    both in nats, and its agreement, the share with argmax a = argmax z. NaN without θ_a."""
    a = outputs.auxiliary
    if a is None:
        return dict.fromkeys(("entropy_auxiliary", "entropy_of_mean_auxiliary", "agreement"), float("nan"))
    return {
        "entropy_auxiliary": entropy(a).mean().item(),
        "entropy_of_mean_auxiliary": entropy_of_mean(a).item(),
        "agreement": (a.argmax(1) == outputs.main.argmax(1)).float().mean().item(),
    }


def diagnose(model: Cascade | Parallel, half: Half) -> dict[str, float]:
    """What tells a collapsed θ_a, and Theorem 1's alignment, on one batch of held-out examples with batch statistics.

    Entropies in nats. A collapsed θ_a has entropy_auxiliary and entropy_of_mean_auxiliary near 0 and agreement (the
    share of examples with argmax a = argmax z) near 1/C; the self-supervised gradient on ψ is then next to nothing.
    """
    with batch_statistics(model):
        values: dict[str, float] = {}
        outputs = model(half.x)
        values["entropy_main"] = entropy(outputs.main).mean().item()
        if outputs.auxiliary is not None:
            values |= auxiliary_diagnostics(outputs)
        both = losses(model, half)
        psi: dict[str, Tensor] = {f"f.{n}": p for n, p in model.feature_extractor.named_parameters()}
        psi |= {f"m.{n}": p for n, p in model.main_classifier.named_parameters()}
        main = _flatten(_gradients(both.main, psi, retain_graph=True))
        self_supervised = _flatten(_gradients(both.self_supervised, psi))
    values["gradient_norm_main"] = main.norm().item()
    values["gradient_norm_self_supervised"] = self_supervised.norm().item()
    values["gradient_cosine"] = F.cosine_similarity(main, self_supervised, dim=0).item()
    return values


def _flatten(gradients: Gradients) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients.values()])


@torch.no_grad()
def held_out_accuracy(
    model: Cascade | Parallel, dataset: Dataset, *, running_statistics: bool, batch_size: int
) -> float:
    """Accuracy on the held-out examples, clean: with running statistics (ERM) or, as at test time, the batch's."""
    correct = 0
    model.eval()
    # Batches of that size or a little more: the statistics of a short rest would be those of no other batch.
    held_out = dataset.plain_held_out
    for indices in torch.arange(len(held_out.y)).tensor_split(max(1, len(held_out.y) // batch_size)):
        x, y = held_out.take(indices.to(held_out.y.device))
        if running_statistics:
            outputs = model(dataset.prepare(x))
        else:
            with batch_statistics(model):
                outputs = model(dataset.prepare(x))
        correct += int((outputs.main.argmax(1) == y).sum())
    return correct / len(held_out.y)


# ---------------------------------------------------------------- the loop


SAVE_SECONDS = 20
"""Seconds between two writings of a training's state: what a kill loses at most, beside the epoch that it comes in. The
text network has short epochs; writing after every one would be a tenth of its training."""


def learning_rate_at(training: TrainingConfig, share: float) -> float:
    """The learning rate when `share` (0..1) of the training is done; `dann` is η₀/(1 + 10·share)^0.75 (appendix)."""
    if training.schedule == "linear":
        return training.learning_rate + share * (training.final_learning_rate - training.learning_rate)
    if training.schedule == "dann":
        return training.learning_rate / (1 + 10 * share) ** 0.75
    return training.learning_rate * 0.1 ** sum(share >= epoch / 75 for epoch in STEPS[training.schedule])


def pretrain(
    dataset: Dataset,
    config: ModelConfig,
    objective: str,
    training: TrainingConfig,
    seed: int,
    state_file: Path | None = None,
) -> tuple[Cascade | Parallel, pd.DataFrame]:
    """Train a network for `objective` and return it at its best epoch by held-out accuracy, and a row an epoch.

    An epoch is all whole batches of the source, and where the iterations are counted the last one may be a part.

    `state_file`: written whole after an epoch, at most every SAVE_SECONDS; a later call with it goes on from there and
    ends in the same weights (bit for bit on a CPU), because every draw depends on the seed and the epoch alone.
    Raises ValueError where the source has fewer examples than a batch, or the loss is no longer finite.
    """
    training = training_for(objective, training)
    kind, batch_size = OBJECTIVES[objective], training.training_batch_size
    if len(dataset.train.y) < batch_size:
        raise ValueError(f"the source has {len(dataset.train.y)} training examples, fewer than a batch of {batch_size}")
    device = dataset.train.y.device
    model = build_model(config, objective, seed).to(device)
    optimizer = make_optimizer(model, training)
    state = TrainingState(model, optimizer, [], {})
    if state_file is not None and state_file.exists():
        state.load(state_file)
    batches = len(dataset.train.y) // batch_size
    iterations = training.iterations if training.epochs is None else training.epochs * batches
    assert iterations is not None
    epochs, done, saved = math.ceil(iterations / batches), len(state.history), time.monotonic()
    for epoch in progress(range(done, epochs), f"pre-training {objective}, seed {seed}", epochs, done):
        started = time.perf_counter()
        generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
        order = torch.randperm(len(dataset.train.y), generator=generator).to(device)
        model.train()
        loss_sum, count = 0.0, min(batches, iterations - epoch * batches)
        for batch in range(count):
            rate = learning_rate_at(training, (epoch * batches + batch) / iterations)
            for group in optimizer.param_groups:
                group["lr"] = rate
            indices = order[batch * batch_size : (batch + 1) * batch_size]
            # The second-order term of the meta-gradient is a thousandth of the whole, the rounding of bfloat16 a tenth.
            rounded = training.precision == "bfloat16" and not kind.meta
            with torch.autocast(device.type, torch.bfloat16, enabled=rounded):
                loss_sum += _train_on(model, dataset, indices, kind, training, rate, generator)
            optimizer.step()
        if not math.isfinite(loss_sum):
            raise ValueError(
                f"pre-training {objective} diverged in epoch {epoch + 1} (loss not finite): lower the learning rate"
            )
        row = {"epoch": epoch + 1, "learning_rate": rate, "loss": loss_sum / count}
        running = not kind.self_supervised
        row["held_out_accuracy"] = held_out_accuracy(model, dataset, running_statistics=running, batch_size=batch_size)
        if kind.self_supervised:
            # The same examples and rotations in every epoch, so that the rows compare.
            first = dataset.plain_held_out.take(slice(0, 200))
            half = _half(dataset.prepare(first.x), first.y, kind, torch.Generator().manual_seed(0))
            row |= diagnose(model, half)
        state.end_epoch(row | {"seconds": time.perf_counter() - started})
        if state_file is not None and time.monotonic() - saved >= SAVE_SECONDS:
            state.save(state_file)
            saved = time.monotonic()
    model.load_state_dict(state.best)
    return model.eval(), pd.DataFrame(state.history)


def adam(parameters: list[nn.Parameter], learning_rate: float, weight_decay: float = 0.0) -> torch.optim.Adam:
    """Adam, by its fused kernel where that is right: for wide layers on a CPU it is three times as fast."""
    # It reads the memory of weights, gradients and state side by side, whatever their strides: wrong for convolutions
    # with the channels last.
    fused = all(parameter.ndim <= 2 for parameter in parameters)
    return torch.optim.Adam(parameters, learning_rate, weight_decay=weight_decay, fused=fused)


def make_optimizer(model: nn.Module, training: TrainingConfig) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum 0.9, or Adam, over all parameters."""
    if training.optimizer == "adam":
        return adam(list(model.parameters()), training.learning_rate, training.weight_decay)
    return torch.optim.SGD(
        model.parameters(), training.learning_rate, momentum=0.9, nesterov=True, weight_decay=training.weight_decay
    )


def _half(x: Tensor, y: Tensor, kind: Objective, generator: torch.Generator) -> Half:
    return Half(x, y, rotate_randomly(x, generator) if kind.parallel else None)


def _train_on(
    model: Cascade | Parallel,
    dataset: Dataset,
    indices: Tensor,
    kind: Objective,
    training: TrainingConfig,
    rate: float,
    generator: torch.Generator,
) -> float:
    """Set the gradient of one batch on every parameter and return the loss."""
    stored, y = (dataset.plain if kind.randomised == "none" else dataset.train).take(indices)
    stored = dataset.weak_augment(stored, generator)
    if kind.randomised == "none":
        x = dataset.prepare(stored)
    else:
        x = dataset.prepare(dataset.randomise(stored, generator))
    if kind.randomised == "both":
        x, y = torch.cat([dataset.prepare(stored), x]), torch.cat([y, y])
    if kind.meta:
        middle = len(y) // 2
        problem = MetaProblem(
            _half(x[:middle], y[:middle], kind, generator),
            _half(x[middle:], y[middle:], kind, generator),
            inner_parameter_names(model, training.inner_parameters),
            training.inner_learning_rate_ratio * rate,
            training.outer_loss,
            training.entropy_weight,
            kind,
        )
        loss, gradients = meta_gradient(model, problem, training.meta_gradient)
        for name, parameter in model.named_parameters():
            # Strides as the parameter's, which the fused optimiser takes for granted.
            alike = gradients[name].stride() == parameter.stride()
            parameter.grad = gradients[name] if alike else torch.empty_like(parameter).copy_(gradients[name])
        return loss
    model.zero_grad()
    half = _half(x, y, kind, generator)
    if kind.self_supervised:
        main, self_supervised = losses(model, half, kind, theta_a=not kind.detached)
        # TTT adds the two losses; multi-task weights the entropy by the λ of Sec. 6.4.
        total = main + (self_supervised if kind.parallel else training.entropy_weight * self_supervised)
    else:
        total = F.cross_entropy(model(half.x).main.float(), half.y)
    total.backward()
    return total.item()


@dataclass
class TrainingState:
    """All that a killed training needs to go on: weights, the optimiser's state, best weights, history."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    history: list[dict[str, Any]]
    best: dict[str, Tensor]

    def end_epoch(self, row: dict[str, Any]) -> None:
        """Add a row; keep the weights if no earlier epoch was better on the held-out examples."""
        if all(row["held_out_accuracy"] >= earlier["held_out_accuracy"] for earlier in self.history):
            self.best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.history.append(row)

    def save(self, path: Path) -> None:
        """Write everything as one file, whole or not at all."""
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best/{name}": value for name, value in self.best.items()}
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state[parameter].items():
                tensors[f"optimizer/{key}/{name}"] = value
        part = path.with_suffix(".part")
        save_file(
            {n: v.detach().cpu().contiguous() for n, v in tensors.items()}, part, {"history": json.dumps(self.history)}
        )
        part.replace(path)

    def load(self, path: Path) -> None:
        """Go on from what `save` wrote."""
        device = next(self.model.parameters()).device
        with safe_open(path, "pt") as file:
            self.history = json.loads(file.metadata()["history"])
            tensors = {name: file.get_tensor(name).to(device) for name in file.keys()}
        self.model.load_state_dict({n.removeprefix("model/"): v for n, v in tensors.items() if n.startswith("model/")})
        self.best = {n.removeprefix("best/"): v for n, v in tensors.items() if n.startswith("best/")}
        for name, parameter in self.model.named_parameters():
            for part, value in tensors.items():
                if part.startswith("optimizer/") and part.endswith(f"/{name}"):
                    # Adam counts its steps on the CPU.
                    self.optimizer.state[parameter][part.split("/")[1]] = value if value.ndim else value.cpu()
