"""Corruptions of colour and geometry, and those by coding."""

import warnings
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cascadetta_lib.data.corruptions.common import Draws, gaussian


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
    """Apply a random affine map, given by the images of three points, then a smooth displacement.

    Lengths are shares of H; for images of 224 pixels they are shares of 244, as in the original.
    """
    count = x.shape[0]
    size = x.shape[-1]
    unit = 244 if size == 224 else size
    displacement = unit * displacement
    sigma = unit * sigma
    reach = unit * reach
    moves = draws.uniform((count, 3, 2), -reach, reach)
    displacements = draws.uniform((2, count, size, size), -1, 1)
    near = size // 2 - size // 3
    far = size // 2 + size // 3
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


def pixelate(levels: Tensor, draws: Draws, factor: float) -> Tensor:
    """Shrink to `factor`, at least a quarter, and enlarge again, each time by the mean of what a
    pixel covers, with the rounding of Pillow's BOX. Takes and returns grey levels.

    A pixel of the small image is the mean of one to four neighbours on each axis, rounded to a
    whole grey level, halves up, first across the columns. Enlarged, it is repeated.
    """
    side = levels.shape[-1]
    weights = _covered(side, int(side * factor)).to(levels.device)
    # Sums of halves and quarters of whole numbers are exact in float32, and those of thirds are
    # never near a half. They are positive, so the conversion to whole numbers rounds down.
    across = (levels.float() @ weights.T).add_(0.5).floor_()
    return (weights @ across).add_(0.5).to(torch.uint8)


@cache
def _covered(side: int, small: int) -> Tensor:
    """Return the weight of each input pixel in each output pixel along one axis, float32 (side,
    side), when `side` pixels are shrunk to `small` and enlarged again. An output pixel has one
    weight of 1, or up to four equal ones.
    """
    shares = _inside(side, small)
    if shares.sum(axis=1).max() > 4:
        raise ValueError(
            f"pixelate to {small} of {side} pixels: allowed is a quarter of them or more"
        )
    repeated = shares[_inside(small, side).argmax(axis=1)]
    return torch.from_numpy(repeated / repeated.sum(axis=1, keepdims=True)).float()


def _inside(before: int, after: int) -> np.ndarray:
    """Return which of `before` pixels each of `after` pixels covers, bool (after, before).

    A pixel is covered if its centre lies in the interval of the other pixel, which is at least one
    pixel long.
    """
    scale = before / after
    half = max(scale, 1.0) / 2
    centres = (np.arange(after)[:, None] + 0.5) * scale
    distance = np.arange(before)[None] + 0.5 - centres
    return (distance > -half) & (distance <= half)


def jpeg_compression(levels: Tensor, draws: Draws, quality: int) -> Tensor:
    """Code as JPEG and decode, on the CPU. Takes and returns grey levels.

    torchvision's libjpeg-turbo gives the bytes of Pillow's, with colours at half the resolution,
    in a third of the time.
    """
    from torchvision.io import decode_jpeg, encode_jpeg  # takes seconds

    if not len(levels):
        return levels
    with warnings.catch_warnings():
        # torchvision wants to leave coding to TorchCodec some day; requirements.txt pins it.
        warnings.simplefilter("ignore", DeprecationWarning)
        coded = encode_jpeg(list(levels.cpu()), quality=quality)
        decoded = torch.stack(decode_jpeg(coded))
    return decoded.to(levels.device)


ON_GREY_LEVELS = (pixelate, jpeg_compression)
"""The corruptions that take and return grey levels, uint8. All others take and return floats."""
