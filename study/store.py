"""Store results with their requests and provenance: networks, runs, checks of Theorem 1, and
measurements of how far a batch's variance is from that of all examples.

An entry is a folder, whose name is the key of its request, data and code. An entry is written whole
or not at all, under a lock, with the SHA-256 of each file. So notebooks, headless runs and a
cluster can share results. A file that was cut short or changed is noticed and never used.
"""

import errno
import fcntl
import hashlib
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

import pandas as pd
from filelock import FileLock, Timeout
from pooch import file_hash
from pydantic import ValidationError

from cascadetta_lib.evaluation.batch_variance import LayerErrors
from cascadetta_lib.files import full_disk_message, is_disk_full, set_aside, write_text_atomically
from study import STORE_FORMAT
from study.provenance import Provenance
from study.requests import (
    CheckpointRequest,
    Request,
    RunRequest,
    VarianceRequest,
    content_of_checkpoint,
    content_of_theorem,
    content_of_variance,
)

DESCRIPTION = "entry.json"
CHECKSUMS = "SHA256SUMS"
FORMAT_FILE = "store-format"
"""The file of a store that says which format its entries have (STORE_FORMAT)."""
Kind = Literal["checkpoints", "runs", "theorem", "variance"]
REQUESTS: dict[Kind, type[Request]] = {
    "checkpoints": CheckpointRequest,
    "runs": RunRequest,
    "theorem": CheckpointRequest,
    "variance": VarianceRequest,
}
"""For each kind of entries, the class of the requests that these entries answer."""
KINDS = tuple(REQUESTS)
BATCH_COLUMNS = {"step", "position", "count", "errors"}
ACCURACY_COLUMNS = {"step", "kind", "after", "accuracy"}


@dataclass(frozen=True)
class Run:
    """What one method did on one stream. evaluator.Evaluation describes the tables."""

    request: RunRequest
    batches: pd.DataFrame = field(repr=False)
    accuracies: pd.DataFrame = field(repr=False)
    provenance: Provenance

    @property
    def seed(self) -> int:
        """The seed of the pre-training and of the method's random draws."""
        return self.request.checkpoint.seed

    @property
    def method(self) -> str:
        """The method's name."""
        return self.request.method

    @property
    def examples_by_domain(self) -> pd.Series:
        """How many examples each domain of the stream has, by its place in the stream."""
        return self.batches.groupby("step")["count"].sum()


@dataclass(frozen=True)
class Made:
    """What the maker of an entry returns: the provenance of the entry, and values that entry.json
    keeps.
    """

    provenance: Provenance
    values: dict[str, Any] = field(default_factory=dict)


class Entry(NamedTuple):
    """An entry of the store.

    content: what identifies the data and the code in the entry's key (see study/requests.py).
    values: results that entry.json keeps.
    """

    folder: Path
    request: Request
    content: tuple[str, ...]
    provenance: Provenance
    values: dict[str, Any]


class Unusable(Exception):
    """Raised for an entry that cannot be used. The message says why."""


class Damaged(Unusable):
    """Raised for an entry whose files are not those that were written. The message says what is
    wrong.
    """


class OtherVersion(Unusable):
    """Raised for an undamaged entry of another version: this version cannot read the entry's
    request, or computes another key from it.
    """


class StoreError(OSError):
    """Raised for a results folder that cannot be used. The message names the folder and says what
    to do.
    """


class Store:
    """The folder of stored results. Reading them needs no data set and no write access.

    Raises StoreError if the folder holds results in another version's format.
    """

    patience: ClassVar[float] = 5
    """The seconds that a process waits for another one before it prints a message."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._check_format()

    def _format(self) -> str | None:
        """Return the format that the folder is marked with; None if it holds no results."""
        mark = self.folder / FORMAT_FILE
        try:
            return mark.read_text(encoding="utf-8").strip()
        except UnicodeDecodeError:
            return "unreadable"
        except (FileNotFoundError, NotADirectoryError):
            has_results = any((self.folder / kind).is_dir() for kind in KINDS)
            # Another process may just have marked the folder and made its subfolders.
            if has_results and not mark.exists():
                return "not marked"
            return None

    def _check_format(self) -> None:
        """Raise StoreError if the folder holds results of another format."""
        found = self._format()
        if found in (None, str(STORE_FORMAT)):
            return
        raise StoreError(
            f"{self.folder} holds results of another version of the study (their format: {found}; "
            f"this version's: {STORE_FORMAT}): set results_folder to another folder, or move this "
            "one away"
        )

    def _prepare(self, kind: Kind) -> None:
        """Make the folder of a kind of entries, and mark the store with its format.

        Raises StoreError if the store holds results of another format, or if files in it cannot be
        locked.
        """
        self._check_format()
        if self._format() is None:
            write_text_atomically(self.folder / FORMAT_FILE, f"{STORE_FORMAT}\n")
        (self.folder / kind).mkdir(exist_ok=True)
        check_locks(self.folder)

    def path(self, kind: Kind, request: Request, content: tuple[str, ...]) -> Path:
        """Return the folder of an entry, whether or not it is there."""
        return self.folder / kind / request.key(*content)

    def make_once(
        self,
        kind: Kind,
        request: Request,
        content: tuple[str, ...],
        make: Callable[[Path], Made],
    ) -> Entry:
        """Return the entry of `request` on `content` (see Request.key). If there is none, make it.

        make: fills a folder with the entry's files, and returns the provenance and the values of
            the entry. After a kill or an error the next maker gets the same folder.

        An entry that is damaged, or that this version cannot read, is set aside with a warning and
        made again. Raises StoreError if the folder cannot be used or its disk is full.
        """
        path = self.path(kind, request, content)
        entry = _entry_or_none(path)
        if entry:
            return entry
        self._prepare(kind)
        lock = FileLock(path.with_suffix(".lock"))
        try:
            held = lock.acquire(timeout=self.patience)
        except Timeout:
            print(f"another process is making {path}: waiting for it", file=sys.stderr, flush=True)
            held = lock.acquire()
        with held:  # whoever waited for another maker finds the entry there
            fault = _fault(path) if path.exists() else None
            if fault:
                state = "of another version" if isinstance(fault, OtherVersion) else "damaged"
                set_aside(path, f"{path} is {state} ({fault})")
            if not path.exists():
                self._fill(path, request, content, make)
        path.with_suffix(".lock").unlink(missing_ok=True)
        return read_entry(path)

    def _fill(
        self,
        path: Path,
        request: Request,
        content: tuple[str, ...],
        make: Callable[[Path], Made],
    ) -> None:
        """Make an entry under another name, and rename it when it is whole."""
        part = path.with_suffix(".part")
        part.mkdir(exist_ok=True)
        try:
            made = make(part)
            described = {
                "request": request.model_dump(mode="json"),
                "content": content,
                "provenance": made.provenance.to_json(),
                "found": made.values,
            }
            _seal(part, described)
        except Exception as error:
            if is_disk_full(part):
                raise StoreError(errno.ENOSPC, full_disk_message(self.folder)) from error
            raise
        part.replace(path)
        _sync(path.parent)

    def runs(self, wanted: Callable[[RunRequest], bool] = lambda request: True) -> Iterator[Run]:
        """Yield every undamaged run whose request is `wanted`; see `read_runs`."""
        return self.read_runs(lambda folder: read_run(folder, wanted))

    def read_runs(self, read: Callable[[Path], Run | None]) -> Iterator[Run]:
        """Call `read` on the folder of each run, in the order of keys, and yield the results that
        are not None.

        A damaged run is left out with a warning; another version's run is left out silently.
        """
        for path in sorted((self.folder / "runs").glob("*/")):
            if "." in path.name:  # unfinished, or set aside
                continue
            try:
                run = read(path)
            except OtherVersion:
                continue
            except (Damaged, OSError) as error:
                warnings.warn(f"{path} is left out: {error}", stacklevel=2)
                continue
            if run is not None:
                yield run

    def remember_data(self, request: CheckpointRequest, data: tuple[str, str]) -> None:
        """Note which data a dataset's name and options stand for now.

        The files behind a name can change. If there are runs on several states of the files, a
        report shows the runs on the state that was noted last. In a folder that cannot be written
        to, nothing is noted.

        data: the fingerprint of the examples, and the source of the domains.
        """
        if self.data_at_hand(request) == data:
            return
        with suppress(OSError):
            text = json.dumps(data, ensure_ascii=False)
            write_text_atomically(self._data_file(request), text)

    def data_at_hand(self, request: CheckpointRequest) -> tuple[str, str] | None:
        """Return the data that `remember_data` noted last; None if there is no note."""
        try:
            fingerprint, domains = json.loads(self._data_file(request).read_bytes())
        except (OSError, ValueError, TypeError):
            return None
        return str(fingerprint), str(domains)

    def _data_file(self, request: CheckpointRequest) -> Path:
        named = [request.modality, request.dataset, request.options]
        digest = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
        return self.folder / "data-at-hand" / f"{digest[:16]}.json"

    def history(self, run: Run) -> pd.DataFrame | None:
        """Return the training history of the run's network, a row per epoch.

        None if the network was not trained here, or if its entry is missing or cannot be used.
        """
        made_by = run.provenance
        if made_by.network is None:
            return None
        request = run.request.checkpoint
        content = content_of_checkpoint(request, made_by.fingerprint, made_by.network.code)
        entry = _entry_or_none(self.path("checkpoints", request, content))
        return pd.read_csv(entry.folder / "history.csv") if entry else None

    def theorem(self, run: Run) -> dict[str, Any] | None:
        """Return the check of Theorem 1 on the network of `run` (theorem.check_theorem).

        None if today's code has not made the check.
        """
        request = run.request.checkpoint
        content = content_of_theorem(request, run.provenance.fingerprint)
        entry = _entry_or_none(self.path("theorem", request, content))
        return entry.values if entry else None

    def batch_variance(self, run: Run) -> list[LayerErrors] | None:
        """Return how far a batch's variance is from that of all examples, at each BatchNorm layer
        of the network of `run`, on the run's domains (evaluation.batch_variance).

        None if today's code has not measured it.
        """
        made_by = run.provenance
        request = VarianceRequest.of(run.request)
        content = content_of_variance(request, made_by.fingerprint, made_by.domain_source)
        entry = _entry_or_none(self.path("variance", request, content))
        return entry.values["layers"] if entry else None


@cache
def check_locks(folder: Path) -> None:
    """Raise StoreError unless files in the folder can be locked.

    Two processes that make results at once need locks. Without this check, a process on a network
    disk without locks would fail late, or wait for ever.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StoreError(errno.ENOSPC, full_disk_message(folder)) from None
        raise StoreError(
            f"{folder}: files cannot be made and locked there ({error.strerror}): set "
            "results_folder to a folder on a local disk, or on a network disk with locks"
        ) from None


def read_entry(folder: Path) -> Entry:
    """Return the entry in `folder`.

    Raises Damaged if a file does not match its checksum or cannot be read. Raises OtherVersion if
    the request is that of another version, or if the folder's name is not the key of the entry's
    request.
    """
    try:
        _check_sums(folder)
        described = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError) as error:
        raise Damaged(str(error)) from None  # other errors are those of a disk that fails
    except RecursionError:
        raise Damaged(f"its file {DESCRIPTION} is nested too deeply") from None
    is_entry = isinstance(described, dict) and "request" in described
    if not is_entry or not isinstance(described.get("found"), dict):
        raise Damaged(f"its file {DESCRIPTION} describes no entry")
    try:
        request = REQUESTS[cast(Kind, folder.parent.name)].model_validate(described["request"])
        content = tuple(str(one) for one in described["content"])
    except (ValidationError, KeyError, TypeError):
        raise OtherVersion("another version of the study made its request") from None
    if request.key(*content) != folder.name:
        raise OtherVersion("its name is not the key of its request")
    try:
        made_by = Provenance.from_json(described.get("provenance"))
    except ValueError as error:
        raise Damaged(str(error)) from None
    return Entry(folder, request, content, made_by, described["found"])


def _check_sums(folder: Path) -> None:
    """Raise Damaged unless the folder has the files that its checksums name, and no others."""
    text = (folder / CHECKSUMS).read_text(encoding="utf-8")
    lines = [line.partition("  ") for line in text.splitlines()]
    named = {name for *_, name in lines}
    unknown = {path.name for path in folder.glob("[!.]*")} - named - {CHECKSUMS}
    if unknown:
        raise Damaged(f"{CHECKSUMS} does not name its file {min(unknown)}")
    for digest, _, name in lines:
        if file_hash(str(folder / name)) != digest:
            raise Damaged(f"its file {name} is not the one that was written")


def load_run(entry: Entry) -> Run:
    """Return the run in `entry`, with its tables. Raises Damaged if a table lacks a column."""
    assert isinstance(entry.request, RunRequest)
    batches = _read_table(entry.folder / "batches.csv", BATCH_COLUMNS)
    accuracies = _read_table(entry.folder / "accuracies.csv", ACCURACY_COLUMNS)
    return Run(entry.request, batches, accuracies, entry.provenance)


def read_run(folder: Path, wanted: Callable[[RunRequest], bool]) -> Run | None:
    """Return the run in `folder`, or None if its request is not `wanted`.

    Raises Damaged or OtherVersion if the entry cannot be used.
    """
    entry = read_entry(folder)
    if not isinstance(entry.request, RunRequest) or not wanted(entry.request):
        return None
    return load_run(entry)


def _read_table(path: Path, columns: set[str]) -> pd.DataFrame:
    # A domain of the user's own may be called NA or 2020, which pandas would read as other values.
    as_text = {"domain": str, "kind": str}
    try:
        table = pd.read_csv(path, dtype=as_text, keep_default_na=False, na_values=[""])
    except (FileNotFoundError, ValueError) as error:  # an empty file, or one that is no table
        raise Damaged(f"its file {path.name} is no table ({error})") from None
    lacking = columns - set(table.columns)
    if lacking:
        raise Damaged(f"its file {path.name} has no column {min(lacking)}")
    return table


def _entry_or_none(path: Path) -> Entry | None:
    """Return the entry in a folder; None if there is no usable entry."""
    try:
        return read_entry(path)
    except Unusable:
        return None


def _fault(path: Path) -> Unusable | None:
    """Return why the entry in a folder cannot be used; None if it can."""
    try:
        read_entry(path)
    except Unusable as fault:
        return fault
    return None


def _seal(folder: Path, described: dict[str, Any]) -> None:
    """Write an entry's description, and its checksums in the form of `sha256sum --check`."""
    text = json.dumps(described, indent=1, sort_keys=True, ensure_ascii=False)
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")
    files = sorted(path for path in folder.glob("[!.]*") if path.name != CHECKSUMS)
    sums = [f"{file_hash(str(path))}  {path.name}\n" for path in files]
    (folder / CHECKSUMS).write_text("".join(sums), encoding="utf-8")
    for path in (*files, folder / CHECKSUMS, folder):
        _sync(path)


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
