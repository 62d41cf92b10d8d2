"""What a user waits for, beside its target: commands, the first table of a notebook, the profile
`quick`, the tests, two corruptions, and peak memory.

`./run_all.sh python benchmarks/speed.py --only waits` prints the table, a row as it comes. Seconds
of CPU are those of the command and of all that it starts.
"""

import io
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jupyter_client
import nbformat
import numpy as np
import torch
from PIL import Image

from cascadetta_lib.data.corruptions import PARAMETERS, corrupt

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = os.environ | {"CASCADETTA_PYTHON": sys.executable}
SEVERITY = 5


def seconds_of(command: list[str], folder: Path = ROOT) -> tuple[float, float]:
    """Seconds by the clock and of CPU that a command takes, whatever it returns."""

    def used() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    before = used()
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True)
    return time.perf_counter() - began, used() - before


def command(*arguments: str) -> str:
    """The CPU time of run_all.sh with these arguments."""
    return f"{seconds_of(['bash', 'run_all.sh', *arguments])[1]:.1f} s of CPU"


def again_and_again(*arguments: str) -> str:
    """The time of run_all.sh with these arguments in a fresh clone, and once more in it."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        first = seconds_of(["bash", "run_all.sh", *arguments], clone)
        second = seconds_of(["bash", "run_all.sh", *arguments], clone)
    return f"{first[0]:.0f} s, {first[1]:.0f} s of CPU; again {second[0]:.0f} s"


def tests() -> str:
    """The time of all tests."""
    taken = seconds_of(["bash", "run_all.sh", "test"])
    return f"{taken[0]:.0f} s, {taken[1]:.0f} s of CPU"


def first_table() -> str:
    """How long a kernel takes from the beginning of 02_adapt_image to the first row of its table,
    with nothing in the store.
    """
    notebook = nbformat.read(ROOT / "notebooks" / "02_adapt_image.ipynb", as_version=4)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    shown: list[float] = []

    def look(message: dict[str, Any]) -> None:
        html = message["content"].get("data", {}).get("text/html", "")
        if "exhibits.run" in cell and "<table" in html:
            shown.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        manager, client = jupyter_client.manager.start_new_kernel(
            kernel_name="python3", cwd=str(ROOT), env=ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
        )
        try:
            for cell in [*cells[:1], f"results_folder = {folder!r}", *cells[1:]]:
                client.execute_interactive(cell, output_hook=look)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    return f"{shown[0] - began:.0f} s; all rows {shown[-1] - began:.0f} s"


def one_by_one(images: np.ndarray, name: str) -> None:
    """Corrupt images as imagecorruptions does, by Pillow, one after the other."""
    parameter = PARAMETERS[name][32][SEVERITY - 1]
    small = (int(32 * parameter),) * 2
    for pixels in images:
        image = Image.fromarray(pixels)
        if name == "pixelate":
            box = Image.Resampling.BOX
            np.asarray(image.resize(small, box).resize((32, 32), box))
        else:
            file = io.BytesIO()
            image.save(file, "JPEG", quality=parameter)
            np.asarray(Image.open(file))


def corruption(name: str) -> str:
    """How many times as fast as Pillow, image by image, a corruption of 1,000 images is."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (1000, 3, 32, 32), dtype=torch.uint8, generator=generator)
    pixels = images.permute(0, 2, 3, 1).contiguous().numpy()
    ours = partial(corrupt, images, name, SEVERITY)
    both: tuple[Callable[[], object], ...] = (ours, partial(one_by_one, pixels, name))
    least = [float("inf")] * 2
    for _ in range(8):
        for place, function in enumerate(both):
            began = time.process_time()
            function()
            least[place] = min(least[place], time.process_time() - began)
    return f"{least[1] / least[0]:.2f} × as fast as Pillow alone"


def memory(what: str) -> str:
    """The peak memory of a stream or of a report, beside the data that it holds."""
    script = str(ROOT / "benchmarks" / "memory.py")
    environment = ENVIRONMENT | {"CASCADETTA_HEADLESS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script, what], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


TARGETS: tuple[tuple[str, str, Callable[[], str]], ...] = (
    ("`--help`", "1 s of CPU", partial(command, "--help")),
    ("a misspelt argument", "1 s of CPU", partial(command, "--onyl", "01_pretrain")),
    ("`--dry-run`", "1 s of CPU", partial(command, "--dry-run")),
    ("pixelate", "2 ×", partial(corruption, "pixelate")),
    ("jpeg_compression", "2 ×", partial(corruption, "jpeg_compression")),
    ("first row in 02", "20 s", first_table),
    ("peak memory of a stream", "1.2 of the data", partial(memory, "stream")),
    ("peak memory of a report", "1.2 of the data", partial(memory, "report")),
    ("`quick`, two idle cores", "180 s, again 15 s", again_and_again),
    ("all tests, two idle cores", "480 s, 950 s of CPU", tests),
)
"""What is waited for, its target, and how it is measured."""


def rows() -> Iterator[str]:
    """Yield the table in Markdown, line by line."""
    yield "| what | target | measured |"
    yield "|---|---|---|"
    for what, target, measure in TARGETS:
        yield f"| {what} | {target} | {measure()} |"
