"""The parameters of a corruption at severities between the whole ones, for walks.

As in CCC (Press et al. 2023), each parameter is interpolated linearly between its values at the two
neighbouring severities. At severity 0 a corruption does nothing. Of shot noise, 1/photons is
interpolated, because the variance of the noise depends on it. Parameters that count something
(pixels, rounds or zooms), and the quality of JPEG, are rounded.
"""

from collections.abc import Sequence
from typing import Any

SAME = None
"""An entry of NOTHING for a parameter that has no effect at severity 0. At severity 0 it keeps the
value that it has at severity 1.
"""
NOTHING: dict[str, tuple[float | None, ...]] = {
    "gaussian_noise": (0,),
    "shot_noise": (0,),
    "impulse_noise": (0,),
    "defocus_blur": (0, 0),
    "glass_blur": (0, SAME, 0),
    "motion_blur": (0, 0),
    "zoom_blur": (0, 1),
    "snow": (1, SAME, SAME, SAME, 1, SAME, SAME),
    "frost": (1, 0),
    "fog": (0, SAME),
    "brightness": (0,),
    "contrast": (1,),
    "elastic_transform": (0, SAME, 0),
    "pixelate": (1,),
    "jpeg_compression": (100,),
}
"""The parameters of each corruption of the benchmark at severity 0. That of shot noise is
1/photons.
"""
WHOLE = {
    "glass_blur": (1, 2),
    "motion_blur": (0,),
    "zoom_blur": (0,),
    "snow": (5,),
    "jpeg_compression": (0,),
}
"""The places of the parameters that are rounded to whole numbers, by corruption."""


def parameters_at(corruption: str, table: Sequence[Any], severity: float) -> list[Any]:
    """Return the parameters of a corruption at a severity above 0 and at most 5.

    table: the parameters at the severities 1 to 5, each a number or a list of numbers. At a whole
        severity those of the table are returned unchanged.
    """
    levels = [level if isinstance(level, list) else [level] for level in table]
    if severity == int(severity):
        return levels[int(severity) - 1]
    rates = corruption == "shot_noise"
    if rates:
        levels = [[1 / photons for photons in level] for level in levels]
    nothing = [
        first if value is SAME else value
        for first, value in zip(levels[0], NOTHING[corruption], strict=False)
    ]
    below, above = ([nothing, *levels][int(severity) + more] for more in (0, 1))
    share = severity - int(severity)
    found = [low + share * (high - low) for low, high in zip(below, above, strict=True)]
    if rates:
        found = [1 / rate for rate in found]
    for place in WHOLE.get(corruption, ()):
        found[place] = round(found[place])
    return found
