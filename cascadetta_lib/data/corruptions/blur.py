"""Corruptions by blur."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from cascadetta_lib.augment.image import take_pixels
from cascadetta_lib.data.corruptions.common import Draws, clipped_zoom, gaussian, motion, truncate


def defocus_blur(x: Tensor, draws: Draws, radius: float, softening: float) -> Tensor:
    """Blur by a disk with a softened edge. The edge is softened by a Gaussian of 3×3 pixels, or of
    5×5 for a radius above 8.

    The softening Gaussian pads the kernel by reflection, as in the original. The original's kernel
    has 17×17 pixels up to a radius of 8. For a radius below 8 the kernel is smaller here:

    - With a radius of 4 or more, two empty pixels lie between the disk and the border. Only empty
      pixels are reflected, so the blur is the original's.
    - With a smaller radius, one or two empty pixels lie there. If there is one, the disk's edge is
      reflected. This changes the blur by less than 1e-5, because the softening is then 0.2 or less.
    """
    half = math.ceil(radius) + (2 if radius >= 4 else 1)
    reach = 1
    if radius >= 8:
        half = int(radius)
        reach = 1 if radius == 8 else 2
    offsets = torch.arange(-half, half + 1)
    disk = (offsets[:, None] ** 2 + offsets**2 <= radius**2).float()
    soft = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / softening) ** 2)
    soft = soft / soft.sum()
    mirrored = functional.pad((disk / disk.sum())[None, None], (reach,) * 4, mode="reflect")
    kernel = functional.conv2d(mirrored, torch.outer(soft, soft)[None, None])[0, 0]
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
    """Blur, replace pixels, and blur again.

    In each of `rounds` rounds a pixel is replaced by another, at most `reach` pixels up or left and
    at most `reach` − 1 pixels down or right. As in the original, pixels are replaced one after the
    other (`replaced_from`).
    """
    count = x.shape[0]
    size = x.shape[-1]
    inner = size - 2 * reach
    shifts = draws.integers((rounds, 2, count, inner, inner), -reach, reach)
    shifts = functional.pad(shifts, (reach + 1, reach - 1, reach + 1, reach - 1))
    rows, columns = torch.meshgrid(*[torch.arange(size, device=x.device)] * 2, indexing="ij")
    moved = truncate(gaussian(x, sigma)).float() / 255
    for down, right in shifts:
        places = replaced_from((rows + down) * size + columns + right, reach)
        moved = take_pixels(moved, places // size, places % size)
    return gaussian(moved, sigma)


def replaced_from(read: Tensor, reach: int) -> Tensor:
    """Return, for each place, the place from which its pixel comes in the end, (N, H, H). Pixels
    are replaced one after the other, from the last place to the first.

    read: for each place p, the place q from which the pixel of p is read, row · H + column,
        (N, H, H). If q comes after p in the image, the pixel at q has been replaced already, and
        the new pixel is read. Pixels near the border are not replaced: `reach` + 1 of them at the
        upper and left sides, and `reach` − 1 at the lower and right sides.
    """
    count = len(read)
    size = read.shape[-1]
    inside = torch.zeros(size, size, dtype=torch.bool, device=read.device)
    inside[reach + 1 : size - reach + 1, reach + 1 : size - reach + 1] = True
    inside = inside.flatten().expand(count, -1)
    read = read.flatten(1)
    reader = torch.arange(size * size, device=read.device).expand(count, -1)
    found = read
    for _ in range(size * size):  # No chain is longer, since each step goes on to a later place.
        earlier = (found > reader) & inside.gather(1, found)
        if not earlier.any():
            break
        reader = torch.where(earlier, found, reader)
        found = torch.where(earlier, read.gather(1, found), found)
    return found.view(count, size, size)


def motion_blur(x: Tensor, draws: Draws, radius: int, sigma: float) -> Tensor:
    return motion(x, radius, sigma, draws.uniform((len(x),), -45, 45))


def zoom_blur(x: Tensor, draws: Draws, zooms: int, percent: int = 1) -> Tensor:
    """Average the image and `zooms` enlargements of its centre. They are enlarged by 1,
    1 + percent/100, 1 + 2 · percent/100, …
    """
    total = x.clone()
    for step in range(zooms):
        total += clipped_zoom(x, 1 + percent * step / 100)
    return total / (zooms + 1)


def gaussian_blur(x: Tensor, draws: Draws, sigma: float) -> Tensor:
    return gaussian(x, sigma)
