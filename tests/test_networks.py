"""Where networks come from: shipped ones and folders of them, the authors' release, a module of the
caller's.
"""

import hashlib
import os
import pickle
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pandas as pd
import pytest
import torch
from conftest import LONGEST_MESSAGE, PATIENCE, real_data, same
from safetensors.torch import load_file
from torch import nn

from cascadetta_lib.data import load_dataset
from cascadetta_lib.data.base import Dataset, fingerprint
from cascadetta_lib.data.corruptions import HELD_OUT_CORRUPTIONS
from cascadetta_lib.data.images import ImageDataset, ImageOptions
from cascadetta_lib.data.streams import Domain
from cascadetta_lib.methods import METHODS
from cascadetta_lib.models import Cascade, ImageNetwork, build_network
from cascadetta_lib.training.objectives import OBJECTIVES
from cascadetta_lib.training.pretrain import new_network
from cascadetta_lib.training.settings import Training
from study.brought_networks import bring, fitting
from study.exhibits.kit.rendering import markdown
from study.networks_from_files import SAMPLE, find_network, network_origin
from study.published_networks import NetworkError, load_into, load_release
from study.shipped_networks import SHIPPED, present_objectives, read_card
from study.tools.pack_networks import BEGIN, pack, study_of, table
from study.weights_name import WeightsName
from study.workflow.jobs import origins

TINY = ImageNetwork(depth=8, width=4, block="pre_activation")
RELEASE = Path(__file__).resolve().parents[2] / "shared" / "data" / "release"


@pytest.fixture
def folder(tmp_path: Path, dataset: ImageDataset) -> Path:
    """A folder with one network, as `pack` writes it."""
    model = new_network(dataset, TINY, "meta", seed=3)
    history = pd.DataFrame({"epoch": [1], "held_out_accuracy": [0.5]})
    card = {"network": TINY, "objective": "meta", "training": Training(epochs=1), "seed": 3}
    card |= {"options": {"input_scaling": "symmetric"}, "provenance": {"code_revision": "x"}}
    pack(tmp_path / "nets", model, history, dataset, **card)
    return tmp_path / "nets"


def test_a_packed_network_comes_back_with_its_card(folder: Path, dataset: ImageDataset) -> None:
    found = find_network(WeightsName.parse(str(folder)), "meta", 3, dataset)
    assert same(found.model.state_dict(), new_network(dataset, TINY, "meta", seed=3).state_dict())
    x, y = dataset.plain_held_out
    errors = {
        name: METHODS[name](found.model)(dataset.prepare(x)).argmax(1) != y
        for name in ("erm", "adabn")
    }
    assert found.card["sample_errors"] == errors["erm"][:SAMPLE].sum()
    clean, of_batch = (round(100 * wrong.double().mean().item(), 3) for wrong in errors.values())
    assert (
        found.card["clean_error"] == clean != of_batch == found.card["clean_error_batch_statistics"]
    )
    adabn = METHODS["adabn"](found.model)
    wrong = []
    for name in HELD_OUT_CORRUPTIONS:
        x, y = dataset.domain(name, 5)
        wrong += (adabn(dataset.prepare(x)).argmax(1) != y).tolist()
    assert found.card["corrupted_error"] == pytest.approx(100 * sum(wrong) / len(wrong), abs=1e-3)
    assert found.history is not None and list(found.history["held_out_accuracy"]) == [0.5]
    assert found.origin == network_origin(
        WeightsName.parse(str(folder)), "meta", 3
    ) and found.origin.startswith("folder:")


def test_other_data_than_a_network_was_trained_on_are_told_once(
    folder: Path, dataset: ImageDataset
) -> None:
    weights = WeightsName.parse(str(folder))
    pets = replace(dataset, source="pets", fingerprint="other")
    with pytest.warns(
        UserWarning,
        match="networks that were trained on the source examples of "
        f"{re.escape(dataset.source)} are used on pets",
    ) as told:
        find_network(weights, "meta", 3, pets)
    assert Path(told[0].filename) == Path(__file__)
    with warnings.catch_warnings(action="error"):
        find_network(weights, "meta", 3, pets)


class _Transformer(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("Expected 224 but got 32")


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (
            _Transformer(),
            "cannot take inputs of shape \\(2, 3, 32, 32\\): AssertionError..Expected 224",
        ),
        (nn.Identity(), "logits of shape"),
    ],
)
def test_a_module_that_does_not_fit_is_refused(
    module: nn.Module, words: str, dataset: ImageDataset
) -> None:
    with pytest.raises(NetworkError, match=words):
        fitting(bring(module, "mine"), dataset, Domain("fog", 5))


def test_which_networks_are_there(folder: Path) -> None:
    assert origins(WeightsName.parse(str(folder)), [0, 3, 4]) == [
        network_origin(WeightsName.parse(str(folder)), "meta", 3)
    ]
    assert (
        origins(WeightsName.parse("train"), [0])
        == present_objectives(WeightsName.parse("train"), 0)
        == present_objectives(WeightsName.parse(str(folder)), 0)
        == []
    )
    assert present_objectives(WeightsName.parse(str(folder)), 3) == ["meta"]


def test_a_copy_of_a_shipped_network_is_that_network(tmp_path: Path) -> None:
    """So a folder with the shipped ones and one's own finds the stored runs of the former."""
    for file in SHIPPED.glob("erm-0.*"):
        shutil.copy(file, tmp_path)
    shipped = network_origin(WeightsName.parse("shipped"), "erm", 0)
    assert network_origin(
        WeightsName.parse(str(tmp_path)), "erm", 0
    ) == shipped and shipped.startswith("shipped:")
    card = read_card(tmp_path / "erm-0.safetensors")
    retold = card.model_copy(update={"data": "other images"}).model_dump_json()
    (tmp_path / "erm-0.json").write_text(retold, encoding="utf-8")
    assert network_origin(WeightsName.parse(str(tmp_path)), "erm", 0).startswith("folder:")


def test_the_name_says_which_weights() -> None:
    one = nn.Linear(2, 2)
    two = nn.Linear(2, 2)
    two.load_state_dict(one.state_dict())
    assert bring(one, "mine").origin == bring(two, "mine").origin
    with torch.no_grad():
        two.bias[0] += 1
    assert bring(one, "mine").sha256 != bring(two, "mine").sha256
    names = {bring(Cascade(one, nn.Flatten(), None, relu), "mine").sha256 for relu in (True, False)}
    assert len(names) == 2, "alike in every weight, but not in what they do with them"


def test_a_profile_that_cannot_be_packed_is_told_in_a_sentence() -> None:
    command = [sys.executable, SHIPPED.parent / "study" / "tools" / "pack_networks.py", "nonexist"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
    assert (
        "pack_networks.py: profile 'nonexist': no such profile or file; allowed are field,"
        in done.stderr
    )


def test_networks_of_other_data_are_not_packed_beside(folder: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"meta-3.safetensors learned from .*, not from digits \(5,000 MNIST digits",
    ):
        study_of("quick", packed=folder)


@pytest.mark.parametrize(
    ("objective", "seed", "there"),
    [
        ("erm", 7, "There: erm-0, erm-1, erm-2."),
        ("meta_ttt", 0, "There: both_cross_entropy, both_supervised_"),
    ],
)
def test_a_network_that_is_not_shipped_is_told_beside_the_nearest(
    objective: str, seed: int, there: str, dataset: ImageDataset
) -> None:
    with pytest.raises(NetworkError, match=there) as error:
        find_network(WeightsName.parse("shipped"), objective, seed, dataset)
    assert len(str(error.value)) <= LONGEST_MESSAGE


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch exploded",)


def test_a_file_with_code_is_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bomb.pth").write_bytes(pickle.dumps({"net": _Bomb()}))
    torch.save({"net": {"stateless.fc.weight": _Bomb()}}, "bomb2.pth")
    for name in ("bomb.pth", "bomb2.pth"):
        with pytest.raises(NetworkError, match="read safely") as error:
            load_release(name)
        assert "weights_only" not in str(error.value)
    assert not Path("exploded").exists()


def test_a_release_is_the_authors_or_refused(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="3,076,113 bytes, SHA-256 6369a581"):
        network_origin(WeightsName.parse(f"release:{tmp_path / 'absent.pth'}"), "meta", 0)
    (tmp_path / "other.pth").write_bytes(b"other")
    with pytest.raises(NetworkError, match="it is not the authors'"):
        network_origin(WeightsName.parse(f"release:{tmp_path / 'other.pth'}"), "meta", 0)


def test_the_authors_network_on_their_pixels() -> None:
    file = RELEASE / "069c8695_pretrained.pth"
    sample = RELEASE / "official_test_sample.npz"
    if not file.exists():
        pytest.skip(f"the authors' checkpoint is not in {RELEASE}")
    dataset = load_dataset(f"cifar10_sample:{sample}", ImageOptions(test_size=992))
    assert dataset.source == "the first 992 images of CIFAR-10's official test set"
    found = find_network(WeightsName.parse(f"release:{file}"), "meta", 0, dataset)
    x, y = dataset.test.take(slice(992))
    with torch.no_grad():
        errors = int((found.model(dataset.prepare(x)).main.argmax(1) != y).sum())
    assert (
        round(100 * errors / 992, 1) == 7.7
    )  # of 992 clean images, as measured when the file was found
    with pytest.raises(NetworkError, match="not for ttt"):
        find_network(WeightsName.parse(f"release:{file}"), "ttt", 0, dataset)


@lru_cache(maxsize=1)
def _real(folder: Path, options: tuple[tuple[str, object], ...]) -> Dataset:
    return load_dataset("cifar10", ImageOptions(folder=str(folder), **dict(options)))  # type: ignore[arg-type]


PACKED = sorted(SHIPPED.glob("*.safetensors"))
OFFICIAL = sorted((SHIPPED / "official").glob("*.safetensors"))
"""Those that learned from the official pixels of CIFAR-10."""
each_network = pytest.mark.parametrize(
    "path", [*PACKED, *OFFICIAL], ids=lambda path: f"{path.parent.name}/{path.stem}"
)
KINDS = {
    "both_cross_entropy",
    "both_supervised_information",
    "erm",
    "meta",
    "meta_no_auxiliary",
    "multi_task",
    "multi_task_light_entropy",
    "ttt",
}


def test_all_networks_are_shipped_small_and_listed_by_their_cards() -> None:
    assert {path.stem for path in PACKED} == {
        f"{kind}-{seed}" for kind in KINDS for seed in range(3)
    }
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*")) < 80e6
    readme = (SHIPPED / "README.md").read_text(encoding="utf-8")
    assert readme.partition(BEGIN)[2].strip() == markdown(table()).strip()


@each_network
def test_a_shipped_network_is_what_its_card_says(path: Path) -> None:
    card = read_card(path)
    folder = real_data("cifar-10-batches-py").parent
    dataset = _real(folder, tuple(card.options.items()))
    if dataset.fingerprint != card.data_fingerprint:
        pytest.skip(f"it learned from {card.data}")
    folder_of_network = WeightsName.parse(str(path.parent))
    found = find_network(folder_of_network, card.objective, card.seed, dataset)
    x, y = sample = dataset.plain_held_out.take(slice(SAMPLE))
    assert fingerprint([*sample]) == card.sample_fingerprint
    assert (
        METHODS["erm"](found.model)(dataset.prepare(x)).argmax(1) != y
    ).sum() == card.sample_errors


@each_network
def test_a_shipped_network_is_whole(path: Path) -> None:
    """Also where the data that it was trained on are not at hand."""
    card = read_card(path)
    history = pd.read_csv(path.with_suffix(".csv"))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == card.weights_sha256
    assert history["epoch"].tolist() == list(range(1, card.training.epochs + 1))
    # The epoch that is kept is the best one on held-out images: by the running statistics for a
    # plain network, by those of the batch for the others, which will be adapted. The gate of all
    # verdicts rests on the first of these errors.
    error = card.clean_error if card.objective == "erm" else card.clean_error_batch_statistics
    assert 100 * (1 - history["held_out_accuracy"].max()) == pytest.approx(error, abs=1e-3)
    kind = {name: getattr(OBJECTIVES[card.objective], name) for name in ("parallel", "auxiliary")}
    load_into(
        build_network(card.network, classes=card.classes, seed=0, **kind), load_file(path), path
    )


@pytest.mark.parametrize(
    "name", ["release", "shipped", "folder", "train", "robustbench", "release:1a", ""]
)
def test_a_network_of_ones_own_is_not_called_as_a_published_one(name: str) -> None:
    with pytest.raises(NetworkError, match="for other networks; choose another"):
        bring(torch.nn.Linear(1, 1), name)
