"""Where the time of an epoch of pre-training on images goes, by stage and by kind of operation.

`./run_all.sh python benchmarks/training_profile.py` prints a table per objective (`erm`, `meta`).
One CPU thread, float32, 800 images in batches of 200. Shares are of the seconds of the epoch, which
are printed too. The stages come from cProfile and the operations from torch.profiler, in two runs.
`--smallest` tries it on a network and on data so small that its shares say nothing.
"""

import argparse
import cProfile
import pstats
import time
from collections import defaultdict
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.training_steps import SMALLEST, WHOLE, epochs

STAGES = {
    "augmented_batch": "crops, flips and AugMix",
    "set_gradients": "loss and gradients",
    "step": "optimizer",
    "held_out_accuracy": "held-out accuracy",
}
"""What is said of a function of training/pretrain.py, or of torch.optim."""

OPERATIONS = {
    "convolutions": ("convolution",),
    "BatchNorm": ("batch_norm",),
    "ReLU": ("relu", "threshold", "clamp"),
    "additions, products and sums": ("add", "mul", "sum", "sub", "div", "lerp"),
    "copies and changes of layout": ("copy", "clone", "contiguous", "cat", "fill", "zero"),
}
"""Kinds of operations, by what the names of PyTorch's operations contain. Of two kinds that fit,
the first counts."""


def by_stage(epoch: Callable[[], object]) -> dict[str, float]:
    """Return the share of an epoch's time by stage, in percent."""
    profiler = cProfile.Profile(time.process_time)
    profiler.runcall(epoch)
    stats = pstats.Stats(profiler)
    whole: float = stats.total_tt  # type: ignore[attr-defined]
    shares: dict[str, float] = defaultdict(float)
    for (file, _, function), row in stats.stats.items():  # type: ignore[attr-defined]
        ours = file.endswith("pretrain.py") or (function == "step" and "/torch/optim/sgd" in file)
        if ours and function in STAGES:
            shares[STAGES[function]] += 100 * row[3] / whole
    shares["all else"] = 100 - sum(shares.values())
    return shares


def kind_of(operation: str) -> str:
    """Return the kind of an operation of PyTorch, such as `aten::native_batch_norm`."""
    for kind, parts in OPERATIONS.items():
        if any(part in operation for part in parts):
            return kind
    return "all else"


def by_operation(epoch: Callable[[], object]) -> dict[str, float]:
    """Return the share of PyTorch's time by kind of operation, in percent."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        epoch()
    shares: dict[str, float] = defaultdict(float)
    for row in profiler.key_averages():
        shares[kind_of(row.key)] += row.self_cpu_time_total
    whole = sum(shares.values())
    return {kind: 100 * share / whole for kind, share in shares.items()}


def print_shares(title: str, shares: dict[str, float]) -> None:
    """Print shares, the largest first."""
    print(title)
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        print(f"  {share:5.1f} %  {name}")


def main() -> None:
    """Print the profiles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true")
    size = SMALLEST if parser.parse_args().smallest else WHOLE
    torch.set_num_threads(1)
    for name, epoch in epochs("cpu", size).items():
        epoch()  # warms up
        began = time.process_time()
        epoch()
        print(f"{name}: {time.process_time() - began:.1f} s of CPU")
        print_shares(" by stage", by_stage(epoch))
        print_shares(" by operation", by_operation(epoch))


if __name__ == "__main__":
    main()
