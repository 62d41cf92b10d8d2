"""What corruptions share: random draws, conversion to grey levels, blurs and zooms."""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import scipy  # scipy imports scipy.ndimage when it is first used
import torch
from torch import Tensor
from torch.nn import functional

from cascadetta_lib.augment.image import take_pixels


class Draws:
    """Random tensors for one corruption, drawn on the CPU and then moved to the device. So every
    device gets the same numbers.
    """

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
    """Convert values in [0, 1] to grey levels, uint8; other values are clipped. As in the original,
    fractions of a level are cut off, which makes the benchmark darker by half a level.

    A margin of 0.001 levels is added first. Otherwise the rounding of float32 could turn a whole
    level into the next lower one.
    """
    return x.clamp(0, 1).mul_(255).add_(1e-3).to(torch.uint8)


def gaussian(x: Tensor, sigma: float, truncate: float = 4.0, border: str = "nearest") -> Tensor:
    """Blur x, (..., H, H), by a Gaussian over the last two axes.

    sigma, truncate: as in scipy.ndimage.gaussian_filter1d.
    border: scipy's `mode`.
    """
    unblurred = np.eye(x.shape[-1])
    blurred = scipy.ndimage.gaussian_filter1d(
        unblurred, sigma, axis=0, mode=border, truncate=truncate
    )
    matrix = torch.from_numpy(blurred).float().to(x.device)
    return matrix @ (x @ matrix.T)


def clipped_zoom(x: Tensor, factor: float) -> Tensor:
    """Enlarge the centre of x (N, C, H, H) by `factor` >= 1, bilinearly, and crop the result to
    H×H.
    """
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
    """Blur each image of x (N, C, H, H) along its own angle, by half a Gaussian: the trail is on
    one side.

    radius: half the length of the trail in pixels.
    sigma: the standard deviation of the Gaussian.
    degrees: the angles, (N,).
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
