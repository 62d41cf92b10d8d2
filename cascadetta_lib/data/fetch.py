"""Public files and archives for the data folder: `fetch` finds, downloads, checks and unpacks it.

Only what is whole is used: pooch renames a download after it has checked its hash, and an archive
is unpacked beside its place and renamed when all of it is there. A lock keeps several jobs from
doing the same work.
"""

import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pooch
from filelock import FileLock

from cascadetta_lib.data.base import DataMissing
from cascadetta_lib.files import write_text_atomically


def fetch(
    name: str,
    urls: Sequence[str],
    folder: str | Path,
    known_hash: str | None,
    size: str,
    unpack: str,
    contents: Sequence[str] = (),
    describe: Callable[[Path], str] | None = None,
) -> Path:
    """Return the path of an unpacked archive inside `folder`.

    It is used if it is there. Otherwise the archive is unpacked, and downloaded if it is not in
    `folder` either.

    name: what messages call it, such as "CIFAR-10".
    urls: addresses of the same .zip or .tar file, tried in this order. known_hash: "md5:…" or
    "sha256:…", or None where nobody has published one: then that of the first archive that could be
    unpacked is recorded as ARCHIVE.sha256, and later ones must have it too. size: of the download,
    in words.
    unpack: the folder that the archive unpacks to. The archive holds this folder, or directly the
    files that belong into it.
    contents: paths without which the unpacked folder is not accepted.
    describe: a hash of what is in an unpacked folder. That of an archive with the known hash is
    recorded, for `is_as_unpacked`.

    Raises DataMissing, which says what to put where, if the data cannot be had, are incomplete or
    are not safe.
    """
    folder = Path(folder).expanduser()
    archive = folder / urls[0].rpartition("/")[2]
    place = folder / unpack
    try:
        if not place.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / f".{unpack}.lock"):
                if not place.exists():  # another job may have unpacked it while this one waited
                    record = folder / f"{archive.name}.sha256"
                    recorded = (
                        f"sha256:{record.read_text().split()[0]}" if record.is_file() else None
                    )
                    _download(urls, archive, known_hash or recorded)
                    _unpack(archive, place)
                    if not (known_hash or recorded):
                        write_text_atomically(
                            record, f"{pooch.file_hash(str(archive))}  {archive.name}\n"
                        )
                    if known_hash and describe:
                        write_text_atomically(
                            _record_of(place), f"{known_hash} {describe(place)}\n"
                        )
        if absent := [part for part in contents if not (place / part).exists()]:
            raise DataMissing(f"{place} lacks {', '.join(absent)}; complete or remove that folder")
    except DataMissing as error:
        described = (
            f"{archive.name} ({size}{f', {known_hash}' if known_hash else ''}) from "
            f"{' or '.join(urls)}"
        )
        raise DataMissing(
            f"{name} is missing: {error}. Put {described} into the folder {folder}, or unpack it "
            f"to {place}; the "
            "parameter data_folder names another data folder."
        ) from error
    return place


def is_as_unpacked(place: Path, known_hash: str, description: str) -> bool:
    """Return whether `fetch` unpacked a folder from the archive with that hash, and the folder's
    `description` is still what it was then.
    """
    try:
        return _record_of(place).read_text().split() == [known_hash, description]
    except (OSError, UnicodeDecodeError):
        return False


def _record_of(place: Path) -> Path:
    """Return the file that tells what `fetch` unpacked to `place`."""
    return place.with_name(f".{place.name}.unpacked")


def _download(urls: Sequence[str], path: Path, known_hash: str | None) -> None:
    """Make sure that the file at `path` has the hash. DataMissing says why each address failed."""
    # pooch leaves a file with the right hash alone and replaces another one only by a whole one.
    # Its own chunks of 1 kB would make a download of 3 GB slow.
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=2**20)
    faults = [f"{path} has another hash, so it is incomplete or altered"] if path.is_file() else []
    for url in urls:
        try:
            pooch.retrieve(
                url, known_hash, fname=path.name, path=path.parent, downloader=downloader
            )
            return
        except OSError as error:
            # All errors of requests are OSErrors, and their messages are long. Those about a
            # malformed proxy are ValueErrors besides, so this comes first.
            reason = error.strerror or type(error).__name__
            if isinstance(error, ValueError):
                reason += "; look at HTTPS_PROXY and HTTP_PROXY"
            faults.append(f"{url} cannot be downloaded ({reason})")
        except ValueError:
            faults.append(f"what {url} sent has another hash")
    raise DataMissing("; ".join(faults))


def _unpack(path: Path, place: Path) -> None:
    """Unpack the archive `path` to the folder `place`, which appears only when all of it is there.

    No entry is put outside that folder: one that points outside is skipped in a .zip file, and
    refused in a .tar file (filter "data").
    """
    temporary = place.with_name(f".{place.name}.unpacking")
    shutil.rmtree(temporary, ignore_errors=True)  # a job that was killed may have left it
    try:
        shutil.unpack_archive(path, temporary, filter=None if path.suffix == ".zip" else "data")
        own = temporary / place.name
        os.replace(own if own.is_dir() else temporary, place)
    except (OSError, EOFError, shutil.ReadError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise DataMissing(f"{path} cannot be unpacked ({error}); remove it") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
