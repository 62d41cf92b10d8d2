"""The store: keys, entries that are whole or not there, and what is done about damaged files."""

import errno
import hashlib
import io
import json
import os
import shutil
import subprocess
import threading
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from cascadetta_lib.data.streams import Domain
from cascadetta_lib.models import ImageNetwork, SpeechNetwork, TextNetwork
from cascadetta_lib.training.settings import Training
from study import provenance as module
from study.provenance import NetworkOrigin, Provenance
from study.requests import CheckpointRequest, RunRequest, code_of_theorem
from study.store import Made, Store, StoreError

ROOT = Path(__file__).parents[1]
CHECKPOINT = CheckpointRequest(
    modality="image",
    dataset="digits",
    options={
        "augmix_severity": -1.0,
        "train_size": 60,
        "crop_and_flip": False,
        "randomisation": "augmix_image",
    },
    objective="meta",
    weights="train",
    network=ImageNetwork(),
    training=Training(),
    seed=3,
)
REQUEST = RunRequest(
    checkpoint=CHECKPOINT,
    method="tent",
    stream=(Domain("fog", 5), Domain("snow", 2)),
    batch_size=8,
    test_size=None,
)
CONTENT = ("0123456789abcdef", "made up", "c0de")
MADE_BY = Provenance(
    profile="quick",
    data_source="made up",
    official_data=False,
    class_names=("a", "b"),
    fingerprint=CONTENT[0],
    domain_source=CONTENT[1],
    compare_with=None,
    unit="images",
    origin="other",
    code_revision="0123456",
    device="a CPU",
    threads=1,
    python="3",
    packages={"torch": "2"},
    seconds=1.0,
    finished="2000-01-01",
    network=NetworkOrigin("trained here", code="train"),
)


def make(folder: Path) -> Made:
    batches = {"step": [0, 1], "position": [0, 0], "count": [8, 8], "errors": [3, 4]}
    accuracies = {"step": [0, 1], "kind": "stream", "after": [1, 2], "accuracy": [0.3, 0.4]}
    pd.DataFrame(batches).to_csv(folder / "batches.csv", index=False)
    pd.DataFrame(accuracies).to_csv(folder / "accuracies.csv", index=False)
    return Made(MADE_BY)


def never(folder: Path) -> Made:
    pytest.fail("made again")


def test_the_key_of_a_request_is_what_it_was_before_later_fields_came() -> None:
    """As revision 6f4fe26 made it, whose entries are read today."""
    assert REQUEST.key(*CONTENT) == "dc3b3db442d906f3"
    written = REQUEST.model_dump(mode="json", exclude={"reset_each", "source_agreement"})
    assert RunRequest.model_validate(written) == REQUEST
    for later in ("reset_each", "source_agreement"):
        other = REQUEST.model_copy(update={later: True})
        assert other.key(*CONTENT) != REQUEST.key(*CONTENT)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_an_entry_is_made_once_and_found_by_its_request(store: Store) -> None:
    made = store.make_once("runs", REQUEST, CONTENT, make)
    assert store.make_once("runs", REQUEST, CONTENT, never) == made
    assert (
        len(
            {
                REQUEST.key(*CONTENT),
                REQUEST.key("other", CONTENT[1]),
                REQUEST.key(CONTENT[0], "other"),
            }
        )
        == 3
    )
    (run,) = store.runs()
    assert run.request == REQUEST and hash(run.request) == hash(REQUEST)
    assert (run.seed, run.method, run.batches["errors"].tolist()) == (3, "tent", [3, 4])
    assert isinstance(run.request.stream[0], Domain)
    assert not list(store.runs(lambda request: request.method == "cotta"))
    assert sorted(path.name for path in made.folder.parent.iterdir()) == [made.folder.name]
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=made.folder).returncode == 0


@pytest.mark.parametrize(
    "network", [ImageNetwork(), ImageNetwork(depth=8), TextNetwork(), SpeechNetwork(), None]
)
def test_a_request_survives_its_file(network: Any) -> None:
    request = CHECKPOINT.model_copy(update={"network": network})
    assert CheckpointRequest.model_validate(json.loads(request.model_dump_json())) == request


def test_a_killed_maker_leaves_nothing_that_counts_and_the_next_goes_on_in_its_folder(
    store: Store,
) -> None:
    def killed(folder: Path) -> Made:
        (folder / "batches.csv").write_text("half")
        raise KeyboardInterrupt

    def resumed(folder: Path) -> Made:
        assert (folder / "batches.csv").read_text() == "half"
        return make(folder)

    with pytest.raises(KeyboardInterrupt):
        store.make_once("runs", REQUEST, CONTENT, killed)
    assert not list(store.runs())
    store.make_once("runs", REQUEST, CONTENT, resumed)
    assert len(list(store.runs())) == 1


def change(name: str, how: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """Another content of one file of the entry."""
    return lambda folder: (folder / name).write_bytes(how((folder / name).read_bytes()))


def describe(folder: Path, description: bytes) -> None:
    """Another description, whose checksum is true."""
    sums = folder / "SHA256SUMS"
    before = hashlib.sha256((folder / "entry.json").read_bytes()).hexdigest()
    (folder / "entry.json").write_bytes(description)
    sums.write_text(sums.read_text().replace(before, hashlib.sha256(description).hexdigest()))


DAMAGES = {
    "cut short": change("batches.csv", lambda content: content[:-5]),
    "one byte flipped": change("accuracies.csv", lambda content: content.replace(b"3", b"2")),
    "another's description": change(
        "entry.json", lambda content: content.replace(b'"tent"', b'"cotta"')
    ),
    "no description": lambda folder: (folder / "entry.json").unlink(),
    "no checksums": lambda folder: (folder / "SHA256SUMS").unlink(),
    "no table": lambda folder: (folder / "batches.csv").unlink(),
    "checksums that are no text": lambda folder: (folder / "SHA256SUMS").write_bytes(b"\xff\xfe"),
    "checksums of nothing": lambda folder: (folder / "SHA256SUMS").write_bytes(b""),
    "a description of another form": lambda folder: describe(folder, b"[]"),
    "a description without a request": lambda folder: describe(folder, b"{}"),
    "a file in its place": lambda folder: (shutil.rmtree(folder), folder.write_text("")),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_entry_is_never_used_but_set_aside_and_made_again(
    store: Store, damage: Any
) -> None:
    other = store.make_once("runs", REQUEST.model_copy(update={"method": "cotta"}), CONTENT, make)
    entry = store.make_once("runs", REQUEST, CONTENT, make)
    damage(entry.folder)
    if entry.folder.is_dir():
        with pytest.warns(UserWarning, match=f"{entry.folder.name} is left out"):
            assert [run.method for run in store.runs()] == ["cotta"], (
                "one bad entry does not end a report"
            )
    with pytest.warns(
        UserWarning,
        match=f"{entry.folder.name} is damaged.*kept as {entry.folder.name}.set-aside-1",
    ):
        store.make_once("runs", REQUEST, CONTENT, make)
    assert len(list(store.runs())) == 2 and other.folder.exists()
    damage(entry.folder)
    with pytest.warns(UserWarning, match="set-aside-2"):
        store.make_once("runs", REQUEST, CONTENT, make)
    aside = entry.folder.with_name(f"{entry.folder.name}.set-aside-1")
    aside.unlink() if aside.is_file() else shutil.rmtree(aside)
    damage(entry.folder)
    with pytest.warns(UserWarning, match="set-aside-1"):
        store.make_once("runs", REQUEST, CONTENT, make)


def test_an_entry_under_another_name_or_of_another_version_is_not_used(
    store: Store,
) -> None:
    folder = store.make_once("runs", REQUEST, CONTENT, make).folder
    shutil.copytree(folder, folder.with_name("0123456789abcdef"))
    assert len(list(store.runs())) == 1
    described = json.loads((folder / "entry.json").read_text())
    described["request"]["an_option_of_tomorrow"] = 1
    write_sealed(folder, "entry.json", json.dumps(described).encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # A damaged entry would be left out with a warning.
        assert not list(store.runs())


def test_a_whole_entry_under_the_name_of_another_is_not_called_damaged(store: Store) -> None:
    entry = store.make_once("runs", REQUEST, CONTENT, make)
    other = REQUEST.model_copy(update={"method": "cotta"})
    shutil.copytree(entry.folder, store.path("runs", other, CONTENT))
    with pytest.warns(
        UserWarning, match="of another version .its name is not the key of its request"
    ):
        store.make_once("runs", other, CONTENT, make)


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("runs/0123456789abcdef/entry.json", b"{}", "not marked"),
        ("checkpoints/0123456789abcdef/entry.json", b"{}", "not marked"),
        ("store-format", b"6\n", "6"),
        ("store-format", b"8\n", "8"),
        ("store-format", b"\xff\xfe", "unreadable"),
    ],
)
def test_a_results_folder_of_another_version_is_refused_in_one_sentence(
    tmp_path: Path, name: str, content: bytes, found: str
) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        StoreError, match=f"format: {found}; .* set results_folder to another"
    ) as told:
        Store(tmp_path)
    assert str(told.value).startswith(str(tmp_path)) and "\n" not in str(told.value)


def test_a_results_folder_of_this_version_or_of_something_else_is_taken(tmp_path: Path) -> None:
    (tmp_path / "quick").mkdir()
    store = Store(tmp_path)
    assert not list(tmp_path.glob("store-format")), "asking makes nothing"
    store.make_once("runs", REQUEST, CONTENT, make)
    assert len(list(Store(tmp_path).runs())) == 1


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EACCES, errno.ENOSYS])
def test_a_folder_without_locks_is_told_in_one_sentence_before_anything_is_made(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(file: object, operation: int) -> None:
        raise OSError(error, os.strerror(error))

    # A file system that refuses is not at hand.
    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(StoreError, match=f"{store.folder}: files cannot be made and locked there"):
        store.make_once("runs", REQUEST, CONTENT, never)


def write_sealed(folder: Path, name: str, content: bytes) -> None:
    """Write another file into an entry, whose checksums then name it."""
    before = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    after = hashlib.sha256(content).hexdigest()
    (folder / name).write_bytes(content)
    sums = folder / "SHA256SUMS"
    sums.write_text(sums.read_text().replace(before, after))


WRONG_CONTENTS: dict[str, tuple[str, str]] = {
    "no provenance": ("entry.json", "provenance is not valid: the whole: "),
    "a provenance without a field": (
        "entry.json",
        "provenance is not valid: finished: Field required",
    ),
    "an empty table": ("batches.csv", "batches.csv is no table"),
    "a table without a column": ("batches.csv", "batches.csv has no column count"),
    "a thousand brackets": ("entry.json", "nested too deeply"),
}


@pytest.mark.parametrize("fault", WRONG_CONTENTS)
def test_an_entry_with_true_checksums_and_other_contents_is_named_and_left_out(
    store: Store, fault: str
) -> None:
    name, told = WRONG_CONTENTS[fault]
    folder = store.make_once("runs", REQUEST, CONTENT, make).folder
    described = json.loads((folder / "entry.json").read_text())
    if fault == "no provenance":
        described["provenance"] = []
    if fault == "a provenance without a field":
        described["provenance"].pop("finished")
    content = json.dumps(described).encode()
    if fault == "an empty table":
        content = b""
    if fault == "a table without a column":
        content = b"step,position,errors\n0,0,1\n"
    if fault == "a thousand brackets":
        content = b"[" * 100_000 + b"]" * 100_000
    write_sealed(folder, name, content)
    with pytest.warns(UserWarning, match=f"{folder.name} is left out: .*{told}"):
        assert not list(store.runs())


def test_history_and_theorem_are_those_of_the_runs_network(store: Store) -> None:
    def train(folder: Path) -> Made:
        pd.DataFrame({"epoch": [1, 2]}).to_csv(folder / "history.csv", index=False)
        return Made(MADE_BY)

    store.make_once("runs", REQUEST, CONTENT, make)
    (run,) = store.runs()
    assert store.history(run) is None and store.theorem(run) is None
    store.make_once("checkpoints", CHECKPOINT, (CONTENT[0], "train"), train)
    checked = (CONTENT[0], code_of_theorem(CHECKPOINT))
    store.make_once("theorem", CHECKPOINT, checked, lambda folder: Made(MADE_BY, {"error": 0.25}))
    history = store.history(run)
    assert history is not None and history["epoch"].tolist() == [1, 2]
    assert store.theorem(run) == {"error": 0.25}
    elsewhere = replace(run, provenance=replace(run.provenance, fingerprint="other data"))
    assert store.history(elsewhere) is None


def test_a_file_that_cannot_be_read_now_is_not_called_damaged(store: Store, tmp_path: Path) -> None:
    """A link to itself takes its place for a while."""
    made = store.make_once("runs", REQUEST, CONTENT, make)
    file = made.folder / "batches.csv"
    aside = file.rename(tmp_path / "aside.csv")
    file.symlink_to(file)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        store.make_once("runs", REQUEST, CONTENT, never)
    with pytest.warns(UserWarning, match="is left out: .*Too many levels of symbolic links"):
        assert not list(store.runs())
    aside.replace(file)
    assert store.make_once("runs", REQUEST, CONTENT, never) == made


def test_what_a_kill_left_hidden_is_no_part_of_an_entry(store: Store) -> None:
    def resumed(folder: Path) -> Made:
        (folder / ".training.pt.0123abcd").touch()
        return make(folder)

    made = store.make_once("runs", REQUEST, CONTENT, resumed)
    (made.folder / ".training.pt.0123abcd").unlink()
    assert store.make_once("runs", REQUEST, CONTENT, never) == made


class Hasty(Store):
    """A store that hardly waits before it says that it does."""

    patience = 0.1


def test_who_waits_for_another_maker_says_so(tmp_path: Path) -> None:
    store = Hasty(tmp_path / "results")
    begun = threading.Event()
    told = threading.Event()

    class Said(io.StringIO):
        def write(self, text: str) -> int:
            told.set()
            return super().write(text)

    def slow(folder: Path) -> Made:
        begun.set()
        assert told.wait(60)
        return make(folder)

    other = threading.Thread(target=store.make_once, args=("runs", REQUEST, CONTENT, slow))
    other.start()
    assert begun.wait(60)
    with redirect_stderr(Said()) as said:
        store.make_once("runs", REQUEST, CONTENT, never)
    other.join()
    assert said.getvalue().startswith("another process is making")


def test_a_full_disk_is_told_in_one_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path) -> Made:
        raise RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0")

    # No test fills the disk.
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 0))  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="the disk that holds .* is full") as error:
        store.make_once("runs", REQUEST, CONTENT, full)
    assert error.value.errno == errno.ENOSPC


def test_provenance_names_code_device_threads_and_versions() -> None:
    assert "notebooks" not in module.CODE, (
        "an editor that saves the outputs of a notebook does not change the code"
    )
    described = module.provenance("cpu", 1.5)
    assert (
        described["threads"] >= 1
        and "thread" in described["device"]
        and described["packages"]["torch"]
    )
    assert module.torch.backends.cpu.get_cpu_capability() in described["device"], (
        "CPUs of one name can round otherwise"
    )
    assert module.cpu_name() in described["device"], "and CPUs with the same instructions, too"
    if Path("/proc/cpuinfo").exists():
        assert f"\t: {module.cpu_name()}\n" in Path("/proc/cpuinfo").read_text()
    here = "cuda" if torch.cuda.is_available() else "cpu"
    assert module.choose_device("auto") == here
