"""What several test files share: tiny made-up images, real data, methods that cost little, and how
to wait.
"""

import copy
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from cascadetta_lib.data.base import Split
from cascadetta_lib.data.images import ImageDataset, ImageOptions, make_image_dataset
from cascadetta_lib.methods import METHODS
from cascadetta_lib.models import as_outputs

CLASSES = 4
LONGEST_MESSAGE = 450
"""Characters of what is said of a bad input, beside the folders of the test."""


def blobs(count: int, seed: int) -> Split:
    """Noise with one bright quarter, which tells the class. uint8 (N, 3, 32, 32), labels 0..3."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % CLASSES
    x = torch.randint(0, 100, (count, 3, 32, 32), generator=generator)
    for index, label in enumerate(y.tolist()):
        row, column = divmod(label, 2)
        x[index, :, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16] += 120
    return Split(x.to(torch.uint8), y)


def make_blobs(folder: Path, **options: object) -> ImageDataset:
    """The dataset of 80 training and 22 test images, which keeps its corruptions in `folder`."""
    return make_image_dataset(
        name="blobs",
        source="made up by the tests",
        compare_with="CIFAR-10-C",
        class_names=tuple("abcd"),
        train=blobs(80, 0),
        test=blobs(22, 1),
        options=ImageOptions(folder=str(folder), **options),  # type: ignore[arg-type]
    )


def write_npz(
    folder: Path, train: dict[str, Any] | None = None, test: dict[str, Any] | None = None
) -> Path:
    """FOLDER/train.npz with 40 images and FOLDER/test.npz with 20, of ten classes; a value None
    leaves an array out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for name, count, changes in (("train", 40, train or {}), ("test", 20, test or {})):
        x = generator.integers(0, 256, (count, 32, 32, 3), np.uint8)
        arrays = {"x": x, "y": np.arange(count) % 10} | changes
        np.savez(
            folder / f"{name}.npz",
            **{key: value for key, value in arrays.items() if value is not None},
        )
    return folder


@torch.no_grad()
def make_sure(model: nn.Module, classifier: nn.Module, x: Tensor) -> None:
    """Let an untrained network, whose logits the last linear layer of `classifier` gives, be sure
    of some of x, as a trained one is, so that methods which choose sure examples find some."""
    last = [child for child in classifier.modules() if isinstance(child, nn.Linear)][-1]
    z = as_outputs(copy.deepcopy(model).train()(x)).main
    scale = 3 / (z - z.mean(0)).std()
    last.weight.mul_(scale)
    last.bias.sub_(z.mean(0)).mul_(scale)


@pytest.fixture
def dataset(tmp_path: Path) -> ImageDataset:
    return make_blobs(tmp_path, held_out_fraction=0.2)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Tensor:
    """Eight prepared images, (8, 3, 32, 32), for tests that leave them as they are."""
    dataset = make_blobs(tmp_path_factory.mktemp("blobs"), held_out_fraction=0.2)
    return dataset.prepare(dataset.test.x[:8])


@pytest.fixture
def images(prepared: Tensor) -> Tensor:
    """Eight prepared images of one's own, (8, 3, 32, 32)."""
    return prepared.clone()


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Whether two states have the same tensors, bit by bit."""
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def small_updates() -> Iterator[None]:
    """CoTTA and MEMO average over two copies, RoTTA and NOTE update after every eight examples, and
    SAR keeps what it learns, which it would take back on networks as sure as those of the tests."""
    with ExitStack() as changed:
        for name in ("cotta", "memo"):
            changed.enter_context(with_constants(name, copy_count=2))
        for name in ("rotta", "petta", "note"):
            changed.enter_context(with_constants(name, update_every=8))
        changed.enter_context(with_constants("sar", least_entropy=0.0))
        yield


def with_constants(name: str, **constants: object) -> AbstractContextManager[None]:
    """Let a method have other constants inside `with`: a subclass takes its place."""
    kind = METHODS[name]
    own = {"__module__": kind.__module__, "__doc__": kind.__doc__}
    return METHODS.replaced(name, type(kind.__name__, (kind,), own | constants))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name of another machine is known, so that no test reaches one."""

    def refuse(*arguments: object, **options: object) -> None:
        raise socket.gaierror("tests are offline")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def written(folder: Path) -> dict[Path, int]:
    """When each file inside a folder was last written, to see that none is made again."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def real_data(name: str) -> Path:
    """Real data by the name of their folder or file; the test is skipped where they are not
    unpacked.
    """
    path = Path(os.environ.get("CASCADETTA_DATA", "~/.cache/cascadetta-real")).expanduser() / name
    if not path.exists():
        pytest.skip(f"no {path}; unpack it and set CASCADETTA_DATA")
    return path


PATIENCE = 600
"""Seconds that tests wait for another process. A busy machine may take many times as long as an
idle one.
"""


def wait_for(condition: Callable[[], object], what: str) -> Any:
    """The value of the condition as soon as it holds."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {PATIENCE} s for {what}"
        time.sleep(0.2)
    return value


def stored_numbers(results: Path) -> dict[str, bytes]:
    """What a study has stored: weights and tables by their paths, without the seconds that they
    took.
    """
    found = {}
    for path in results.glob("*/*/*"):
        if path.suffix == ".csv":
            table = pd.read_csv(path).drop(columns="seconds", errors="ignore")
            found[str(path.relative_to(results))] = table.to_csv().encode()
        elif path.suffix == ".safetensors":
            found[str(path.relative_to(results))] = path.read_bytes()
    return found
