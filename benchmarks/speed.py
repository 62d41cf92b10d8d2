"""What each method costs beside the bare passes that it names, what pre-training costs, and the
CIFAR-10 column.

`./run_all.sh python benchmarks/speed.py` on an otherwise idle machine: a GPU where there is one,
else one CPU thread. Every line was measured in this run, but the column's time, which is computed
from the others.
`--only training --before CHECKOUT` times another build's steps of pre-training in turn with ours.
`--only waits` prints what a user waits for, each beside its target: commands, the first table of a
notebook, `quick`, all tests, two corruptions and peak memory.
`--smallest --only training` tries the steps of pre-training on a network and on data so small that
the times say nothing.
"""

import argparse
import copy
import gc
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import waits
from cascadetta_lib.augment.image import augmix, cotta_copies
from cascadetta_lib.data.base import Split
from cascadetta_lib.data.corruptions import CORRUPTIONS, corrupt
from cascadetta_lib.data.images import Archive, ImageDataset, ImageOptions, make_image_dataset
from cascadetta_lib.losses import entropy
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.models import ImageNetwork, Parallel, TextNetwork, build_network
from cascadetta_lib.training.meta import MetaProblem, inner_parameter_names, meta_gradient
from cascadetta_lib.training.objectives import OBJECTIVES, Half
from cascadetta_lib.training.pretrain import pretrain
from cascadetta_lib.training.settings import Training
from study.provenance import choose_device, provenance
from study.settings import load_profile

HERE = Path(__file__).resolve().parent
NETWORK = ImageNetwork(block="pre_activation")

BATCH = 32
BATCHES = 2
PASSES = {
    "erm": (1, 0),
    "adabn": (1, 0),
    "lame": (1, 0),
    "tema": (1, 0),
    "source_prior": (1, 0),
    "ttt": (1, 1),
    "sar": (1, 2),
    "deyo": (2, 1),
    "roid": (1, 2),
    "cotta": (35, 1),
}
"""Passes through a network that an image takes in a step: forwards alone, and forwards with their
backwards. (1, 1) for all others: the update, and the prediction after it. SAR's and ROID's updates
have two (by the moved weights; on the copy), DeYO predicts its shuffled images, and CoTTA 32 copies
by the teacher and the batch itself by the teacher, the anchor and, after the update, the teacher
again. RoTTA's are counted: its teacher's two, and after every second batch one of each for what its
memory has, which is at most 64."""


def fastest(*functions: Callable[[], object], device: str, repeats: int = 3) -> list[float]:
    """Seconds of each function, the fewest of `repeats` after one that warms up: what the code
    costs, not what else the machine does. The functions take turns, so that they meet the same
    machine."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats + 1):
        for function, taken in zip(functions, times, strict=True):
            started = time.perf_counter()
            function()
            if device == "cuda":
                torch.cuda.synchronize()
            taken.append(time.perf_counter() - started)
    return [min(taken[1:]) for taken in times]


def pictures(count: int) -> Tensor:
    """Smooth random pictures, uint8 (count, 3, 32, 32)."""
    coarse = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return (255 * torch.nn.functional.interpolate(coarse, (32, 32), mode="bilinear")).to(
        torch.uint8
    )


def of_pictures(count: int, options: ImageOptions, archive: Archive | None = None) -> ImageDataset:
    """A dataset of so many pictures, which are trained on and tested on."""
    split = Split(pictures(count), torch.arange(count) % 10)
    return make_image_dataset(
        name="pictures",
        source="drawn",
        compare_with=None,
        class_names=tuple(str(label) for label in range(10)),
        train=split,
        test=split,
        options=options,
        archive=archive,
    )


def prepared(count: int, device: str) -> Tensor:
    """The pictures as a network's input."""
    return (pictures(count).to(device).float() / 127.5 - 1).contiguous(
        memory_format=torch.channels_last
    )


def training(device: str) -> dict[str, float]:
    """Source images a second of each objective in float32, augmentation and held-out evaluation
    included; both precisions are printed."""
    found = {}
    dataset = of_pictures(900, ImageOptions(device=device, held_out_fraction=1 / 9))
    for objective in OBJECTIVES:
        rates = {}
        for precision in ("float32", "bfloat16"):
            how = Training(epochs=2, training_batch_size=200, precision=precision)
            rates[precision] = (
                800 / pretrain(dataset, NETWORK, objective, how, seed=0)[1]["seconds"].min()
            )
        print(
            f"{objective}: {rates['float32']:.0f} images/s in float32, {rates['bfloat16']:.0f} "
            "asked for bfloat16"
        )
        found[objective] = rates["float32"]
    return found


class Build:
    """A process that times steps of the training (training_steps.py) by the package in a checkout.
    It is there until `end`. steps: their names."""

    def __init__(self, checkout: Path, arguments: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "training_steps.py"), *arguments],
            env=os.environ | {"PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.steps: list[str] = self._answer()

    def seconds(self, step: str) -> float:
        """What the step takes once."""
        assert self.process.stdin is not None
        print(step, file=self.process.stdin, flush=True)
        taken: float = self._answer()
        return taken

    def end(self) -> None:
        """End the process."""
        self.process.communicate()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


def training_steps(arguments: list[str], before: Path | None) -> None:
    """The meta-gradient on 100 + 100 images and an epoch of two objectives, the least of five after
    one that warms up. With `before`, a checkout, its build takes turns with this one, and this
    one's time is told as a multiple of that, also of the difference of gradients that builds until
    6abf18a have beside the exact meta-gradient.

    arguments: those of training_steps.py.
    """
    builds = {"now": Build(HERE.parent, arguments)}
    if before is not None:
        builds["before"] = Build(before, arguments)
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(6):
        for name, build in builds.items():
            for step in build.steps:
                times[name, step].append(build.seconds(step))
    for build in builds.values():
        build.end()
    least = {key: min(taken[1:]) for key, taken in times.items()}
    for step in builds["now"].steps:
        own = least["now", step]
        line = f"{step}: {own:.2f} s"
        if ("before", step) in least:
            found = least["before", step]
            line += f", {own / found:.2f} of {found:.2f} s before"
        difference = step.replace("exact", "difference")
        if difference != step and ("before", difference) in least:
            found = least["before", difference]
            line += f", {own / found:.2f} of the {found:.2f} s of its difference"
        print(line, flush=True)


def text_meta_step(device: str) -> None:
    """The exact meta-gradient of the text network on 16 + 16 reviews. Its gradients are so large
    that it shows what run_all.sh asks of glibc; `PYTHONPATH=. .venv/bin/python benchmarks/speed.py`
    is without."""
    model = build_network(TextNetwork(), classes=2, inputs=10_000, seed=0).to(device).train()
    x = torch.rand(32, 10_000, device=device)
    y = torch.arange(32, device=device) % 2
    moved = inner_parameter_names(model, "all")
    problem = MetaProblem(Half(x[:16], y[:16]), Half(x[16:], y[16:]), moved, 0.001, "paper", 0.1)
    taken = fastest(partial(meta_gradient, model, problem), device=device)[0]
    print(
        f"meta step of text: {taken:.3f} s, MALLOC_MMAP_MAX_ is "
        f"{os.environ.get('MALLOC_MMAP_MAX_')}"
    )


def held_bytes() -> int:
    """The bytes of all tensors that are alive."""
    gc.collect()
    tensors = [
        found for found in gc.get_objects() if issubclass(type(found), Tensor) and not found.is_meta
    ]
    return sum(
        {
            (found.device, found.data_ptr()): found.untyped_storage().nbytes() for found in tensors
        }.values()
    )


def count_passes(method: Method, batches: list[Tensor]) -> tuple[float, float]:
    """How many forward passes alone, and forward passes with a backward one, an image takes in a
    step.
    """
    forward = [0]
    backward = [0]

    def count(head: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> None:
        forward[0] += len(z)
        if z.requires_grad:
            z.register_hook(lambda gradient: backward.__setitem__(0, backward[0] + len(gradient)))

    heads = ["main_classifier"] + ["auxiliary_classifier"] * isinstance(method.model, Parallel)
    hooks = [
        head.register_forward_hook(count)
        for name, head in method.named_modules()
        if name.split(".")[-1] in heads
    ]
    for x in batches:
        method(x)
    for hook in hooks:
        hook.remove()
    images = sum(map(len, batches))
    return (forward[0] - backward[0]) / images, backward[0] / images


def bare_steps(
    method: Method, passes: tuple[float, float], batches: list[Tensor]
) -> Callable[[], None]:
    """So many passes, and the optimiser's step where there is one, on networks like the method's,
    and nothing else.
    """
    alone = copy.deepcopy(getattr(method, "teacher", method.model))
    trained = copy.deepcopy(method.model)
    logits = trained.rotation_logits if isinstance(trained, Parallel) else lambda x: trained(x).main
    adapted = [parameter for parameter in trained.parameters() if parameter.requires_grad]
    optimizer = method.make_optimizer(adapted, lr=method.learning_rate) if method.adapts else None
    # Each pass takes a whole batch, but that RoTTA's memory may have less.
    sizes = [
        [BATCH] * int(count) + [round(count % 1 * BATCH)] * bool(count % 1) for count in passes
    ]

    def steps() -> None:
        for x in batches:
            with torch.no_grad():
                for size in sizes[0]:
                    alone(x[:size])
            for size in sizes[1]:
                entropy(logits(x[:size])).mean().backward()
            if optimizer is not None:
                optimizer.step()
                optimizer.zero_grad()

    return steps


def cost(name: str, device: str) -> tuple[float, float]:
    """A method on batches of 32: seconds an image that adapts, and that is only predicted."""
    batches = list(prepared(BATCH * BATCHES, device).split(BATCH))
    kind = METHODS[name]
    objective = OBJECTIVES[kind.objective]
    heads = {"parallel": objective.parallel, "auxiliary": objective.auxiliary}
    model = build_network(NETWORK, classes=10, seed=0, **heads).to(device)  # type: ignore[arg-type]
    without = held_bytes()
    method = kind(model, source=prepared(100, device) if kind.needs_source else None)
    passes = count_passes(method, batches)
    held = held_bytes() - without
    assert name == "rotta" or passes == PASSES.get(name, (1, 1)), f"{name} takes {passes}"
    ours, bare, predicted = fastest(
        lambda: [method(x) for x in batches],
        bare_steps(method, passes, batches),
        lambda: [method.predict(x) for x in batches],
        device=device,
    )
    took = f"{1000 * ours / BATCH / BATCHES:.2f} ms an image, {ours / bare:.2f} of its bare passes"
    counts = f"{sum(passes):.3g} forward, {passes[1]:.3g} backward"
    print(f"{kind.label}: {took} ({counts}); {held / 1e6:.1f} MB beside the network", flush=True)
    return ours / BATCH / BATCHES, predicted / BATCH / BATCHES


def augmentations(device: str, cotta: float) -> None:
    """AugMix, CoTTA's copies beside its step (`cotta`: seconds an image), and the fifteen
    corruptions.
    """
    generator = torch.Generator().manual_seed(0)
    x = pictures(1000).to(device)
    (taken,) = fastest(lambda: augmix(x, generator, severity=-1), device=device)
    print(f"AugMix: {1000 / taken:,.0f} images/s in batches")
    inputs = prepared(BATCH, device)
    (taken,) = fastest(
        lambda: list(cotta_copies(inputs, 32, generator, (-1.0, 1.0))), device=device
    )
    print(
        f"CoTTA's 32 copies of 32 images: {1000 * taken:.0f} ms, {taken / cotta / BATCH:.1%} of "
        "its step"
    )
    (taken,) = fastest(
        lambda: [corrupt(x, name, 5, seed=0) for name in CORRUPTIONS], device=device, repeats=1
    )
    print(f"15 corruptions at severity 5 of 1,000 images: {taken:.1f} s")


def column(trained: dict[str, float], adapted: dict[str, tuple[float, float]]) -> None:
    """The time of the CIFAR-10 column of the profile `paper`, one seed, all of it in float32: 75
    epochs of 45,000 images for each objective, and E, A and F of each method on 15 domains of
    10,000 images."""
    names = load_profile("paper").image.methods
    objectives = {METHODS[name].objective for name in names}
    minutes = {
        f"pre-training {objective}": 75 * 45_000 / trained[objective] / 60
        for objective in objectives
    }
    for name in names:
        # E; A, on all at the end; F, after each domain but the last, and by networks adapted to one
        # domain and to none. What is never updated predicts a domain once.
        adapting, predicting = (15 + 14, 14 + 15 + 2 * 14) if METHODS[name].adapts else (15, 0)
        step, prediction = adapted[name]
        minutes[name] = 10_000 * (adapting * step + predicting * prediction) / 60
    longest = sorted(minutes, key=lambda name: -minutes[name])[:4]
    print(
        f"CIFAR-10 column, computed from these: {sum(minutes.values()):,.0f} minutes, of which "
        + ", ".join(f"{name} {minutes[name]:,.0f}" for name in longest)
    )


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument(
        "--only",
        choices=["training", "waits"],
        help="the steps of pre-training alone, or what a user waits for",
    )
    parser.add_argument(
        "--smallest", action="store_true", help="with --only training: a trial, for the tests"
    )
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="time its steps of pre-training as well"
    )
    asked = parser.parse_args()
    if asked.smallest and asked.only != "training":
        parser.error("--smallest goes with --only training")
    device = choose_device(asked.device)
    made = provenance(device, 0)
    print(f"{made['device']}; torch {torch.__version__}; code {made['code_revision']}", flush=True)
    if asked.only == "waits":
        print_waits()
        return
    if asked.smallest:
        training_steps([device, "--smallest"], asked.before)
        return
    training_steps([device], asked.before)
    text_meta_step(device)
    if asked.only == "training":
        return
    adapted = {name: cost(name, device) for name in METHODS}
    augmentations(device, adapted["cotta"][0])
    column(training(device), adapted)
    print_waits()


def print_waits() -> None:
    """Print what a user waits for beside its target."""
    for line in waits.rows():
        print(line, flush=True)


if __name__ == "__main__":
    main()
