"""Pre-training (Sec. 4.2, Algorithm 1): one loop for all objectives, and its diagnostics.

Each step draws a batch and randomises it (images by AugMix). A meta-learning objective halves it
and takes the gradient of Algorithm 1 (meta.py). Every other objective takes the gradient of its
losses (objectives.py).
"""

import math
import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.data.base import Dataset, Split, set_aside, write_atomically
from cascadetta_lib.losses import at_least_float32, describe
from cascadetta_lib.models import Cascade, Network, Parallel, as_outputs, build_network
from cascadetta_lib.progress import progress
from cascadetta_lib.training.learning_rate import learning_rate_at
from cascadetta_lib.training.meta import (
    MetaProblem,
    batch_statistics,
    flatten,
    halve,
    inner_parameter_names,
    meta_gradient,
)
from cascadetta_lib.training.objectives import (
    OBJECTIVES,
    Half,
    Objective,
    Training,
    as_half,
    losses,
    training_for,
)


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
    """Train a network for `objective`. Return the network with the weights of the best epoch by
    held-out accuracy (the last of equals), and the history: a row per epoch.

    An epoch takes every whole batch once; a remainder is left out. Where iterations are counted,
    the last epoch may stop early. The columns of the history:

    epoch: from 1.
    learning_rate: of the last batch.
    loss: in nats, the mean over the batches.
    held_out_accuracy: 0..1, with batch statistics; for erm with running ones, as ERM predicts.
    what `diagnose` says, where there is a self-supervised loss.
    seconds.
    code_revision: the caller's.

    state_file: written after an epoch, at most every `save_seconds`, because the state of a text
        network takes a tenth as long to write as an epoch to train. A later call with it goes on
    from there and ends in the same weights (bit for bit on a CPU), because every draw depends only
    on the seed and the epoch. A damaged file is set aside with a warning.

    Raises ValueError where the source has fewer examples than a batch, or the loss is no longer
    finite.
    """
    training = training_for(objective, training)
    kind = OBJECTIVES[objective]
    count = len(dataset.train.y)
    size = training.training_batch_size
    device = dataset.train.y.device
    if count < size:
        raise ValueError(
            f"training_batch_size = {size}: the source has only {count} training examples"
        )
    model = new_network(dataset, network, objective, seed).to(device)
    optimizer = make_optimizer(model, training)
    best = dict[str, Tensor]()
    history = list[dict[str, Any]]()
    if state_file is not None and state_file.exists():
        try:
            state = torch.load(state_file, map_location=device, weights_only=True)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            best = state["best"]
            history = state["history"]
        # A damaged file can make torch.load and load_state_dict raise nearly anything.
        except Exception as error:
            set_aside(
                state_file, f"{state_file} cannot be used ({str(error).partition(chr(10))[0]})"
            )
            return pretrain(
                dataset,
                network,
                objective,
                training,
                seed,
                state_file,
                code_revision,
                save_seconds,
            )
    batches = count // size
    iterations = training.iterations or (training.epochs or 0) * batches
    done = len(history)
    saved = time.monotonic()
    description = f"pre-training {objective}, seed {seed}, batches"
    steps = iter(
        progress(range(done * batches, iterations), description, iterations, done * batches)
    )
    # bfloat16 would put an error of eight times its size on the second-order term, so
    # meta-learning stays in float32.
    rounded = training.precision == "bfloat16" and not kind.meta
    for epoch in range(done, math.ceil(iterations / batches)):
        started = time.perf_counter()
        generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
        order = torch.randperm(count, generator=generator).to(device)
        model.train()
        found: list[Tensor] = []
        for step, indices in zip(islice(steps, batches), order.split(size), strict=False):
            rate = learning_rate_at(training, step / iterations)
            for group in optimizer.param_groups:
                group["lr"] = rate
            batch = augmented_batch(dataset, indices, kind, generator)
            with torch.autocast(device.type, torch.bfloat16, enabled=rounded):
                found.append(set_gradients(model, batch, kind, training, rate, generator))
            optimizer.step()
        # Read once per epoch, because each reading waits for the GPU.
        loss = sum(torch.stack(found).tolist()) / len(found)
        if not math.isfinite(loss):
            reason = (
                "(the loss is not finite): lower the learning rate, which begins at "
                f"{training.learning_rate}"
            )
            raise ValueError(f"pre-training {objective} diverged in epoch {epoch + 1} {reason}")
        accuracy = held_out_accuracy(
            model, dataset, running_statistics=objective == "erm", batch_size=size
        )
        row = {
            "epoch": epoch + 1,
            "learning_rate": rate,
            "loss": loss,
            "held_out_accuracy": accuracy,
        }
        if kind.self_supervised:
            # The same examples and rotations in every epoch, so that the rows compare.
            x, y = dataset.plain_held_out.take(slice(0, 200))
            row |= diagnose(
                model, as_half(dataset.prepare(x), y, kind, torch.Generator().manual_seed(0))
            )
        history.append(
            row | {"seconds": time.perf_counter() - started, "code_revision": code_revision}
        )
        if accuracy == max(earlier["held_out_accuracy"] for earlier in history):
            best = {name: value.detach().clone() for name, value in model.state_dict().items()}
        if state_file is not None and time.monotonic() - saved >= save_seconds:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "best": best,
                "history": history,
            }
            write_atomically(state_file, lambda file: torch.save(state, file))  # noqa: B023
            saved = time.monotonic()
    model.load_state_dict(best)
    return model.eval(), pd.DataFrame(history)


def new_network(
    dataset: Dataset, network: Network, objective: str, seed: int
) -> Cascade | Parallel:
    """Return a fresh network for `objective` on a dataset, initialised from `seed`.

    Raises ValueError where the objective is about rotations and the dataset has no images.
    """
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
    # The fused kernel is three times as fast for wide layers on a CPU. It reads the memory of
    # weights, gradients and state side by side, whatever their strides, which is wrong for
    # convolutions with the channels last.
    fused = all(parameter.ndim <= 2 for parameter in parameters)
    return torch.optim.Adam(parameters, training.learning_rate, weight_decay=decay, fused=fused)


def kept_epoch(history: pd.DataFrame) -> pd.Series:
    """Return the history's row of the epoch that was kept: the last of the most accurate ones."""
    return history[history["held_out_accuracy"] == history["held_out_accuracy"].max()].iloc[-1]


def augmented_batch(
    dataset: Dataset, indices: Tensor, kind: Objective, generator: torch.Generator
) -> Split:
    """Return a batch as the network sees it, augmented as the objective says."""
    stored, y = (dataset.plain if kind.randomised == "none" else dataset.train).take(indices)
    stored = dataset.weak_augment(stored, generator)
    if kind.randomised == "none":
        return Split(dataset.prepare(stored), y)
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
    """Set the gradient of the objective `kind` on every parameter; return its loss, a scalar.

    rate: the learning rate β of this step. draws: for the rotation task.
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
        # TTT adds the two losses; multi-task weights the entropy by the λ of Sec. 6.4.
        total = main + (
            self_supervised if kind.parallel else training.entropy_weight * self_supervised
        )
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
    """Return the accuracy (0..1) on `held_out`, or else on the clean held-out examples.

    BatchNorm uses the source's statistics (ERM) or, as at test time, those of each batch. The model
    is left in evaluation mode.
    """
    held_out = held_out or dataset.plain_held_out
    right = []
    model.eval()
    # Batches of that size or a little more. A short last batch would have statistics unlike those
    # of any other.
    parts = max(1, len(held_out.y) // batch_size)
    for x, y in zip(held_out.x.tensor_split(parts), held_out.y.tensor_split(parts), strict=True):
        with nullcontext() if running_statistics else batch_statistics(model):
            outputs = as_outputs(model(dataset.prepare(x)))
        right.append(outputs.main.argmax(1) == y)
    return int(torch.cat(right).sum()) / len(held_out.y)


def diagnose(model: Cascade | Parallel, half: Half) -> dict[str, float]:
    """Return what `losses.describe` says of one held-out batch with batch statistics, and Theorem
    1's alignment.

    gradient_norm_main: of the main loss on ψ.
    gradient_norm_self_supervised: of the other loss on ψ, next to nothing where θ_a has collapsed.
    gradient_cosine: between the two gradients, which is the alignment.
    """
    psi = [*model.feature_extractor.parameters(), *model.main_classifier.parameters()]
    with batch_statistics(model):
        # A graph of the whole batch would take more memory than a training step.
        with torch.no_grad():
            values = describe(model(half.x))
        both = losses(model, half)
        main, self_supervised = (
            flatten(torch.autograd.grad(loss, psi, retain_graph=True, materialize_grads=True))
            for loss in both
        )
    values |= {
        "gradient_norm_main": main.norm(),
        "gradient_norm_self_supervised": self_supervised.norm(),
    }
    values["gradient_cosine"] = F.cosine_similarity(main, self_supervised, dim=0)
    return dict(zip(values, torch.stack(list(values.values())).tolist(), strict=True))
