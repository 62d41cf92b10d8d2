"""Write docs/corruption-statistics.md: our corruptions beside the original code's.

    python -m study.tools.corruption_statistics [--data FOLDER]

`corruption_statistics.csv` beside this file has statistics of the original code's corruptions of
2,000 test images of CIFAR-10. `corruption_images.csv` has the places of these images in the
official test set. The images went through one JPEG round trip at quality 75 before the original
code corrupted them, so ours corrupts the same.
"""

import argparse
import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.datasets import CIFAR10

from cascadetta_lib.data.base import DataMissing
from cascadetta_lib.data.corruptions import corrupt
from cascadetta_lib.data.corruptions.photographs import read_photographs
from cascadetta_lib.files import write_atomically
from study.exhibits.kit.numbers import number

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "corruption-statistics.md"
QUALITY = 75
DIGITS = {"median_psnr_db": 2, "mean_shift": 2, "mean_image_std": 2, "gradient_ratio": 3}
"""The statistics, with the decimals that are shown.

median_psnr_db: the median over images of the PSNR against the clean image.
mean_shift: how much higher the mean grey level is than that of the clean images.
mean_image_std: the mean over images of an image's standard deviation, in grey levels.
gradient_ratio: the mean absolute vertical gradient, divided by that of the clean images.
"""
Domain = tuple[str, int]
Statistics = dict[str, float]


def reference() -> dict[Domain, Statistics]:
    """Return the statistics of the original code by corruption and severity."""
    with (HERE / "corruption_statistics.csv").open(encoding="utf-8", newline="") as file:
        return {
            (row["corruption"], int(row["severity"])): {name: float(row[name]) for name in DIGITS}
            for row in csv.DictReader(file)
        }


def reference_images(folder: Path) -> Tensor:
    """Return the images that the original code corrupted, uint8 (2000, 3, 32, 32).

    folder: the folder that holds the official `cifar-10-batches-py`.

    Raises DataMissing as `official_cifar10` does.
    """
    with (HERE / "corruption_images.csv").open(encoding="utf-8", newline="") as file:
        places = [int(row["place"]) for row in csv.DictReader(file)]
    official = official_cifar10(folder, train=False).data[places]
    coded = np.stack([_coded(image) for image in official])
    return torch.from_numpy(coded).permute(0, 3, 1, 2).contiguous()


def official_cifar10(folder: Path, train: bool) -> CIFAR10:
    """Read the official training or test images. Raises DataMissing if they are missing or altered.

    folder: the folder that holds `cifar-10-batches-py`.
    """
    try:
        return CIFAR10(str(folder), train=train)
    except RuntimeError:  # Its message proposes a download, which no tool offers.
        raise DataMissing(
            f"{folder / CIFAR10.base_folder} is missing or not the official CIFAR-10; --data or "
            "CASCADETTA_DATA names the folder that holds it"
        ) from None


def _coded(image: np.ndarray) -> np.ndarray:
    """Return an image after one JPEG round trip."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=QUALITY)
    return np.asarray(Image.open(file).convert("RGB"))


def measure(clean: Tensor, corrupted: Tensor) -> Statistics:
    """Return the statistics of corrupted images.

    clean, corrupted: the same images before and after, uint8 (N, 3, H, W).
    """
    before = clean.float()
    after = corrupted.float()
    error = (after - before).square().mean(dim=(1, 2, 3)).clamp(min=1e-10)
    gradients = [images.diff(dim=2).abs().mean() for images in (before, after)]
    return {
        "median_psnr_db": float((10 * torch.log10(255**2 / error)).median()),
        "mean_shift": float((after - before).mean()),
        "mean_image_std": float(after.std(dim=(1, 2, 3), correction=0).mean()),
        "gradient_ratio": float(gradients[1] / gradients[0]),
    }


def row_of(domain: Domain, ours: Statistics) -> str:
    """Return a Markdown row of the page: for each statistic ours, then the original code's."""
    theirs = reference()[domain]
    cells = [
        f"{number(ours[name], digits)} | {number(theirs[name], digits)}"
        for name, digits in DIGITS.items()
    ]
    return f"| {domain[0]} | {domain[1]} | {' | '.join(cells)} |"


TEXT = """# Our corruptions beside the original's

What our generator makes of 2,000 official test images of CIFAR-10, after one JPEG round trip at
quality 75, and what the original code makes of the same. Frost takes the original photographs.
Written by `study/tools/corruption_statistics.py`; a test compares our statistics with the
original's and with this page. PSNR: the median over images, against the clean image. Shift: of the
mean grey level. Deviation: the mean over images of the standard deviation of their pixels, in grey
levels. Gradient: the mean absolute vertical difference, over that of the clean images.

| corruption | severity | PSNR (dB) | original | shift | original | deviation | original | gradient | original |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|
{rows}
"""  # noqa: E501


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page. If the data are missing, print a message and exit with 2."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("CASCADETTA_DATA", "data"))
    folder = Path(parser.parse_args(arguments).data).expanduser()
    try:
        clean = reference_images(folder)
        photographs = read_photographs(folder / "frost")
    except DataMissing as error:
        parser.exit(2, f"corruption_statistics: {error}\n")
    if photographs is None:
        parser.exit(
            2,
            f"corruption_statistics: {folder / 'frost'}: no such folder; the page needs "
            "the original photographs of frost\n",
        )
    rows = []
    for name, severity in reference():
        crops = photographs if name == "frost" else None
        corrupted = corrupt(clean, name, severity, photographs=crops)
        rows.append(row_of((name, severity), measure(clean, corrupted)))
    text = TEXT.format(rows="\n".join(rows))
    write_atomically(PAGE, lambda file: file.write(text.encode()))


if __name__ == "__main__":
    main()
