"""The base of the image datasets: clean images and corrupted domains, kept as uint8 (N, 3, H, W) on
the device.

Corrupted images come from the dataset's -C archive. Without an archive, data/corruptions generates
them. It makes frost from the original photographs if the data folder has them in frost/.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from cascadetta_lib import files
from cascadetta_lib.augment.image import augmix, crop_and_flip
from cascadetta_lib.data import base, corruptions
from cascadetta_lib.data.base import DataMissing, Dataset, Modality, Options, Split
from cascadetta_lib.data.corruptions import (
    CORRUPTIONS,
    FILES,
    HELD_OUT_CORRUPTIONS,
    SEVERITIES,
    check_corruption,
    corrupt,
    corrupted_chunks,
)
from cascadetta_lib.data.corruptions.photographs import Photographs, read_photographs
from cascadetta_lib.data.fetch import fetch, is_as_unpacked
from cascadetta_lib.data.streams import Vocabulary
from cascadetta_lib.data.walks import ends_of, is_walk

SCALINGS = {"symmetric": (0.5, 0.5), "unit": (0.0, 1.0)}
"""Input scalings by name, as (mean, deviation): the input is (x/255 − mean) / deviation."""

MOST_IN_MEMORY = 2**28
"""A generated domain of more bytes than this stays on the disk and is read batch by batch."""
DOWNLOAD = "CASCADETTA_DOWNLOAD_CORRUPTIONS"
"""The environment variable that allows the download of -C archives if it is 1."""


@dataclass(frozen=True)
class Archive:
    """An unpacked -C archive.

    read: a function read(corruption, severity, count) that returns the first `count` images of a
        domain, or all if `count` is None.
    sha256: a hash of the files of the fifteen corruptions and of their labels, so that changed
        pixels count as other data.
    recognised: whether the contents are those of the published archive.
    """

    read: Callable[[str, int, int | None], Split]
    sha256: str
    recognised: bool


class ImageOptions(Options):
    """The options by which images are augmented and scaled. The defaults are those of the paper's
    release.
    """

    input_scaling: Literal["symmetric", "unit"] = Field(
        "symmetric", description="(x/255 − 0.5)/0.5, or x/255"
    )
    crop_and_flip: bool = Field(
        True, description="random crop (pad 4) and horizontal flip, as in the release"
    )
    randomisation: Literal["augmix_batch", "augmix_image"] = Field(
        "augmix_image",
        description="one AugMix mixture for the whole batch (paper, Algorithm 1), or one for each "
        "image (release)",
    )
    augmix_severity: float = Field(
        -1.0,
        ge=-10,
        le=10,
        description="severity of AugMix's operations: −1 in the release, 3 in AugMix itself",
    )


@dataclass(kw_only=True)
class ImageDataset(Dataset):
    """Clean and corrupted images.

    test: all clean test images.
    archive: the -C archive, whose name is `compare_with`; None if the domains are generated.
    photographs: the photographs from which generated frost is cropped; None for a made-up texture.
    architecture: the network for these images; for a dataset of the paper, the paper's.
    input_size: the side in pixels to which `prepare` resizes images; None: as they are.
    """

    modality: ClassVar[Modality] = "image"
    unit: ClassVar[str] = "images"
    vocabulary: ClassVar[Vocabulary] = Vocabulary(CORRUPTIONS, HELD_OUT_CORRUPTIONS, SEVERITIES)
    options: ImageOptions
    test: Split
    archive: Archive | None = None
    photographs: Photographs | None = None
    architecture: Literal["resnet26", "resnet34"] = "resnet26"
    input_size: int | None = None

    @property
    def network_facts(self) -> dict[str, Any]:
        return {"classes": self.classes, "architecture": self.architecture}

    def domain(self, name: str, severity: int) -> Split:
        """Return the first `options.test_size` test images under a corruption, uint8 (N, 3, H, W).

        name, severity: a corruption and 1..5, or a walk between two corruptions and a place 1..20
            on it.

        HELD_OUT_CORRUPTIONS are applied to held-out source images, not to test images. So a choice
        that is made under these corruptions has not seen the test images. Generated images are kept
        in the data folder.

        Raises ValueError for any other name or severity, for a walk if the domains come from a -C
        archive, and for one of HELD_OUT_CORRUPTIONS if no source images are held out.
        """
        check_corruption(name, severity)
        held_out = name in HELD_OUT_CORRUPTIONS
        size = self.options.test_size
        if self.archive is not None and not held_out:
            self.require_no_walk(name)
            return base.to_device(self.archive.read(name, severity, size), self.options.device)
        clean = self._clean(name).take(slice(size))
        # `self.fingerprint` is of all images. Which source images are held out depends on the
        # options, so the held-out images have a fingerprint of their own.
        images = base.fingerprint(clean) if held_out else self.fingerprint
        made_by = base.code_version(corruptions.__name__, augmix.__module__, ends_of.__module__)
        folder = Path(self.options.folder).expanduser() / "generated" / f"{images}-{made_by}"
        frost = "-photographs" if "frost" in ends_of(name) and self.photographs else ""
        title = f"{name}-{severity}-{len(clean.x)}{frost}"
        shape = tuple(clean.x.shape)

        def make() -> Iterator[np.ndarray]:
            parts = corrupted_chunks(clean.x, name, severity, photographs=self.photographs)
            return (part.cpu().numpy() for part in parts)

        if clean.x.numel() > MOST_IN_MEMORY:
            corrupted = files.mapped_array(folder / f"{title}.npy", shape, make)
        else:
            corrupted = files.kept_array(
                folder / f"{title}.npz",
                lambda: np.concatenate([clean.x[:0].cpu().numpy(), *make()]),
                dtype="uint8",
                shape=shape,
            )
        return base.to_device(Split(torch.from_numpy(corrupted), clean.y), self.options.device)

    def _clean(self, name: str) -> Split:
        """Return the images to which a corruption or walk is applied: held-out source images for
        HELD_OUT_CORRUPTIONS, and otherwise the test images. Raises ValueError if there are none.
        """
        clean = self.held_out if name in HELD_OUT_CORRUPTIONS else self.test
        if not len(clean.x):
            raise ValueError(f"{name} corrupts held-out source images, and {self.name} has none")
        return clean

    def require_no_walk(self, name: str) -> None:
        """Raise ValueError if `name` is a walk and the domains come from a -C archive, which has
        none.
        """
        if self.archive is not None and is_walk(name):
            raise ValueError(
                f"{name} is a walk between two corruptions, and the {self.compare_with} archive "
                "has no walks. Move the archive out of the data folder; then the corruptions are "
                "generated"
            )

    def examples_in(self, name: str, severity: int) -> int:
        clean = self.held_out if name in HELD_OUT_CORRUPTIONS else self.test
        return len(clean.y[: self.options.test_size])

    def example(self, name: str, severity: int, index: int) -> Tensor:
        """Return one image of a domain, uint8 (3, H, W) on the CPU, without making the whole
        domain.

        The image is corrupted alone, so its random noise is not that of `domain(name, severity)`.
        An image from an archive is the same in both.

        Raises ValueError as `domain` does.
        """
        check_corruption(name, severity)
        held_out = name in HELD_OUT_CORRUPTIONS
        if self.archive is not None and not held_out:
            self.require_no_walk(name)
            return self.archive.read(name, severity, index + 1).x[index]
        image = self._clean(name).x[index : index + 1].cpu()
        return corrupt(image, name, severity, photographs=self.photographs)[0]

    def weak_augment(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return crop_and_flip(x, generator) if self.options.crop_and_flip else x

    def randomise(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Apply AugMix. Crops and flips are left to `weak_augment`."""
        shared = self.options.randomisation == "augmix_batch"
        return augmix(x, generator, severity=self.options.augmix_severity, shared=shared)

    @property
    def value_range(self) -> tuple[float, float]:
        """The values of black and of white in the network's input."""
        mean, deviation = SCALINGS[self.options.input_scaling]
        return -mean / deviation, (1 - mean) / deviation

    def prepare(self, x: Tensor) -> Tensor:
        """Scale images, uint8 (N, 3, H, W), to float32. If `input_size` is set, resize them
        bilinearly to (N, 3, input_size, input_size).
        """
        mean, deviation = SCALINGS[self.options.input_scaling]
        # Convolutions on a CPU are faster with the channels last in memory.
        scaled = ((x.float() / 255 - mean) / deviation).contiguous(
            memory_format=torch.channels_last
        )
        return self.resize(scaled)

    def resize(self, x: Tensor) -> Tensor:
        """Resize floating-point images bilinearly to the network's `input_size`, if it is set."""
        if self.input_size is None:
            return x
        return functional.interpolate(
            x, (self.input_size, self.input_size), mode="bilinear", align_corners=False
        )

    @property
    def augmented_copies(self) -> Literal["image"]:
        return "image"


def make_image_dataset(
    *,
    train: Split,
    test: Split,
    options: ImageOptions,
    recognised: bool = False,
    archive: Archive | None = None,
    compare_with: str | None,
    **fields: Any,
) -> ImageDataset:
    """Make a dataset from all training and test images. The options say how many of them are used,
    and which share of the training images is held out.

    train, test: all images, uint8 (N, 3, H, H) on the CPU, and their labels. H is 32, 64 or 224,
        the sizes for which there are corruptions. Test images keep their order. If they are stored
        class by class, pass them through `base.mixed`: otherwise most batches hold a single class.
    recognised: whether a hash or fingerprint shows that the clean images are the public ones. The
        dataset counts as recognised only if, in addition, the options use all training images.
    archive, compare_with: see `ImageDataset`.
    fields: name, source, class_names and, where they differ from the default, architecture and
        input_size of `ImageDataset`.

    Raises ValueError if no image is left to train on or to hold out, and DataMissing as
    `domains_of` does.
    """
    whole = options.train_size is None or options.train_size >= len(train.y)
    fitted, held_out = base.split_source(train, options)
    return ImageDataset(
        fingerprint=base.fingerprint([*train, *test]),
        recognised=recognised and whole,
        compare_with=compare_with,
        train=base.to_device(fitted, options.device),
        held_out=base.to_device(held_out, options.device),
        test=base.to_device(test, options.device),
        options=options,
        **domains_of(options, test.x.shape[-1], archive, compare_with),
        **fields,
    )


def domains_of(
    options: ImageOptions, side: int, archive: Archive | None = None, title: str | None = None
) -> dict[str, Any]:
    """Return the fields of `ImageDataset` that describe its target domains: origin, domain_source,
    and archive or photographs.

    side: the side of the images in pixels.
    title: the name of the archive.

    Raises DataMissing if frost/ in the data folder lacks one of the original photographs, or has
    another file in its place.
    """
    if archive is not None:
        told = f"{title} archive" if archive.recognised else f"unknown files in place of {title}"
        return {
            "origin": "archive" if archive.recognised else "other",
            "domain_source": f"{told}, SHA-256 {archive.sha256[:16]}",
            "archive": archive,
        }
    photographs = read_photographs(Path(options.folder).expanduser() / "frost")
    frost = "with a made-up texture" if photographs is None else "from the original photographs"
    generated = f"corruptions generated by data/corruptions (seed 0), frost {frost}"
    return {
        "origin": "texture" if photographs is None else "photographs",
        "domain_source": f"{generated}, as JPEG files" if side in FILES else generated,
        "photographs": photographs,
    }


def find_corruptions(
    name: str,
    urls: Sequence[str],
    folder: str | Path,
    known_hash: str,
    size: str,
    contents: Sequence[str],
    describe: Callable[[Path], str],
) -> Path | None:
    """Return the folder of the -C archive `name`, or None if the archive is missing or cannot be
    used.

    The archive is taken from the data folder, either unpacked or as the downloaded file. It is
    downloaded only if the environment variable DOWNLOAD is 1. A warning says what to do if the
    archive cannot be used, or if both the archive and the photographs of frost are missing.

    The arguments are those of `fetch`.
    """
    folder = Path(folder).expanduser()
    there = (folder / name).exists() or (folder / urls[0].rpartition("/")[2]).exists()
    if not there and os.environ.get(DOWNLOAD) != "1":
        if not (folder / "frost").exists():
            warnings.warn(
                f"{folder} has neither {name} nor frost/: frost gets a made-up texture, and the "
                f"numbers do not compare with the paper's. Put the original photographs into "
                f"frost/, or {name} there; {DOWNLOAD}=1 downloads it ({size})",
                stacklevel=2,
            )
        return None
    try:
        return fetch(name, urls, folder, known_hash, size, name, contents, describe)
    except DataMissing as error:
        warnings.warn(f"{error} Until then the corruptions are generated.", stacklevel=2)
        return None


def make_archive(
    read: Callable[[str, int, int | None], Split], place: Path, known_hash: str, sha256: str
) -> Archive:
    """Return the unpacked archive in the folder `place` as an `Archive`.

    The archive is recognised if `fetch` unpacked it from a file with `known_hash`. The folder
    itself cannot be checked, because nobody has published a hash of it. If the archive is not
    recognised, a warning says how to have it recognised.

    read, sha256: see `Archive`.
    """
    recognised = is_as_unpacked(place, known_hash, sha256)
    if not recognised:
        warnings.warn(
            f"{place}: nothing shows that these files are those of the {place.name} archive, so "
            "the numbers do not compare with the paper's. Put the archive itself "
            f"({known_hash}) beside that folder and remove the folder; the archive is then checked "
            "and unpacked",
            stacklevel=2,
        )
    return Archive(read, sha256, recognised)


def channels_first(images: np.ndarray) -> Tensor:
    """Return uint8 images (N, H, W, 3) as a tensor (N, 3, H, W)."""
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
