"""The store of checkpoints and runs: what was asked for, what came out, and what made it.

An entry is a folder named by a key of the whole request and of the data. It is written whole or not
at all, under a lock, with the SHA-256 of each of its files; so notebooks, headless runs and a
cluster share the same results, and a file that was cut short or changed afterwards is noticed and
never used.
"""

import errno
import hashlib
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
from filelock import FileLock, Timeout
from pooch import file_hash
from pydantic import BaseModel, ValidationError

from cascadetta_lib.data.base import Modality, set_aside
from cascadetta_lib.data.streams import Domain, Order
from cascadetta_lib.models import Network
from cascadetta_lib.training.objectives import KnownTraining
from study.sections import Protocol

STORE_FORMAT = 6
"""Part of every key. Raise it when a change of the code makes stored results wrong."""
LATER = ("order_seed",)
"""Names that are newer than the store's format: part of a key only where they are set, so that what
was stored before them keeps its key."""
DESCRIPTION, CHECKSUMS, PATIENCE = "entry.json", "SHA256SUMS", 5
Kind = Literal["checkpoints", "runs", "theorem"]


class Request(BaseModel, frozen=True, extra="forbid"):
    """A request that has a key. It never changes; two equal ones have the same key on every
    machine.
    """

    def key(self, *data: str) -> str:
        """The name of its entry. data: the fingerprint of the data, and for a run the source of its
        domains.
        """
        asked = self.model_dump(mode="json")
        for name in LATER:
            if asked.get(name) is None:
                asked.pop(name, None)
        text = json.dumps([asked, data, STORE_FORMAT], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        return hash(self.key())


class CheckpointRequest(Request):
    """A network. weights: `train`, or where it comes from instead and a hash of what it is
    ("shipped:1a2b3c4d5e6f"); network and training are None then. options: those of the dataset that
    change what is learned."""

    modality: Modality
    dataset: str
    options: dict[str, int | float | str | bool | None]
    objective: str
    weights: str
    network: Network | None
    training: KnownTraining | None
    seed: int


class RunRequest(Protocol, Request):
    """A method on a stream from a checkpoint, with what the profile says of the protocol. order:
    see streams.Order; dirichlet_delta: of a correlated one."""

    checkpoint: CheckpointRequest
    method: str
    stream: tuple[Domain, ...]
    batch_size: int
    test_size: int | None
    order: Order | None = None
    dirichlet_delta: float | None = None

    @property
    def with_transfer(self) -> "RunRequest":
        """The request that asks for F besides, and whose run has the same E and A."""
        return self.model_copy(update={"forward_transfer": True})


@dataclass(frozen=True)
class Run:
    """What one method did on one stream; the tables are described in evaluate.Evaluation."""

    request: RunRequest
    batches: pd.DataFrame
    accuracies: pd.DataFrame
    provenance: dict[str, Any]

    @property
    def seed(self) -> int:
        """The seed of the pre-training and of the method's random draws."""
        return self.request.checkpoint.seed

    @property
    def method(self) -> str:
        """The method's name."""
        return self.request.method


class Entry(NamedTuple):
    """A whole entry of the store. found: what it holds beside its files."""

    folder: Path
    request: Request
    provenance: dict[str, Any]
    found: dict[str, Any]


class Damaged(Exception):
    """An entry whose files are not those that were written; the message says which."""


class OtherVersion(Damaged):
    """An entry whose files are whole, of a request that this version does not know or would name
    otherwise.
    """


class Store:
    """The folder of checkpoints and runs. Reading needs nothing but the files."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def make_once(
        self,
        kind: Kind,
        request: Request,
        data: tuple[str, ...],
        make: Callable[[Path], dict[str, Any]],
    ) -> Entry:
        """The entry of `request` on `data` (see Request.key). Where there is none, `make(folder)`
        fills a folder with its files and returns its `provenance` and, if there is any, what was
        `found`; after a kill the next maker is given the same folder. A damaged entry is set aside
        with a warning and made again."""
        path = self.folder / kind / request.key(*data)
        if entry := _sound(path):
            return entry
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_suffix(".lock"))
        try:
            held = lock.acquire(timeout=PATIENCE)
        except Timeout:
            print(f"another process is making {path}: waiting for it", file=sys.stderr, flush=True)
            held = lock.acquire()
        with held:  # whoever waited for another maker finds the entry there
            if path.exists() and not _sound(path):
                set_aside(path, f"{path} is damaged")
            if not path.exists():
                part = path.with_suffix(".part")
                part.mkdir(exist_ok=True)
                try:
                    _seal(
                        part,
                        {"request": request.model_dump(mode="json"), "data": data, "found": {}}
                        | make(part),
                    )
                except Exception as error:
                    if (
                        shutil.disk_usage(part).free < 2**20
                    ):  # libraries report a full disk in many ways
                        message = (
                            f"the disk that holds {self.folder} is full; with space, the "
                            "same command goes on"
                        )
                        raise OSError(errno.ENOSPC, message) from error
                    raise
                part.replace(path)
                _sync(path.parent)
        path.with_suffix(".lock").unlink(missing_ok=True)
        return read_entry(path)

    def runs(self, wanted: Callable[[RunRequest], bool] = lambda request: True) -> Iterator[Run]:
        """Every whole run whose request is `wanted`, in the order of their keys. Damaged ones are
        left out with a warning, and those of other versions without."""
        for path in sorted((self.folder / "runs").glob("*/")):
            if "." in path.name:  # unfinished, or set aside
                continue
            try:
                entry = read_entry(path)
            except OtherVersion:
                continue
            except (Damaged, OSError) as error:
                warnings.warn(f"{path} is left out: {error}", stacklevel=2)
                continue
            if isinstance(entry.request, RunRequest) and wanted(entry.request):
                yield load_run(entry)

    def history(self, run: Run) -> pd.DataFrame | None:
        """How the network of `run` was trained, a row an epoch; None where it was not trained
        here."""
        entry = _sound(
            self.folder / "checkpoints" / run.request.checkpoint.key(run.provenance["fingerprint"])
        )
        return pd.read_csv(entry.folder / "history.csv") if entry else None

    def theorem(self, run: Run) -> dict[str, Any] | None:
        """What theorem.check_theorem found of the network of `run`; None where it was not
        checked."""
        entry = _sound(
            self.folder / "theorem" / run.request.checkpoint.key(run.provenance["fingerprint"])
        )
        return entry.found if entry else None


def read_entry(folder: Path) -> Entry:
    """The entry in `folder`, after each of its files was compared with its checksum, and its name
    with its request. Raises Damaged or OtherVersion."""
    try:
        lines = [
            line.partition("  ")
            for line in (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
        ]
        if (
            unknown := {path.name for path in folder.glob("[!.]*")}
            - {name for *_, name in lines}
            - {CHECKSUMS}
        ):
            raise Damaged(f"{CHECKSUMS} does not name its file {min(unknown)}")
        for digest, _, name in lines:
            if file_hash(str(folder / name)) != digest:
                raise Damaged(f"its file {name} is not the one that was written")
        described = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        if (
            not isinstance(described, dict)
            or not {"request", "data", "provenance", "found"} <= described.keys()
        ):
            raise Damaged(f"its file {DESCRIPTION} describes no entry")
    except (
        FileNotFoundError,
        NotADirectoryError,
        IsADirectoryError,
        ValueError,
    ) as error:  # not of a disk that fails
        raise Damaged(str(error)) from None
    kind = RunRequest if folder.parent.name == "runs" else CheckpointRequest
    try:
        request = kind.model_validate(described["request"])
    except ValidationError:
        raise OtherVersion("its request is that of another version") from None
    if request.key(*described["data"]) != folder.name:
        raise OtherVersion("its name is not that of its request")
    return Entry(folder, request, described["provenance"], described["found"])


def load_run(entry: Entry) -> Run:
    """The run in `entry`, with its tables."""
    batches, accuracies = (
        pd.read_csv(entry.folder / f"{name}.csv") for name in ("batches", "accuracies")
    )
    assert isinstance(entry.request, RunRequest)
    return Run(entry.request, batches, accuracies, entry.provenance)


def _sound(path: Path) -> Entry | None:
    try:
        return read_entry(path)
    except Damaged:
        return None


def _seal(folder: Path, described: dict[str, Any]) -> None:
    """Write the description of an entry and the checksums of its files, in the form that `sha256sum
    --check` reads.
    """
    text = json.dumps(described, indent=1, sort_keys=True, ensure_ascii=False)
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")
    files = sorted(path for path in folder.glob("[!.]*") if path.name != CHECKSUMS)
    sums = [f"{file_hash(str(path))}  {path.name}\n" for path in files]
    (folder / CHECKSUMS).write_text("".join(sums), encoding="utf-8")
    for path in (*files, folder / CHECKSUMS, folder):
        _sync(path)


def _sync(path: Path) -> None:
    """Have the disk itself hold what was written to a file or folder, so that a power cut does not
    take it back.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
