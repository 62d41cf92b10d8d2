"""The photographs of frost that the original corruption code lays over images.

`read_photographs(DATA_FOLDER / "frost")` reads them if they are there. They are those of
ImageNet-C/create_c in github.com/hendrycks/robustness (Apache-2.0). The wheel imagecorruptions
1.1.2 has the same bytes.

For each image the original draws one of the first five photographs, never the sixth. It scales the
photograph by 0.2 for images of 32×32 pixels, by 0.3 for 64×64 and not at all for 224×224. Then it
takes a random crop. The original scales by OpenCV, which interpolates without a filter against
aliasing. So does this module.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from cascadetta_lib.data.base import DataMissing

SHA256 = {
    "frost1.png": "ff9f907860bd7a835d459e32f9d588062b7f61ee267343cc7222b56753a14755",
    "frost2.png": "fe211a89b336999c207a852ce05818d4545d0b57c5beadd824b4cc9d9a9b6137",
    "frost3.png": "2d0d50b4a9bb213f38b024ef7768731bb83cc08d2f26b5766bbc167cdfa0e504",
    "frost4.jpg": "3f8b91ca1a9fa7167b09e773da53f5ae60d0a1fd88f02a783f6e328a72887f6e",
    "frost5.jpg": "5fc6a19df4a429ba68abdcc8f8a4278d4c9f81c9ccafd2c92ab0c8cf8992ebd2",
}
"""The files, in the order of the original code, and the SHA-256 of each."""
SCALES = {32: 0.2, 64: 0.3, 224: 1.0}
"""The scale of the photographs, by the side of the images in pixels."""

Photographs = Mapping[int, tuple[Tensor, ...]]
"""The five scaled photographs, each uint8 (3, H, W), by the side of the images in pixels."""


def read_photographs(folder: Path) -> Photographs | None:
    """Read and scale the five photographs in `folder`. Return None if there is no such folder.

    Raises DataMissing if a file is missing or has other bytes than the original.
    """
    if not folder.exists():
        return None
    advice = (
        "put there the original files of github.com/hendrycks/robustness (ImageNet-C/create_c), "
        "or remove that folder to use a made-up texture of frost"
    )
    absent = [name for name in SHA256 if not (folder / name).is_file()]
    if absent:
        raise DataMissing(f"{folder} lacks {', '.join(absent)}: {advice}")
    for name, known in SHA256.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != known:
            raise DataMissing(f"{folder / name} is not the original photograph: {advice}")
    pictures = [_decode(folder / name) for name in SHA256]
    return {
        side: tuple(_scale(picture, scale) for picture in pictures)
        for side, scale in SCALES.items()
    }


def _decode(path: Path) -> Tensor:
    """Return the picture in a file, uint8 (3, H, W)."""
    with Image.open(path) as picture:
        pixels = np.array(picture.convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _scale(picture: Tensor, scale: float) -> Tensor:
    """Scale the picture bilinearly, without a filter against aliasing, as OpenCV does."""
    scaled = functional.interpolate(
        picture[None].double(), scale_factor=scale, mode="bilinear", align_corners=False
    )
    return scaled[0].round().to(torch.uint8)
