"""Image corruptions: `corrupt(images, "fog", 5)` makes the domains of the -C benchmarks from clean
images.

Each corruption is a function of images, random draws and the parameters of the severity. It takes
and returns float32 images (N, 3, H, H). Its input is in [0, 1]; its output may leave this range and
is clipped afterwards. The functions in `digital.ON_GREY_LEVELS` take and return uint8 images. The
parameters are in parameters.yaml. The operations are written anew, for whole batches, and a test
compares them with statistics of the original code.

Frost comes from the original's photographs if they are given, and otherwise from a made-up texture.
Images of 64×64 and 224×224 pixels are coded as JPEG at the end, since Tiny-ImageNet-C and
ImageNet-C consist of JPEG files.

A walk from one corruption to another applies both, one after the other, also at severities between
the whole ones (between.py): `corrupt(images, "fog_to_snow", 3)`.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
import yaml
from torch import Tensor

from cascadetta_lib.data.corruptions import blur, digital, noise, weather
from cascadetta_lib.data.corruptions.between import parameters_at
from cascadetta_lib.data.corruptions.common import Draws, truncate
from cascadetta_lib.data.corruptions.photographs import Photographs
from cascadetta_lib.data.walks import WALK_STEPS, ends_of, is_walk
from cascadetta_lib.registry import nearest

PARAMETERS = yaml.safe_load(Path(__file__).with_name("parameters.yaml").read_text(encoding="utf-8"))
CORRUPTIONS = tuple(name for name, table in PARAMETERS.items() if 64 in table)
"""The fifteen corruptions of the benchmark, in the standard order of the stream."""
HELD_OUT_CORRUPTIONS = tuple(name for name in PARAMETERS if name not in CORRUPTIONS)
"""Four more corruptions, for choosing hyper-parameters without the fifteen. Here they are for 32×32
pixels only.
"""
SEVERITIES = (1, 2, 3, 4, 5)
CHUNKS = {32: 500, 64: 500, 224: 20}
"""How many images are corrupted at a time, by the side of the images in pixels. The random draws
depend on these numbers, so they are fixed.
"""
FILES = (64, 224)
FILE_QUALITY = 85
"""Images whose side is in FILES are coded as JPEG at the end, with this quality."""


def check_corruption(name: str, severity: int) -> None:
    """Raise ValueError for an unknown name or severity, and for a walk that is not between two
    different ones of CORRUPTIONS.
    """
    ends = ends_of(name)
    for end in ends:
        if end not in PARAMETERS:
            raise ValueError(f"corruption = {name!r}: {nearest(end, PARAMETERS)}")
    if len(ends) == 1:
        allowed: tuple[int, ...] = SEVERITIES
    else:
        allowed = tuple(range(1, WALK_STEPS + 1))
        if len(ends) > 2 or ends[0] == ends[1] or not set(ends) <= set(CORRUPTIONS):
            pair = "two different ones of the fifteen, such as fog_to_snow"
            raise ValueError(f"corruption = {name!r}: allowed is a walk between {pair}")
    if severity not in allowed:
        raise ValueError(f"severity = {severity!r}: allowed are {', '.join(map(str, allowed))}")


def applied(name: str, severity: int) -> list[tuple[str, float]]:
    """Return the corruptions of a domain in the order in which they are applied, each with its
    severity in (0, 5]. See walks.py.
    """
    if not is_walk(name):
        return [(name, severity)]
    first, last = ends_of(name)
    most = SEVERITIES[-1]
    reached = most * severity / WALK_STEPS
    return [each for each in ((first, most - reached), (last, reached)) if each[1] > 0]


def corrupted_chunks(
    images: Tensor,
    corruption: str,
    severity: int,
    *,
    seed: int = 0,
    photographs: Photographs | None = None,
) -> Iterator[Tensor]:
    """Corrupt images as `corrupt` does, but a chunk at a time, and yield the chunks. So domains can
    be made that do not fit into memory.

    See `corrupt` for the arguments and errors.
    """
    check_corruption(corruption, severity)
    shape = tuple(images.shape)
    table = PARAMETERS[ends_of(corruption)[0]]
    if images.dtype != torch.uint8 or shape[1:] not in {(3, size, size) for size in table}:
        allowed = " or ".join(f"(N, 3, {size}, {size})" for size in table)
        raise ValueError(
            f"images for {corruption} are {images.dtype} {shape}: allowed is torch.uint8 {allowed}"
        )
    steps = []
    for each, level in applied(corruption, severity):
        draws = Draws(seed, each, level, images.device)
        steps.append(_corruption(each, level, shape[-1], draws, photographs))
    for chunk in images.split(CHUNKS[shape[-1]]):
        made = chunk
        for step in steps:
            made = step(made)
        if shape[-1] in FILES:
            made = digital.jpeg_compression(made, draws, FILE_QUALITY)
        yield made


def _corruption(
    name: str, severity: float, side: int, draws: Draws, photographs: Photographs | None
) -> Callable[[Tensor], Tensor]:
    """Return a function that corrupts one chunk of images, uint8 (n, 3, side, side). Call it on the
    chunks in their order, because each call goes on with the same random draws.
    """
    parameters = parameters_at(name, PARAMETERS[name][side], severity)
    apply = next(
        getattr(part, name) for part in (noise, blur, weather, digital) if hasattr(part, name)
    )
    if name == "frost" and photographs is not None:
        apply = partial(weather.frost_from_photographs, photographs=photographs[side])

    def corrupted(chunk: Tensor) -> Tensor:
        if apply in digital.ON_GREY_LEVELS:
            return apply(chunk, draws, *parameters)
        return truncate(apply(chunk.float() / 255, draws, *parameters))

    return corrupted


def corrupt(
    images: Tensor,
    corruption: str,
    severity: int,
    *,
    seed: int = 0,
    photographs: Photographs | None = None,
) -> Tensor:
    """Corrupt images. The result has the shape, dtype and device of `images`.

    images: uint8 (N, 3, H, H) with H 32, 64 or 224.
    corruption, severity: a corruption and 1..5, or a walk and a place 1..20 on it (`applied`).
    seed: seeds the random draws, together with corruption and severity.
    photographs: the photographs from which frost is cropped (`photographs.read_photographs`); None
        for a made-up texture. Other corruptions ignore them.

    The noise of an image depends on `seed`, `corruption` and `severity`, on the place of the image
    in `images`, and on the number of images. Shot noise also depends on the images before it.

    Raises ValueError for any other corruption, severity, dtype or shape.
    """
    chunks = corrupted_chunks(images, corruption, severity, seed=seed, photographs=photographs)
    return torch.cat([images[:0], *chunks])
