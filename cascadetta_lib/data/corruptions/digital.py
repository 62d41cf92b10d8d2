"""Corruptions of colour and geometry, and those by coding."""

import io
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from cascadetta_lib.data.corruptions.common import Draws, gaussian, truncate


def contrast(x: Tensor, draws: Draws, factor: float) -> Tensor:
    mean = x.mean(dim=(2, 3), keepdim=True)
    return (x - mean) * factor + mean


def saturate(x: Tensor, draws: Draws, factor: float, increase: float) -> Tensor:
    """Scale and raise the saturation of HSV. At fixed hue and value, value − RGB is proportional to
    the saturation.
    """
    value = x.amax(dim=1, keepdim=True)
    depth = value - x
    saturation = depth.amax(dim=1, keepdim=True) / value.clamp(min=1e-9)
    wanted = (saturation * factor + increase).clamp(max=1)
    grey_depth = (
        value * x.new_tensor((0, 1, 1))[:, None, None]
    )  # a grey pixel has hue 0: saturated, it turns red
    return value - torch.where(saturation > 0, depth * wanted / saturation, grey_depth * wanted)


def elastic_transform(
    x: Tensor, draws: Draws, displacement: float, sigma: float, reach: float
) -> Tensor:
    """A random affine map, given by where three points go, then a smooth displacement; lengths in
    shares of H.
    """
    count, size = x.shape[0], x.shape[-1]
    displacement, sigma, reach = size * displacement, size * sigma, size * reach
    moves = draws.uniform((count, 3, 2), -reach, reach)
    displacements = draws.uniform((2, count, size, size), -1, 1)
    near, far = size // 2 - size // 3, size // 2 + size // 3
    corners = x.new_tensor(((far, far), (far, near), (near, near)))
    # Backwards: an output pixel (column, row, 1) times this (3, 2) matrix is the place that it is
    # sampled at.
    moved = torch.cat((corners + moves, x.new_ones(count, 3, 1)), dim=2)
    affine = torch.linalg.solve(moved, corners.expand(count, -1, -1))
    axis = torch.arange(size, dtype=x.dtype, device=x.device)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    places = torch.stack((columns, rows, torch.ones_like(rows)), dim=-1) @ affine[:, None]
    x = functional.grid_sample(
        x, 2 * places / (size - 1) - 1, padding_mode="reflection", align_corners=True
    )
    if displacement == 0:
        return x
    down, right = displacement * gaussian(displacements, sigma, truncate=3, border="reflect")
    places = torch.stack((columns + right, rows + down), dim=-1)
    return functional.grid_sample(
        x, (2 * places + 1) / size - 1, padding_mode="reflection", align_corners=False
    )


def pixelate(x: Tensor, draws: Draws, factor: float) -> Tensor:
    small, box = int(x.shape[-1] * factor), Image.Resampling.BOX
    return _by_pillow(x, lambda image: image.resize((small, small), box).resize(image.size, box))


def jpeg_compression(x: Tensor, draws: Draws, quality: int) -> Tensor:
    def code(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _by_pillow(x, code)


def _by_pillow(x: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """`change` each image, on the CPU: another encoder, or another rounding, would make other
    artefacts.
    """
    levels = truncate(x).permute(0, 2, 3, 1).cpu().numpy()
    changed = np.stack([np.asarray(change(Image.fromarray(image))) for image in levels])
    return torch.from_numpy(changed).to(x.device).permute(0, 3, 1, 2).float() / 255
