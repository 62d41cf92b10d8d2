"""The parts that corruptions share: their draws, blurs and zooms."""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import scipy  # it imports scipy.ndimage when that is first used
import torch
from torch import Tensor
from torch.nn import functional

from cascadetta_lib.augment.image import take_pixels


class Draws:
    """Random tensors, drawn on the CPU and then moved, so that every device gets the same ones."""

    def __init__(self, seed: int, corruption: str, severity: float, device: torch.device) -> None:
        digest = hashlib.sha256(f"{seed} {corruption} {severity:g}".encode()).digest()
        self._generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
        self._device = device

    def normal(self, shape: Sequence[int], mean: float, deviation: float) -> Tensor:
        return (
            torch.empty(shape).normal_(mean, deviation, generator=self._generator).to(self._device)
        )

    def uniform(self, shape: Sequence[int], low: float, high: float) -> Tensor:
        return torch.empty(shape).uniform_(low, high, generator=self._generator).to(self._device)

    def integers(self, shape: Sequence[int], low: int, high: int) -> Tensor:
        return torch.randint(low, high, tuple(shape), generator=self._generator).to(self._device)

    def poisson(self, rates: Tensor) -> Tensor:
        return torch.poisson(rates.cpu(), generator=self._generator).to(self._device)


def truncate(x: Tensor) -> Tensor:
    """Convert [0, 1] to grey levels, truncated as in the original, which makes the benchmark darker
    by half a level. The margin keeps a value that is a whole level from falling to the next by the
    rounding of float32.
    """
    return x.clamp(0, 1).mul_(255).add_(1e-3).to(torch.uint8)


def gaussian(x: Tensor, sigma: float, truncate: float = 4.0, border: str = "nearest") -> Tensor:
    """Blur by a Gaussian over the last two axes, which are equally long; the arguments are those of
    scipy.
    """
    unblurred = np.eye(x.shape[-1])
    blurred = scipy.ndimage.gaussian_filter1d(
        unblurred, sigma, axis=0, mode=border, truncate=truncate
    )
    matrix = torch.from_numpy(blurred).float().to(x.device)
    return matrix @ (x @ matrix.T)


def clipped_zoom(x: Tensor, factor: float) -> Tensor:
    """Enlarge the centre of x (N, C, H, H) by `factor` >= 1, bilinearly, and cut it to H."""
    size = x.shape[-1]
    crop = math.ceil(size / factor)
    start = (size - crop) // 2
    enlarged = round(crop * factor)
    centre = x[..., start : start + crop, start : start + crop]
    zoomed = functional.interpolate(
        centre, size=(enlarged, enlarged), mode="bilinear", align_corners=True
    )
    trim = (enlarged - size) // 2
    return zoomed[..., trim : trim + size, trim : trim + size]


def motion(x: Tensor, radius: int, sigma: float, degrees: Tensor) -> Tensor:
    """Blur each image of x (N, C, H, H) along its own angle (N,), by half a Gaussian: a trail on
    one side.
    """
    pixels = torch.arange(x.shape[-1], device=x.device)
    steps = torch.arange(2 * radius + 1, device=x.device)
    weights = torch.exp(-0.5 * (steps / sigma) ** 2)
    angles = torch.deg2rad(degrees)[:, None]
    down, right = ((steps * part - 0.5).ceil().long() for part in (angles.sin(), angles.cos()))
    blurred = torch.zeros_like(x)
    for step, weight in enumerate(weights / weights.sum()):
        rows, columns = (
            (pixels + shift[:, step, None]).clamp(0, len(pixels) - 1) for shift in (down, right)
        )
        blurred += weight * take_pixels(x, rows[:, :, None], columns[:, None, :])
    return blurred
