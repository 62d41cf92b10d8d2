"""Your own images in folders, each class a folder: `folder:FOLDER`.

    FOLDER/train/CLASS/…           the source
    FOLDER/test/CLASS/…            what the corruptions are made of
    FOLDER/targets/NAME/CLASS/…    in place of corruptions: target domains, taken as they are
    FOLDER/CLASS/…                 without any of these three: all are test images
    FOLDER/classes.txt             the classes, one per line, in the order of the network's outputs
    FOLDER/source.txt              where the images are from, in its first line

Only test/ or targets/ must be there; without train/ you name a network (`image_weights`). Without
classes.txt the classes are the folders of train/, or else those of all others, sorted by name.
Folders within that of a class are read too.

Images may have any size. Either all are grey or all are in colour. They are read as 8-bit RGB. They
become squares of 32, 64 or 224 pixels: the smallest of the three that is at least as long as every
image's shorter side, and 224 if none is. An image that is no such square is scaled so that its
shorter side is 8/7 of that, and its centre is cut out, as is usual for ImageNet (256 and 224).

The squares are kept as files in generated/ of the data folder, and read from there by batch, so
that memory does not grow with their number; a mixed stream alone is held in memory as a whole.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from cascadetta_lib.data import DatasetName, dataset
from cascadetta_lib.data.base import DataMissing, Split, repeats, split_source, to_device
from cascadetta_lib.data.images import ImageDataset, ImageOptions, domains_of
from cascadetta_lib.data.streams import Vocabulary
from cascadetta_lib.files import code_version, mapped_array

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
SIDES = (32, 64, 224)
SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N", "I")
"""Pillow's modes of one channel of 16 bits. PGM files, and PNG files in older versions, have I."""
GREY = ("1", "L", "LA", "F", *SIXTEEN_BITS)
"""Pillow's modes of one channel, with an opacity or without."""
AT_ONCE = 64
"""Images that are decoded at a time."""


class Files(NamedTuple):
    """The image files of a part, in the order of their examples. labels: the class of each."""

    paths: list[Path]
    labels: list[int]


@dataclass(kw_only=True)
class FolderDataset(ImageDataset):
    """Images of folders.

    targets: the target domains by name, or None where they are corruptions of the test images.
    """

    targets: Mapping[str, Split] | None = None

    def domain(self, name: str, severity: int) -> Split:
        """Return the first `options.test_size` images of a target domain, or of a corruption.

        Raises ValueError for any other name.
        """
        if self.targets is None:
            return super().domain(name, severity)
        if name not in self.targets:
            raise ValueError(f"no domain is named {name!r}; there are {', '.join(self.targets)}")
        split = self.targets[name].take(slice(self.options.test_size))
        return to_device(split, self.options.device)

    def examples_in(self, name: str, severity: int) -> int:
        if self.targets is None:
            return super().examples_in(name, severity)
        return len(self.domain(name, severity).y)

    def example(self, name: str, severity: int, index: int) -> Tensor:
        """Return one image of a target domain, or one test image under a corruption."""
        if self.targets is None:
            return super().example(name, severity, index)
        return self.targets[name].x[index]


def vocabulary(argument: str) -> Vocabulary:
    """Return the domains that a stream over the folder may name: its targets, or else the
    corruptions.
    """
    targets = Path(argument).expanduser() / "targets"
    if not targets.is_dir():
        return ImageDataset.vocabulary
    return Vocabulary(tuple(path.name for path in _targets(targets)), (), (1,))


@dataset("folder", "image", folder="must", own=True, vocabulary=vocabulary)
def load_folder(argument: str, options: ImageOptions) -> FolderDataset:
    """Load the images in the folder `argument`.

    Raises DataMissing where it or its parts are missing, and ValueError where they are not as they
    must be.
    """
    folder = Path(argument).expanduser()
    parts = _parts(folder)
    class_names = _classes(folder, parts)
    listed = {name: _list(place, class_names) for name, place in parts.items()}
    _check_labels(folder, listed.get("train"), class_names)
    everything = [path for files in listed.values() for path in files.paths]
    side = _side(folder, everything)
    hashes = dict(zip(everything, _hashes(everything), strict=True))

    def read(files: Files) -> Split:
        kept = _kept(files, hashes, side, options)
        return Split(kept, torch.tensor(files.labels, dtype=torch.int64))

    nothing = Files([], [])
    train, held_out = _split(listed.get("train", nothing), hashes, options)
    targets = {
        name.removeprefix("targets/"): read(_mixed(files))
        for name, files in listed.items()
        if name.startswith("targets/")
    }
    domains = domains_of(options, side)
    if targets:
        told = f"the user's target domains {', '.join(targets)}, as they are"
        domains = {"origin": "other", "domain_source": told}
    said = folder / "source.txt"
    lines = said.read_text(encoding="utf-8", errors="replace") if said.is_file() else ""
    source = lines.partition("\n")[0].strip() or f"the user's images in {folder.resolve().name}"
    tested = [
        hashes[path] for name, files in listed.items() if name != "train" for path in files.paths
    ]
    source += repeats(
        (hashes[path] for path in listed.get("train", nothing).paths), tested, "images"
    )
    return FolderDataset(
        name=DatasetName("folder", argument).key,
        source=source,
        fingerprint=_fingerprint(listed, class_names, hashes, side),
        recognised=False,
        compare_with=None,
        class_names=class_names,
        train=to_device(read(train), options.device),
        held_out=to_device(read(held_out), options.device),
        test=to_device(read(_mixed(listed.get("test", nothing))), options.device),
        targets=targets or None,
        options=options,
        architecture="resnet34" if side == 224 else "resnet26",
        **domains,
    )


def _folders(place: Path) -> list[Path]:
    """Return the folders in a place by name, without hidden ones."""
    return sorted(
        path for path in place.iterdir() if path.is_dir() and not path.name.startswith(".")
    )


def _targets(place: Path) -> list[Path]:
    """Return the folders of the target domains by name. Raises ValueError for a name with a colon,
    behind which a stream names the severity, and if there is none.
    """
    found = _folders(place)
    if not found:
        raise ValueError(f"{place}: found no folder; allowed are NAME/CLASS/…")
    for target in found:
        if ":" in target.name:
            raise ValueError(
                f"{place}: found the domain {target.name!r}; allowed is a name without ':'"
            )
    return found


def _parts(folder: Path) -> dict[str, Path]:
    """Return the folders that hold a folder for each class: train, test, targets/NAME."""
    if not folder.is_dir():
        raise DataMissing(f"there is no folder {folder}; it holds test/CLASS/… or CLASS/…")
    parts = {name: folder / name for name in ("train", "test") if (folder / name).is_dir()}
    if (folder / "targets").is_dir():
        targets = _targets(folder / "targets")
        parts |= {f"targets/{place.name}": place for place in targets}
    if set(parts) == {"train"}:
        raise DataMissing(f"{folder} has train/; it lacks test/CLASS/… or targets/NAME/CLASS/…")
    return parts or {"test": folder}


def _classes(folder: Path, parts: Mapping[str, Path]) -> tuple[str, ...]:
    """Return the names of the classes, in the order of their labels."""
    listed = folder / "classes.txt"
    if listed.is_file():
        lines = [line.strip() for line in listed.read_text(encoding="utf-8-sig").splitlines()]
        names = [line for line in lines if line]
        several = [name for name, count in Counter(names).items() if count > 1]
        if several:
            raise ValueError(f"{listed}: found {several[0]!r} twice; allowed is a class a line")
    else:
        places = [parts["train"]] if "train" in parts else list(parts.values())
        names = sorted({path.name for place in places for path in _folders(place)})
    if len(names) < 2:
        raise ValueError(f"{folder}: found {len(names)} classes; allowed are 2 or more folders")
    return tuple(names)


def _list(place: Path, class_names: Sequence[str]) -> Files:
    """List the images of a part, class by class. Raises ValueError for a class that is unknown or
    empty.
    """
    labels = {name: label for label, name in enumerate(class_names)}
    files = Files([], [])
    for folder in _folders(place):
        if folder.name not in labels:
            raise ValueError(
                f"{folder}: found the class {folder.name!r}; allowed are the {len(labels)} classes "
                f"of the network, such as {', '.join(class_names[:3])}"
            )
        found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS)
        if not found:
            raise ValueError(
                f"{folder}: found no image; allowed is 1 or more of {', '.join(ENDINGS)}"
            )
        files.paths.extend(found)
        files.labels.extend([labels[folder.name]] * len(found))
    if not files.paths:
        raise ValueError(f"{place}: found no folder of a class; allowed are CLASS/…")
    return files


def _check_labels(folder: Path, train: Files | None, class_names: Sequence[str]) -> None:
    """Refuse a source that lacks a class."""
    if train is None:
        return
    lacking = sorted(set(range(len(class_names))) - set(train.labels))
    if lacking:
        raise ValueError(
            f"{folder / 'train'}: found no images of {class_names[lacking[0]]!r}; allowed are "
            "images of each class"
        )


def _side(folder: Path, paths: Sequence[Path]) -> int:
    """Return the side of the squares. Raises ValueError if grey images and images in colour are
    mixed.
    """

    def look(path: Path) -> tuple[int, bool]:
        try:
            with Image.open(path) as image:
                return min(image.size), image.mode in GREY
        except (OSError, UnidentifiedImageError) as error:
            raise ValueError(f"{path} cannot be read as an image ({error})") from None

    with ThreadPoolExecutor() as pool:
        found = list(pool.map(look, paths))
    grey = [path for path, (_, is_grey) in zip(paths, found, strict=True) if is_grey]
    if grey and len(grey) < len(paths):
        raise ValueError(
            f"{folder}: found {len(grey)} grey images of 1 channel, such as {grey[0]}, among "
            f"{len(paths)} images of 3; allowed are grey ones or ones in colour, as the network "
            "learned from: save all in one form"
        )
    largest = max(side for side, _ in found)
    return next((side for side in SIDES if side >= largest), SIDES[-1])


def _hashes(paths: Sequence[Path]) -> list[str]:
    """Return the SHA-256 of each file."""

    def hashed(path: Path) -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    with ThreadPoolExecutor() as pool:
        return list(pool.map(hashed, paths))


def _fingerprint(
    listed: Mapping[str, Files],
    class_names: Sequence[str],
    hashes: Mapping[Path, str],
    side: int,
) -> str:
    """Hash what all images and labels are, as 16 hexadecimal digits."""
    digest = hashlib.sha256(f"{side} {tuple(class_names)} {code_version(__name__)}".encode())
    for name, files in listed.items():
        for path, label in zip(files.paths, files.labels, strict=True):
            digest.update(f"{name} {label} {hashes[path]}\n".encode())
    return digest.hexdigest()[:16]


def _split(files: Files, hashes: Mapping[Path, str], options: ImageOptions) -> tuple[Files, Files]:
    """Return what is trained on, and what is held out."""
    if not files.paths:
        return files, files
    places = Split(torch.arange(len(files.paths)), torch.tensor(files.labels))
    contents = [hashes[path] for path in files.paths]
    train, held_out = split_source(places, options, contents)
    return _mixed(_taken(files, train.x.tolist())), _mixed(_taken(files, held_out.x.tolist()))


def _taken(files: Files, places: Iterable[int]) -> Files:
    chosen = list(places)
    return Files(
        [files.paths[place] for place in chosen], [files.labels[place] for place in chosen]
    )


def _mixed(files: Files) -> Files:
    """Return the files in a fixed random order, because they lie class by class."""
    generator = torch.Generator().manual_seed(0)
    return _taken(files, torch.randperm(len(files.paths), generator=generator).tolist())


def _kept(files: Files, hashes: Mapping[Path, str], side: int, options: ImageOptions) -> Tensor:
    """Return the squares of the files, uint8 (N, 3, side, side), on the disk."""
    shape = (len(files.paths), 3, side, side)
    if not files.paths:
        return torch.empty(shape, dtype=torch.uint8)
    contents = hashlib.sha256(" ".join(hashes[path] for path in files.paths).encode()).hexdigest()
    place = Path(options.folder).expanduser() / "generated"
    name = f"folder-{contents[:16]}-{side}-{code_version(__name__)}.npy"
    return torch.from_numpy(mapped_array(place / name, shape, lambda: squares(files.paths, side)))


def squares(paths: Sequence[Path], side: int) -> Iterator[np.ndarray]:
    """Decode the files, some at a time: uint8 (n, 3, side, side)."""
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(paths), AT_ONCE):
            decoded = pool.map(lambda path: square(path, side), paths[start : start + AT_ONCE])
            yield np.stack(list(decoded))


def in_rgb(image: Image.Image) -> Image.Image:
    """Return an image as 8-bit RGB. Of 16 bits, 65535 becomes 255.

    Raises OSError for grey images of floats, or of numbers beyond 16 bits: nothing says what is
    white.
    """
    if image.mode not in (*SIXTEEN_BITS, "F"):
        return image.convert("RGB")
    values = np.asarray(image)
    if image.mode == "F" or values.min() < 0 or values.max() > 65535:
        raise OSError("its numbers are of 32 bits; allowed are 8 or 16 bits")
    grey = (values / 257).round().astype(np.uint8)
    return Image.fromarray(grey).convert("RGB")


def square(path: Path, side: int) -> np.ndarray:
    """Read the image in a file as a square in RGB, uint8 (3, side, side).

    Raises ValueError for a file that cannot be decoded.
    """
    try:
        with Image.open(path) as opened:
            image = in_rgb(opened)
    except (OSError, SyntaxError) as error:  # Pillow's errors of broken files
        raise ValueError(f"{path} cannot be read as an image ({error})") from None
    width, height = image.size
    if (width, height) != (side, side):
        shorter = min(width, height)
        scaled = side * 8 // 7
        # Whole numbers as torchvision's Resize and CenterCrop have them.
        width = scaled * width // shorter
        height = scaled * height // shorter
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left = round((width - side) / 2)
        top = round((height - side) / 2)
        image = image.crop((left, top, left + side, top + side))
    return np.asarray(image).transpose(2, 0, 1)
