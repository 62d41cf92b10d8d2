"""Augmentations of images, in batches and on the device: AugMix, crop and flip, and the augmented
copies of MEMO and CoTTA.

AugMix (Hendrycks et al. 2020) is the paper's domain randomisation (Algorithm 1). Operations that
overlap with the benchmark's corruptions (brightness, contrast, colour, sharpness) are left out, so
that training sees no test domain.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from cascadetta_lib.augment import change_chosen, generator_for

COLOUR_OPERATIONS = ("autocontrast", "equalize", "posterize", "solarize")
AFFINE_OPERATIONS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
OPERATIONS = COLOUR_OPERATIONS + AFFINE_OPERATIONS
WIDTH = 3
DEPTH = 3
"""AugMix has WIDTH chains per image, each of 1 to DEPTH operations."""
PADDING = 4
"""The pixels by which a random crop may reach over the border, on each side."""


def augmix(
    images: Tensor, generator: torch.Generator, *, severity: float, shared: bool = False
) -> Tensor:
    """Apply AugMix to uint8 images x (N, 3, H, W): (1 − m)·x + m·Σ_k w_k·chain_k(x), with w ~
    Dirichlet(1) and m ~ Beta(1, 1).

    severity: the level of an operation is drawn uniformly between 0.1 and the severity, on a scale
        where 10 is the strongest. AugMix's own severity is 3; the paper's release has −1.
    shared: whether one mixture is drawn for the whole batch, as in Algorithm 1, or one per image,
        as in the release.
    """
    count = 1 if shared else len(images)
    device = images.device
    generator = generator_for(images, generator)
    shape = (count, WIDTH, DEPTH)
    operation = torch.randint(len(OPERATIONS), shape, generator=generator, device=device)
    level = 0.1 + (severity - 0.1) * torch.rand(shape, generator=generator, device=device)
    mirrored = torch.randint(2, shape, generator=generator, device=device).bool()
    depth = torch.randint(1, DEPTH + 1, shape[:2], generator=generator, device=device)
    # Normalised exponentials follow Dirichlet(1). Beta(1, 1) is uniform.
    exponential = -torch.log1p(-torch.rand(shape[:2], generator=generator, device=device))
    mix = torch.rand(count, generator=generator, device=device).view(-1, 1, 1, 1)
    operation.masked_fill_(torch.arange(DEPTH, device=device) >= depth[:, :, None], -1)
    magnitude = torch.where(mirrored & (operation >= len(COLOUR_OPERATIONS)), -level, level) / 10
    chains = images.float().repeat_interleave(WIDTH, 0)
    for position in range(DEPTH):
        drawn = (
            part[:, :, position].expand(len(images), WIDTH).flatten()
            for part in (operation, magnitude)
        )
        apply_operations(chains, *drawn)
    weight = (exponential / exponential.sum(1, keepdim=True)).view(count, WIDTH, 1, 1, 1)
    mixed = (1 - mix) * images + (
        weight * mix[:, None] * chains.view(-1, WIDTH, *images.shape[1:])
    ).sum(1)
    return mixed.round_().clamp_(0, 255).to(torch.uint8)


def apply_operations(x: Tensor, operation: Tensor, magnitude: Tensor) -> None:
    """Change the images x (N, 3, H, W; float32, 0..255) in place, each by its own operation.

    operation: int64 (N,), an index into OPERATIONS, or −1 for none. magnitude: (N,), the share of
    the strongest effect. A negative magnitude turns an affine operation the other way.
    """
    change_chosen(x, operation >= len(COLOUR_OPERATIONS), _affine, operation, magnitude)
    for index, function in enumerate((_autocontrast, _equalize, _posterize, _solarize)):
        change_chosen(x, operation == index, function, magnitude.view(-1, 1, 1, 1))


def _autocontrast(x: Tensor, magnitude: Tensor) -> Tensor:
    """Stretch each channel of each image to 0..255; a constant channel stays."""
    low = x.amin((2, 3), keepdim=True)
    high = x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) * 255 / (high - low).clamp_min(1), x).floor()


def _equalize(x: Tensor, magnitude: Tensor) -> Tensor:
    """Equalise the histogram of each channel of each image."""
    from torchvision.transforms.v2 import functional as transforms  # takes seconds to import

    return transforms.equalize(x.to(torch.uint8)).float()


def _posterize(x: Tensor, magnitude: Tensor) -> Tensor:
    """Keep the highest 4 − k bits of each value, where k is 4·magnitude without its fraction."""
    quantum = 2.0 ** (4 + (4 * magnitude).trunc())
    return (x / quantum).floor() * quantum


def _solarize(x: Tensor, magnitude: Tensor) -> Tensor:
    """Invert every value at or above 256 − k, where k is 256·magnitude without its fraction."""
    return torch.where(x < 256 - (256 * magnitude).trunc(), x, 255 - x)


def _affine(x: Tensor, operation: Tensor, magnitude: Tensor) -> Tensor:
    """Rotate, shear or translate each image by its magnitude.

    A rotation is by 30°·magnitude, in whole degrees. A translation is by size/3·magnitude, in whole
    pixels. A shear is by 0.3·magnitude about the centre. Pillow shears about the corner, so its
    result is shifted by half the shear. Pixels from outside the image are black.
    """
    kind = [operation == OPERATIONS.index(name) for name in AFFINE_OPERATIONS]
    rotate, shear_x, shear_y, translate_x, translate_y = (k.float() * magnitude for k in kind)
    angle = (30 * rotate).trunc() * torch.pi / 180
    height, width = x.shape[2:]
    # grid_sample's coordinates span −1..1, so a pixel is 2/size.
    right = (translate_x * width / 3).trunc() * 2 / width
    down = (translate_y * height / 3).trunc() * 2 / height
    cos = angle.cos()
    sin = angle.sin()
    # A step of one coordinate along y is height/width times as long as one along x.
    along_y = (-sin + 0.3 * shear_x) * (height / width)
    along_x = (sin + 0.3 * shear_y) * (width / height)
    theta = torch.stack([cos, along_y, right, along_x, cos, down], 1).view(-1, 2, 3)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    return functional.grid_sample(
        x, grid, mode="bilinear", padding_mode="zeros", align_corners=False
    ).round()


def take_pixels(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the pixels of x (N, C, H, W) at `rows` and `columns`: (N, C, H', W').

    rows, columns: int64, of shapes that together broadcast to (N, H', W').
    """
    places = rows * x.shape[3] + columns
    taken = x.flatten(2).gather(2, places.flatten(1)[:, None].expand(-1, x.shape[1], -1))
    return taken.view(*x.shape[:2], *places.shape[1:])


def crop_and_flip(x: Tensor, generator: torch.Generator, *, black: float = 0) -> Tensor:
    """Pad each image of x (N, C, H, W) by PADDING pixels, crop it at random to its own size, and
    mirror it with probability 0.5. Any dtype.

    black: the value of the padding.
    """
    count, _, height, width = x.shape
    device = x.device
    generator = generator_for(x, generator)
    top, left = torch.randint(2 * PADDING + 1, (2, count, 1), generator=generator, device=device)
    flip = torch.randint(2, (count, 1), generator=generator, device=device).bool()
    rows = top + torch.arange(height, device=device)
    column = torch.arange(width, device=device)
    columns = left + torch.where(flip, column.flip(0), column)
    padded = functional.pad(x, (PADDING,) * 4, value=black)
    return take_pixels(padded, rows[:, :, None], columns[:, None, :])


def augmix_copies(
    x: Tensor, count: int, generator: torch.Generator, value_range: tuple[float, float]
) -> Iterator[Tensor]:
    """Yield `count` augmented versions of a prepared batch x (N, 3, H, W), as MEMO's release makes
    them.

    Each image is cropped and flipped, then goes through AugMix at severity 1, by draws of its own.

    value_range: the values of black and of white in x.
    """
    black, white = value_range
    pixels = ((x - black) * (255 / (white - black))).round().clamp(0, 255).to(torch.uint8)
    cropped = crop_and_flip(pixels.repeat(count, 1, 1, 1), generator)
    mixed = augmix(cropped, generator, severity=1.0).to(x.dtype)
    yield from (mixed * ((white - black) / 255) + black).split(len(x))


COTTA_RANGES = {
    "brightness": (0.6, 1.4),
    "contrast": (0.7, 1.3),
    "saturation": (0.5, 1.5),
    "hue": (-0.06, 0.06),  # turns
    "gamma": (0.7, 1.3),
    "angle": (-15, 15),  # degrees
    # Shares of the size. The release has 1/16, of an image that is padded to twice its size.
    "right": (-1 / 8, 1 / 8),
    "down": (-1 / 8, 1 / 8),
    "scale": (0.9, 1.1),
    "sigma": (0.001, 0.5),  # of the blur, pixels
}
"""The ranges of CoTTA's release. Each copy draws from them uniformly. The first five transforms act
in a random order.
"""
NOISE = 0.005
"""Standard deviation of the Gaussian noise, as a share of the value range."""


def cotta_copies(
    x: Tensor, count: int, generator: torch.Generator, value_range: tuple[float, float]
) -> Iterator[Tensor]:
    """Yield `count` augmented versions of a prepared batch x (N, 3, H, W), as CoTTA's release makes
    them.

    A transform acts on a whole batch, so the images of a copy share all draws except the noise.
    Draws and results are as in the release, except in the two outermost pixels. The release pads
    with the edge, moves, blurs, then crops. Here nothing is padded, and the blur reflects the edge.

    value_range: the values of black and of white in x.
    """
    black, white = value_range
    images = ((x - black) / (white - black)).clamp(0, 1).contiguous()
    low, high = torch.tensor(list(COTTA_RANGES.values())).T
    values = low + (high - low) * torch.rand(count, len(low), generator=generator)
    orders = torch.rand(count, 5, generator=generator).argsort(1)
    mirrored = torch.rand(count, generator=generator) < 0.5
    generator = generator_for(x, generator)
    for drawn, order, mirror in zip(
        values.tolist(), orders.tolist(), mirrored.tolist(), strict=True
    ):
        copy = cotta_copy(images, dict(zip(COTTA_RANGES, drawn, strict=True)), order, mirror)
        noise = torch.randn(x.shape, generator=generator, device=x.device)
        copy = copy.add_(noise, alpha=NOISE).clamp_(0, 1)
        yield copy.mul_(white - black).add_(black)


def cotta_copy(x: Tensor, drawn: dict[str, float], order: list[int], mirror: bool) -> Tensor:
    """Return a copy of the images x (N, 3, H, W) in [0, 1], as `cotta_copies` makes it, without
    noise.

    First the colours change, in the drawn order. Then an affine map moves the images and repeats
    their edges. Last comes the blur.

    drawn: a value per name in COTTA_RANGES. order: indices of the changes of colour. mirror:
    whether to flip the images.
    """
    from torchvision.transforms.v2 import functional as transforms  # takes seconds to import

    for name in (list(COTTA_RANGES)[index] for index in order):
        # torchvision's adjust_hue takes three times as long as ours, and waits for a GPU.
        change = turn_hue if name == "hue" else getattr(transforms, f"adjust_{name}")
        x = change(x, drawn[name])
    (height, width), device = x.shape[2:], x.device
    # Where each pixel comes from, in pixels from the centre. Images are moved by whole pixels, as
    # in torchvision's RandomAffine.
    down = (
        torch.arange(height, device=device)[:, None]
        - (height - 1) / 2
        + round(height * drawn["down"])
    )
    right = (torch.arange(width, device=device) - (width - 1) / 2) * (-1 if mirror else 1)
    right = right + round(width * drawn["right"])
    angle = math.radians(drawn["angle"])
    scale = drawn["scale"]
    cos = math.cos(angle) / scale
    sin = math.sin(angle) / scale
    places = (cos * right - sin * down) * (2 / width), (sin * right + cos * down) * (2 / height)
    # All images move alike. So they are handled as the channels of one image, in half the time.
    channels = x.reshape(1, -1, height, width)
    grid = torch.stack(places, 2)[None].to(x)
    moved = functional.grid_sample(channels, grid, padding_mode="border", align_corners=False)
    blurred = functional.pad(moved, (2, 2, 2, 2), mode="reflect")
    weights = [math.exp(-((offset / drawn["sigma"]) ** 2) / 2) for offset in range(-2, 3)]
    for dimension, size in ((2, height), (3, width)):
        shifted = [blurred.narrow(dimension, offset, size) for offset in range(5)]
        blurred = shifted[0] * (weights[0] / sum(weights))
        for part, weight in zip(shifted[1:], weights[1:], strict=True):
            blurred.add_(part, alpha=weight / sum(weights))
    return blurred.view_as(x)


def turn_hue(x: Tensor, turns: float) -> Tensor:
    """Turn the hue (HSV) of images x (N, 3, H, W) in [0, 1] by at most a sixth of the circle, at
    fixed value and saturation.

    A channel is min + (max − min) · t(hue). Here min and max are over the three channels of a
    pixel, and t is a trapezoid of the hue, which is counted in sixths of the circle.
    """
    red, green, blue = x.unbind(1)
    most = torch.maximum(torch.maximum(red, green), blue)
    least = torch.minimum(torch.minimum(red, green), blue)
    span = most - least
    sixth = span.clamp_min(1e-9).reciprocal_()
    hue = torch.where(
        most == green, (blue - red).mul_(sixth).add_(2), (red - green).mul_(sixth).add_(4)
    )
    hue = torch.where(most == red, (green - blue).mul_(sixth), hue).add_(6 * turns)
    hue = torch.where(hue < 0, hue + 6, hue)
    shares = (
        (hue - 3).abs_().sub_(1),
        (hue - 2).abs_().neg_().add_(2),
        (hue - 4).abs_().neg_().add_(2),
    )
    return torch.stack([torch.addcmul(least, span, share.clamp_(0, 1)) for share in shares], 1)
