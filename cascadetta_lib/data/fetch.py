"""Get public archives into the data folder: `fetch` finds, downloads, checks and unpacks them.

No incomplete file or folder is used. pooch renames a download after it has checked the hash. An
archive is unpacked to a temporary folder, which is renamed when it is complete. A lock keeps
several jobs from doing the same work.
"""

import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pooch
from filelock import AcquireReturnProxy, FileLock

from cascadetta_lib.data.base import DataMissing
from cascadetta_lib.files import full_disk_message, is_disk_full, write_text_atomically


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
    """Return the path of the folder that an archive unpacks to, FOLDER/UNPACK.

    If this path exists, it is used as it is. If not, the archive in `folder` is unpacked. If the
    archive is missing too, it is downloaded first.

    name: what messages call the data, such as "CIFAR-10".
    urls: addresses of the same .zip or .tar file, tried in this order.
    known_hash: "md5:…" or "sha256:…"; None if nobody has published a hash. Then the hash of the
        first archive that could be unpacked is recorded as ARCHIVE.sha256, and later archives must
        have it too.
    size: the size of the download, in words.
    unpack: the folder that the archive unpacks to. The archive holds either this folder, or
        directly the files that belong into it.
    contents: paths that must exist in the unpacked folder.
    describe: returns a hash of what is in an unpacked folder. If `known_hash` is given, this hash
        is recorded after unpacking, for `is_as_unpacked`.

    Raises DataMissing if the data cannot be downloaded, are incomplete or cannot be unpacked
    safely, or if `folder` cannot be written to. The message says what to put where.
    """
    folder = Path(folder).expanduser()
    archive = folder / urls[0].rpartition("/")[2]
    place = folder / unpack
    described = (
        f"{archive.name} ({size}{f', {known_hash}' if known_hash else ''}) from "
        f"{' or '.join(urls)} into the folder {folder}, or unpack it to {place}; the parameter "
        "data_folder names another data folder."
    )
    try:
        if not place.exists():
            with _locked(folder, f".{unpack}.lock"):
                if not place.exists():  # another job may have unpacked it while this one waited
                    record = folder / f"{archive.name}.sha256"
                    recorded = _recorded_hash(record) if record.is_file() else None
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
    except DataMissing as error:
        raise DataMissing(f"{name} is missing: {error}. Put {described}") from error
    absent = [part for part in contents if not (place / part).exists()]
    if absent:
        raise DataMissing(
            f"{name} is incomplete: {place} lacks {', '.join(absent)}. Complete that folder, or "
            f"remove it and put {described}"
        )
    return place


def _locked(folder: Path, name: str) -> AcquireReturnProxy:
    """Make the folder if it is missing, and lock it by the file `name` in it. Leaving `with` frees
    the lock.

    Raises DataMissing if the folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / name).acquire()
    except OSError as error:
        raise DataMissing(
            f"the folder {folder} cannot be made or written to ({error.strerror})"
        ) from error


def _recorded_hash(record: Path) -> str:
    """Return the hash in the file ARCHIVE.sha256 that `fetch` wrote.

    Raises DataMissing if the file is empty.
    """
    words = record.read_text(errors="replace").split()
    if not words:
        raise DataMissing(f"{record} is empty; remove it")
    return f"sha256:{words[0]}"


def is_as_unpacked(place: Path, known_hash: str, description: str) -> bool:
    """Return whether `fetch` unpacked the folder `place` from the archive with `known_hash`, and
    the folder has not changed since.

    description: what `describe` of `fetch` returns for the folder now.
    """
    try:
        return _record_of(place).read_text().split() == [known_hash, description]
    except (OSError, UnicodeDecodeError):
        return False


def _record_of(place: Path) -> Path:
    """Return the path of the file in which `fetch` records what it unpacked to `place`."""
    return place.with_name(f".{place.name}.unpacked")


def _download(urls: Sequence[str], path: Path, known_hash: str | None) -> None:
    """Download the file `path` if it is missing or has another hash than `known_hash`.

    Raises DataMissing, which says why each address failed.
    """
    # pooch keeps a file with the right hash, and replaces any other file only by a complete
    # download. With pooch's default chunks of 1 kB, a download of 3 GB would be slow.
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=2**20)
    faults = [f"{path} has another hash, so it is incomplete or altered"] if path.is_file() else []
    for url in urls:
        try:
            pooch.retrieve(
                url, known_hash, fname=path.name, path=path.parent, downloader=downloader
            )
            return
        except OSError as error:
            # All errors of requests are OSErrors with long messages. An error about a malformed
            # proxy is a ValueError as well, so OSErrors are caught first.
            reason = error.strerror or type(error).__name__
            if isinstance(error, ValueError):
                reason += "; look at HTTPS_PROXY and HTTP_PROXY"
            faults.append(f"{url} cannot be downloaded ({reason})")
        except ValueError:
            faults.append(f"the file from {url} has another hash than {known_hash}")
    raise DataMissing("; ".join(faults))


def _unpack(path: Path, place: Path) -> None:
    """Unpack the archive `path` to the folder `place`, which appears only when it is complete.

    Nothing is written outside `place`: an entry that points outside is skipped in a .zip file, and
    refused in a .tar file (filter "data"). Raises DataMissing if the archive cannot be unpacked.
    """
    temporary = place.with_name(f".{place.name}.unpacking")
    shutil.rmtree(temporary, ignore_errors=True)  # a job that was killed may have left it
    try:
        shutil.unpack_archive(path, temporary, filter=None if path.suffix == ".zip" else "data")
        own = temporary / place.name
        os.replace(own if own.is_dir() else temporary, place)
    except (OSError, EOFError, shutil.ReadError, tarfile.TarError, zipfile.BadZipFile) as error:
        if is_disk_full(place.parent):
            raise DataMissing(full_disk_message(place.parent)) from error
        raise DataMissing(f"{path} cannot be unpacked ({error}); remove it") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
