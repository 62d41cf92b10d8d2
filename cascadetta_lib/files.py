"""Write files whole or not at all, keep arrays in files, and hash the contents of files.

An array that takes long to make is kept in the data folder. If its file is damaged, or was kept
under another name, the array is made again.
"""

import errno
import hashlib
import io
import itertools
import os
import shutil
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import numpy as np
from pooch import file_hash

CHECKSUM = "sha256"
"""The entry of a kept .npz file that holds the checksum of the arrays."""
FULL_BELOW = 2**20
"""A disk with fewer free bytes than this counts as full."""


def is_disk_full(folder: Path) -> bool:
    """Return whether the disk that holds the folder has less than a mebibyte left.

    Libraries report a full disk in many ways. So call this after an error, to ask the disk itself.
    """
    return shutil.disk_usage(folder).free < FULL_BELOW


def full_disk_message(folder: Path, consequence: str = "") -> str:
    """Return the message to a user if the disk that holds `folder` is full.

    consequence: a clause such as `, so x.csv is not written`.
    """
    return (
        f"the disk that holds {folder} is full{consequence}: free some space and repeat the command"
    )


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file whole or not at all.

    `write` fills a temporary file, which is renamed to `path` once it is complete on the disk.
    Missing folders are made. After a failure an earlier file at `path` is as it was. Raises
    OSError. If the disk is full, the message says so and names the folder.
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
    """Rename an unusable file or folder to PATH.set-aside-N, where N is the first free number from
    1, and warn.

    reason: the beginning of the warning.
    """
    names = (path.with_name(f"{path.name}.set-aside-{number}") for number in itertools.count(1))
    aside = path.replace(next(name for name in names if not name.exists()))
    warnings.warn(f"{reason}: it is kept as {aside.name} and made again", stacklevel=3)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of an .npz file by name, without unpickling anything.

    Raises ValueError if the file cannot be read, or holds two arrays of one name.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            if len(set(file.files)) < len(file.files):
                raise ValueError("it holds two arrays of one name")
            return {name: np.asarray(file[name]) for name in file}
    # For a false header NumPy raises a dozen kinds of errors, MemoryError among them.
    except Exception as error:
        raise ValueError(f"{path} cannot be read ({type(error).__name__}: {error})") from error


def kept_arrays(path: Path, make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the arrays in the .npz file `path`. If there is no file, call `make`, keep the arrays
    that it returns, and return them.

    The file also holds one SHA-256 over the arrays, the name of the file and the name of the folder
    that it is in. A file that is damaged, or was kept under another name, is set aside, and the
    arrays are made again.

    Warns if the arrays cannot be kept. Raises NotADirectoryError if a parent of `path` exists and
    is not a folder.
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
    _require_folders(path)
    made = {name: np.asarray(array) for name, array in make().items()}
    checked = made | {CHECKSUM: np.array(_checksum(path, made))}
    try:
        write_atomically(path, lambda file: np.savez(file, **checked))  # type: ignore[arg-type]
    except OSError as error:  # such as in a shared folder that only one user may write to
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
    """Return a single array as `kept_arrays` returns several.

    Raises ValueError if the array has another dtype or shape than the one that is given.
    """
    found = kept_arrays(path, lambda: {"array": make()})["array"]
    if dtype is not None and found.dtype != dtype:
        raise ValueError(f"{path} holds {found.dtype}; allowed is {dtype}; remove the file")
    if shape is not None and found.shape != shape:
        raise ValueError(f"{path} holds shape {found.shape}; allowed is {shape}; remove the file")
    return found


def _require_folders(path: Path) -> None:
    """Raise NotADirectoryError if a parent of `path` exists and is not a folder."""
    for folder in path.parents:
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def _checksum(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of the last two parts of `path`, and of the names, dtypes, shapes and
    bytes of the arrays.
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
    """Return the uint8 array in the .npy file `path` as a memory map. Only the parts that are
    indexed are read into memory. Writing to the array does not change the file.

    make: yields the parts of the array along its first axis. It is called if there is no file. A
        file that is damaged, was kept under another name, or has no .sha256 file beside it, is set
        aside and made again.

    Warns if the array cannot be kept, such as in a folder that cannot be written to. The array is
    then held in memory.

    Raises ValueError if the file holds another dtype or shape, OSError if the disk is full, and
    NotADirectoryError if a parent of `path` exists and is not a folder.
    """
    mark = path.with_suffix(".sha256")
    if path.is_file() and not (
        mark.is_file() and mark.read_bytes() == _mark_of(path, file_hash(str(path))).encode()
    ):
        set_aside(path, f"{path} does not hold what was kept in it")
    if not path.is_file():
        _require_folders(path)

        def write(file: IO[bytes]) -> None:
            digest = hashlib.sha256()
            for part in _parts_of_file(shape, make()):
                file.write(part)
                digest.update(part)
            # Before the file has its name, because without a mark it would be set aside.
            text = _mark_of(path, digest.hexdigest())
            write_text_atomically(mark, text)

        try:
            write_atomically(path, write)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            warnings.warn(
                f"{path} cannot be kept ({error.strerror}): it is made anew each time, and held "
                "in memory",
                stacklevel=2,
            )
            return np.concatenate([np.empty((0, *shape[1:]), np.uint8), *make()])
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    if array.shape != shape or array.dtype != np.uint8:
        raise ValueError(f"{path}: found {array.dtype} {array.shape}; allowed is uint8 {shape}")
    return array


def _parts_of_file(shape: tuple[int, ...], parts: Iterable[np.ndarray]) -> Iterator[memoryview]:
    """Yield the bytes of the .npy file of a uint8 array: the header, then the array's parts."""
    header = io.BytesIO()
    described = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    yield header.getbuffer()
    for part in parts:
        yield np.ascontiguousarray(part, dtype=np.uint8).data


def _mark_of(path: Path, digest: str) -> str:
    """Return the text of the .sha256 file beside a mapped array: the last two parts of `path`, and
    the hash of the array file's bytes.
    """
    return f"{path.parent.name}/{path.name} {digest}"


def contents_hash(folder: Path, paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the bytes of files and of their paths relative to `folder`, in the
    order of `paths`.
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
