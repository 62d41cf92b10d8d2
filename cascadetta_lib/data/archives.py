"""The public archives: where they are, how they are checked, and how they get into the data folder.

`ensure_archive("CIFAR-10-C", folder)` returns the unpacked folder. What is there already is used; an archive file that
lies in the folder is checked and unpacked; else it is downloaded. Only a whole archive is ever used: pooch renames a
download after its hash is right, and an archive is unpacked beside its place and renamed when all of it is there.
"""

import os
import shutil
import sys
import tarfile
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pooch
from filelock import FileLock

from cascadetta_lib.data.base import DataMissing
from cascadetta_lib.data.corruptions import CORRUPTIONS
from cascadetta_lib.registry import nearest


@dataclass(frozen=True)
class Archive:
    """One archive. urls: tried in order. hash: "md5:…" or "sha256:…" of the file. folder: what it unpacks to.
    contents: paths in that folder; while one of them is missing, the folder does not count as unpacked."""

    file: str
    urls: tuple[str, ...]
    hash: str
    folder: str
    contents: tuple[str, ...]

    def missing(self, unpacked: Path) -> list[str]:
        """Those of `contents` that are not in the folder `unpacked`."""
        return [name for name in self.contents if not (unpacked / name).exists()]


CIFAR_C_CONTENTS = ("labels.npy", *(f"{corruption}.npy" for corruption in CORRUPTIONS))

ARCHIVES = {
    # torchvision reads these two, and checks the hash of every file in them.
    "CIFAR-10": Archive(
        file="cifar-10-python.tar.gz",
        urls=("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
        hash="md5:c58f30108f718f92721af3b95e74349a",
        folder="cifar-10-batches-py",
        contents=("batches.meta",),
    ),
    "CIFAR-100": Archive(
        file="cifar-100-python.tar.gz",
        urls=("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
        hash="md5:eb9058c3a382ffc7106e4002c42a8d85",
        folder="cifar-100-python",
        contents=("meta",),
    ),
    "CIFAR-10-C": Archive(
        file="CIFAR-10-C.tar",
        urls=("https://zenodo.org/record/2535967/files/CIFAR-10-C.tar",),
        hash="md5:56bf5dcef84df0e2308c6dcbcbbd8499",
        folder="CIFAR-10-C",
        contents=CIFAR_C_CONTENTS,
    ),
    "CIFAR-100-C": Archive(
        file="CIFAR-100-C.tar",
        urls=("https://zenodo.org/record/3555552/files/CIFAR-100-C.tar",),
        hash="md5:11f0ed0f1191edbf9fa23466ae6021d3",
        folder="CIFAR-100-C",
        contents=CIFAR_C_CONTENTS,
    ),
    "Tiny-ImageNet": Archive(
        file="tiny-imagenet-200.zip",
        urls=("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
        hash="md5:90528d7ca1a48142e341f4ef8d21d0de",
        folder="tiny-imagenet-200",
        contents=("wnids.txt", "words.txt", "train", "val/val_annotations.txt"),
    ),
    "Tiny-ImageNet-C": Archive(
        file="Tiny-ImageNet-C.tar",
        urls=(
            "https://zenodo.org/record/8206060/files/Tiny-ImageNet-C.tar",
            "https://zenodo.org/record/2536630/files/Tiny-ImageNet-C.tar",
        ),
        hash="md5:f9c9a9dbdc11469f0b850190f7ad8be1",
        folder="Tiny-ImageNet-C",
        contents=CORRUPTIONS,
    ),
}
"""Name to archive."""


def ensure_archive(name: str, folder: str | Path) -> Path:
    """The folder that the archive `name` unpacks to, inside `folder`; downloads and unpacks where that is needed.

    Raises DataMissing, with address, hash and place, if the archive is not there and cannot be downloaded, or if its
    folder is there but incomplete; ValueError for a name that is no archive's or for an archive that is not safe.
    """
    if name not in ARCHIVES:
        raise ValueError(f"no archive is named {name!r}; {nearest(name, ARCHIVES)}")
    archive, folder = ARCHIVES[name], Path(folder).expanduser()
    unpacked = folder / archive.folder
    if archive.missing(unpacked):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{archive.folder}.lock"):
            if not unpacked.exists():  # another job may have unpacked it while this one waited
                unpack(_fetch(name, archive, folder), archive, folder)
            elif missing := archive.missing(unpacked):
                fault = f"{name}: {unpacked} lacks {', '.join(missing)}; complete or remove that folder"
                raise DataMissing(f"{fault}. {advice(archive, folder)}")
    return unpacked


def corruptions_archive(name: str, folder: str | Path) -> Path | None:
    """The unpacked -C archive `name`; None, with one warning that says what to do, where it cannot be had."""
    try:
        return ensure_archive(name, folder)
    except DataMissing as error:
        warnings.warn(
            f"{error} Until then the corruptions are generated, and the numbers do not compare with the paper's.",
            stacklevel=3,
        )
        return None


def extract(path: Path, folder: Path) -> None:
    """Unpack the zip or tar file `path` into `folder`. ValueError if a member would leave `folder`."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as file:
            for member in file.namelist():
                if not (folder / member).resolve().is_relative_to(folder.resolve()):
                    raise ValueError(f"{path.name} is not safe: its member {member!r} leaves the folder")
            file.extractall(folder)
    else:
        with tarfile.open(path) as tar:
            try:
                tar.extractall(folder, filter="data")
            except tarfile.FilterError as error:
                raise ValueError(f"{path.name} is not safe: {error}") from None


def _fetch(name: str, archive: Archive, folder: Path) -> Path:
    """The archive file in `folder` with the right hash, downloaded where it is not there."""
    path = folder / archive.file
    # pooch takes a file that is there with the right hash, and replaces another one only by a whole one.
    # Its own chunks of 1 kB make a download of 3 GB slow.
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=2**20)
    reasons = []
    for url in archive.urls:
        try:
            pooch.retrieve(url, archive.hash, fname=archive.file, path=folder, downloader=downloader)
            return path
        except ValueError:
            reasons.append(f"what {url} sent has another hash")
        except OSError as error:  # every fault of requests is one; the messages of those are long
            reasons.append(f"{url} cannot be downloaded ({error.strerror or type(error).__name__})")
    if path.is_file():
        reasons.insert(0, f"{path} has another hash, so it is incomplete or altered")
    raise DataMissing(f"{name} is missing: {'; '.join(reasons)}. {advice(archive, folder)}")


def advice(archive: Archive, folder: Path) -> str:
    return (
        f"Put {archive.file} ({archive.hash}) from {' or '.join(archive.urls)} into the folder {folder}, or unpack it "
        f"there to {folder / archive.folder}; the parameter data_folder names another folder."
    )


def unpack(path: Path, archive: Archive, folder: Path) -> None:
    """Unpack `path` to `folder / archive.folder`, which appears only when it is whole. Call it under the lock."""
    temporary = folder / f".{archive.folder}.unpacking"
    shutil.rmtree(temporary, ignore_errors=True)  # left by a job that was killed
    temporary.mkdir()
    try:
        extract(path, temporary)
        if missing := archive.missing(temporary / archive.folder):
            raise ValueError(f"{path.name} does not hold {', '.join(missing)} in {archive.folder}/")
        os.replace(temporary / archive.folder, folder / archive.folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
