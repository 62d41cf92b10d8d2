"""Image corruptions, which make the -C streams from clean images: `corrupt(images, "fog", 5)`.

The parameters are those of CIFAR-10-C (32×32) and Tiny-ImageNet-C (64×64). The operations are written anew, by batch,
and held by a test to the statistics of the original code. Inside, images are float32 (N, 3, H, W) in [0, 1].

Each corruption is one function (images, parameters of the severity, draws) -> images, and its severity tables stand in
its decorator. Everything random comes from `draws`, at the top of the function, before anything is applied (shot noise
aside, whose draw depends on the image).
"""

import hashlib
import io
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from cascadetta_lib.registry import nearest

CORRUPTIONS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
"""The fifteen corruptions of the benchmark, in the standard order of the stream."""

HELD_OUT_CORRUPTIONS = ("speckle_noise", "gaussian_blur", "saturate", "spatter")
"""Four more, for choosing hyper-parameters without touching the fifteen. Only at 32×32."""

SEVERITIES = (1, 2, 3, 4, 5)

# Fixed, because the draws of a chunk depend on its size: a machine with less memory must not draw other noise.
_CHUNK = 500


class _Draws:
    """Random tensors, drawn on the CPU and then moved, so that every device gets the same ones."""

    def __init__(self, seed: int, corruption: str, severity: int, device: torch.device) -> None:
        digest = hashlib.sha256(f"{seed} {corruption} {severity}".encode()).digest()
        self._generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
        self._device = device

    def normal(self, shape: Sequence[int], mean: float, deviation: float) -> Tensor:
        return torch.empty(shape).normal_(mean, deviation, generator=self._generator).to(self._device)

    def uniform(self, shape: Sequence[int], low: float, high: float) -> Tensor:
        return torch.empty(shape).uniform_(low, high, generator=self._generator).to(self._device)

    def integers(self, shape: Sequence[int], low: int, high: int) -> Tensor:
        """Integers in low .. high − 1, int64."""
        return torch.randint(low, high, tuple(shape), generator=self._generator).to(self._device)

    def poisson(self, rates: Tensor) -> Tensor:
        return torch.poisson(rates.cpu(), generator=self._generator).to(self._device)


_Apply = Callable[[Tensor, Any, _Draws], Tensor]
"""(images, parameters of the severity, draws) -> images, which may leave [0, 1]."""


class _Corruption(NamedTuple):
    apply: _Apply
    tables: dict[int, Sequence[Any]]
    """Image size to the parameters of severities 1 to 5."""


_REGISTRY: dict[str, _Corruption] = {}


def _corruption(at_32: Sequence[Any], at_64: Sequence[Any] | None) -> Callable[[_Apply], _Apply]:
    """Register a function under its own name, with its parameters by severity; None: not defined at that size."""

    def register(apply: _Apply) -> _Apply:
        _REGISTRY[apply.__name__] = _Corruption(apply, {32: at_32} | ({} if at_64 is None else {64: at_64}))
        return apply

    return register


def corrupt(images: Tensor, corruption: str, severity: int, *, seed: int = 0) -> Tensor:
    """Corrupt `images` (uint8, (N, 3, H, W), H = W in {32, 64}, grey levels 0..255); same shape, dtype and device.

    `corruption` is one of CORRUPTIONS, or at 32×32 also of HELD_OUT_CORRUPTIONS; `severity` is 1..5. The same call
    gives the same bits: the noise depends on (seed, corruption, severity), the place of an image in the batch and the
    size of the batch alone. An empty batch comes back empty.

    Raises ValueError, which names the value and what is allowed, for any other corruption, severity, dtype or shape.
    """
    known = CORRUPTIONS + HELD_OUT_CORRUPTIONS
    if corruption not in known:
        raise ValueError(f"corruption = {corruption!r}: {nearest(str(corruption), known)}")
    if not isinstance(severity, int) or severity not in SEVERITIES:
        raise ValueError(f"severity = {severity!r}: allowed are {', '.join(map(str, SEVERITIES))}")
    if images.dtype != torch.uint8:
        raise ValueError(f"images have dtype {images.dtype}: allowed is torch.uint8")
    shape = tuple(images.shape)
    if images.ndim != 4 or shape[1:] not in {(3, 32, 32), (3, 64, 64)}:
        raise ValueError(f"images have shape {shape}: allowed are (N, 3, 32, 32) and (N, 3, 64, 64)")
    apply, tables = _REGISTRY[corruption]
    size = shape[-1]
    if size not in tables:
        raise ValueError(f"corruption = {corruption!r} has no parameters for {size}x{size} images: allowed is 32x32")

    if not len(images):
        return images.clone()

    draws = _Draws(seed, corruption, severity, images.device)
    parameters = tables[size][severity - 1]
    corrupted = torch.empty_like(images)
    for chunk, result in zip(torch.split(images, _CHUNK), torch.split(corrupted, _CHUNK), strict=True):
        result.copy_(_truncate(apply(chunk.float() / 255, parameters, draws)))
    return corrupted


def _truncate(x: Tensor) -> Tensor:
    """[0, 1] to grey levels. The original truncates, which darkens by half a level; so the benchmark is darker too.

    The margin keeps a value that was a whole level before float32 rounding on that level.
    """
    return (x.clamp(0, 1) * 255 + 1e-3).to(torch.uint8)


# Tools that several corruptions share.


def _smoothing_matrix(size: int, sigma: float, truncate: float, border: str, device: torch.device) -> Tensor:
    """The (size, size) matrix of a Gaussian blur along one axis, cut at `truncate` sigmas; `border` as in scipy."""
    radius = int(truncate * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64)
    weights = torch.exp(-0.5 * (offsets / max(sigma, 1e-9)) ** 2)
    positions = torch.arange(size)[:, None] + offsets.long()
    if border == "reflect":  # d c b a | a b c d | d c b a; one reflection is enough, the radius being below the size
        positions = torch.where(positions < 0, -1 - positions, positions)
        positions = torch.where(positions >= size, 2 * size - 1 - positions, positions)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix.scatter_add_(1, positions.clamp(0, size - 1), (weights / weights.sum()).expand(size, -1))
    return matrix.float().to(device)


def _gaussian(x: Tensor, sigma: float, truncate: float = 4.0, border: str = "nearest") -> Tensor:
    """Gaussian blur over the last two axes, which are equally long."""
    matrix = _smoothing_matrix(x.shape[-1], sigma, truncate, border, x.device)
    return matrix @ (x @ matrix.T)


def _clipped_zoom(x: Tensor, factor: float) -> Tensor:
    """Enlarge the centre of x (N, C, H, H) by `factor` >= 1, bilinearly, and cut it to H."""
    size = x.shape[-1]
    crop = math.ceil(size / factor)
    start = (size - crop) // 2
    centre = x[..., start : start + crop, start : start + crop]
    enlarged = round(crop * factor)
    zoomed = functional.interpolate(centre, size=(enlarged, enlarged), mode="bilinear", align_corners=True)
    trim = (enlarged - size) // 2
    return zoomed[..., trim : trim + size, trim : trim + size]


def _motion(x: Tensor, radius: int, sigma: float, degrees: Tensor) -> Tensor:
    """Blur each image of x (N, C, H, W) along its own angle (N,), by half a Gaussian: a trail on one side."""
    height, width = x.shape[-2:]
    steps = torch.arange(2 * radius + 1, device=x.device)
    weights = torch.exp(-0.5 * (steps / sigma) ** 2)
    weights = weights / weights.sum()
    angles = torch.deg2rad(degrees)[:, None]
    down = torch.ceil(steps * torch.sin(angles) - 0.5).long()
    right = torch.ceil(steps * torch.cos(angles) - 0.5).long()
    rows, columns = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    flat = x.flatten(2)
    blurred = torch.zeros_like(flat)
    for step in steps.tolist():
        source_rows = (rows + down[:, step, None]).clamp(0, height - 1)
        source_columns = (columns + right[:, step, None]).clamp(0, width - 1)
        sources = (source_rows[:, :, None] * width + source_columns[:, None, :]).flatten(1)
        blurred += weights[step] * flat.gather(2, sources[:, None].expand_as(flat))
    return blurred.view_as(x)


def _sample(x: Tensor, rows: Tensor, columns: Tensor, mirror_at_pixel_centre: bool) -> Tensor:
    """Bilinear samples of x (N, C, H, H) at `rows` and `columns` (N, H, H), in pixels; beyond the border, mirrored."""
    size = x.shape[-1]
    grid = torch.stack((columns, rows), dim=-1)
    grid = 2 * grid / (size - 1) - 1 if mirror_at_pixel_centre else (2 * grid + 1) / size - 1
    return functional.grid_sample(x, grid, padding_mode="reflection", align_corners=mirror_at_pixel_centre)


def _grey(x: Tensor) -> Tensor:
    """Luma of RGB images (N, 3, H, W), as (N, 1, H, W)."""
    return (x * x.new_tensor((0.299, 0.587, 0.114))[:, None, None]).sum(dim=1, keepdim=True)


def _plasma(count: int, size: int, decay: float, draws: _Draws) -> Tensor:
    """Plasma fractals (count, 1, size, size) in [0, 1] by midpoint displacement on a torus; `size` is a power of two.

    The displacement falls by decay² each time the step is halved.
    """
    steps = [size >> level for level in range(size.bit_length() - 1)]
    noise = [draws.uniform((3, count, size // step, size // step), -1, 1) for step in steps]
    plasma = torch.zeros(count, size, size, device=noise[0].device)
    for level, step in enumerate(steps):
        half = step // 2
        centre_noise, top_noise, left_noise = noise[level] * decay ** (-2 * level)
        corner = plasma[:, ::step, ::step]
        above = corner + corner.roll(-1, dims=2)
        centre = (above + above.roll(-1, dims=1)) / 4 + centre_noise
        plasma[:, half::step, half::step] = centre
        plasma[:, ::step, half::step] = (above + centre + centre.roll(1, dims=1)) / 4 + top_noise
        beside = corner + corner.roll(-1, dims=1)
        plasma[:, half::step, ::step] = (beside + centre + centre.roll(1, dims=2)) / 4 + left_noise
    plasma = plasma - plasma.amin(dim=(1, 2), keepdim=True)
    return (plasma / plasma.amax(dim=(1, 2), keepdim=True))[:, None]


# Noise.


@_corruption(at_32=(0.04, 0.06, 0.08, 0.09, 0.10), at_64=(0.04, 0.08, 0.12, 0.15, 0.18))
def gaussian_noise(x: Tensor, sigma: float, draws: _Draws) -> Tensor:
    return x + draws.normal(x.shape, 0, sigma)


@_corruption(at_32=(500, 250, 100, 75, 50), at_64=(250, 100, 50, 30, 15))
def shot_noise(x: Tensor, photons: int, draws: _Draws) -> Tensor:
    return draws.poisson(x * photons) / photons


@_corruption(at_32=(0.01, 0.02, 0.03, 0.05, 0.07), at_64=(0.01, 0.02, 0.05, 0.08, 0.14))
def impulse_noise(x: Tensor, amount: float, draws: _Draws) -> Tensor:
    """Salt and pepper in equal shares, each channel of a pixel by itself."""
    chance = draws.uniform(x.shape, 0, 1)
    return x.masked_fill(chance < amount / 2, 0).masked_fill(chance >= 1 - amount / 2, 1)


@_corruption(at_32=(0.06, 0.10, 0.12, 0.16, 0.20), at_64=None)
def speckle_noise(x: Tensor, sigma: float, draws: _Draws) -> Tensor:
    return x + x * draws.normal(x.shape, 0, sigma)


# Blur.


@_corruption(
    at_32=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    at_64=((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
)
def defocus_blur(x: Tensor, parameters: tuple[float, float], draws: _Draws) -> Tensor:
    """A disk as kernel, its edge softened by a 3×3 Gaussian."""
    radius, softening = parameters
    half = math.ceil(radius) + 1
    offsets = torch.arange(-half, half + 1)
    disk = (offsets[:, None] ** 2 + offsets**2 <= radius**2).float()
    soft = torch.exp(-0.5 * (torch.arange(-1, 2) / softening) ** 2)
    soft = soft / soft.sum()
    kernel = functional.conv2d((disk / disk.sum())[None, None], torch.outer(soft, soft)[None, None], padding=1)[0, 0]
    padded = functional.pad(x, (half, half, half, half), mode="reflect")
    blurred = torch.zeros_like(x)
    for row, column in kernel.nonzero().tolist():  # not conv2d, which cuDNN may round to ten bits (TF32)
        blurred += float(kernel[row, column]) * padded[..., row : row + x.shape[2], column : column + x.shape[3]]
    return blurred


@_corruption(
    at_32=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    at_64=((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
)
def glass_blur(x: Tensor, parameters: tuple[float, int, int], draws: _Draws) -> Tensor:
    """Blur, replace each pixel by one nearby (`reach` up and left, `reach` − 1 down and right, at most), blur.

    The original goes through the pixels one by one, from the last to the first, and means to swap them, but copies.
    With a reach of 1 it only reads pixels that it has not yet written, so that one gather gives the same result; with a
    reach of 2 (64×64, severities 4 and 5) it may read a pixel already replaced, which is left out here.
    """
    sigma, reach, rounds = parameters
    count, size = x.shape[0], x.shape[-1]
    inner = torch.arange(reach + 1, size - reach + 1, device=x.device)
    shifts = draws.integers((rounds, 2, count, len(inner), len(inner)), -reach, reach)
    moved = (_truncate(_gaussian(x, sigma)).float() / 255).flatten(2)
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    for down, right in shifts:
        source_rows = rows.to(x.device).expand(count, -1, -1).clone()
        source_columns = columns.to(x.device).expand(count, -1, -1).clone()
        source_rows[:, inner[:, None], inner] += down
        source_columns[:, inner[:, None], inner] += right
        sources = (source_rows * size + source_columns).flatten(1)
        moved = moved.gather(2, sources[:, None].expand_as(moved))
    return _gaussian(moved.view_as(x), sigma)


@_corruption(
    at_32=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    at_64=((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
)
def motion_blur(x: Tensor, parameters: tuple[int, float], draws: _Draws) -> Tensor:
    radius, sigma = parameters
    return _motion(x, radius, sigma, draws.uniform((len(x),), -45, 45))


# Zooms of 1, 1.01, … below 1.06, 1.11, 1.16, 1.21, 1.26. That would be 6 and 11 for the first two, but in the original
# the limit itself slips in by the rounding of floats, and the reference statistics show it.
_ZOOMS = (7, 12, 16, 21, 26)


@_corruption(at_32=_ZOOMS, at_64=_ZOOMS)
def zoom_blur(x: Tensor, zooms: int, draws: _Draws) -> Tensor:
    """The mean of the image and its centre, zoomed by 1, 1.01, …"""
    total = x.clone()
    for step in range(zooms):
        total += _clipped_zoom(x, 1 + step / 100)
    return total / (zooms + 1)


@_corruption(at_32=(0.4, 0.6, 0.7, 0.8, 1.0), at_64=None)
def gaussian_blur(x: Tensor, sigma: float, draws: _Draws) -> Tensor:
    return _gaussian(x, sigma)


# Weather.

_SNOW = (
    (0.1, 0.2, 1, 0.6, 8, 3),
    (0.1, 0.2, 1, 0.5, 10, 4),
    (0.15, 0.3, 1.75, 0.55, 10, 4),
    (0.25, 0.3, 2.25, 0.6, 12, 6),
    (0.3, 0.3, 1.25, 0.65, 14, 12),
)


@_corruption(
    at_32=tuple(zip(_SNOW, (0.95, 0.9, 0.9, 0.85, 0.8), strict=True)),
    at_64=tuple(zip(_SNOW, (0.8, 0.8, 0.7, 0.65, 0.6), strict=True)),
)
def snow(x: Tensor, parameters: tuple[tuple[float, float, float, float, int, float], float], draws: _Draws) -> Tensor:
    """Whiten the image, then add flakes (enlarged, thresholded, moving noise) and the same flakes turned by 180°."""
    (mean, deviation, zoom, threshold, radius, sigma), mix = parameters
    noise = draws.normal((len(x), 1, *x.shape[2:]), mean, deviation)
    angles = draws.uniform((len(x),), -135, -45)
    flakes = _clipped_zoom(noise, zoom)
    flakes = _truncate(flakes.masked_fill(flakes < threshold, 0)).float() / 255
    flakes = _motion(flakes, radius, sigma, angles)
    whitened = mix * x + (1 - mix) * torch.maximum(x, 1.5 * _grey(x) + 0.5)
    return whitened + flakes + flakes.flip((2, 3))


@_corruption(
    at_32=((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    at_64=((1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)),
)
def frost(x: Tensor, parameters: tuple[float, float], draws: _Draws) -> Tensor:
    """Mix in ice crystals. The original takes crops of photographs; here they are made, to the same statistics."""
    image_share, frost_share = parameters
    noise = draws.normal((len(x), 1, *x.shape[2:]), 0, 1)
    angles = draws.uniform((2, len(x)), 0, 360)
    level = draws.normal((len(x), 1, 1, 1), 0.635, 0.06)
    patches = _plasma(len(x), x.shape[-1], 1.5, draws) - 0.5
    needles = _motion(noise, 4, 2.0, angles[0]) + _motion(noise, 4, 2.0, angles[1])
    tint = x.new_tensor((0.95, 1.0, 1.05))[:, None, None]
    ice = ((level + 0.3 * patches + 0.09 * needles) * tint).clamp(0, 1)
    return image_share * x + frost_share * ice


@_corruption(
    at_32=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    at_64=((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
)
def fog(x: Tensor, parameters: tuple[float, float], draws: _Draws) -> Tensor:
    density, decay = parameters
    brightest = x.amax(dim=(1, 2, 3), keepdim=True)
    return (x + density * _plasma(len(x), x.shape[-1], decay, draws)) * brightest / (brightest + density)


_SPATTER = (
    (0.62, 0.1, 0.7, 0.70, 0.5, "water"),
    (0.65, 0.1, 0.8, 0.70, 0.5, "water"),
    (0.65, 0.3, 1.0, 0.69, 0.5, "water"),
    (0.65, 0.1, 0.7, 0.69, 0.6, "mud"),
    (0.65, 0.1, 0.5, 0.68, 0.6, "mud"),
)


@_corruption(at_32=_SPATTER, at_64=None)
def spatter(x: Tensor, parameters: tuple[float, float, float, float, float, str], draws: _Draws) -> Tensor:
    """Drops where smoothed noise is above a threshold: pale water adds light, mud covers.

    Simpler than the original, which lights the edges of the drops. The reference gives neither parameters nor
    statistics for it: the numbers above follow the original from memory, and nothing here checks them.
    """
    mean, deviation, sigma, threshold, strength, liquid = parameters
    layer = _gaussian(draws.normal((len(x), 1, *x.shape[2:]), mean, deviation), sigma)
    drops = layer > threshold
    if liquid == "water":
        depth = layer * drops / layer.amax(dim=(1, 2, 3), keepdim=True)
        return x + strength * depth * x.new_tensor((175, 238, 238))[:, None, None] / 255
    cover = _gaussian(drops.float(), strength)
    cover = cover.masked_fill(cover < 0.8, 0)
    return x * (1 - cover) + cover * x.new_tensor((63, 42, 20))[:, None, None] / 255


# Colour.


@_corruption(at_32=(0.05, 0.1, 0.15, 0.2, 0.3), at_64=(0.1, 0.2, 0.3, 0.4, 0.5))
def brightness(x: Tensor, increase: float, draws: _Draws) -> Tensor:
    """Raise the value of HSV. At fixed hue and saturation, RGB is proportional to the value; black becomes grey."""
    value = x.amax(dim=1, keepdim=True)
    raised = (value + increase).clamp(max=1)
    return torch.where(value > 0, x * raised / value, raised)


@_corruption(at_32=(0.75, 0.5, 0.4, 0.3, 0.15), at_64=(0.4, 0.3, 0.2, 0.1, 0.05))
def contrast(x: Tensor, factor: float, draws: _Draws) -> Tensor:
    mean = x.mean(dim=(2, 3), keepdim=True)
    return (x - mean) * factor + mean


@_corruption(at_32=((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)), at_64=None)
def saturate(x: Tensor, parameters: tuple[float, float], draws: _Draws) -> Tensor:
    """Scale and raise the saturation of HSV. At fixed hue and value, value − RGB is proportional to the saturation."""
    factor, increase = parameters
    value = x.amax(dim=1, keepdim=True)
    depth = value - x
    saturation = depth.amax(dim=1, keepdim=True) / value.clamp(min=1e-9)
    wanted = (saturation * factor + increase).clamp(max=1)
    grey_depth = value * x.new_tensor((0, 1, 1))[:, None, None]  # a grey pixel has hue 0: saturated, it turns red
    return value - torch.where(saturation > 0, depth * wanted / saturation, grey_depth * wanted)


# Geometry and coding.


@_corruption(
    at_32=((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    at_64=((0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)),
)
def elastic_transform(x: Tensor, parameters: tuple[float, float, float], draws: _Draws) -> Tensor:
    """A random affine map, given by where three points go, then a smooth displacement; lengths in shares of H."""
    count, size = x.shape[0], x.shape[-1]
    displacement, sigma, reach = (size * parameter for parameter in parameters)
    moves = draws.uniform((count, 3, 2), -reach, reach)
    displacements = draws.uniform((2, count, size, size), -1, 1)

    near, far = size // 2 - size // 3, size // 2 + size // 3
    corners = x.new_tensor(((far, far), (far, near), (near, near)))
    # Backwards: an output pixel (column, row, 1) times this (3, 2) matrix is the place that it is sampled at.
    moved = torch.cat((corners + moves, x.new_ones(count, 3, 1)), dim=2)
    affine = torch.linalg.solve(moved, corners.expand(count, -1, -1))
    axis = torch.arange(size, dtype=x.dtype, device=x.device)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    pixels = torch.stack((columns, rows, torch.ones_like(rows)), dim=-1)
    places = pixels @ affine[:, None]
    x = _sample(x, places[..., 1], places[..., 0], mirror_at_pixel_centre=True)
    if displacement == 0:
        return x
    down, right = displacement * _gaussian(displacements, sigma, truncate=3, border="reflect")
    return _sample(x, rows + down, columns + right, mirror_at_pixel_centre=False)


def _box_matrix(size: int, new_size: int, device: torch.device) -> Tensor:
    """The (new_size, size) matrix of Pillow's box resize along one axis: the mean of the pixels centred in the box."""
    scale = size / new_size
    centres = (torch.arange(new_size, dtype=torch.float64) + 0.5) * scale
    offsets = (torch.arange(size, dtype=torch.float64) + 0.5 - centres[:, None]) / max(scale, 1)
    inside = (offsets > -0.5) & (offsets <= 0.5)
    return (inside / inside.sum(dim=1, keepdim=True)).float().to(device)


@_corruption(at_32=(0.95, 0.9, 0.85, 0.75, 0.65), at_64=(0.9, 0.8, 0.7, 0.6, 0.5))
def pixelate(x: Tensor, factor: float, draws: _Draws) -> Tensor:
    size = x.shape[-1]
    small = int(size * factor)
    down, up = _box_matrix(size, small, x.device), _box_matrix(small, size, x.device)
    # Pillow goes along one axis at a time and rounds after each, halves up; the margin is for float32.
    across = (x * 255 @ down.T + 0.501).floor()
    both = (down @ across + 0.501).floor()
    return up @ both @ up.T / 255


@_corruption(at_32=(80, 65, 58, 50, 40), at_64=(65, 58, 50, 40, 25))
def jpeg_compression(x: Tensor, quality: int, draws: _Draws) -> Tensor:
    """By Pillow, image by image and on the CPU, because another encoder makes other artefacts."""
    levels = _truncate(x).permute(0, 2, 3, 1).cpu().numpy()
    decoded = np.empty_like(levels)
    for index, image in enumerate(levels):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        decoded[index] = np.asarray(Image.open(file))
    return torch.from_numpy(decoded).to(x.device).permute(0, 3, 1, 2).float() / 255
