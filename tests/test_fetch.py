"""`fetch` on made-up archives, from a server on this machine."""

import hashlib
import io
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cascadetta_lib.data.base import DataMissing
from cascadetta_lib.data.fetch import fetch

REFUSED = "http://127.0.0.1:9/small.tar"


class Handler(SimpleHTTPRequestHandler):
    server: Any

    def log_message(self, format: str, *args: Any) -> None:
        self.server.requests.append(self.path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    """Serves the folder `served` and counts what is asked of it."""
    (tmp_path / "served").mkdir()
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, directory=str(tmp_path / "served"))
    ) as server:
        server.requests = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
    thread.join()


def make(path: Path, members: dict[str, bytes]) -> Path:
    """A .tar or .zip file."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as file:
            for name, content in members.items():
                file.writestr(name, content)
        return path
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


class Small:
    """A small archive that a server serves, and how it is fetched."""

    def __init__(self, path: Path, server: Any) -> None:
        self.path = path
        self.url = f"http://127.0.0.1:{server.server_address[1]}/{path.name}"
        self.hash: str | None = f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}"
        self.contents: tuple[str, ...] = ("a.txt", "deep/b.txt")

    def fetch(self, folder: Path, *urls: str) -> Path:
        return fetch("Small", urls or [self.url], folder, self.hash, "5 kB", "small", self.contents)


MEMBERS = {"a.txt": b"a" * 5000, "deep/b.txt": b"b"}


@pytest.fixture(params=["tar", "zip"])
def small(request: pytest.FixtureRequest, server: Any, tmp_path: Path) -> Small:
    members = {f"small/{name}": content for name, content in MEMBERS.items()}
    return Small(make(tmp_path / "served" / f"small.{request.param}", members), server)


def test_download_check_unpack_and_use_again(small: Small, server: Any, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    assert small.fetch(folder) == folder / "small"
    assert {name: (folder / "small" / name).read_bytes() for name in MEMBERS} == MEMBERS
    small.fetch(folder)
    assert len(server.requests) == 1
    assert {path.name for path in folder.iterdir()} <= {"small", small.path.name, ".small.lock"}, (
        "nothing else stays"
    )
    (folder / "small").rename(folder / "away")
    assert (small.fetch(folder) / "a.txt").is_file() and len(server.requests) == 1, (
        "an archive that is there will do"
    )


def test_an_archive_without_a_folder_of_its_own(server: Any, tmp_path: Path) -> None:
    small = Small(make(tmp_path / "served" / "small.tar", MEMBERS), server)
    assert (small.fetch(tmp_path / "data") / "deep" / "b.txt").read_bytes() == b"b"


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-2000], lambda content: b"x" + content[1:]]
)
def test_a_damaged_file_is_never_used(
    small: Small, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    whole = small.path.read_bytes()
    for path in (folder / small.path.name, small.path):  # the server sends a damaged one too
        path.write_bytes(damage(whole))
    with pytest.raises(DataMissing, match="incomplete or altered.*from .* has another hash than"):
        small.fetch(folder)
    assert not (folder / "small").exists()
    small.path.write_bytes(whole)
    assert (small.fetch(folder) / "a.txt").is_file(), "a whole download replaces the damaged file"


def test_a_hash_that_nobody_published_is_recorded(small: Small, tmp_path: Path) -> None:
    small.hash = None
    folder = tmp_path / "data"
    whole = small.path.read_bytes()
    small.path.write_bytes(whole[:100])
    with pytest.raises(DataMissing, match="cannot be unpacked"):
        small.fetch(folder)
    (folder / small.path.name).unlink()
    small.path.write_bytes(whole)
    small.fetch(folder).rename(folder / "away")
    for path in (small.path, folder / small.path.name):
        path.write_bytes(whole + b"!")
    with pytest.raises(DataMissing, match="has another hash"):
        small.fetch(folder)


def test_what_a_killed_job_has_left_is_not_used(small: Small, tmp_path: Path) -> None:
    half = tmp_path / "data" / ".small.unpacking" / "small"
    half.mkdir(parents=True)
    (half / "stale.txt").touch()
    unpacked = small.fetch(tmp_path / "data")
    assert (
        (unpacked / "a.txt").is_file()
        and not (unpacked / "stale.txt").exists()
        and not half.parent.exists()
    )


def test_the_second_address_is_tried(small: Small, tmp_path: Path) -> None:
    assert small.fetch(
        tmp_path / "data", small.url.replace("/small", "/none/small"), small.url
    ).is_dir()


def test_an_archive_without_its_contents_is_refused(small: Small, tmp_path: Path) -> None:
    small.contents = ("a.txt", "c.txt")
    with pytest.raises(DataMissing, match=r"lacks c\.txt"):
        small.fetch(tmp_path / "data")


def test_parallel_jobs_download_once(small: Small, server: Any, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: small.fetch(tmp_path / "data"), range(4)))
    assert len(set(found)) == len(server.requests) == 1


def test_the_message_offline_says_all(tmp_path: Path) -> None:
    with pytest.raises(DataMissing) as caught:
        fetch("Small", [REFUSED], tmp_path / "data", "md5:123", "5 kB", "small")
    for part in (
        REFUSED,
        "md5:123",
        "5 kB",
        "small.tar",
        str(tmp_path / "data" / "small"),
        "data_folder",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("proxy", ["http:/proxy:3128", "http://user:pa#ss@proxy:3128"])
def test_a_malformed_proxy_is_no_damaged_download(
    proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    address = "http://data.example/small.tar"
    with pytest.raises(DataMissing, match="cannot be downloaded .*; look at HTTPS_PROXY") as caught:
        fetch("Small", [address], tmp_path / "data", "md5:123", "5 kB", "small")
    assert "another hash" not in str(caught.value)


def test_an_incomplete_folder_of_the_user_is_named(
    small: Small, server: Any, tmp_path: Path
) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "a.txt").touch()
    with pytest.raises(DataMissing, match=r"is incomplete: .*small lacks deep/b\.txt\. Complete"):
        small.fetch(tmp_path)
    (tmp_path / "small" / "deep").mkdir()
    (tmp_path / "small" / "deep" / "b.txt").touch()
    assert small.fetch(tmp_path) == tmp_path / "small", "the user's own folder is used as it is"
    assert not server.requests


@pytest.mark.parametrize("name", ["../evil.txt", "small/../../evil.txt", "{outside}/evil.txt"])
@pytest.mark.parametrize("suffix", ["tar", "zip"])
def test_no_entry_leaves_the_folder(server: Any, tmp_path: Path, suffix: str, name: str) -> None:
    members = {
        "small/a.txt": b"",
        "small/deep/b.txt": b"",
        name.format(outside=tmp_path / "outside"): b"evil",
    }
    small = Small(make(tmp_path / "served" / f"small.{suffix}", members), server)
    try:
        small.fetch(tmp_path / "data")
    except (
        DataMissing
    ) as error:  # a tar file is refused, and the entry of a .zip file is kept inside or left out
        assert "cannot be unpacked" in str(error) and not (tmp_path / "data" / "small").exists()
    found = {path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("evil.txt")}
    assert found <= {("data", "small")} and not (tmp_path / "outside").exists()


LINKS: dict[str, tuple[bytes, str]] = {
    "a link up": (tarfile.SYMTYPE, ".."),
    "a link up from below": (tarfile.SYMTYPE, "small/../.."),
    "a link to the root": (tarfile.SYMTYPE, "/"),
    "a link to a file outside": (tarfile.SYMTYPE, "../outside.txt"),
    "a hard link to a file outside": (tarfile.LNKTYPE, "../outside.txt"),
    "a hard link by a whole path": (tarfile.LNKTYPE, "/etc/hostname"),
    "a pipe": (tarfile.FIFOTYPE, ""),
    "a device": (tarfile.CHRTYPE, ""),
}
"""Entries of an archive that are no file or folder: their kind, and what they lead to."""


@pytest.mark.parametrize("name", LINKS)
def test_no_link_leaves_the_folder(server: Any, tmp_path: Path, name: str) -> None:
    kind, target = LINKS[name]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "outside.txt").write_text("as it was")
    path = tmp_path / "served" / "small.tar"
    with tarfile.open(path, "w") as tar:
        for member, content in MEMBERS.items():
            entry = tarfile.TarInfo(f"small/{member}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("small/link")
        link.type = kind
        link.linkname = target
        tar.addfile(link)
        for evil in ("small/link/evil.txt", "small/link"):
            entry = tarfile.TarInfo(evil)
            entry.size = 4
            tar.addfile(entry, io.BytesIO(b"evil"))
    with pytest.raises(DataMissing, match="cannot be unpacked"):
        Small(path, server).fetch(tmp_path / "data")
    assert not list(tmp_path.rglob("evil.txt")) and not (tmp_path / "data" / "small").exists()
    assert (tmp_path / "data" / "outside.txt").read_text() == "as it was"


OTHER_CONTENTS: dict[str, Callable[[bytes], bytes]] = {
    "one bit": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "a byte more": lambda content: content + b"x",
    "nothing": lambda content: b"",
    "zeros": lambda content: bytes(len(content)),
    "twice": lambda content: content + content,
    "a page": lambda content: b"<!DOCTYPE html><html>Please log in</html>",
}


@pytest.mark.parametrize("name", OTHER_CONTENTS)
@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_what_a_server_sends_is_held_to_its_hash(
    server: Any, tmp_path: Path, kind: str, name: str
) -> None:
    small = Small(make(tmp_path / "served" / "small.tar", MEMBERS), server)
    small.contents = ()
    whole = small.path.read_bytes()
    small.hash = f"{kind}:{hashlib.new(kind, whole).hexdigest()}"
    small.path.write_bytes(OTHER_CONTENTS[name](whole))
    with pytest.raises(DataMissing, match="from .* has another hash than"):
        small.fetch(tmp_path / "data")
    assert not (tmp_path / "data" / "small").exists()


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_data_folder_that_is_a_file_is_told(small: Small, tmp_path: Path, below: str) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(DataMissing, match="the folder .*data.* cannot be made or written to"):
        small.fetch(tmp_path / "data" / below)


def test_a_record_of_a_hash_that_is_empty_is_told(small: Small, tmp_path: Path) -> None:
    small.hash = None
    (tmp_path / f"{small.path.name}.sha256").touch()
    with pytest.raises(DataMissing, match=r"\.sha256 is empty; remove it"):
        small.fetch(tmp_path)


def test_a_full_disk_is_no_damaged_archive(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which the message would have the user remove."""
    small.path.write_bytes(small.path.read_bytes()[:3000])
    small.hash = None
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    with pytest.raises(DataMissing, match="the disk that holds .*data is full") as caught:
        small.fetch(tmp_path / "data")
    assert "remove" not in str(caught.value)
