"""Pre-training (Sec. 4.2, Algorithm 1): one loop for all objectives, and its diagnostics.

An objective is one way to pre-train, such as `erm` or `meta` (objectives.py). Each step draws a
batch and augments it as the objective says. A meta-learning objective halves the batch and takes
the gradient of Algorithm 1 (meta.py). Every other objective takes the gradient of its losses.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.allowed import require_choice
from cascadetta_lib.data.base import NOT_TRAINED_ON, Dataset, Options, Split
from cascadetta_lib.files import set_aside, write_atomically
from cascadetta_lib.losses import at_least_float32, describe
from cascadetta_lib.models import (
    Cascade,
    Network,
    Parallel,
    as_outputs,
    build_network,
    using_batch_statistics,
)
from cascadetta_lib.progress import progress
from cascadetta_lib.training.learning_rate import learning_rate_at
from cascadetta_lib.training.meta import (
    MetaProblem,
    flatten,
    halve,
    inner_parameter_names,
    meta_gradient,
)
from cascadetta_lib.training.objectives import (
    OBJECTIVES,
    Half,
    Objective,
    as_half,
    losses,
    training_for,
)
from cascadetta_lib.training.settings import Training


@dataclass
class _State:
    """A training in progress, as its state file holds it.

    best: the weights after the best epoch so far. history: a row per epoch that is done.
    """

    model: Cascade | Parallel
    optimizer: torch.optim.Optimizer
    best: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


def pretrain(
    dataset: Dataset,
    network: Network,
    objective: str,
    training: Training,
    seed: int,
    state_file: Path | None = None,
    code_revision: str = "unknown",
    save_seconds: float = 20,
) -> tuple[Cascade | Parallel, pd.DataFrame]:
    """Train a network for `objective`. Return the network and its history, a row per epoch.

    The weights are those of the epoch with the highest held-out accuracy; on a tie, of the latest
    such epoch. An epoch draws whole batches without repeating an example, and leaves the remainder
    out. If iterations are counted, the last epoch may stop early. The columns of the history:

    epoch: from 1.
    learning_rate: at the last batch of the epoch.
    loss: the mean over the batches, in nats.
    held_out_accuracy: in 0..1. BatchNorm uses the statistics of each batch; for `erm` it uses the
        running statistics, as the method ERM does.
    the columns of `diagnose`, if there is a self-supervised loss.
    seconds: the time of the epoch and its measurements.
    code_revision: the argument.

    state_file: holds the training in progress. It is written after an epoch, at most every
        `save_seconds`, because writing the state of a text network takes a tenth of an epoch's
        time. A later call with the same file goes on from there. It ends in the same weights (bit
        for bit on a CPU), because every draw depends only on the seed and the epoch. A file that is
        damaged, or has another network, objective, training, seed, data or options of the data, is
        set aside with a warning. Options in NOT_TRAINED_ON may differ.

    Raises ValueError for an unknown objective, if the source has fewer examples than a batch, if
    the objective has a rotation task and the dataset no images, or if the loss stops being finite.
    """
    training = training_for(objective, training)
    kind = OBJECTIVES[objective]
    count = len(dataset.train.y)
    size = training.training_batch_size
    if count < size:
        raise ValueError(
            f"training_batch_size = {size}: the source has only {count} training examples"
        )

    def begin() -> _State:
        model = new_network(dataset, network, objective, seed).to(dataset.train.y.device)
        return _State(model, make_optimizer(model, training))

    options = getattr(dataset, "options", Options())  # A dataset of one's own may have none.
    asked = {
        "network": network.model_dump(mode="json"),
        "objective": objective,
        "training": training.model_dump(mode="json"),
        "seed": seed,
        "data": dataset.fingerprint,
        "options": options.model_dump(mode="json", exclude=NOT_TRAINED_ON),
    }
    state = begin() if state_file is None else _read_state(state_file, begin, asked)
    batches = count // size
    iterations = training.iterations_for(batches)
    epochs_done = len(state.history)
    done = epochs_done * batches
    description = f"pre-training {objective}, seed {seed}, batches"
    steps = iter(progress(range(done, iterations), description, iterations, done))
    saved = time.monotonic()
    for epoch in range(epochs_done, math.ceil(iterations / batches)):
        started = time.perf_counter()
        loss, rate = _train_epoch(
            state, dataset, kind, training, seed, epoch, iterations=iterations, steps=steps
        )
        if not math.isfinite(loss):
            raise ValueError(
                f"pre-training {objective} diverged in epoch {epoch + 1} (the loss is not finite): "
                f"lower the learning rate, which begins at {training.learning_rate}"
            )
        accuracy = held_out_accuracy(
            state.model, dataset, running_statistics=objective == "erm", batch_size=size
        )
        row: dict[str, Any] = {
            "epoch": epoch + 1,
            "learning_rate": rate,
            "loss": loss,
            "held_out_accuracy": accuracy,
        }
        if kind.self_supervised:
            # Use the same examples and rotations in every epoch, so that rows can be compared.
            x, y = dataset.plain_held_out.take(slice(0, 200))
            half = as_half(dataset.prepare(x), y, kind, torch.Generator().manual_seed(0))
            row |= diagnose(state.model, half)
        row["seconds"] = time.perf_counter() - started
        row["code_revision"] = code_revision
        state.history.append(row)
        if kept_epoch(pd.DataFrame(state.history))["epoch"] == epoch + 1:
            weights = state.model.state_dict()
            state.best = {name: value.detach().clone() for name, value in weights.items()}
        if state_file is not None and time.monotonic() - saved >= save_seconds:
            _write_state(state_file, state, asked)
            saved = time.monotonic()
    state.model.load_state_dict(state.best)
    return state.model.eval(), pd.DataFrame(state.history)


def _read_state(state_file: Path, begin: Callable[[], _State], asked: Mapping[str, Any]) -> _State:
    """Return the training that a state file holds, or a fresh one if there is no file.

    begin: makes a fresh training. asked: what is to be trained, and how. A file that is damaged, or
    of another training, is set aside with a warning.
    """
    state = begin()
    if not state_file.exists():
        return state
    device = next(state.model.parameters()).device
    try:
        stored = torch.load(state_file, map_location=device, weights_only=True)
        others = [name for name, value in asked.items() if stored["asked"][name] != value]
        if others:
            raise ValueError(f"it is of another {others[0]}")
        state.model.load_state_dict(stored["model"])
        state.optimizer.load_state_dict(stored["optimizer"])
        state.best = stored["best"]
        state.history = stored["history"]
    # A damaged file can make torch.load and load_state_dict raise nearly anything.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        set_aside(state_file, f"{state_file} cannot be used ({reason})")
        return begin()  # `state` may hold a part of the file.
    return state


def _write_state(state_file: Path, state: _State, asked: Mapping[str, Any]) -> None:
    stored = {
        "asked": dict(asked),
        "model": state.model.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "best": state.best,
        "history": state.history,
    }
    write_atomically(state_file, lambda file: torch.save(stored, file))


def _train_epoch(
    state: _State,
    dataset: Dataset,
    kind: Objective,
    training: Training,
    seed: int,
    epoch: int,
    *,
    iterations: int,
    steps: Iterator[int],
) -> tuple[float, float]:
    """Train for an epoch. Return the mean loss, and the learning rate of the last batch.

    epoch: from 0. iterations: of the whole training. steps: yields the number of the next step. If
    `steps` is exhausted, the epoch ends early.
    """
    count = len(dataset.train.y)
    size = training.training_batch_size
    device = dataset.train.y.device
    # In bfloat16 the error of the second-order term would be eight times the term, so
    # meta-learning stays in float32.
    in_bfloat16 = training.precision == "bfloat16" and not kind.meta
    # Each pair of seed and epoch has its own generator.
    generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
    order = torch.randperm(count, generator=generator).to(device)
    state.model.train()
    losses_found: list[Tensor] = []
    rate = math.nan
    for indices in order.split(size)[: count // size]:
        step = next(steps, None)
        if step is None:
            break
        rate = learning_rate_at(training, step / iterations)
        for group in state.optimizer.param_groups:
            group["lr"] = rate
        batch = augmented_batch(dataset, indices, kind, generator)
        with torch.autocast(device.type, torch.bfloat16, enabled=in_bfloat16):
            loss = set_gradients(state.model, batch, kind, training, rate, generator)
        losses_found.append(loss)
        state.optimizer.step()
    # Read the losses once per epoch, because each reading waits for the GPU.
    return sum(torch.stack(losses_found).tolist()) / len(losses_found), rate


def new_network(
    dataset: Dataset, network: Network, objective: str, seed: int
) -> Cascade | Parallel:
    """Return a fresh network for `objective` on a dataset, initialised from `seed`.

    Raises ValueError for an unknown objective, and if the objective has a rotation task and the
    dataset has no images.
    """
    require_choice("objective", objective, OBJECTIVES)
    kind = OBJECTIVES[objective]
    model = build_network(
        network,
        **dataset.network_facts,
        parallel=kind.parallel,
        auxiliary=kind.auxiliary,
        seed=seed,
    )
    if kind.supervised and isinstance(model.auxiliary_classifier, nn.Linear):
        nn.init.eye_(model.auxiliary_classifier.weight)
        nn.init.zeros_(model.auxiliary_classifier.bias)
    return model


def make_optimizer(model: nn.Module, training: Training) -> torch.optim.Optimizer:
    """Return SGD with Nesterov momentum 0.9, or Adam, over all parameters."""
    parameters = list(model.parameters())
    decay = training.weight_decay
    if training.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, training.learning_rate, momentum=0.9, nesterov=True, weight_decay=decay
        )
    # The fused kernel is three times as fast for wide layers on a CPU. It pairs weights, gradients
    # and state by their place in memory and ignores strides, so it is wrong for convolutions with
    # the channels last.
    fused = all(parameter.ndim <= 2 for parameter in parameters)
    return torch.optim.Adam(parameters, training.learning_rate, weight_decay=decay, fused=fused)


def kept_epoch(history: pd.DataFrame) -> pd.Series:
    """Return the history's row of the kept epoch: the latest of those with the highest held-out
    accuracy.
    """
    return history[history["held_out_accuracy"] == history["held_out_accuracy"].max()].iloc[-1]


def augmented_batch(
    dataset: Dataset, indices: Tensor, kind: Objective, generator: torch.Generator
) -> Split:
    """Return a batch as the network sees it, augmented as the objective says."""
    if kind.randomised == "none":
        stored, y = dataset.plain.take(indices)
        return Split(dataset.prepare(dataset.weak_augment(stored, generator)), y)
    stored, y = dataset.train.take(indices)
    stored = dataset.weak_augment(stored, generator)
    randomised = dataset.prepare(dataset.randomise(stored, generator))
    if kind.randomised == "all":
        return Split(randomised, y)
    return Split(torch.cat([dataset.prepare(stored), randomised]), torch.cat([y, y]))


def set_gradients(
    model: Cascade | Parallel,
    batch: Split,
    kind: Objective,
    training: Training,
    rate: float,
    draws: torch.Generator,
) -> Tensor:
    """Set the gradient of the loss of objective `kind` in every parameter. Return the loss, a
    scalar.

    rate: the learning rate β of this step. draws: the generator of the random rotations, for the
    rotation task.
    """
    x, y = batch
    if kind.meta:
        meta_train, meta_test = halve(x, y, kind, draws)
        problem = MetaProblem(
            meta_train,
            meta_test,
            inner_parameter_names(model, training.inner_parameters),
            training.inner_learning_rate_ratio * rate,
            training.outer_loss,
            training.entropy_weight,
            kind,
        )
        loss, gradients = meta_gradient(model, problem)
        for name, parameter in model.named_parameters():
            # A copy with the parameter's strides, which Adam's fused kernel takes for granted.
            parameter.grad = torch.empty_like(parameter).copy_(gradients[name])
        return loss
    model.zero_grad()
    if kind.self_supervised:
        main, self_supervised = losses(model, as_half(x, y, kind, draws), kind)
        # TTT adds the two losses. Multi-task weights the entropy by the λ of Sec. 6.4.
        weight = 1.0 if kind.parallel else training.entropy_weight
        total = main + weight * self_supervised
    else:
        total = F.cross_entropy(at_least_float32(model(x).main), y)
    total.backward()
    return total.detach()


@torch.no_grad()
def held_out_accuracy(
    model: nn.Module,
    dataset: Dataset,
    *,
    running_statistics: bool,
    batch_size: int,
    held_out: Split | None = None,
) -> float:
    """Return the accuracy (0..1) on held-out examples. The model is left in evaluation mode.

    running_statistics: whether BatchNorm uses the source's statistics, as ERM does, or each
        batch's, as the other methods do at test time.
    held_out: the examples to measure on. None means the dataset's clean held-out examples.
    """
    held_out = held_out or dataset.plain_held_out
    right = []
    model.eval()
    # Make equal parts of batch_size to 2·batch_size − 1 examples, so that no short last batch has
    # statistics unlike the others'. Fewer than batch_size examples are one part.
    parts = max(1, len(held_out.y) // batch_size)
    for x, y in zip(held_out.x.tensor_split(parts), held_out.y.tensor_split(parts), strict=True):
        with nullcontext() if running_statistics else using_batch_statistics(model):
            outputs = as_outputs(model(dataset.prepare(x)))
        right.append(outputs.main.argmax(1) == y)
    return int(torch.cat(right).sum()) / len(held_out.y)


def diagnose(model: Cascade | Parallel, half: Half) -> dict[str, float]:
    """Return what `cascadetta_lib.losses.describe` says of a batch under batch statistics, and the
    alignment of Theorem 1.

    The losses are the paper's, whatever the objective. For a rotation task (`ttt`, `meta_ttt`) the
    self-supervised loss is the rotation loss.

    gradient_norm_main: the norm of the supervised loss's gradient with respect to ψ.
    gradient_norm_self_supervised: the norm of the self-supervised loss's gradient with respect to
        ψ; nearly 0 if θ_a has collapsed.
    gradient_cosine: the cosine between these two gradients, which is the alignment.
    """
    psi = [*model.feature_extractor.parameters(), *model.main_classifier.parameters()]
    with using_batch_statistics(model):
        # These values need no gradient. So no second graph of the whole batch takes memory.
        with torch.no_grad():
            values = describe(model(half.x))
        main_loss, self_supervised_loss = losses(model, half)
        main = _flat_gradient(main_loss, psi)
        self_supervised = _flat_gradient(self_supervised_loss, psi)
    values["gradient_norm_main"] = main.norm()
    values["gradient_norm_self_supervised"] = self_supervised.norm()
    values["gradient_cosine"] = F.cosine_similarity(main, self_supervised, dim=0)
    # Read the values together, because each reading waits for the GPU.
    read = torch.stack(list(values.values())).tolist()
    return dict(zip(values, read, strict=True))


def _flat_gradient(loss: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    """Return the gradient of a loss with respect to parameters as one vector. The graph is kept."""
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
    return flatten(gradients)
