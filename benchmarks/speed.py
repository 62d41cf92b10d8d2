"""Images a second of every pre-training in both precisions, and what a step costs beside the bare steps that it names.

`./run_all.sh python benchmarks/speed.py` on an otherwise idle machine. Every line was measured in this run.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cascadetta_lib.augment.image import augmix, cotta_copies
from cascadetta_lib.data.base import Split
from cascadetta_lib.data.corruptions import CORRUPTIONS, corrupt
from cascadetta_lib.data.images import ImageOptions, make_image_dataset
from cascadetta_lib.losses import entropy
from cascadetta_lib.meta import META_GRADIENTS, MetaProblem, batch_statistics, inner_parameter_names
from cascadetta_lib.methods import METHODS
from cascadetta_lib.models import ImageNetwork, batch_norm_parameters, build_network
from cascadetta_lib.objectives import OBJECTIVES, Half, Training
from cascadetta_lib.pretrain import pretrain
from cascadetta_lib.provenance import choose_device, provenance
from workflow.estimate import UPDATE

NETWORK = ImageNetwork(block="pre_activation")


def seconds(function: Callable[[], object], device: str, repeats: int = 3) -> float:
    """The fastest of `repeats` calls after one that warms up: what the code costs, not what else the machine does."""
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        function()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def pictures(count: int) -> Tensor:
    """Smooth random pictures, uint8 (count, 3, 32, 32)."""
    coarse = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return (255 * torch.nn.functional.interpolate(coarse, (32, 32), mode="bilinear")).to(torch.uint8)


def prepared(count: int, device: str) -> Tensor:
    """The pictures as a network's input."""
    return (pictures(count).to(device).float() / 127.5 - 1).contiguous(memory_format=torch.channels_last)


def training(device: str) -> None:
    """Source images a second, augmentation and held-out evaluation of 100 images included."""
    split = Split(pictures(900), torch.arange(900) % 10)
    names = tuple(str(label) for label in range(10))
    options = ImageOptions(device=device, held_out_fraction=1 / 9)
    dataset = make_image_dataset(
        name="pictures", source="drawn", compare_with=None, class_names=names, train=split, test=split, options=options
    )
    for objective in OBJECTIVES:
        rates = {}
        for precision in ("float32", "bfloat16"):
            how = Training(epochs=2, training_batch_size=200, precision=precision)
            rates[precision] = 800 / pretrain(dataset, NETWORK, objective, how, seed=0)[1]["seconds"].min()
        print(f"{objective}: {rates['float32']:.0f} images/s in float32, {rates['bfloat16']:.0f} asked for bfloat16")


def meta_step(device: str) -> None:
    """The meta-gradient by both routes, on 100 + 100 images."""
    model = build_network(NETWORK, classes=10, seed=0).to(device).train()
    x, y = prepared(200, device), torch.arange(200, device=device) % 10
    for which, outer in (("all", "paper"), ("batchnorm_and_classifier", "release")):
        problem = MetaProblem(
            meta_train=Half(x[:100], y[:100]),
            meta_test=Half(x[100:], y[100:]),
            inner_names=inner_parameter_names(model, which),
            inner_learning_rate=0.01,
            outer_loss=outer,  # type: ignore[arg-type]
            entropy_weight=0.1,
        )
        times = {name: seconds(partial(f, model, problem), device) for name, f in META_GRADIENTS.items()}
        print(
            f"meta step of ResNet-26, inner step on {which}, outer loss of the {outer}: "
            + ", ".join(f"{name} {taken:.2f} s" for name, taken in times.items())
        )


def adaptation(device: str) -> None:
    """Milliseconds an image of the methods that workflow/estimate.py has rates of, in batches of 32."""
    batch, copies = prepared(32, device), lambda x, count, generator: cotta_copies(x, count, generator, (-1.0, 1.0))
    for name in UPDATE:
        model = build_network(NETWORK, classes=10, seed=0, parallel=name == "ttt").to(device)
        more: dict[str, Any] = {"value_range": (-1.0, 1.0)} if name == "cotta" else {}
        method = METHODS[name](model, copies=copies, **more)
        print(f"{name}: {1000 * seconds(partial(method, batch), device) / 32:.1f} ms an image")


def tent_overhead(device: str) -> None:
    """Tent in our evaluator's clothes beside a bare loop."""
    batches = prepared(640, device).split(32)
    method = METHODS["tent"](build_network(NETWORK, classes=10, seed=0).to(device), predict="before")
    bare_model = build_network(NETWORK, classes=10, seed=0).to(device).eval().requires_grad_(False)
    parameters = [parameter.requires_grad_(True) for parameter in batch_norm_parameters(bare_model)]
    optimizer = torch.optim.SGD(parameters, 1e-3, momentum=0.9, nesterov=True)

    def bare() -> None:
        with batch_statistics(bare_model):
            for x in batches:
                entropy(bare_model(x).main).mean().backward()
                optimizer.step()
                optimizer.zero_grad()

    ours, loop = seconds(lambda: [method(x) for x in batches], device), seconds(bare, device)
    print(f"Tent on 20 batches of 32: {ours:.2f} s, bare loop {loop:.2f} s, ratio {ours / loop:.2f}")


def augmentations(device: str) -> None:
    """AugMix, CoTTA's copies and the fifteen corruptions."""
    generator, x = torch.Generator().manual_seed(0), pictures(1000).to(device)
    taken = seconds(lambda: augmix(x, generator, severity=-1), device)
    print(f"AugMix: {1000 / taken:,.0f} images/s in batches")
    inputs = prepared(32, device)
    taken = seconds(lambda: list(cotta_copies(inputs, 32, generator, (-1.0, 1.0))), device)
    print(f"CoTTA's 32 copies of 32 images: {1000 * taken:.0f} ms")
    taken = seconds(lambda: [corrupt(x, name, 5, seed=0) for name in CORRUPTIONS], device, repeats=1)
    print(f"15 corruptions at severity 5 of 1,000 images: {taken:.1f} s")


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    device = choose_device(parser.parse_args().device)
    made = provenance(device, 0)
    print(f"{made['device']}; torch {torch.__version__}; code {made['code_revision']}", flush=True)
    for benchmark in (meta_step, adaptation, tent_overhead, augmentations, training):
        benchmark(device)


if __name__ == "__main__":
    main()
