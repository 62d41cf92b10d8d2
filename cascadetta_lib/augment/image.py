"""AugMix in batches on the device (domain randomisation, Algorithm 1), drawn first and applied second.

An AugMix image is (1 − m)·x + m·Σ_k w_k·chain_k(x): 3 chains of 1 to 3 operations, w ~ Dirichlet(1), m ~ Beta(1, 1).
The level of an operation is uniform between 0.1 and the severity, on a scale on which 10 is the strongest: AugMix's own
severity is 3, the paper's release has −1. The operations that overlap with the benchmark's corruptions (brightness, contrast, colour,
sharpness) are left out, so that no test domain is seen in training.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

OPERATIONS = (
    "autocontrast",
    "equalize",
    "posterize",
    "solarize",
    "rotate",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
)
FIRST_AFFINE = OPERATIONS.index("rotate")
WIDTH, DEPTH = 3, 3
"""Chains an image, and at most this many operations a chain."""


class AugMixDraw(NamedTuple):
    """What AugMix does to each of N images. Print it, apply it twice, test it."""

    operation: Tensor  # int64 (N, WIDTH, DEPTH), an index into OPERATIONS
    magnitude: Tensor  # float32 (N, WIDTH, DEPTH): share of the largest effect, level / 10
    mirrored: Tensor  # bool (N, WIDTH, DEPTH): whether an affine operation turns the other way
    depth: Tensor  # int64 (N, WIDTH) in 1..DEPTH
    weight: Tensor  # float32 (N, WIDTH), sums to 1
    mix: Tensor  # float32 (N,) in [0, 1]: share of the chains in the result


def draw_augmix(count: int, generator: torch.Generator, severity: float) -> AugMixDraw:
    """Draw AugMix of a severity for `count` images from `generator`, on its device."""
    shape, device = (count, WIDTH, DEPTH), generator.device
    operation = torch.randint(len(OPERATIONS), shape, generator=generator, device=device)
    level = 0.1 + (severity - 0.1) * torch.rand(shape, generator=generator, device=device)
    mirrored = torch.randint(2, shape, generator=generator, device=device).bool()
    depth = torch.randint(1, DEPTH + 1, shape[:2], generator=generator, device=device)
    # Dirichlet(1) is normalised exponentials, Beta(1, 1) is uniform.
    exponential = -torch.log1p(-torch.rand(shape[:2], generator=generator, device=device))
    mix = torch.rand(count, generator=generator, device=device)
    return AugMixDraw(operation, level / 10, mirrored, depth, exponential / exponential.sum(1, keepdim=True), mix)


def apply_augmix(images: Tensor, draw: AugMixDraw) -> Tensor:
    """Apply `draw` to uint8 images (N, 3, H, W); the result is uint8 (N, 3, H, W)."""
    draw = AugMixDraw(*(part.to(images.device) for part in draw))
    count = len(images)
    chains = images.float().repeat_interleave(WIDTH, 0)
    for position in range(DEPTH):
        operation = draw.operation[:, :, position].flatten()
        magnitude = draw.magnitude[:, :, position].flatten()
        mirrored = draw.mirrored[:, :, position].flatten()
        active = (draw.depth > position).flatten()
        affine = (active & (operation >= FIRST_AFFINE)).nonzero().squeeze(1)
        if len(affine):
            signed = torch.where(mirrored, -magnitude, magnitude)
            chains[affine] = _affine(chains[affine], operation[affine], signed[affine])
        for index, function in enumerate((_autocontrast, _equalize, _posterize, _solarize)):
            chosen = (active & (operation == index)).nonzero().squeeze(1)
            if len(chosen):
                chains[chosen] = function(chains[chosen], magnitude[chosen])
    weight = (draw.weight * draw.mix[:, None]).view(count, WIDTH, 1, 1, 1)
    mixed = (1 - draw.mix.view(-1, 1, 1, 1)) * images + (weight * chains.view(count, WIDTH, *images.shape[1:])).sum(1)
    return mixed.round_().clamp_(0, 255).to(torch.uint8)


def augmix(images: Tensor, generator: torch.Generator, *, severity: float, shared: bool = False) -> Tensor:
    """AugMix on uint8 images (N, 3, H, W).

    shared: one mixture for the whole batch (the paper's one transformation a batch); else one an image (the release).
    """
    draw = draw_augmix(1 if shared else len(images), generator, severity)
    if shared:
        draw = AugMixDraw(*(part.expand(len(images), *part.shape[1:]) for part in draw))
    return apply_augmix(images, draw)


def _autocontrast(x: Tensor, magnitude: Tensor) -> Tensor:
    """Stretch each channel of each image to 0..255; a constant channel stays."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    scale = torch.where(high > low, 255 / (high - low).clamp_min(1), 1.0)
    return torch.where(high > low, (x - low) * scale, x).floor()


def _equalize(x: Tensor, magnitude: Tensor) -> Tensor:
    """Equalise the histogram of each channel of each image, as Pillow's ImageOps.equalize does."""
    planes = x.reshape(-1, x.shape[2] * x.shape[3]).long()
    counts = torch.zeros(len(planes), 256, dtype=torch.long, device=x.device)
    counts.scatter_add_(1, planes, torch.ones_like(planes))
    last = counts.gather(1, planes.amax(1, keepdim=True)).squeeze(1)
    step = (planes.shape[1] - last) // 255
    before = counts.cumsum(1) - counts
    table = ((before + step[:, None] // 2) // step.clamp_min(1)[:, None]).clamp_max(255)
    table = torch.where(step[:, None] > 0, table, torch.arange(256, device=x.device))
    return table.gather(1, planes).view_as(x).to(x.dtype)


def _posterize(x: Tensor, magnitude: Tensor) -> Tensor:
    """Keep 4 − 4·magnitude bits of each value, the product without its fraction."""
    dropped = 4 + (4 * magnitude).trunc()
    quantum = (2.0**dropped).view(-1, 1, 1, 1)
    return (x / quantum).floor() * quantum


def _solarize(x: Tensor, magnitude: Tensor) -> Tensor:
    """Invert every value at or above 256 − 256·magnitude, the product without its fraction."""
    threshold = (256 - (256 * magnitude).trunc()).view(-1, 1, 1, 1)
    return torch.where(x < threshold, x, 255 - x)


def _affine(x: Tensor, operation: Tensor, magnitude: Tensor) -> Tensor:
    """Rotation by 30°·magnitude and translation by size/3·magnitude, in whole degrees and pixels; shear by
    0.3·magnitude; black outside."""
    kind = [operation == OPERATIONS.index(name) for name in OPERATIONS[FIRST_AFFINE:]]
    rotate, shear_x, shear_y, translate_x, translate_y = (k.float() * magnitude for k in kind)
    angle = (30 * rotate).trunc() * torch.pi / 180
    height, width = x.shape[2:]
    # grid_sample's coordinates span −1..1, so a pixel is 2/size.
    right, down = (translate_x * width / 3).trunc() * 2 / width, (translate_y * height / 3).trunc() * 2 / height
    cos, sin = angle.cos(), angle.sin()
    theta = torch.stack(
        [
            torch.stack([cos, -sin + 0.3 * shear_x, right], 1),
            torch.stack([sin + 0.3 * shear_y, cos, down], 1),
        ],
        1,
    )
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False).round()


# ---------------------------------------------------------------- crop and flip


PADDING = 4
"""Pixels that a random crop may reach over the border, on each side."""


class CropDraw(NamedTuple):
    """What crop and flip do to each of N images."""

    top: Tensor  # int64 (N,) in 0..2·PADDING: the crop's first row in the padded image
    left: Tensor  # int64 (N,), its first column
    flip: Tensor  # bool (N,): mirror the crop


def draw_crop(count: int, generator: torch.Generator) -> CropDraw:
    """Draw crop and flip for `count` images from `generator`, on its device."""
    device = generator.device
    top, left = torch.randint(2 * PADDING + 1, (2, count), generator=generator, device=device)
    return CropDraw(top, left, torch.randint(2, (count,), generator=generator, device=device).bool())


def apply_crop(x: Tensor, draw: CropDraw, *, black: float = 0) -> Tensor:
    """Crop `x` (N, C, H, W), padded by PADDING pixels of value `black`, to its own size, and then flip; any dtype."""
    count, _, height, width = x.shape
    top, left, flip = (part.to(x.device)[:, None] for part in draw)
    rows = top + torch.arange(height, device=x.device)
    column = torch.arange(width, device=x.device)
    columns = left + torch.where(flip, column.flip(0), column)
    padded = F.pad(x, (PADDING,) * 4, value=black)
    image = torch.arange(count, device=x.device)[:, None, None]
    # Indices on both sides of a slice put its dimension, the channels, last.
    return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def crop_and_flip(x: Tensor, generator: torch.Generator, *, black: float = 0) -> Tensor:
    """Draw and apply: a random crop and, with probability 0.5, a mirror image."""
    return apply_crop(x, draw_crop(len(x), generator), black=black)


# ---------------------------------------------------------------- CoTTA's augmentation


class CoTTADraw(NamedTuple):
    """What CoTTA's augmentation does to each of N images, all float32 (N,) but the first two."""

    order: Tensor  # int64 (N, 5): the order of brightness, contrast, saturation, hue and gamma
    flip: Tensor  # bool (N,)
    brightness: Tensor
    contrast: Tensor
    saturation: Tensor
    hue: Tensor  # in turns
    gamma: Tensor
    angle: Tensor  # radians
    shift_x: Tensor  # share of the image's width
    shift_y: Tensor
    scale: Tensor
    sigma: Tensor  # of the blur, pixels


def draw_cotta(count: int, generator: torch.Generator) -> CoTTADraw:
    """Draw CoTTA's augmentation for `count` images from `generator`, on its device."""
    uniform = torch.rand(10, count, generator=generator, device=generator.device)
    order = torch.rand(count, 5, generator=generator, device=generator.device).argsort(1)
    flip = torch.rand(count, generator=generator, device=generator.device) < 0.5
    # The translation is 1/16 of the image padded to twice its size, so 1/8 of the image.
    low = torch.tensor([0.6, 0.7, 0.5, -0.06, 0.7, -torch.pi / 12, -1 / 8, -1 / 8, 0.9, 0.001], device=uniform.device)
    high = torch.tensor([1.4, 1.3, 1.5, 0.06, 1.3, torch.pi / 12, 1 / 8, 1 / 8, 1.1, 0.5], device=uniform.device)
    return CoTTADraw(order, flip, *(low[:, None] + (high - low)[:, None] * uniform))


def cotta_augment(x: Tensor, draw: CoTTADraw, generator: torch.Generator) -> Tensor:
    """Apply `draw` to images (N, 3, H, W) in [0, 1]; `generator` draws the Gaussian noise (σ 0.005). In [0, 1]."""
    draw = CoTTADraw(*(part.to(x.device) for part in draw))
    x = x.clamp(0, 1)
    colour = (
        (_blend_black, draw.brightness),
        (_blend_mean, draw.contrast),
        (_blend_grey, draw.saturation),
        (_turn_hue, draw.hue),
        (_gamma, draw.gamma),
    )
    for position in range(len(colour)):
        for index, (function, value) in enumerate(colour):
            chosen = (draw.order[:, position] == index).nonzero().squeeze(1)
            if len(chosen) == len(x):  # a copy for CoTTA has one order for all its images
                x = function(x, value.view(-1, 1, 1, 1))
            elif len(chosen):
                x[chosen] = function(x[chosen], value[chosen].view(-1, 1, 1, 1))
    cos, sin = draw.angle.cos() / draw.scale, draw.angle.sin() / draw.scale
    theta = torch.stack(
        [torch.stack([cos, -sin, 2 * draw.shift_x], 1), torch.stack([sin, cos, 2 * draw.shift_y], 1)], 1
    )
    # The image is padded by its edge, moved and cropped back: the same as reading beyond the border with its edge.
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    x = _blur(F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False), draw.sigma)
    x = torch.where(draw.flip.view(-1, 1, 1, 1), x.flip(3), x)
    noise = torch.randn(x.shape, generator=generator, device=generator.device).to(x.device)
    return (x + 0.005 * noise).clamp(0, 1)


def cotta_copies(
    x: Tensor, count: int, generator: torch.Generator, value_range: tuple[float, float]
) -> Iterator[Tensor]:
    """`count` versions of a prepared batch, black and white at `value_range`; one draw serves all images of a copy,
    because the release's transforms see a whole batch."""
    black, white = value_range
    unit = (x - black) / (white - black)
    draws = draw_cotta(count, generator)
    for number in range(count):
        draw = CoTTADraw(*(part[number : number + 1].expand(len(x), *part.shape[1:]) for part in draws))
        yield black + (white - black) * cotta_augment(unit, draw, generator)


def _blend_black(x: Tensor, factor: Tensor) -> Tensor:
    return (x * factor).clamp(0, 1)


def _blend_mean(x: Tensor, factor: Tensor) -> Tensor:
    mean = _grey(x).mean((1, 2, 3), keepdim=True)
    return (mean + factor * (x - mean)).clamp(0, 1)


def _blend_grey(x: Tensor, factor: Tensor) -> Tensor:
    grey = _grey(x)
    return (grey + factor * (x - grey)).clamp(0, 1)


def _gamma(x: Tensor, exponent: Tensor) -> Tensor:
    return x.clamp_min(0) ** exponent


def _grey(x: Tensor) -> Tensor:
    """Luma (N, 1, H, W) of RGB, ITU-R 601."""
    return 0.2989 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]


def _turn_hue(x: Tensor, turns: Tensor) -> Tensor:
    """Turn the hue of RGB in HSV space: each channel is V − V·S·max(0, min(k, 4 − k, 1)), k = (n + 6H) mod 6."""
    value, low = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
    chroma = value - low
    red, green, blue = x.split(1, 1)
    safe = chroma.clamp_min(1e-8)
    hue = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    offsets = torch.tensor([5.0, 3.0, 1.0], device=x.device).view(1, 3, 1, 1)
    k = (offsets + hue + 6 * turns) % 6
    return value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)


def _blur(x: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur, kernel 5, σ (N,) an image, edges reflected."""
    taps = torch.arange(-2, 3, device=x.device)
    kernel = torch.exp(-0.5 * (taps / sigma[:, None]) ** 2)
    kernel = (kernel / kernel.sum(1, keepdim=True)).view(-1, 5, 1, 1, 1)
    padded = F.pad(x, (2, 2, 2, 2), mode="reflect")
    height, width = x.shape[2:]
    rows = kernel[:, 0] * padded[:, :, :height]
    for i in range(1, 5):
        rows = rows + kernel[:, i] * padded[:, :, i : i + height]
    blurred = kernel[:, 0] * rows[..., :width]
    for i in range(1, 5):
        blurred = blurred + kernel[:, i] * rows[..., i : i + width]
    return blurred
