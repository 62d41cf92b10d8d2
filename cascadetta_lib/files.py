"""Files: write them whole or not at all, keep arrays in them, and hash what they hold.

An array that takes long to make is kept in the data folder, and made anew where its file is damaged
or was kept under another name.
"""

import errno
import hashlib
import itertools
import os
import shutil
import sys
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import numpy as np
from pooch import file_hash

CHECKSUM = "sha256"
"""The name under which a kept file holds the checksum of its arrays."""
FULL_BELOW = 2**20
"""Free bytes below which a disk counts as full."""


def is_disk_full(folder: Path) -> bool:
    """Return whether the disk that holds the folder has less than a mebibyte left.

    Libraries report a full disk in many ways, so after an error this is asked of the disk itself.
    """
    return shutil.disk_usage(folder).free < FULL_BELOW


def full_disk_message(folder: Path, consequence: str = "") -> str:
    """Return what a user reads where the disk that holds the folder is full.

    consequence: a clause such as `, so x.csv is not written`.
    """
    return (
        f"the disk that holds {folder} is full{consequence}: free some space and repeat the command"
    )


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a file, which gets the name `path` only when it is complete on the disk.

    After a failure an earlier file of that name is as it was. Raises OSError; if a disk is full,
    the message names it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            message = full_disk_message(path.parent, f", so {path.name} is not written")
            raise OSError(errno.ENOSPC, message) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text as UTF-8 by `write_atomically`."""
    write_atomically(path, lambda file: file.write(text.encode()))


def set_aside(path: Path, reason: str) -> None:
    """Rename a file or folder that cannot be used to PATH.set-aside-1, or the next free number, and
    warn.
    """
    names = (path.with_name(f"{path.name}.set-aside-{number}") for number in itertools.count(1))
    aside = path.replace(next(name for name in names if not name.exists()))
    warnings.warn(f"{reason}: it is kept as {aside.name} and made again", stacklevel=3)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of an .npz file, without unpickling anything.

    Raises ValueError if the file cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            if len(set(file.files)) < len(file.files):
                raise ValueError("it holds two arrays of one name")
            return {name: np.asarray(file[name]) for name in file}
    # NumPy raises a dozen kinds, down to MemoryError, for a header that is not true.
    except Exception as error:
        raise ValueError(f"{path} cannot be read ({type(error).__name__}: {error})") from error


def kept_arrays(path: Path, make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the arrays in the .npz file `path`. If there is no file, call `make` and keep what it
    returns. Warn if that cannot be kept; raise NotADirectoryError if a parent of `path` is a file.

    The file holds a SHA-256 of its own place and of the arrays. A file that is damaged, or was kept
    under another name, is set aside and made again.
    """
    if path.is_file():
        try:
            found = read_arrays(path)
            kept = found.pop(CHECKSUM, None)
            if kept is None or str(kept) != _checksum(path, found):
                raise ValueError(f"{path} does not hold what was kept in it")
            return found
        except ValueError as error:
            set_aside(path, str(error))
    made = {name: np.asarray(array) for name, array in make().items()}
    checked = made | {CHECKSUM: np.array(_checksum(path, made))}
    try:
        write_atomically(path, lambda file: np.savez(file, **checked))  # type: ignore[arg-type]
    except NotADirectoryError:
        raise
    except OSError as error:  # such as in a folder that many share, and only one may write to
        warnings.warn(
            f"{path} cannot be kept ({error.strerror}): it is made anew each time", stacklevel=2
        )
    return made


def kept_array(
    path: Path,
    make: Callable[[], np.ndarray],
    *,
    dtype: str | None = None,
    shape: tuple[int, ...] | None = None,
) -> np.ndarray:
    """Call `kept_arrays` for a single array.

    Raises ValueError if `dtype` or `shape` is given and the array has another.
    """
    found = kept_arrays(path, lambda: {"array": make()})["array"]
    if dtype is not None and found.dtype != dtype:
        raise ValueError(f"{path} holds {found.dtype}; allowed is {dtype}: remove it")
    if shape is not None and found.shape != shape:
        raise ValueError(f"{path} holds shape {found.shape}; allowed is {shape}: remove it")
    return found


def _checksum(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Hash, by SHA-256, the last two parts of `path` and of names, dtypes, shapes and bytes of
    arrays.
    """
    digest = hashlib.sha256(f"{path.parent.name}/{path.name}".encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def mapped_array(
    path: Path, shape: tuple[int, ...], make: Callable[[], Iterable[np.ndarray]]
) -> np.ndarray:
    """Return the uint8 array in the .npy file `path` as a memory map: only the indexed parts are
    read into memory. Writing to the array does not change the file.

    make: yields the parts of the array along its first axis. It is called if there is no file. A
        file that is damaged, or was kept under another name, is set aside and made again.
    """
    mark = path.with_suffix(".sha256")
    if path.is_file() and not (mark.is_file() and mark.read_text() == _mark_of(path)):
        set_aside(path, f"{path} does not hold what was kept in it")
    if not path.is_file():

        def write(file: IO[bytes]) -> None:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for part in make():
                file.write(np.ascontiguousarray(part, dtype=np.uint8).data)

        write_atomically(path, write)
        marked = _mark_of(path)
        write_atomically(mark, lambda file: file.write(marked.encode()))
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    if array.shape != shape or array.dtype != np.uint8:
        raise ValueError(f"{path}: found {array.dtype} {array.shape}; allowed is uint8 {shape}")
    return array


def _mark_of(path: Path) -> str:
    """Return what the file beside a mapped array says of it: its place and the hash of its bytes.

    The place is the last two parts of `path`, as in `_checksum`.
    """
    return f"{path.parent.name}/{path.name} {file_hash(str(path))}"


def contents_hash(folder: Path, paths: Iterable[Path]) -> str:
    """Hash, by SHA-256, the places in `folder` and the bytes of the files `paths`, in their
    order.
    """

    def hashed(path: Path) -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    ordered = list(paths)
    digest = hashlib.sha256()
    with ThreadPoolExecutor() as pool:
        for path, found in zip(ordered, pool.map(hashed, ordered), strict=True):
            digest.update(f"{path.relative_to(folder).as_posix()} {found}\n".encode())
    return digest.hexdigest()


def code_version(*modules: str) -> str:
    """Hash the source of `modules` (of all files of a package): 8 hexadecimal digits. Kept files
    have it in their names, so that a change of the code makes them anew.
    """
    paths = [Path(str(sys.modules[name].__file__)) for name in modules]
    files = [
        sorted(path.parent.glob("[!.]*.*")) if path.stem == "__init__" else [path] for path in paths
    ]
    return hashlib.sha256(
        b"".join(file.read_bytes() for each in files for file in each)
    ).hexdigest()[:8]
