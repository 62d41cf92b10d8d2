"""Peak memory of a stream and of a report, beside the data that they hold.

`./run_all.sh python benchmarks/memory.py stream` (or `report`) prints one line; speed.py asks for
both. The peak is that of the process, less what it had before the work began.
"""

import argparse
import resource
import subprocess
import sys
import tempfile

import numpy as np
import psutil
import torch
from torch import nn

from cascadetta_lib import METHODS, evaluate
from cascadetta_lib.data.base import Split
from cascadetta_lib.data.corruptions import CORRUPTIONS
from cascadetta_lib.data.images import Archive, ImageOptions, make_image_dataset
from cascadetta_lib.data.streams import Domain
from study.exhibits import EXHIBITS, show_all
from study.exhibits.kit.stored_runs import Runs
from study.settings import Settings, load_profile
from study.store import Store
from tests.made_up_runs import Numbers, keep, made_up_runs, points_of

IMAGES = 10_000
"""Images of a domain, as in CIFAR-10-C."""


def growth(before: int) -> float:
    """By how many bytes the peak of this process is above `before`."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def now() -> int:
    """The bytes that this process has."""
    held: int = psutil.Process().memory_info().rss
    return held


def random_split(count: int, seed: int) -> Split:
    """Random pixels, uint8 (count, 3, 32, 32), and labels of ten classes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return Split(x, torch.arange(count) % 10)


def stream() -> None:
    """A stream of 15 domains of 10,000 images in batches of 32, by Tent on a network so small that
    its activations do not count.
    """

    def read(name: str, severity: int, count: int | None) -> Split:
        return random_split(IMAGES, severity)

    dataset = make_image_dataset(
        name="random pixels",
        source="drawn",
        compare_with=None,
        class_names=tuple("abcdefghij"),
        train=random_split(200, 0),
        test=random_split(200, 1),
        options=ImageOptions(),
        archive=Archive(read, "made up", recognised=False),
    )
    network = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.BatchNorm1d(48), nn.Linear(48, 10))
    tent = METHODS["tent"](network)
    tent(dataset.prepare(dataset.test.x[:32]))  # warm up
    held = len(CORRUPTIONS) * IMAGES * dataset.test.x[0].nbytes
    domains = [Domain(name, 5) for name in CORRUPTIONS]
    before = now()
    found = evaluate(tent, dataset, domains, 32, transfer=False)
    tell(f"stream of {len(found.batches):,} batches", growth(before), held)


def report(seeds: int) -> None:
    """Every exhibit on images of the profile `quick`, from made-up runs of 1,005 batches each."""
    with tempfile.TemporaryDirectory() as folder:
        # By another process, so that this one has not had the runs' memory before.
        subprocess.run(
            [sys.executable, __file__, "fill", "--folder", folder, "--seeds", str(seeds)],
            check=True,
        )
        settings = settings_in(folder, seeds)
        before = now()
        show_all(settings)
        peak = growth(before)
        runs = Runs.of_settings(settings).stored
    tables = [table for run in runs for table in (run.batches, run.accuracies)]
    held = sum(int(table.memory_usage(deep=True).sum()) for table in tables)
    tell(f"report of {len(runs):,} runs", peak, held)


def settings_in(folder: str, seeds: int) -> Settings:
    """The profile `quick` at so many seeds, with its results in `folder`."""
    return load_profile("quick", {"results_folder": folder, "seeds": list(range(seeds))})


def fill(settings: Settings) -> None:
    """Store every run that the exhibits on images ask for."""
    names = [name for name in EXHIBITS if EXHIBITS[name].modality == "image"]
    shown = Numbers(errors=np.arange(67) % 10)
    store = Store(settings.results_path)
    for name in names:
        points = points_of(settings, [name])
        for run in made_up_runs(settings, lambda *_: shown, points, settings.seeds):
            keep(store, run)


def tell(what: str, peak: float, held: int) -> None:
    """Print one line."""
    print(f"{what}: peak {peak / 1e6:,.0f} MB, {peak / held:.2f} of the {held / 1e6:,.0f} MB held")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["stream", "report", "fill"])
    parser.add_argument("--folder", help="the results folder to fill with made-up runs")
    parser.add_argument("--seeds", type=int, default=8, help="of the report's runs")
    asked = parser.parse_args()
    if asked.what == "stream":
        stream()
    elif asked.what == "fill":
        fill(settings_in(asked.folder, asked.seeds))
    else:
        report(asked.seeds)


if __name__ == "__main__":
    main()
