"""Your own images in folders, one folder per class: `folder:FOLDER`.

    FOLDER/train/CLASS/…           the source
    FOLDER/test/CLASS/…            the images to corrupt
    FOLDER/targets/NAME/CLASS/…    target domains, which are taken as they are
    FOLDER/CLASS/…                 the images to corrupt, if none of the three folders above exists
    FOLDER/classes.txt             the classes, one per line, in the order of the network's outputs
    FOLDER/source.txt              where the images are from, in its first line

If there is train/, there must also be test/ or targets/. If targets/ exists, its domains take the
place of corruptions. Without train/ you name a network (`image_weights`). Without classes.txt, the
classes are the folders of train/; without train/ as well, they are the folders of test/ and of all
target domains. They are sorted by number if all names are whole numbers, else by name. Images in
the subfolders of a class's folder are read too. Files and folders whose name begins with a dot are
left out.

Images may have any size. They must be all grey or all in colour, and are read as 8-bit RGB. All
become squares of one side: 32, 64 or 224 pixels. Let s be the largest of the images' shorter sides.
The side is the smallest of the three that is s or more, or 224 if s is above 224. An image that is
not such a square already is scaled so that its shorter side is 8/7 of the square's side. Then its
centre is cut out. For 224 pixels, this is the usual preparation of ImageNet (256 and 224). As in
torchvision's ImageFolder, images are not turned by the orientation in their EXIF data.

The squares are kept as files in generated/ of the data folder. On a CPU they are read from there
batch by batch, so memory does not grow with their number; only a mixed stream is held in memory as
a whole. On a GPU they are copied to its memory.
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
from PIL import Image
from torch import Tensor

from cascadetta_lib.data import DatasetName, dataset
from cascadetta_lib.data.base import (
    DataMissing,
    Split,
    code_version,
    repeats,
    sorted_classes,
    split_source,
    to_device,
)
from cascadetta_lib.data.images import ImageDataset, ImageOptions, domains_of
from cascadetta_lib.data.streams import Vocabulary, require_domain
from cascadetta_lib.files import mapped_array

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
SIDES = (32, 64, 224)
SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N", "I")
"""Pillow's modes for one channel of 16 bits. Pillow opens PGM files in mode I, and older versions
of it open PNG files in that mode too.
"""
GREY = ("1", "L", "LA", "F", *SIXTEEN_BITS)
"""Pillow's modes for grey images, with or without opacity."""
NEARLY_BLACK = 4095
"""An image of 16 bits without a larger number would be nearly black. It holds numbers of 8 or 12
bits.
"""
BROKEN = (OSError, SyntaxError, Image.DecompressionBombError)
"""What Pillow raises for a file that it cannot read, or that has too many pixels."""
AT_ONCE = 64
"""How many images are decoded at a time."""


class Files(NamedTuple):
    """The image files of one part: train, test or a target domain.

    paths: the files, in the order of the examples.
    labels: the label of each file.
    """

    paths: list[Path]
    labels: list[int]


@dataclass(kw_only=True)
class FolderDataset(ImageDataset):
    """Images from folders.

    targets: the target domains by name; None if the domains are corruptions of the test images.
    """

    targets: Mapping[str, Split] | None = None

    def domain(self, name: str, severity: int) -> Split:
        """Return the first `options.test_size` images of a target domain, or, without `targets`,
        under a corruption as in `ImageDataset.domain`. The severity of a target domain is ignored.

        Raises ValueError for any other name.
        """
        if self.targets is None:
            return super().domain(name, severity)
        require_domain(name, list(self.targets))
        split = self.targets[name].take(slice(self.options.test_size))
        return to_device(split, self.options.device)

    def examples_in(self, name: str, severity: int) -> int:
        if self.targets is None:
            return super().examples_in(name, severity)
        return len(self.domain(name, severity).y)

    def example(self, name: str, severity: int, index: int) -> Tensor:
        """Return one image of a target domain, uint8 (3, H, W), or one image under a corruption as
        in `ImageDataset.example`.

        Raises ValueError for the same names as `domain`.
        """
        if self.targets is None:
            return super().example(name, severity, index)
        require_domain(name, list(self.targets))
        return self.targets[name].x[index]


def vocabulary(argument: str) -> Vocabulary:
    """Return the domains that a stream over the folder may name: its target domains, or the
    corruptions if there is no targets/.
    """
    targets = Path(argument).expanduser() / "targets"
    if not targets.is_dir():
        return ImageDataset.vocabulary
    return Vocabulary(tuple(path.name for path in _targets(targets)), (), (1,))


@dataset("folder", "image", folder="must", own=True, vocabulary=vocabulary)
def load_folder(argument: str, options: ImageOptions) -> FolderDataset:
    """Load the images in the folder `argument`.

    Raises DataMissing if there is no such folder, or if it has train/ but neither test/ nor
    targets/. Raises ValueError if the classes or images are not as described above.
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
    """Return the folders in `place`, sorted by name, without hidden ones."""
    return sorted(
        path for path in place.iterdir() if path.is_dir() and not path.name.startswith(".")
    )


def _targets(place: Path) -> list[Path]:
    """Return the folders of the target domains, sorted by name.

    Raises ValueError if there is none, or if a name has a colon. In a stream, a colon separates the
    name of a domain from its severity.
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
    """Return the folder of each part by the part's name: train, test, targets/NAME. Each of them
    holds a folder per class. If there is none of them, `folder` itself is the part test.

    Raises DataMissing if `folder` is missing, or if train is the only part.
    """
    if not folder.is_dir():
        raise DataMissing(f"there is no folder {folder}; it must hold test/CLASS/… or CLASS/…")
    parts = {name: folder / name for name in ("train", "test") if (folder / name).is_dir()}
    if (folder / "targets").is_dir():
        targets = _targets(folder / "targets")
        parts |= {f"targets/{place.name}": place for place in targets}
    if set(parts) == {"train"}:
        raise DataMissing(f"{folder} has train/; it lacks test/CLASS/… or targets/NAME/CLASS/…")
    return parts or {"test": folder}


def _classes(folder: Path, parts: Mapping[str, Path]) -> tuple[str, ...]:
    """Return the names of the classes, in the order of their labels.

    Raises ValueError if classes.txt is no text in UTF-8 or has a class twice, or if there are fewer
    than two classes.
    """
    listed = folder / "classes.txt"
    if listed.is_file():
        try:
            text = listed.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{listed} is no text in UTF-8: {error}") from None
        lines = [line.strip() for line in text.splitlines()]
        names = [line for line in lines if line]
        several = [name for name, count in Counter(names).items() if count > 1]
        if several:
            raise ValueError(f"{listed}: found {several[0]!r} twice; allowed is a class a line")
    else:
        places = [parts["train"]] if "train" in parts else list(parts.values())
        names = sorted_classes(path.name for place in places for path in _folders(place))
    if len(names) < 2:
        raise ValueError(f"{folder}: found {len(names)} classes; allowed are 2 or more folders")
    return tuple(names)


def _list(place: Path, class_names: Sequence[str]) -> Files:
    """List the images of a part, class by class, without hidden files and folders.

    Raises ValueError for a class that is unknown or has no image, and for a part without classes.
    """
    labels = {name: label for label, name in enumerate(class_names)}
    files = Files([], [])
    for folder in _folders(place):
        if folder.name not in labels:
            raise ValueError(
                f"{folder}: found the class {folder.name!r}; allowed are the {len(labels)} classes "
                f"of the network, such as {', '.join(class_names[:3])}"
            )
        found = sorted(
            path
            for path in folder.rglob("*")
            if path.suffix.lower() in ENDINGS
            and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        )
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
    """Raise ValueError if the source lacks images of a class."""
    if train is None:
        return
    lacking = sorted(set(range(len(class_names))) - set(train.labels))
    if lacking:
        raise ValueError(
            f"{folder / 'train'}: found no images of {class_names[lacking[0]]!r}; allowed are "
            "images of each class"
        )


def _side(folder: Path, paths: Sequence[Path]) -> int:
    """Return the side of the squares in pixels.

    Raises ValueError if grey images and images in colour are mixed, or if a file is no image.
    """

    def look(path: Path) -> tuple[int, bool]:
        try:
            with Image.open(path) as image:
                return min(image.size), image.mode in GREY
        except BROKEN as error:
            raise ValueError(f"{path} cannot be read as an image ({error})") from None

    with ThreadPoolExecutor() as pool:
        found = list(pool.map(look, paths))
    grey = [path for path, (_, is_grey) in zip(paths, found, strict=True) if is_grey]
    if grey and len(grey) < len(paths):
        raise ValueError(
            f"{folder}: {len(grey)} of {len(paths)} images are grey, such as {grey[0]}; allowed "
            "are only grey or only coloured images, as in the network's training"
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
    """Hash the classes, all files with their labels, the side of the squares and the code of this
    module. Return 16 hexadecimal digits.
    """
    digest = hashlib.sha256(f"{side} {tuple(class_names)} {code_version(__name__)}".encode())
    for name, files in listed.items():
        for path, label in zip(files.paths, files.labels, strict=True):
            digest.update(f"{name} {label} {hashes[path]}\n".encode())
    return digest.hexdigest()[:16]


def _split(files: Files, hashes: Mapping[Path, str], options: ImageOptions) -> tuple[Files, Files]:
    """Split the files of the source into those to train on and those to hold out, and shuffle each
    part.
    """
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
    """Shuffle the files in a fixed random order, because they are listed class by class."""
    generator = torch.Generator().manual_seed(0)
    return _taken(files, torch.randperm(len(files.paths), generator=generator).tolist())


def _kept(files: Files, hashes: Mapping[Path, str], side: int, options: ImageOptions) -> Tensor:
    """Return the squares of the files, uint8 (N, 3, side, side), mapped from a kept file."""
    shape = (len(files.paths), 3, side, side)
    if not files.paths:
        return torch.empty(shape, dtype=torch.uint8)
    contents = hashlib.sha256(" ".join(hashes[path] for path in files.paths).encode()).hexdigest()
    place = Path(options.folder).expanduser() / "generated"
    name = f"folder-{contents[:16]}-{side}-{code_version(__name__)}.npy"
    return torch.from_numpy(mapped_array(place / name, shape, lambda: squares(files.paths, side)))


def squares(paths: Sequence[Path], side: int) -> Iterator[np.ndarray]:
    """Decode the files, AT_ONCE at a time. Yield their squares, uint8 (n, 3, side, side).

    Raises ValueError for a file that cannot be decoded.
    """
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(paths), AT_ONCE):
            decoded = pool.map(lambda path: square(path, side), paths[start : start + AT_ONCE])
            yield np.stack(list(decoded))


def in_rgb(image: Image.Image) -> Image.Image:
    """Return an image as 8-bit RGB. In an image of 16 bits, 65535 becomes 255.

    Raises OSError for a grey image of floats, or of numbers outside 0..65535, because it does not
    say which number is white. Raises OSError, too, for one of 16 bits that would be nearly black.
    """
    if image.mode not in (*SIXTEEN_BITS, "F"):
        return image.convert("RGB")
    values = np.asarray(image)
    if image.mode == "F" or values.min() < 0 or values.max() > 65535:
        raise OSError("it holds floats, or numbers outside 0..65535; allowed are 8 or 16 bits")
    if 0 < values.max() <= NEARLY_BLACK:
        raise OSError(
            f"it is of 16 bits, and its largest number is {values.max()}, which would be nearly "
            "black; allowed are numbers up to 65535, or 8 bits"
        )
    grey = (values / 257).round().astype(np.uint8)
    return Image.fromarray(grey).convert("RGB")


def square(path: Path, side: int) -> np.ndarray:
    """Read the image in a file as a square in RGB, uint8 (3, side, side).

    Raises ValueError for a file that cannot be decoded.
    """
    try:
        with Image.open(path) as opened:
            image = in_rgb(opened)
    except BROKEN as error:
        raise ValueError(f"{path} cannot be read as an image ({error})") from None
    width, height = image.size
    if (width, height) != (side, side):
        shorter = min(width, height)
        scaled = side * 8 // 7
        # Rounded as by torchvision's Resize and CenterCrop.
        width = scaled * width // shorter
        height = scaled * height // shorter
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left = round((width - side) / 2)
        top = round((height - side) / 2)
        image = image.crop((left, top, left + side, top + side))
    return np.asarray(image).transpose(2, 0, 1)
