"""What one GPU is worth, as one table in Markdown with the card, torch and the revision.

`./run_all.sh python benchmarks/card.py --output card.md` takes about ten minutes on one card. It
measures a step of each method, eager and, where it never waits for the device, as a captured graph;
Tent's step on K networks at once; an epoch of each objective; and E and A of each method on one
domain, from which the time of the CIFAR-10 column follows. `--smallest` tries all of it on any
device in about a minute, on a network and on data so small that its times say nothing.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap

from benchmarks.speed import of_pictures
from cascadetta_lib import METHODS, evaluate
from cascadetta_lib.data.corruptions import CORRUPTIONS
from cascadetta_lib.data.images import ImageDataset, ImageOptions
from cascadetta_lib.data.streams import Domain
from cascadetta_lib.files import write_text_atomically
from cascadetta_lib.losses import entropy
from cascadetta_lib.methods import Method
from cascadetta_lib.models import ImageNetwork, batch_norms, build_network, use_batch_statistics
from cascadetta_lib.training.objectives import OBJECTIVES
from cascadetta_lib.training.pretrain import pretrain
from cascadetta_lib.training.settings import Training
from study.provenance import choose_device, provenance

BATCH = 32
COPIES = (1, 8, 32)
"""Networks that one stacked step adapts."""
RATE = 0.001


@dataclass(frozen=True)
class Size:
    """How much is measured. repeats: steps of which the median counts. images: of an epoch, and of
    the domain."""

    network: ImageNetwork
    repeats: int
    images: int


WHOLE = Size(ImageNetwork(block="pre_activation"), 7, 2_000)
SMALLEST = Size(ImageNetwork(block="pre_activation", depth=8, width=2), 2, 64)


def seconds(function: Callable[[], object], repeats: int, device: str) -> float:
    """The median time of a call, after two that warm up."""
    taken = []
    for _ in range(repeats + 2):
        began = time.perf_counter()
        function()
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[2:])


def make(name: str, data: ImageDataset, size: Size, device: str) -> Method:
    """Return a method on a fresh network."""
    kind = METHODS[name]
    objective = OBJECTIVES[kind.objective]
    heads = {"parallel": objective.parallel, "auxiliary": objective.auxiliary}
    model = build_network(size.network, classes=10, seed=0, **heads)  # type: ignore[arg-type]
    source = data.prepare(data.train.x[:BATCH]) if kind.needs_source else None
    return kind(model.to(device), learning_rate=RATE, source=source, value_range=data.value_range)


def captured(method: Method, x: Tensor) -> Callable[[], object] | None:
    """Return the method's step on x as a replay of a captured graph; None where it has none.

    A step that waits for the device cannot be captured, nor one on a CPU.
    """
    if x.device.type != "cuda":
        return None
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            method.step(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            method.step(x)
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return graph.replay


def stacked(count: int, size: Size, x: Tensor) -> Callable[[], object]:
    """Return Tent's step on one batch for `count` networks at once: as in a sweep over learning
    rates, each network has its own scales and shifts.
    """
    models = []
    for seed in range(count):
        model = build_network(size.network, classes=10, seed=seed, auxiliary=False).to(x.device)
        use_batch_statistics(model)
        for norm in batch_norms(model):
            norm.running_mean = None
            norm.running_var = None
        models.append(model)
    parameters, buffers = stack_module_state(models)
    layers = [
        name for name, module in models[0].named_modules() if module in set(batch_norms(models[0]))
    ]
    moved = {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}
    adapted = {name: value.detach() for name, value in parameters.items() if name in moved}
    fixed = {name: value.detach() for name, value in parameters.items() if name not in moved}
    rates = torch.full((count,), RATE, device=x.device)

    def logits(
        own: dict[str, Tensor], others: dict[str, Tensor], state: dict[str, Tensor]
    ) -> Tensor:
        return functional_call(models[0], own | others | state, (x,)).main

    def loss(own: dict[str, Tensor], others: dict[str, Tensor], state: dict[str, Tensor]) -> Tensor:
        return entropy(logits(own, others, state)).mean()

    def step() -> Tensor:
        gradients = vmap(grad(loss))(adapted, fixed, buffers)
        for name, gradient in gradients.items():
            shape = (count, *[1] * (gradient.dim() - 1))
            adapted[name] = adapted[name] - rates.view(shape) * gradient
        with torch.no_grad():
            return vmap(logits)(adapted, fixed, buffers)

    return step


def steps(data: ImageDataset, size: Size, device: str) -> list[str]:
    """Return the rows of a step of each method: milliseconds, eager and captured."""
    x = data.prepare(data.test.x[:BATCH])
    rows = []
    for name in METHODS:
        if "image" not in METHODS[name].modalities:
            continue
        eager = seconds(partial(make(name, data, size, device).step, x), size.repeats, device)
        replay = captured(make(name, data, size, device), x)
        graph = f"{1000 * seconds(replay, size.repeats, device):.2f}" if replay else "–"
        rows.append(f"| {METHODS[name].label} | {1000 * eager:.2f} | {graph} |")
    return rows


def sweeps(data: ImageDataset, size: Size, device: str) -> list[str]:
    """Return the rows of Tent's step on K networks at once: milliseconds for each network."""
    x = data.prepare(data.test.x[:BATCH])
    rows = []
    for count in COPIES:
        taken = seconds(stacked(count, size, x), size.repeats, device)
        rows.append(f"| {count} | {1000 * taken / count:.2f} |")
    return rows


def epochs(data: ImageDataset, size: Size) -> list[str]:
    """Return the rows of an epoch of each objective: images per second."""
    training = Training(epochs=1, training_batch_size=min(200, size.images // 2))
    rows = []
    for objective in OBJECTIVES:
        history = pretrain(data, size.network, objective, training, seed=0)[1]
        rows.append(f"| {objective} | {len(data.train.y) / history['seconds'].min():,.0f} |")
    return rows


def column(data: ImageDataset, size: Size, device: str) -> list[str]:
    """Return the rows of E and A on one domain: minutes, as they are for 15 domains of 10,000."""
    rows = []
    for name in METHODS:
        if "image" not in METHODS[name].modalities:
            continue
        began = time.perf_counter()
        method = make(name, data, size, device)
        evaluate(method, data, [Domain(CORRUPTIONS[0], 5)], BATCH, transfer=False)
        taken = (time.perf_counter() - began) * 15 * 10_000 / len(data.test.y)
        rows.append(f"| {METHODS[name].label} | {taken / 60:.1f} |")
    return rows


def table(heads: str, rows: list[str]) -> str:
    """Return a table in Markdown. heads: the heads of its columns, between bars."""
    rule = "|" + "---|" * (heads.count("|") + 1)
    return "\n".join([f"| {heads} |", rule, *rows])


def main() -> None:
    """Measure everything, print it, and write it where `--output` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--smallest", action="store_true")
    parser.add_argument("--output", type=Path, metavar="FILE")
    asked = parser.parse_args()
    device = choose_device(asked.device)
    size = SMALLEST if asked.smallest else WHOLE
    with tempfile.TemporaryDirectory() as folder:
        text = measured(size, device, folder)
    if asked.output:
        write_text_atomically(asked.output, text)


def measured(size: Size, device: str, folder: str) -> str:
    """Measure everything, print each table when it is there, and return all. folder: for data."""
    data = of_pictures(size.images, ImageOptions(device=device, folder=folder))
    made = provenance(device, 0)
    parts = [f"{made['device']}; torch {torch.__version__}; code {made['code_revision']}"]
    for head, rows in (
        ("a step on 32 images | eager (ms) | captured (ms)", partial(steps, data, size, device)),
        ("networks at once, Tent | a step of each (ms)", partial(sweeps, data, size, device)),
        ("objective | images per second", partial(epochs, data, size)),
        ("E and A, 15 domains of 10,000 | minutes", partial(column, data, size, device)),
    ):
        parts.append(table(head, rows()))
        print(parts[-1], flush=True)
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
