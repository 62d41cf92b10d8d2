"""What a step and an epoch of pre-training on images cost, by whichever build of the package is on
the path, so that `benchmarks/speed.py --before CHECKOUT` can time two builds in turn.

It prints the names of what it times, one JSON line. For each name that it then reads from standard
input it prints the seconds that this took: of CPU time, on a GPU of the clock. On a CPU it has one
thread. With `--smallest` the network and the batches are so small that the times say nothing.
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import cascadetta_lib
from cascadetta_lib.data.base import Split
from cascadetta_lib.data.images import ImageOptions, make_image_dataset
from cascadetta_lib.models import ImageNetwork, build_network


@dataclass(frozen=True)
class Size:
    """How much is timed. batch: images of a step; an epoch has four batches."""

    network: ImageNetwork
    batch: int


WHOLE = Size(ImageNetwork(block="pre_activation"), 200)
SMALLEST = Size(ImageNetwork(block="pre_activation", depth=8, width=2), 16)

READINGS = {"release": "batchnorm_and_classifier", "paper": "all"}
"""The outer loss of each reading of Algorithm 1, and what its inner step moves."""


def module_of_training(name: str) -> ModuleType:
    """The module meta, objectives or pretrain, which older builds have one level up.

    The folder is looked at, because an editable installation of another build would find
    `cascadetta_lib.training` there.
    """
    package = Path(str(cascadetta_lib.__file__)).parent
    part = "training." if (package / "training").is_dir() else ""
    return importlib.import_module(f"cascadetta_lib.{part}{name}")


def pictures(count: int) -> Tensor:
    """Smooth random pictures, uint8 (count, 3, 32, 32)."""
    coarse = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    fine = torch.nn.functional.interpolate(coarse, (32, 32), mode="bilinear")
    return (255 * fine).to(torch.uint8)


def meta_gradients(device: str, size: Size = WHOLE) -> dict[str, Callable[[], object]]:
    """The meta-gradient of ResNet-26 on 100 + 100 images, in each reading and each way there is."""
    meta = module_of_training("meta")
    objectives = module_of_training("objectives")
    model = build_network(size.network, classes=10, seed=0).to(device).train()
    x = (pictures(size.batch).to(device).float() / 127.5 - 1).to(memory_format=torch.channels_last)
    y = torch.arange(size.batch, device=device) % 10
    middle = size.batch // 2
    halves = [objectives.Half(x[part], y[part]) for part in (slice(middle), slice(middle, None))]
    found: dict[str, Callable[[], object]] = {}
    for reading, which in READINGS.items():
        names = meta.inner_parameter_names(model, which)
        problem = meta.MetaProblem(*halves, names, 0.01, reading, 0.1)
        for way in ("exact", "difference"):
            function = getattr(meta, f"{way}_meta_gradient", None)
            if way == "exact" and function is None:  # since there is no other way
                function = meta.meta_gradient
            if function is not None:
                found[f"{way} meta-gradient, {reading}'s"] = partial(function, model, problem)
    return found


def epochs(device: str, size: Size = WHOLE) -> dict[str, Callable[[], object]]:
    """An epoch of 800 images in batches of 200, augmentation and held-out evaluation included."""
    pretrain = module_of_training("pretrain")
    objectives = module_of_training("objectives")
    count = 9 * size.batch // 2  # A ninth is held out, so four batches are left.
    split = Split(pictures(count), torch.arange(count) % 10)
    dataset = make_image_dataset(
        name="pictures",
        source="drawn",
        compare_with=None,
        class_names=tuple(map(str, range(10))),
        train=split,
        test=split,
        options=ImageOptions(device=device, held_out_fraction=1 / 9),
    )
    how: Any = objectives.Training(epochs=1, training_batch_size=size.batch)
    return {
        f"epoch of {objective}": partial(
            pretrain.pretrain, dataset, size.network, objective, how, seed=0
        )
        for objective in ("erm", "meta")
    }


def main() -> None:
    """Time what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device", choices=["cpu", "cuda"])
    parser.add_argument("--smallest", action="store_true")
    asked = parser.parse_args()
    device = asked.device
    size = SMALLEST if asked.smallest else WHOLE
    torch.set_num_threads(1)
    timed = meta_gradients(device, size) | epochs(device, size)
    clock = time.process_time if device == "cpu" else time.perf_counter
    print(json.dumps(list(timed)), flush=True)
    for line in sys.stdin:
        started = clock()
        timed[line.strip()]()
        if device != "cpu":
            torch.cuda.synchronize()
        print(json.dumps(clock() - started), flush=True)


if __name__ == "__main__":
    main()
