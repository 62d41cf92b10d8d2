"""How the cost of an evaluation grows with batches, domains, methods and seeds: a small figure.

`./run_all.sh python benchmarks/growth.py docs/cost-growth.png` measures seconds of CPU of E, A and
F with Tent on a small network, and draws them as multiples of the smallest case, with which all
lines begin.
"""

import itertools
import math
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from benchmarks.speed import of_pictures, pictures
from cascadetta_lib import METHODS, evaluate
from cascadetta_lib.data.base import Split
from cascadetta_lib.data.corruptions import CORRUPTIONS
from cascadetta_lib.data.images import Archive, ImageDataset, ImageOptions
from cascadetta_lib.data.streams import Domain
from cascadetta_lib.files import write_atomically
from cascadetta_lib.models import ImageNetwork, build_network

BATCH = 32
FACTORS = (1, 2, 4)
ROUNDS = 5
"""Each case is measured so often, and the least counts."""
SMALLEST = {"batches of a domain": 2, "domains": 2, "methods": 1, "seeds": 1}
"""The smallest case; each number in turn is multiplied by the factors."""


def made_of(images: int) -> ImageDataset:
    """Pictures, of which every domain has `images`."""
    split = Split(pictures(images), torch.arange(images) % 10)
    archive = Archive(lambda name, severity, count: split, "made up", recognised=False)
    return of_pictures(images, ImageOptions(), archive)


def seconds(case: dict[str, int]) -> float:
    """Seconds of CPU of a case."""
    dataset = made_of(BATCH * case["batches of a domain"])
    stream = [Domain(name, 5) for name in CORRUPTIONS] * 2
    began = time.process_time()
    for seed in range(case["seeds"]):
        for _ in range(case["methods"]):
            network = build_network(ImageNetwork(depth=8, width=8), classes=10, seed=seed)
            tent = METHODS["tent"](network)
            evaluate(tent, dataset, stream[: case["domains"]], BATCH, seed=seed)
    return time.process_time() - began


def main(path: Path) -> None:
    """Measure, print and draw."""
    seconds(SMALLEST)  # warm up
    base = math.inf
    least = dict.fromkeys(itertools.product(SMALLEST, FACTORS[1:]), math.inf)
    for _ in range(ROUNDS):
        base = min(base, seconds(SMALLEST))
        for name, factor in least:
            taken = seconds(SMALLEST | {name: SMALLEST[name] * factor})
            least[name, factor] = min(taken, least[name, factor])
    figure, axes = plt.subplots(figsize=(4.2, 3.2), layout="constrained")
    for name, marker in zip(SMALLEST, "os^v", strict=True):
        ratios = [1.0, *(least[name, factor] / base for factor in FACTORS[1:])]
        print(name, " ".join(f"{ratio:.2f}" for ratio in ratios), flush=True)
        axes.plot(FACTORS, ratios, marker=marker, label=name)
    axes.plot(FACTORS, FACTORS, color="grey", linestyle=":", label="proportional")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(FACTORS, [f"{factor}×" for factor in FACTORS])
    axes.set_yticks(FACTORS, [f"{factor}×" for factor in FACTORS])
    axes.set(xlabel="number, over that of the smallest case", ylabel="CPU time of E, A and F")
    axes.legend(frameon=False)
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=110))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
