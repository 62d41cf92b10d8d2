"""Corruptions by weather."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cascadetta_lib.data.corruptions.common import Draws, clipped_zoom, gaussian, motion, truncate


def snow(
    x: Tensor,
    draws: Draws,
    mix: float,
    mean: float,
    std: float,
    zoom: float,
    least: float,
    radius: int,
    sigma: float,
) -> Tensor:
    """Whiten the image, and add flakes and the same flakes turned by 180°.

    To make flakes, noise is enlarged by `zoom`, values below `least` are set to 0, and the rest is
    blurred by motion.
    """
    noise = draws.normal((len(x), 1, *x.shape[2:]), mean, std)
    angles = draws.uniform((len(x),), -135, -45)
    flakes = clipped_zoom(noise, zoom)
    flakes = motion(
        truncate(flakes.masked_fill(flakes < least, 0)).float() / 255, radius, sigma, angles
    )
    grey = (x * x.new_tensor((0.299, 0.587, 0.114))[:, None, None]).sum(dim=1, keepdim=True)
    whitened = mix * x + (1 - mix) * torch.maximum(x, 1.5 * grey + 0.5)
    return whitened + flakes + flakes.flip((2, 3))


def frost(x: Tensor, draws: Draws, image_share: float, frost_share: float) -> Tensor:
    """Mix in made-up ice crystals, with statistics like those of the original's photographs."""
    noise = draws.normal((len(x), 1, *x.shape[2:]), 0, 1)
    angles = draws.uniform((2, len(x)), 0, 360)
    level = draws.normal((len(x), 1, 1, 1), 0.635, 0.06)
    patches = _plasma(len(x), x.shape[-1], 1.5, draws) - 0.5
    needles = motion(noise, 4, 2.0, angles[0]) + motion(noise, 4, 2.0, angles[1])
    tint = x.new_tensor((0.95, 1.0, 1.05))[:, None, None]
    ice = ((level + 0.3 * patches + 0.09 * needles) * tint).clamp(0, 1)
    return image_share * x + frost_share * ice


def frost_from_photographs(
    x: Tensor,
    draws: Draws,
    image_share: float,
    frost_share: float,
    *,
    photographs: Sequence[Tensor],
) -> Tensor:
    """Mix in a random crop of one of the `photographs`, uint8 (3, H, W), as the original does."""
    count = len(x)
    side = x.shape[-1]
    which = draws.integers((count,), 0, len(photographs)).tolist()
    # As in the original, the last row and the last column of places are never drawn.
    places = [
        [draws.integers((count,), 0, length - side).tolist() for length in picture.shape[1:]]
        for picture in photographs
    ]
    ice = torch.empty(x.shape, dtype=torch.uint8)
    for image, picture in enumerate(which):
        rows, columns = places[picture]
        row = rows[image]
        column = columns[image]
        ice[image] = photographs[picture][:, row : row + side, column : column + side]
    return image_share * x + frost_share * ice.to(x.device).float() / 255


def fog(x: Tensor, draws: Draws, density: float, decay: float) -> Tensor:
    brightest = x.amax(dim=(1, 2, 3), keepdim=True)
    return (
        (x + density * _plasma(len(x), x.shape[-1], decay, draws))
        * brightest
        / (brightest + density)
    )


def spatter(
    x: Tensor,
    draws: Draws,
    mean: float,
    deviation: float,
    sigma: float,
    threshold: float,
    strength: float,
    liquid: str,
) -> Tensor:
    """Add drops where smoothed noise is above `threshold`. Drops of water add pale light; drops of
    mud cover the image.

    The original is more complex: it also lights the edges of the drops. The parameters are those of
    the original for images of 32×32 pixels.
    """
    layer = gaussian(draws.normal((len(x), 1, *x.shape[2:]), mean, deviation), sigma)
    drops = layer > threshold
    if liquid == "water":
        depth = layer * drops / layer.amax(dim=(1, 2, 3), keepdim=True)
        return x + strength * depth * x.new_tensor((175, 238, 238))[:, None, None] / 255
    cover = gaussian(drops.float(), strength)
    cover = cover.masked_fill(cover < 0.8, 0)
    return x * (1 - cover) + cover * x.new_tensor((63, 42, 20))[:, None, None] / 255


def brightness(x: Tensor, draws: Draws, increase: float) -> Tensor:
    """Raise the value of HSV. At fixed hue and saturation, RGB is proportional to the value. Black
    becomes grey.
    """
    value = x.amax(dim=1, keepdim=True)
    raised = (value + increase).clamp(max=1)
    return torch.where(value > 0, x * raised / value, raised)


def _plasma(count: int, size: int, decay: float, draws: Draws) -> Tensor:
    """Return plasma fractals, (count, 1, size, size) in [0, 1], made by midpoint displacement on a
    torus.

    The side of the torus is the next power of two, and the result is cut to `size`. Each time the
    step is halved, the displacement is divided by decay².
    """
    side = size
    size = 1 << (side - 1).bit_length()
    steps = [size >> level for level in range(size.bit_length() - 1)]
    noise = [draws.uniform((3, count, size // step, size // step), -1, 1) for step in steps]
    plasma = torch.zeros(count, size, size, device=noise[0].device)
    for level, step in enumerate(steps):
        half = step // 2
        centre_noise, top_noise, left_noise = noise[level] * decay ** (-2 * level)
        corner = plasma[:, ::step, ::step]
        above = corner + corner.roll(-1, dims=2)
        beside = corner + corner.roll(-1, dims=1)
        centre = (above + above.roll(-1, dims=1)) / 4 + centre_noise
        plasma[:, half::step, half::step] = centre
        plasma[:, ::step, half::step] = (above + centre + centre.roll(1, dims=1)) / 4 + top_noise
        plasma[:, half::step, ::step] = (beside + centre + centre.roll(1, dims=2)) / 4 + left_noise
    plasma = plasma - plasma.amin(dim=(1, 2), keepdim=True)
    return (plasma / plasma.amax(dim=(1, 2), keepdim=True))[:, None, :side, :side]
