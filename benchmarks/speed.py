"""Ratios and seconds, each measured in this run: `python benchmarks/speed.py`. Run it on an otherwise idle machine.

`--profile quick` also runs that profile from nothing and again, and prints seconds and the largest process's memory.
"""

import argparse
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torchvision
from torch import Tensor

from cascadetta_lib.augment.audio import augment_waveforms
from cascadetta_lib.augment.image import augmix
from cascadetta_lib.augment.text import DictionarySynonyms, eda, words
from cascadetta_lib.data.corruptions import CORRUPTIONS, corrupt
from cascadetta_lib.data.reviews import compose, synonym_dictionary
from cascadetta_lib.data.speech import SAMPLES, log_mel
from cascadetta_lib.methods import METHODS
from cascadetta_lib.models import ResNetConfig
from cascadetta_lib.pretrain import (
    META_GRADIENTS,
    Half,
    MetaProblem,
    batch_statistics,
    build_model,
    entropy,
    inner_parameter_names,
)
from cascadetta_lib.study import choose_device, code_revision, device_name

ROOT = Path(__file__).resolve().parents[1]


def seconds(function: Callable[[], object], device: str, repeats: int = 5) -> float:
    """The fastest of `repeats` calls after one that warms up: what the code costs, not what else the machine does."""
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        function()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def pictures(count: int) -> Tensor:
    """Smooth random pictures, uint8 (count, 3, 32, 32)."""
    coarse = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return (255 * torch.nn.functional.interpolate(coarse, (32, 32), mode="bilinear")).to(torch.uint8)


def prepared(count: int, device: str) -> Tensor:
    return (pictures(count).to(device).float() / 127.5 - 1).contiguous(memory_format=torch.channels_last)


def meta_step(device: str) -> str:
    model = build_model(ResNetConfig(), "meta", seed=0).to(device).train()
    x, y = prepared(200, device), torch.arange(200, device=device) % 10
    halves = Half(x[:100], y[:100], None), Half(x[100:], y[100:], None)
    lines = []
    for which, outer in (("all", "paper"), ("batchnorm_and_classifier", "release")):
        names = inner_parameter_names(model, which)
        problem = MetaProblem(*halves, names, 0.01, outer, 0.1)  # type: ignore[arg-type]
        gradients = {route: META_GRADIENTS[route](model, problem)[1] for route in META_GRADIENTS}
        exact, fast = (torch.cat([g.flatten() for g in gradients[route].values()]) for route in ("exact", "difference"))
        times = {route: seconds(lambda r=route, p=problem: META_GRADIENTS[r](model, p), device) for route in gradients}  # type: ignore[misc]
        ratio = times["exact"] / times["difference"]
        lines.append(
            f"meta step, ResNet-26, 100+100 images, inner step on {which}, outer loss of the {outer}: exact "
            f"{times['exact']:.2f} s, difference {times['difference']:.2f} s, ratio {ratio:.2f} "
            f"(relative error {((fast - exact).norm() / exact.norm()).item():.0e})"
        )
    return "\n".join(lines)


def augmix_rate(device: str) -> str:
    x, one_by_one = pictures(1000).to(device), torchvision.transforms.AugMix()
    generator = torch.Generator().manual_seed(0)
    ours = 1000 / seconds(lambda: augmix(x, generator), device)
    theirs = 200 / seconds(lambda: [one_by_one(image) for image in x[:200].cpu()], device, repeats=2)
    return (
        f"AugMix: {ours:,.0f} images/s in batches, torchvision image by image {theirs:,.0f}, ratio {ours / theirs:.1f}"
    )


def corruption_seconds(device: str) -> str:
    x = pictures(10_000).to(device)
    started = time.perf_counter()
    for name in CORRUPTIONS:
        corrupt(x, name, 5, seed=0)
    return f"15 corruptions at severity 5 of 10,000 images: {time.perf_counter() - started:.1f} s"


def speech_seconds(device: str) -> str:
    x = 0.1 * torch.randn(100, SAMPLES, generator=torch.Generator().manual_seed(0)).to(device)
    generator = torch.Generator().manual_seed(0)
    augmented = 1000 * seconds(lambda: augment_waveforms(x, generator), device)
    pictures = 1000 * seconds(lambda: log_mel(x), device)
    return f"100 utterances: gain, high-pass and impulse response {augmented:.0f} ms, log-mel {pictures:.0f} ms"


def eda_seconds(device: str) -> str:
    texts = compose("books", 2000, torch.Generator().manual_seed(0), shift=0.5).texts
    generator, synonyms = torch.Generator().manual_seed(0), DictionarySynonyms(synonym_dictionary(), "a dictionary")
    taken = seconds(lambda: [eda(words(text), 0.05, generator, synonyms) for text in texts], device)
    return f"EDA of 2,000 composed reviews, on the CPU: {taken:.2f} s"


def tent_overhead(device: str) -> str:
    batches = prepared(640, device).split(32)
    method = METHODS["tent"](build_model(ResNetConfig(), "meta", seed=0).to(device), predict="before")
    bare_model = build_model(ResNetConfig(), "meta", seed=0).to(device).eval().requires_grad_(False)
    optimizer = torch.optim.SGD(
        [
            p.requires_grad_(True)
            for m in bare_model.modules()
            if isinstance(m, torch.nn.BatchNorm2d)
            for p in m.parameters()
        ],
        1e-3,
        momentum=0.9,
        nesterov=True,
    )

    def bare() -> None:
        with batch_statistics(bare_model):
            for x in batches:
                loss = entropy(bare_model(x).main).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

    ours = seconds(lambda: [method(x) for x in batches], device)
    loop = seconds(bare, device)
    return f"Tent on 20 batches of 32: {ours:.2f} s, bare loop {loop:.2f} s, ratio {ours / loop:.2f}"


def profile_seconds(profile: str) -> str:
    """Run a profile from nothing and again, in a results folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "workflow" / "run.py"), "--profile", profile]
        command += [
            "--set",
            f"results_folder={folder}",
            f"figures_folder={folder}/figures",
            f"data_folder={folder}/data",
        ]
        times = []
        for _ in range(2):
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            times.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return f"profile {profile}: {times[0]:.0f} s from nothing, {times[1]:.0f} s again; largest process {peak:.2f} GB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", help="also run this profile, twice")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    print(
        f"{device_name(device)}; torch {torch.__version__}; Python {platform.python_version()}; code {code_revision()}"
    )
    for benchmark in (meta_step, augmix_rate, corruption_seconds, speech_seconds, eda_seconds, tent_overhead):
        print(benchmark(device), flush=True)
    if arguments.profile:
        print(profile_seconds(arguments.profile), flush=True)


if __name__ == "__main__":
    main()
