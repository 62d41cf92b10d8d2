"""Image corruptions, which make the -C streams from clean images: `corrupt(images, "fog", 5)`.

Each corruption is one function (images, draws, parameters of the severity) -> images, on float32
images (N, 3, H, H) in [0, 1], which its result may leave; those in `digital.ON_GREY_LEVELS` work on
uint8. parameters.yaml holds the parameters. The operations are written anew, by batch, and a test
compares them with statistics of the original code. Frost is mixed in from the original's
photographs where they are given, and else from a made-up texture. Images of 64×64 and 224×224
pixels are coded as JPEG at the end, since Tiny-ImageNet-C and ImageNet-C consist of such files.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
import yaml
from torch import Tensor

from cascadetta_lib.data.corruptions import blur, digital, noise, weather
from cascadetta_lib.data.corruptions.common import Draws, truncate
from cascadetta_lib.data.corruptions.photographs import Photographs
from cascadetta_lib.registry import nearest

PARAMETERS = yaml.safe_load(Path(__file__).with_name("parameters.yaml").read_text(encoding="utf-8"))
CORRUPTIONS = tuple(name for name, table in PARAMETERS.items() if 64 in table)
"""The fifteen corruptions of the benchmark, in the standard order of the stream."""
HELD_OUT_CORRUPTIONS = tuple(name for name in PARAMETERS if name not in CORRUPTIONS)
"""Four more, for choosing hyper-parameters without touching the fifteen. Here at 32×32 alone."""
SEVERITIES = (1, 2, 3, 4, 5)
CHUNKS = {32: 500, 64: 500, 224: 20}
"""Images that are corrupted at a time, by their side in pixels. They are fixed because the draws
depend on them.
"""
FILES = (64, 224)
FILE_QUALITY = 85
"""The sides of the images that end as JPEG files, and the quality of these."""


def check_corruption(name: str, severity: int) -> None:
    """Raise ValueError for an unknown name or severity."""
    if name not in PARAMETERS:
        raise ValueError(f"corruption = {name!r}: {nearest(name, PARAMETERS)}")
    if severity not in SEVERITIES:
        raise ValueError(f"severity = {severity!r}: allowed are {', '.join(map(str, SEVERITIES))}")


def corrupted_chunks(
    images: Tensor,
    corruption: str,
    severity: int,
    *,
    seed: int = 0,
    photographs: Photographs | None = None,
) -> Iterator[Tensor]:
    """Yield what `corrupt` returns some images at a time, for images that do not fit into memory.

    See `corrupt` for the arguments and errors.
    """
    check_corruption(corruption, severity)
    shape = tuple(images.shape)
    table = PARAMETERS[corruption]
    if images.dtype != torch.uint8 or shape[1:] not in {(3, size, size) for size in table}:
        allowed = " or ".join(f"(N, 3, {size}, {size})" for size in table)
        raise ValueError(
            f"images for {corruption} are {images.dtype} {shape}: allowed is torch.uint8 {allowed}"
        )
    parameters = table[shape[-1]][severity - 1]
    parameters = parameters if isinstance(parameters, list) else [parameters]
    apply = next(
        getattr(part, corruption)
        for part in (noise, blur, weather, digital)
        if hasattr(part, corruption)
    )
    if corruption == "frost" and photographs is not None:
        apply = partial(weather.frost_from_photographs, photographs=photographs[shape[-1]])
    draws = Draws(seed, corruption, severity, images.device)
    for chunk in images.split(CHUNKS[shape[-1]]):
        if apply in digital.ON_GREY_LEVELS:
            made = apply(chunk, draws, *parameters)
        else:
            made = truncate(apply(chunk.float() / 255, draws, *parameters))
        if shape[-1] in FILES:
            made = digital.jpeg_compression(made, draws, FILE_QUALITY)
        yield made


def corrupt(
    images: Tensor,
    corruption: str,
    severity: int,
    *,
    seed: int = 0,
    photographs: Photographs | None = None,
) -> Tensor:
    """Corrupt `images` at a severity 1..5; same shape, dtype and device.

    images: uint8, (N, 3, H, H) with H 32, 64 or 224.

    The noise depends on (seed, corruption, severity), the place of an image in the batch and the
    size of the batch alone; shot noise also on the images before it.
    photographs: those that frost is cropped from, see `photographs.read_photographs`; None for a
    made-up texture. Other corruptions make no use of them.

    Raises ValueError for any other corruption, severity, dtype or shape.
    """
    chunks = corrupted_chunks(images, corruption, severity, seed=seed, photographs=photographs)
    return torch.cat([images[:0], *chunks])
