"""Corruptions by blur."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from cascadetta_lib.augment.image import take_pixels
from cascadetta_lib.data.corruptions.common import Draws, clipped_zoom, gaussian, motion, truncate


def defocus_blur(x: Tensor, draws: Draws, radius: float, softening: float) -> Tensor:
    """A disk as kernel, its edge softened by a 3×3 Gaussian."""
    half = math.ceil(radius) + 1
    offsets = torch.arange(-half, half + 1)
    disk = (offsets[:, None] ** 2 + offsets**2 <= radius**2).float()
    soft = torch.exp(-0.5 * (torch.arange(-1, 2) / softening) ** 2)
    soft = soft / soft.sum()
    kernel = functional.conv2d(
        (disk / disk.sum())[None, None], torch.outer(soft, soft)[None, None], padding=1
    )[0, 0]
    padded = functional.pad(x, (half, half, half, half), mode="reflect")
    blurred = torch.zeros_like(x)
    for (
        row,
        column,
    ) in kernel.nonzero().tolist():  # not conv2d, which cuDNN may round to ten bits (TF32)
        blurred += (
            float(kernel[row, column])
            * padded[..., row : row + x.shape[2], column : column + x.shape[3]]
        )
    return blurred


def glass_blur(x: Tensor, draws: Draws, sigma: float, reach: int, rounds: int) -> Tensor:
    """Blur, replace each pixel by one at most `reach` up or left and `reach` − 1 down or right, and
    blur again.

    The original replaces pixel by pixel, from the last to the first. With a reach of 1 it reads
    only pixels that it has not yet replaced, so that this gives the same; with a reach of 2 (64×64)
    it may read others, unlike here.
    """
    count = x.shape[0]
    size = x.shape[-1]
    inner = size - 2 * reach
    shifts = draws.integers((rounds, 2, count, inner, inner), -reach, reach)
    shifts = functional.pad(shifts, (reach + 1, reach - 1, reach + 1, reach - 1))
    rows, columns = torch.meshgrid(*[torch.arange(size, device=x.device)] * 2, indexing="ij")
    moved = truncate(gaussian(x, sigma)).float() / 255
    for down, right in shifts:
        moved = take_pixels(moved, rows + down, columns + right)
    return gaussian(moved, sigma)


def motion_blur(x: Tensor, draws: Draws, radius: int, sigma: float) -> Tensor:
    return motion(x, radius, sigma, draws.uniform((len(x),), -45, 45))


def zoom_blur(x: Tensor, draws: Draws, zooms: int) -> Tensor:
    """The mean of the image and its centre, zoomed by 1, 1.01, …"""
    total = x.clone()
    for step in range(zooms):
        total += clipped_zoom(x, 1 + step / 100)
    return total / (zooms + 1)


def gaussian_blur(x: Tensor, draws: Draws, sigma: float) -> Tensor:
    return gaussian(x, sigma)
