"""RobustBench's network from a made-up file with its layout of keys, and the files that are
refused.
"""

import os
from pathlib import Path

import pytest
import torch
from conftest import CLASSES, make_blobs
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.data.base import Split
from cascadetta_lib.data.images import SCALINGS, ImageDataset
from cascadetta_lib.methods import METHODS
from cascadetta_lib.models.backbones import WideResNet
from study.clean_errors import recognise
from study.networks_from_files import find_network, network_origin
from study.published_networks import NetworkError, load_robustbench
from study.weights_name import WeightsName

BLOCKS = 2
WIDENING = 2
"""A WideResNet-16-2."""


def made_up_state(classes: int = CLASSES) -> dict[str, Tensor]:
    """Random tensors by RobustBench's names: the fourth dimension of a name's shape is that of a
    convolution.
    """
    generator = torch.Generator().manual_seed(0)
    state = {}

    def norm(name: str, channels: int) -> None:
        state[f"{name}.weight"], state[f"{name}.running_var"] = 0.5 + torch.rand(
            2, channels, generator=generator
        )
        state[f"{name}.bias"], state[f"{name}.running_mean"] = torch.randn(
            2, channels, generator=generator
        )
        state[f"{name}.num_batches_tracked"] = torch.tensor(7)

    def convolution(name: str, after: int, before: int, size: int) -> None:
        state[f"{name}.weight"] = torch.randn(after, before, size, size, generator=generator) / (
            size * before**0.5
        )

    convolution("conv1", 16, 3, 3)
    before = 16
    for number, after in enumerate((16 * WIDENING, 32 * WIDENING, 64 * WIDENING), 1):
        for place in range(BLOCKS):
            block = f"block{number}.layer.{place}"
            norm(f"{block}.bn1", before)
            convolution(f"{block}.conv1", after, before, 3)
            norm(f"{block}.bn2", after)
            convolution(f"{block}.conv2", after, after, 3)
            if before != after:
                convolution(f"{block}.convShortcut", after, before, 1)
            before = after
    norm("bn1", before)
    state["fc.weight"], state["fc.bias"] = (
        torch.randn(classes, before, generator=generator),
        torch.zeros(classes),
    )
    return state


def logits_by_hand(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """What a wide ResNet makes of x by these tensors, written out from its definition."""

    def activated(name: str, x: Tensor) -> Tensor:
        statistics = (
            state[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return F.relu(F.batch_norm(x, *statistics))

    x = F.conv2d(x, state["conv1.weight"], padding=1)
    for number in (1, 2, 3):
        for place in range(BLOCKS):
            block = f"block{number}.layer.{place}"
            stride = 2 if number > 1 and place == 0 else 1
            inside = activated(f"{block}.bn1", x)
            if place == 0:
                x = F.conv2d(inside, state[f"{block}.convShortcut.weight"], stride=stride)
            inside = F.conv2d(inside, state[f"{block}.conv1.weight"], stride=stride, padding=1)
            x = x + F.conv2d(
                activated(f"{block}.bn2", inside), state[f"{block}.conv2.weight"], padding=1
            )
    pooled = F.avg_pool2d(activated("bn1", x), 8).flatten(1)
    return F.linear(pooled, state["fc.weight"], state["fc.bias"])


def write(path: Path, state: dict[str, Tensor], legacy: bool = False, **more: object) -> Path:
    named = {f"module.{name}": value for name, value in state.items()}
    torch.save(
        {"state_dict": named, "num_classes": 10} | more,
        path,
        _use_new_zipfile_serialization=not legacy,
    )
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "Standard.pt", made_up_state())


@pytest.mark.parametrize("legacy", [False, True])
def test_the_network_is_the_one_that_the_keys_mean(tmp_path: Path, legacy: bool) -> None:
    path = write(tmp_path / "Standard.pt", made_up_state(), legacy)
    x = torch.rand(3, 3, 32, 32)
    before = torch.get_rng_state()
    with torch.no_grad():
        found = load_robustbench(path)(x)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.allclose(found.main, logits_by_hand(made_up_state(), x), rtol=1e-4, atol=1e-4)
    assert found.auxiliary is None


def test_the_wide_resnet_28_10_has_the_known_number_of_parameters() -> None:
    with torch.device("meta"):
        phi = WideResNet(28, 10)
    assert sum(parameter.numel() for parameter in phi.parameters()) + 640 * 10 + 10 == 36_479_194


class KnowsTheImages(nn.Module):
    """Is right about the dataset's test images, except about the first few under scaling `unit`."""

    def __init__(self, dataset: ImageDataset, wrong: int) -> None:
        super().__init__()
        self.images = dataset.test.x.flatten(1).float() / 255
        self.unit = dataset.test.y.clone()
        self.unit[:wrong] = (self.unit[:wrong] + 1) % CLASSES
        self.symmetric = dataset.test.y

    def forward(self, x: Tensor) -> Tensor:
        unit = bool((x >= 0).all())
        images = x.flatten(1) if unit else (x.flatten(1) + 1) / 2
        number = torch.cdist(images, self.images).argmin(1)
        labels = (self.unit if unit else self.symmetric)[number]
        return F.one_hot(labels, CLASSES).float()


def test_a_scaling_is_refused_for_more_errors_than_chance_makes(tmp_path: Path) -> None:
    dataset = make_blobs(tmp_path, input_scaling="unit")
    network = {"depth": 28, "widening": 10}
    path = Path("Standard.pt")
    found = recognise(KnowsTheImages(dataset, 5), network, "five", path, dataset)
    assert "errs on 5 of 22 clean test images" in found["source"]
    with pytest.raises(NetworkError, match="on 6 of 22 .* set image_input_scaling=symmetric"):
        recognise(KnowsTheImages(dataset, 6), network, "six", path, dataset)


def test_it_is_an_origin_of_networks(file: Path, tmp_path: Path) -> None:
    dataset = make_blobs(tmp_path, held_out_fraction=0.2, input_scaling="unit")
    found = find_network(WeightsName.parse(f"robustbench:{file}"), "meta", 0, dataset)
    assert (
        found.origin
        == network_origin(WeightsName.parse(f"robustbench:{file}"), "erm", 1)
        == f"robustbench:{found.sha256[:12]}"
    )
    assert found.card["network"] == {"architecture": "wide_resnet", "depth": 16, "widening": 2}
    x = dataset.prepare(dataset.test.x[:8])
    for name in ("erm", "adabn", "tent", "cotta", "cascade_same_weights"):
        assert METHODS[name](found.model, value_range=dataset.value_range)(x).shape == (8, CLASSES)
    with pytest.raises(ValueError, match="without θ_a; use cascade_no_auxiliary"):
        METHODS["cascade"](found.model)
    with pytest.raises(NetworkError, match="not for ttt"):
        find_network(WeightsName.parse(f"robustbench:{file}"), "ttt", 0, dataset)


@pytest.mark.parametrize("scaling", ["unit", "symmetric"])
def test_a_network_of_the_same_shape_is_not_called_standard_and_its_scaling_is_measured(
    tmp_path: Path, scaling: str
) -> None:
    """F3 of the faults: other networks have the same tensors, and their normalisation is in their
    class, so that nothing in the file says it."""
    dataset = make_blobs(tmp_path, held_out_fraction=0.2, input_scaling="symmetric")
    x = torch.randint(0, 256, (40, 3, 32, 32), dtype=torch.uint8)
    mean, deviation = SCALINGS[scaling]
    state = made_up_state()
    file = write(tmp_path / "plain.pt", state)
    with torch.no_grad():
        logits = load_robustbench(file)((x.float() / 255 - mean) / deviation).main
    write(file, state | {"fc.bias": -logits.mean(0)})  # so that it predicts several classes
    dataset.test = Split(x, (logits - logits.mean(0)).argmax(1))
    dataset.fingerprint = f"made up by a test, {scaling}"
    if scaling == "unit":
        with pytest.raises(NetworkError, match="on 0 with 'unit': set image_input_scaling=unit"):
            find_network(WeightsName.parse(f"robustbench:{file}"), "meta", 0, dataset)
        return
    card = find_network(WeightsName.parse(f"robustbench:{file}"), "meta", 0, dataset).card
    assert card["input_scaling"] == "symmetric" and "Standard" not in card["source"]
    assert "which one is not known: it errs on 0 of 40 clean test images" in card["source"]


def test_classes_must_be_those_of_the_file(file: Path, dataset: object, tmp_path: Path) -> None:
    other = write(tmp_path / "other.pt", made_up_state(classes=10))
    with pytest.raises(NetworkError, match=f"has 10 classes .* has {CLASSES} classes"):
        find_network(WeightsName.parse(f"robustbench:{other}"), "meta", 0, dataset)  # type: ignore[arg-type]


def test_a_file_that_changes_is_another_network(file: Path) -> None:
    first = network_origin(WeightsName.parse(f"robustbench:{file}"), "meta", 0)
    write(file, made_up_state(), more=1)
    assert network_origin(WeightsName.parse(f"robustbench:{file}"), "meta", 0) != first


def test_a_file_that_changes_under_its_size_and_time_is_another_network(file: Path) -> None:
    """As it does where a file is put in its place by `cp -p`, `tar` or `rsync -a`."""
    first = network_origin(WeightsName.parse(f"robustbench:{file}"), "meta", 0)
    before = file.stat()
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    assert network_origin(WeightsName.parse(f"robustbench:{file}"), "meta", 0) != first
