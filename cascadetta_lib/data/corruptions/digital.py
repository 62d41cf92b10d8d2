"""Corruptions of colour, of geometry and by coding."""

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
    """Move the pixels by a random affine map, then by a smooth random displacement. The affine map
    is the one that moves three fixed points by random vectors.

    Lengths are shares of H. For images of 224 pixels they are shares of 244, as in the original.
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
    # The map goes backwards: (column, row, 1) of an output pixel times this (3, 2) matrix is the
    # place in the input from which the pixel is sampled.
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
    """Shrink images to the share `factor` of their side, at least a quarter, and enlarge them
    again. Takes and returns grey levels.

    A pixel of the small image is the mean of the one to four pixels that it covers on each axis.
    The mean is taken along each row first, then along each column. Each time it is rounded to a
    whole grey level, halves up, as by Pillow's BOX filter. Enlarging repeats the pixels of the
    small image.
    """
    side = levels.shape[-1]
    weights = _covered(side, int(side * factor)).to(levels.device)
    # Means of two or four grey levels are exact in float32, and means of three are never near a
    # half. All are positive, so the conversion to whole numbers rounds down.
    across = (levels.float() @ weights.T).add_(0.5).floor_()
    return (weights @ across).add_(0.5).to(torch.uint8)


@cache
def _covered(side: int, small: int) -> Tensor:
    """Return the weights of input pixels in output pixels along one axis, float32 (side, side), if
    `side` pixels are shrunk to `small` and enlarged again. In an output pixel one to four input
    pixels have equal weights, and all others have none.

    Raises ValueError if `small` is less than a quarter of `side`.
    """
    shares = _inside(side, small)
    if shares.sum(axis=1).max() > 4:
        raise ValueError(
            f"pixelate from {side} to {small} pixels: allowed is {-(-side // 4)} or more"
        )
    repeated = shares[_inside(small, side).argmax(axis=1)]
    return torch.from_numpy(repeated / repeated.sum(axis=1, keepdims=True)).float()


def _inside(before: int, after: int) -> np.ndarray:
    """Return which of `before` pixels each of `after` pixels covers along one axis, bool (after,
    before).

    A pixel is covered if its centre lies in the interval of the covering pixel. This interval is at
    least as long as one of the `before` pixels.
    """
    scale = before / after
    half = max(scale, 1.0) / 2
    centres = (np.arange(after)[:, None] + 0.5) * scale
    distance = np.arange(before)[None] + 0.5 - centres
    return (distance > -half) & (distance <= half)


def jpeg_compression(levels: Tensor, draws: Draws, quality: int) -> Tensor:
    """Code as JPEG and decode, on the CPU. Takes and returns grey levels.

    torchvision's libjpeg-turbo writes the same bytes as Pillow, with colours at half the
    resolution, in a third of the time.
    """
    from torchvision.io import decode_jpeg, encode_jpeg  # takes seconds

    if not len(levels):
        return levels
    with warnings.catch_warnings():
        # torchvision warns that coding will move to TorchCodec; requirements.txt pins torchvision.
        warnings.simplefilter("ignore", DeprecationWarning)
        coded = encode_jpeg(list(levels.cpu()), quality=quality)
        decoded = torch.stack(decode_jpeg(coded))
    return decoded.to(levels.device)


ON_GREY_LEVELS = (pixelate, jpeg_compression)
"""The corruptions that take and return grey levels, uint8. All others take and return floats."""
