"""One line that adapts any network, the table of the methods, and shipped networks by name."""

import copy
import json
import math
import re
import shutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import same, seeded
from torch import Tensor, nn
from torchvision.models import resnet18

import cascadetta_lib
from cascadetta_lib.methods import METHODS
from cascadetta_lib.models import Cascade, batch_norms
from study.published_networks import NetworkError
from study.shipped_networks import SHIPPED, load_network
from study.tools import methods_table

PIXELS = torch.rand(8, 3, 32, 32, generator=seeded(1)) * 2 - 1


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    model = resnet18(num_classes=4)
    for norm in batch_norms(model):
        norm.momentum = 1.0
    model(PIXELS)
    return model.eval()


def test_one_line_adapts_a_copy_of_a_network(network: nn.Module) -> None:
    before = copy.deepcopy(network.state_dict())
    adapted = cascadetta_lib.adapt(network, "tent", learning_rate=0.01)
    expected = METHODS["tent"](copy.deepcopy(network), learning_rate=0.01)
    found = [adapted(PIXELS) for _ in range(2)]
    assert all(torch.equal(logits, expected(PIXELS)) for logits in found)
    assert not torch.equal(found[0], found[1]), "it adapts"
    assert same(network.state_dict(), before), "the network itself is left as it is"
    assert not network.training


def test_what_does_not_learn_is_the_network_itself_to_the_bit(network: nn.Module) -> None:
    tracking = copy.deepcopy(network)
    for norm in batch_norms(tracking):
        norm.track_running_stats = False
    with torch.no_grad():
        assert torch.equal(cascadetta_lib.adapt(network, "erm")(PIXELS), network(PIXELS))
        assert torch.equal(cascadetta_lib.adapt(network, "adabn")(PIXELS), tracking.train()(PIXELS))


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("tend", {}, "no method is named 'tend'; .*did you mean 'tent'"),
        ("tent", {"momentum": 0.9}, r"Tent has no option momentum \(given 0.9\); allowed are "),
        ("erm", {"memory": torch.tensor([1, 2])}, r"ERM has no option memory \(given tensor"),
        ("erm", {"diversity": 0, "memory": torch.tensor([0, 0])}, "ERM has no option memory"),
        ("eata", {"source": torch.tensor(1.0)}, "EATA needs examples that the model was trained"),
        ("eata", {}, "EATA needs examples that the model was trained on; pass them as source="),
        ("cascade", {}, "Cascade needs a cascadetta_lib.Cascade; use tent"),
        ("tent", {"optimizer": "Adam"}, "optimizer = 'Adam'; .*did you mean 'adam'"),
        ("tent", {"predict": "befor"}, "predict = 'befor'; .*did you mean 'before'"),
        ("tent", {"learning_rate": math.nan}, "learning_rate = nan; allowed is a finite number"),
        (
            METHODS["tent"],
            {},
            "no method is named <class .*Tent'>; .*allowed",
        ),
        (None, {}, "no method is named None; "),
        (["tent"], {}, r"no method is named \['tent'\]; "),
        ("tent", {"learning_rate": 10**400}, "learning_rate = 1000*; allowed is a finite number"),
        ("tent", {"learning_rate": True}, "learning_rate = True; allowed is a finite number"),
        ("adabn", {"learning_rate": -0.1}, "learning_rate = -0.1; allowed is a finite number"),
        ("cotta", {"value_range": (1, 0)}, r"value_range = \(1, 0\); .*with black < white"),
        ("cotta", {"value_range": (0, True)}, r"value_range = \(0, True\); .*two finite numbers"),
        ("cotta", {"value_range": (0, 10**400)}, "value_range = .*two finite numbers"),
        (
            "cotta",
            {"value_range": (0, math.inf)},
            r"value_range = \(0, inf\); .*two finite numbers",
        ),
        ("cotta", {"value_range": (0, 1, 2)}, r"value_range = \(0, 1, 2\); .*two finite numbers"),
        ("cotta", {"value_range": 1}, "value_range = 1; .*two finite numbers"),
        ("cotta", {"value_range": ("0", "1")}, r"value_range = \('0', '1'\); .*two finite numbers"),
        (
            "tent",
            {"optimizer": ["sgd"]},
            r"optimizer = \['sgd'\]; None means its own, otherwise allowed are sgd, adam; did",
        ),
        ("tent", {"seed": True}, "seed = True; allowed is a whole number"),
        ("eata", {"source": [1.0]}, "EATA needs examples that the model was trained on"),
        ("cotta", {"copies": "images"}, "copies = 'images'; .*did you mean 'image'"),
        ("adabn", {"memory": -8}, "memory = -8; allowed is a whole number from 0 on"),
        ("adabn", {"memory": math.nan}, "memory = nan; allowed is a whole number"),
        ("tent", {"memory": 2.5}, "memory = 2.5; allowed is a whole number"),
        ("source_prior", {"memory": -1}, "memory = -1; allowed is a whole number"),
        ("tent", {"diversity": -1}, "diversity = -1; allowed is a finite number from 0 on"),
        ("tent", {"diversity": math.nan}, "diversity = nan; allowed is a finite number"),
        ("tent", {"seed": -1}, "seed = -1; allowed is a whole number from 0 on"),
        ("cotta", {"seed": 0.5}, "seed = 0.5; allowed is a whole number"),
        ("tent", {"seed": 2**64}, f"seed = {2**64}; allowed is a whole number from 0 to 2⁶⁴ − 1"),
    ],
)
def test_what_cannot_be_is_refused(
    network: nn.Module, method: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        cascadetta_lib.adapt(network, method, **options)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize("kind", ["RuntimeError", "TypeError"])
def test_a_network_that_cannot_be_copied_is_refused(network: nn.Module, kind: str) -> None:
    if kind == "RuntimeError":
        network = nn.Sequential(nn.utils.weight_norm(nn.Conv2d(3, 3, 1)), network)
    else:
        network.lines = iter(line for line in "abc")  # type: ignore[assignment]
    with pytest.raises(ValueError, match=rf"Tent: \w+ cannot be copied \({kind}\); .*METHODS"):
        cascadetta_lib.adapt(network, "tent")


def test_a_network_with_one_logit_is_refused() -> None:
    """The entropy of a single class is 0, so that no parameter would ever move."""
    one = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3 * 32 * 32, 1))
    with pytest.raises(ValueError, match=r"logits of shape \(\d+, 1\); .* return 0 and s"):
        cascadetta_lib.adapt(one, "tent")(torch.rand(4, 3, 32, 32))


class HalfFrozen(nn.Module):
    """The first of its two BatchNorms runs under no_grad, if asked for."""

    def __init__(self, frozen: bool) -> None:
        super().__init__()
        self.frozen = frozen
        self.first = nn.BatchNorm2d(3)
        self.second = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            x = self.first(x)
        return self.head(self.second(x).relu().mean((2, 3)))


class AllFrozen(HalfFrozen):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(x)


class Replacing(HalfFrozen):
    """Puts a new scale in the place of the first in each forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        self.first.weight = nn.Parameter(self.first.weight.detach().clone())
        return super().forward(x)


class OnlyConvolutionLearns(HalfFrozen):
    """A gradient reaches its convolution, and none of its BatchNorms."""

    def __init__(self) -> None:
        super().__init__(frozen=True)
        self.convolution = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.second(self.first(x))
        return self.head(self.convolution(x).relu().mean((2, 3)))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Replacing(frozen=False), "forward replaces its parameters first.weight, so updates"),
        (OnlyConvolutionLearns(), "no gradient reaches"),
    ],
)
def test_what_is_refused_once_is_refused_again(model: nn.Module, words: str) -> None:
    adapted = cascadetta_lib.adapt(model, "shot_im")
    for _ in range(2):
        with pytest.raises(ValueError, match=words):
            adapted(PIXELS)


def test_what_no_gradient_reaches_is_named_as_what_the_method_adapts() -> None:
    """SHOT-IM adapts more than scales and shifts."""
    adapted = cascadetta_lib.adapt(AllFrozen(frozen=False), "shot_im")
    with pytest.raises(ValueError, match="SHOT-IM: no gradient reaches the adapted parameters"):
        adapted(torch.rand(8, 3, 4, 4))


@pytest.mark.parametrize("frozen", [False, True])
def test_scales_that_no_gradient_reaches_are_told_once(frozen: bool) -> None:
    adapted = cascadetta_lib.adapt(HalfFrozen(frozen), "tent")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        adapted(PIXELS)
        adapted(PIXELS)
    said = "Tent: no gradient reaches 2 of 4 scales and shifts, such as first.weight: they stay"
    assert [str(each.message).startswith(said) for each in told] == [True] * frozen


def test_a_method_that_does_not_learn_in_each_step_tells_it_too() -> None:
    """NOTE learns after every 64 examples, so not in its first step."""
    adapted = cascadetta_lib.adapt(HalfFrozen(frozen=True), "note")
    with pytest.warns(UserWarning, match="NOTE: no gradient reaches 2 of 4 scales and shifts"):
        for _ in range(2):
            adapted(torch.rand(32, 3, 4, 4))


@pytest.mark.parametrize("name", ["note", "rotta"])
def test_a_bank_has_the_size_that_its_class_names(name: str) -> None:
    """RoTTA's gives each of the four classes a quarter of it at most."""
    torch.manual_seed(0)
    small = type("Small", (cascadetta_lib.METHODS[name],), {"bank_size": 16})
    with cascadetta_lib.METHODS.replaced(name, small):
        adapted = cascadetta_lib.adapt(HalfFrozen(frozen=False), name, value_range=(0, 1))
        for _ in range(3):
            adapted(torch.rand(32, 3, 4, 4))
    assert len(adapted.bank) == 16
    if name == "note":
        assert len(adapted.examples) == 16
    else:
        assert max(Counter(one.label for one in adapted.kept).values()) == 4


IN_UNIT = (PIXELS + 1) / 2


@pytest.mark.parametrize(
    ("pixels", "options", "warned"),
    [
        (PIXELS, {}, ""),
        (IN_UNIT, {"value_range": (0, 1)}, ""),
        (PIXELS.clamp(min=0), {"value_range": (-1, 1)}, ""),
        (IN_UNIT, {}, "from .* to .*, but images are augmented as if -1 were black and 1 white"),
        (3 * PIXELS, {}, "pass value_range="),
        (2 * IN_UNIT, {"value_range": (0, 1)}, "as if 0 were black and 1 white"),
    ],
)
def test_images_of_another_range_than_augmented_by_are_told_once(
    network: nn.Module, pixels: Tensor, options: dict[str, Any], warned: str
) -> None:
    """memo augments each batch. Copies by a wrong range are cut, and E is wrong without a word."""
    adapted = cascadetta_lib.adapt(network, "memo", **options)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        adapted(pixels[:2])
        adapted(pixels[:2])
    said = [str(each.message) for each in told if "value_range" in str(each.message)]
    assert len(said) == (1 if warned else 0)
    assert not said or re.search(warned, said[0])


def test_the_table_of_the_methods_is_up_to_date() -> None:
    """If not: python -m study.tools.methods_table."""
    assert methods_table.PAGE.read_text(encoding="utf-8") == methods_table.page()


@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_works_on_what_the_table_says_and_on_nothing_less(name: str) -> None:
    method = METHODS[name]
    source = torch.rand(4, 3, 8, 8) if method.needs_source else None
    networks = methods_table.networks()
    ways = list(networks)
    for words in ways[: ways.index(methods_table.needed_network(name))]:
        with pytest.raises(ValueError, match=method.label.partition(" (")[0]):
            method(networks[words], source=source)(torch.rand(8, 3, 8, 8))


def test_an_option_without_an_explanation_is_no_option_of_the_table() -> None:
    class Quiet(METHODS["tent"]):
        """Says nothing."""

        def __init__(self, model: nn.Module, *, loudness: float = 0.0) -> None:
            super().__init__(model)

    with pytest.raises(ValueError, match="Quiet does not explain its option loudness"):
        methods_table.meaning(Quiet, "loudness")


@pytest.mark.parametrize("name", ["meta", "erm", "meta_no_auxiliary", "ttt"])
def test_a_shipped_network_by_its_name(name: str) -> None:
    model = load_network(name, seed=1)
    card = json.loads((SHIPPED / f"{name}-1.json").read_text(encoding="utf-8"))
    assert not model.training
    with torch.no_grad():
        z, a = model(PIXELS)
    assert z.shape == (8, card["classes"])
    assert (a is None) == (name in ("erm", "meta_no_auxiliary", "ttt"))
    assert same(model.state_dict(), load_network(name, seed=1).state_dict())
    assert not same(model.state_dict(), load_network(name).state_dict()), "another seed"


def test_a_shipped_network_goes_through_the_paper_s_method() -> None:
    model = load_network("meta")
    assert isinstance(model, Cascade)
    logits: Tensor = cascadetta_lib.adapt(model, "cascade")(PIXELS)
    assert logits.shape == (8, 10) and logits.isfinite().all()


def test_a_network_that_is_not_there_or_is_damaged_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="has no network mata-0 .*There: .*meta, "):
        load_network("mata")
    with pytest.raises(NetworkError, match="has no network meta-9 .*There: meta-0, meta-1"):
        load_network("meta", seed=9)
    for other in ("train", "release:FILE"):
        with pytest.raises(NetworkError, match=f"folder = '{other}': allowed are shipped and a F"):
            load_network("meta", folder=other)
    for ending in ("json", "safetensors"):
        content = (SHIPPED / f"erm-0.{ending}").read_bytes()
        (tmp_path / f"erm-0.{ending}").write_bytes(content[:-1] if ending != "json" else content)
    with pytest.raises(NetworkError, match="the file is damaged or another's"):
        load_network("erm", folder=str(tmp_path))


def test_a_card_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """An unknown pre-training, or no shape of the inputs."""
    card = json.loads((SHIPPED / "meta-0.json").read_text(encoding="utf-8"))
    shutil.copy(SHIPPED / "meta-0.safetensors", tmp_path / "mata-0.safetensors")
    for wrong, said in (
        ({"objective": "mata"}, "objective = 'mata': allowed are erm, .*did you mean 'meta'"),
        ({"objective": "mata", "input_shape": []}, "input_shape"),
    ):
        (tmp_path / "mata-0.json").write_text(json.dumps(card | wrong), encoding="utf-8")
        with pytest.raises(NetworkError, match=f"mata-0.json is no card of a network: {said}"):
            load_network("mata", folder=str(tmp_path))
