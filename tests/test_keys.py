"""Attacks on keys: what is changed, and whether the result must then be another one.

A key holds the content of what was read and the code of what made it, never names, times or sizes.
"""

import copy
import functools
import importlib
import os
import shutil
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import write_npz
from torch import nn
from torchvision.models.swin_transformer import ShiftedWindowAttention

from cascadetta_lib.code import code_hash, files_of
from cascadetta_lib.methods import METHODS, code_of
from cascadetta_lib.methods.tent import Tent
from study import LOADING_MODULES
from study.brought_networks import bring
from study.exhibits.kit.points import points_for
from study.exhibits.kit.stored_runs import Runs
from study.requests import MEASURING_MODULES, code_of_run
from study.settings import load_profile
from study.store import Run
from study.study import Study

SMALL: dict[str, Any] = {
    "image_train_size": None,
    "image_test_size": 8,
    "image_held_out_fraction": 0.3,
    "image_stream": ["fog"],
    "image_batch_size": 8,
    "image_methods": ["adabn"],
    "image_forward_transfer": False,
}
HELPER = '"""What the method uses."""\nRATE = 0.5\n'
METHOD = '''"""A method of one's own."""
from cascadetta_lib.methods.tent import Tent
from cascadetta_lib.helper_of_a_test import RATE

class Mine(Tent):
    """It is Tent."""

    label = "Mine"
    factor = RATE  # a comment
'''


class Plain(nn.Sequential):
    """A network of the caller's, with a plain attribute and a buffer that no file holds."""

    def __init__(self, factor: float = 1.0, seed: int = 0) -> None:
        torch.manual_seed(seed)
        super().__init__(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
        self.factor = factor
        self.register_buffer("shift", torch.zeros(1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shift: torch.Tensor = self.get_buffer("shift")
        return super().forward(x) * self.factor + shift


@dataclass
class World:
    """What an attack can change: a study on a folder of images, a network, and a method's files."""

    folder: Path
    data: Path
    network: nn.Module
    helper: Path
    method: Path

    def study(self) -> Study:
        changes = SMALL | {"image_dataset": f"npz:{self.data}", "results_folder": str(self.folder)}
        settings = load_profile("quick", changes | {"data_folder": str(self.folder / "data")})
        return Study(settings).bring(self.network, "mine")

    def write(self, path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    helper = tmp_path / "modules" / "helper_of_a_test.py"
    helper.parent.mkdir()
    helper.write_text(HELPER)
    name = "cascadetta_lib.helper_of_a_test"  # a module of the library, which a method imports
    spec = importlib.util.spec_from_file_location(name, helper)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, name, module)
    method = helper.parent / "method_of_a_test.py"
    method.write_text(METHOD)
    monkeypatch.syspath_prepend(helper.parent)
    data = write_npz(tmp_path / "pets")
    with METHODS.replaced("mine", importlib.import_module("method_of_a_test").Mine):
        yield World(tmp_path / "results", data, Plain(), helper, method)
    sys.modules.pop("method_of_a_test", None)


def other_labels(world: World) -> None:
    write_npz(world.data, train={"y": np.arange(40)[::-1] % 10})


def other_pixels_of_one_size_and_time(world: World) -> None:
    path = world.data / "test.npz"
    status = path.stat()
    with np.load(path) as arrays:
        x = arrays["x"].copy()
        y = arrays["y"]
    x[0] = 255 - x[0]
    np.savez(path, x=x, y=y)
    assert path.stat().st_size == status.st_size
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def a_copy_of_the_data(world: World) -> None:
    for path in world.data.iterdir():
        shutil.copy(path, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)


ATTACKS: dict[str, tuple[Callable[[World], object], bool]] = {
    # What is changed, and whether the run must be another one.
    "labels of the training images": (other_labels, True),
    "pixels of a test image, size and time kept": (other_pixels_of_one_size_and_time, True),
    "times of the data": (lambda world: os.utime(world.data / "test.npz", (1, 1)), False),
    "data copied": (a_copy_of_the_data, False),
    "weights of the network": (
        lambda world: nn.init.constant_(world.network.get_parameter("2.bias"), 0.5),
        True,
    ),
    "a plain attribute of the network": (lambda world: setattr(world.network, "factor", 2.0), True),
    "a buffer that no file holds": (
        lambda world: world.network.get_buffer("shift").fill_(0.5),
        True,
    ),
    "a list of the network": (lambda world: setattr(world.network, "steps", [1, 2]), True),
    "an array of the network": (lambda world: setattr(world.network, "scale", np.ones(3)), True),
    "a dtype of the network": (lambda world: setattr(world.network, "kind", torch.float64), True),
    "a hook of the network": (
        lambda world: world.network.register_forward_hook(lambda module, inputs, z: 2 * z),
        True,
    ),
    "a hook of a part of the network": (
        lambda world: world.network.get_submodule("1").register_forward_hook(
            lambda module, inputs, x: 2 * x
        ),
        True,
    ),
    "a backward hook of the network": (
        lambda world: world.network.register_full_backward_hook(lambda module, before, after: None),
        True,
    ),
    "a backward hook before a part of the network": (
        lambda world: world.network.get_submodule("2").register_full_backward_pre_hook(
            lambda module, gradients: None
        ),
        True,
    ),
    "the network built again": (lambda world: setattr(world, "network", Plain()), False),
    "a line of the method": (
        lambda world: world.write(world.method, "factor = RATE", "factor = 2 * RATE"),
        True,
    ),
    "a comment of the method": (
        lambda world: world.write(world.method, "# a comment", "# another"),
        False,
    ),
    "a docstring of the method": (
        lambda world: world.write(world.method, "It is Tent.", "It is Tent, again."),
        False,
    ),
    "line breaks of the method": (
        lambda world: world.write(world.method, "factor = RATE", "\n    factor = (RATE)"),
        False,
    ),
    "a line of what the method imports": (
        lambda world: world.write(world.helper, "0.5", "0.25"),
        True,
    ),
    "a docstring of what the method imports": (
        lambda world: world.write(world.helper, "uses", "needs"),
        False,
    ),
    "times of the method's file": (lambda world: os.utime(world.method, (1, 1)), False),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_on_keys(world: World, attack: str) -> None:
    change, another = ATTACKS[attack]
    world.study().run("mine")
    change(world)
    world.study().run("mine")
    assert len(list(world.study().store.runs())) == 1 + another


def plain_sequence() -> nn.Sequential:
    """A network of torch's modules alone, whose weights are all 0."""
    network = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU()))
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    return network


def doubled(self: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    return 2 * nn.Sequential.forward(self, x)


FUNCTIONS: dict[str, Callable[[nn.Sequential], object]] = {
    "a method of the network": lambda network: types.MethodType(doubled, network),
    "a function": lambda network: lambda x: x,
    "another function": lambda network: lambda x: 3 * x,
    "a function of torch": lambda network: torch.nn.functional.silu,
    "a builtin of torch": lambda network: torch.tanh,
    "a function with an argument": lambda network: functools.partial(torch.clip, min=0),
    "the method of another module": lambda network: nn.Softplus().forward,
}


def test_a_function_that_is_put_on_a_module_of_torch_is_part_of_the_networks_key() -> None:
    """A run of the same weights without it, or with another one, would be shown in its place."""
    keys = [bring(plain_sequence(), "mine").origin]
    for make in FUNCTIONS.values():
        for place in ("", "1.0"):
            network = plain_sequence()
            network.get_submodule(place).forward = make(network)
            again = copy.deepcopy(network)
            keys.append(bring(network, "mine").origin)
            assert bring(again, "mine").origin == keys[-1]
            assert keys[-1].startswith("mine:"), "it keeps the name that it was given"
    layer = nn.TransformerEncoderLayer(4, 1, 4, activation=lambda x: x)
    other = copy.deepcopy(layer)
    other.activation = lambda x: x**2
    keys += [bring(each, "mine").origin for each in (layer, other)]
    assert len(set(keys)) == len(keys) == 17


class Holding(nn.Module):
    """A network that holds a value, which its state_dict has too if `extra`."""

    def __init__(self, held: object, *, extra: bool = False) -> None:
        super().__init__()
        self.fc = plain_sequence()
        self.held = None if extra else held
        self._extra = (lambda: held) if extra else (lambda: 0)

    def get_extra_state(self) -> object:
        return self._extra()


def read_by_a_hook(scale: object) -> nn.Module:
    """A network of torch's modules, one of which has an attribute that only its hook reads."""
    network = plain_sequence()
    linear = network.get_submodule("0")
    linear.scale = scale  # type: ignore[assignment]
    linear.register_forward_hook(lambda module, inputs, z: z * module.scale)
    return network


def with_sparse_buffer(last: int) -> nn.Module:
    network = plain_sequence()
    network.register_buffer("adjacency", torch.diag(torch.tensor([1.0, last])).to_sparse())
    return network


FUNCTIONS_HELD = (doubled, plain_sequence)
PAIRS: dict[str, Callable[[int], nn.Module]] = {
    "a tensor in a tuple": lambda last: Holding((torch.tensor(1 + last / 1e6),)),
    "a long tensor in a tuple": lambda last: Holding((0, (torch.arange(5000) == 2500 * last,))),
    "a plain tuple": lambda last: Holding((1, (2.0, last))),
    "a tensor that a hook of torch's module reads": lambda last: read_by_a_hook(torch.tensor(last)),
    "an array that a hook of torch's module reads": lambda last: read_by_a_hook(np.array(last)),
    "a sparse buffer": with_sparse_buffer,
    "a sparse tensor": lambda last: Holding(torch.eye(last + 1).to_sparse()),
    "a function in a tuple": lambda last: Holding((FUNCTIONS_HELD[last - 1],)),
    "a dictionary as extra state": lambda last: Holding({"a": [last]}, extra=True),
    "a tensor as extra state": lambda last: Holding(torch.tensor(last), extra=True),
    "tensors in a tuple as extra state": lambda last: Holding((torch.tensor(last),), extra=True),
}


@pytest.mark.parametrize("make", PAIRS.values(), ids=PAIRS)
def test_what_a_network_holds_is_part_of_its_key(make: Callable[[int], nn.Module]) -> None:
    keys = [bring(make(last), "mine").origin for last in (1, 2, 1)]
    assert keys[0] == keys[2] != keys[1]


def test_a_quantised_network_has_a_key_of_its_weights() -> None:
    keys = []
    for value in (0.0, 0.5, 0.0):
        network = plain_sequence()
        nn.init.constant_(network.get_parameter("0.weight"), value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch moves this function to another package
            small = torch.ao.quantization.quantize_dynamic(network, {nn.Linear}, torch.qint8)
        keys.append(bring(small, "mine").origin)
    assert keys[0] == keys[2] != keys[1]


def test_the_key_of_a_network_without_such_a_function_is_what_it_was() -> None:
    """Else its stored runs would be made again."""
    assert bring(plain_sequence(), "mine").origin == "mine:9165f0c46c41"


SETTINGS: dict[str, tuple[dict[str, Any], bool]] = {
    "label of the profile": ({"profile": "another"}, False),
    "methods beside it": ({"image_methods": ["adabn", "erm"]}, False),
    "seeds beside it": ({"seeds": [0, 1]}, False),
    "device by another name": ({"device": "cpu"}, False),
    "a number by another type": ({"image_batch_size": 8.0}, False),
    "seed": ({"seed": 1}, True),
    "severity": ({"image_severity": 4}, True),
    "size of the test batches": ({"image_batch_size": 4}, True),
    "images of each domain": ({"image_test_size": 7}, True),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_attacks_on_keys_by_settings(world: World, name: str) -> None:
    changes, another = SETTINGS[name]
    study = world.study()
    values = SMALL | {"image_dataset": f"npz:{world.data}", "results_folder": str(world.folder)}
    changed = Study(load_profile("quick", values | changes)).bring(world.network, "mine")
    assert (changed.request("mine").key() != study.request("mine").key()) == another


def test_the_data_put_back_give_the_first_numbers_in_the_report_too(world: World) -> None:
    """S1 of the second attack on reliability: the report decided by a clock."""

    def run() -> Run:
        return world.study().run("adabn")

    def shown() -> Run:
        study = world.study()
        runs = Runs.of_settings(study.settings)
        runs.study = study
        [found] = runs.frame(points_for(["adabn"]))["run"]
        return found

    kept = world.folder.parent / "kept"
    shutil.copytree(world.data, kept)
    first = run()
    other_pixels_of_one_size_and_time(world)
    second = run()
    assert shown().provenance.fingerprint == second.provenance.fingerprint
    shutil.copytree(kept, world.data, dirs_exist_ok=True)
    assert run().provenance.finished == first.provenance.finished, "it is not made again"
    assert shown().provenance.fingerprint == first.provenance.fingerprint
    assert second.provenance.fingerprint != first.provenance.fingerprint


def test_a_run_that_is_removed_and_made_again_is_shown_anew(world: World) -> None:
    """S2: a cache by the names of entries kept the old numbers."""
    study = world.study()
    point = points_for(["adabn"])

    def shown() -> Run:
        runs = Runs.of_settings(study.settings)
        runs.study = study
        [found] = runs.frame(point)["run"]
        return found

    study.run("adabn")
    before = shown()
    [folder] = (study.store.folder / "runs").glob("*")
    shutil.rmtree(folder)
    study.run("adabn")
    assert [path.name for path in (study.store.folder / "runs").glob("*")] == [folder.name]
    assert list(shown().batches["seconds"]) != list(before.batches["seconds"])


CELL = """
import dataclasses
import functools
import re
import numpy
import torch
from cascadetta_lib.methods.tent import Tent
FACTOR = 2
RATES = [0.1, 0.2]
LEVELS = {"fog": 1}
CLASSES = {3, 5}
WEIGHTS = torch.tensor([1.0, 2.0])
SCORE = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
LAYER = torch.nn.Linear(1, 1)
LAYER.weight.data.fill_(0.5)
LAYER.bias.data.fill_(0.0)
class Part:
    def __new__(cls, size):
        assert size != 18
        return object.__new__(cls)
    def __init__(self, size):
        self.size = size
    def count(self):
        return self.size
PART = Part(3)
class Slotted:
    __slots__ = ("level",)
    def __init__(self, level):
        self.level = level
SLOTTED = Slotted(7)
@dataclasses.dataclass(slots=True)
class Limits:
    low: float
LIMITS = Limits(0.25)
def power(x, exponent):
    return x ** exponent
SQUARE = functools.partial(power, exponent=2)
def scaled_by(number):
    def scale(x):
        return number * x
    return scale
SCALE = scaled_by(2)
@functools.cache
def steps_of(rate):
    return 3 * rate
TABLE = numpy.arange(5000)
def at(index, table=TABLE):
    return table[index]
COUNT = PART.count
KIND = torch.float32
MIXED = numpy.array([{"a": 1}, None], dtype=object)
NAME = re.compile("a+")
def helper(x):
    return FACTOR * x
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.levels = [16]
    def forward(self, x):
        return 17 * x
OWN_LAYER = Layer()
def first_of(*x):
    return x[0]
def is_end(x):
    return x in {0, 8}
class Naming(type(Tent)):
    def name_of(kind):
        return 19
class Mixin:
    def share(self):
        return 14
class Mine(Mixin, Tent, metaclass=Naming):
    label = "Mine"
    def adapted_loss(self, x):
        'Use all of the cell.'
        LAYER, SCORE, WEIGHTS, PART, SQUARE, SCALE, LEVELS, CLASSES
        steps_of, at, COUNT, KIND, MIXED, NAME, SLOTTED, LIMITS, OWN_LAYER, first_of, is_end
        return helper(x) * RATES[0]
    @property
    def place(self):
        return None
    @place.deleter
    def place(self):
        self.left = 15
    steps = [1, 2]
    @functools.cached_property
    def kept(self):
        return 11
    @functools.singledispatchmethod
    def of(self, x):
        return 12
    @of.register
    def _(self, x: int):
        return 13
    half = functools.partialmethod(of, x=0.5)
"""
CELLS: dict[str, tuple[str, str, bool]] = {
    "the same text": ("", "", False),
    "a comment": ("FACTOR = 2", "FACTOR = 2  # two", False),
    "an attribute": ('label = "Mine"', 'label = "My"', True),
    "a method's body": ("return helper(x) *", "return 1 + helper(x) *", True),
    "a function of the cell": ("FACTOR * x", "x * FACTOR", True),
    "a value of the cell": ("FACTOR = 2", "FACTOR = 3", True),
    "a list of the cell": ("[0.1, 0.2]", "[0.1, 0.3]", True),
    "a dictionary of the cell": ('{"fog": 1}', '{"fog": 2}', True),
    "a set of the cell": ("{3, 5}", "{3, 6}", True),
    "the order of a set": ("{3, 5}", "{5, 3}", False),
    "a tensor of the cell": ("[1.0, 2.0]", "[1.0, 2.5]", True),
    "an option of a module of torch": ("label_smoothing=0.1", "label_smoothing=0.2", True),
    "weights of a module of torch": ("weight.data.fill_(0.5)", "weight.data.fill_(0.6)", True),
    "an object of the cell": ("Part(3)", "Part(4)", True),
    "a class of the cell": ("self.size = size", "self.size = size + 1", True),
    "an argument that is fixed": ("exponent=2", "exponent=3", True),
    "what a function encloses": ("scaled_by(2)", "scaled_by(3)", True),
    "a list of the class": ("steps = [1, 2]", "steps = [1, 3]", True),
    "a function that keeps its results": ("3 * rate", "4 * rate", True),
    "the middle of a long array as a default": (
        "(5000)\n",
        "(5000)\nTABLE[2500] = 0\n",
        True,
    ),
    "the object of a bound method": ("COUNT = PART.count", "COUNT = Part(5).count", True),
    "a dtype of the cell": ("KIND = torch.float32", "KIND = torch.float64", True),
    "an array of objects": ('{"a": 1}', '{"a": 2}', True),
    "a property that keeps its value": ("return 11", "return 21", True),
    "a dispatched method": ("return 12", "return 22", True),
    "a dispatched method for a type": ("return 13", "return 23", True),
    "an argument of a partial method": ("x=0.5", "x=0.6", True),
    "an object with slots": ("Slotted(7)", "Slotted(8)", True),
    "a dataclass with slots": ("Limits(0.25)", "Limits(0.5)", True),
    "a pattern": ('"a+"', '"a*"', True),
    "a base class": ("return 14", "return 24", True),
    "the metaclass": ("return 19", "return 29", True),
    "how an object is made": ("size != 18", "size != 28", True),
    "what deletes a property": ("self.left = 15", "self.left = 25", True),
    "a list of a module of torch": ("[16]", "[26]", True),
    "the code of a module of torch": ("17 * x", "27 * x", True),
    "a star of an argument": ("first_of(*x)", "first_of(x)", True),
    "the order of a set in a function": ("{0, 8}", "{8, 0}", False),
    "a docstring": ("Use all of the cell.", "Use the cell.", False),
    "a docstring that goes": ("        'Use all of the cell.'\n", "", False),
    "a value that the method does not use": ("FACTOR = 2", "FACTOR = 2\nOTHER = 3", False),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_method_of_a_notebooks_cell_counts_by_what_it_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, another = CELLS[name]

    def code(text: str) -> str:
        cell = types.ModuleType("cell")  # without a file, as a notebook's own module is
        monkeypatch.setitem(sys.modules, "cell", cell)
        exec(text, vars(cell))
        kind = vars(cell)["Mine"]
        assert issubclass(kind, Tent)
        with METHODS.replaced("mine", kind):
            return code_of("mine")

    assert (code(CELL) != code(CELL.replace(old, new) if old else CELL)) == another


IMPORTS = {
    "a file of the user's own": "from losses_of_mine import loss",
    "a file of the user's own, as a module": "import losses_of_mine",
    "a neighbour by a dot": "from .losses_of_mine import loss",
    "a neighbour by a dot alone": "from . import losses_of_mine",
    "a neighbour by two dots": "from ..methods_of_mine.losses_of_mine import loss",
    "inside a function": "def f():\n    from losses_of_mine import loss",
}


@pytest.mark.parametrize("name", IMPORTS)
def test_what_a_method_imports_from_a_file_of_ones_own_counts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    within = "methods_of_mine" if "dot" in name else ""
    folder = tmp_path / "above_of_mine" / within
    folder.mkdir(parents=True)
    for package in (tmp_path / "above_of_mine", folder):
        (package / "__init__.py").touch()
    (folder / "method_of_mine.py").write_text(IMPORTS[name] + "\nimport json, yaml\n")
    helper = folder / "losses_of_mine.py"
    helper.write_text("def loss(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path if within else folder)
    module = "above_of_mine.methods_of_mine.method_of_mine" if within else "method_of_mine"
    names = {"method_of_mine.py", "losses_of_mine.py", "numerics.py"}
    assert {path.name for path in files_of([module])} == names
    before = code_hash([module])
    helper.write_text("def loss(x):\n    return 2 * x\n")
    assert code_hash([module]) != before
    for made in [one for one in sys.modules if one.partition(".")[0].endswith("_of_mine")]:
        del sys.modules[made]


def test_a_file_that_is_being_edited_counts_by_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "edited_of_mine.py"
    monkeypatch.syspath_prepend(tmp_path)
    hashes = set()
    for content in (b"x = (1)\n", b"x = (1\n", b"x = (2\n", b"x = \0"):
        path.write_bytes(content)
        hashes.add(code_hash([path.stem]))
    assert len(hashes) == 4


def test_a_public_name_counts_by_the_module_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_method_of_mine.py").write_text("from cascadetta_lib import Cascade\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "cascade.py" in {path.name for path in files_of(["a_method_of_mine"])}


def test_the_code_of_a_method_has_what_it_uses_and_no_other_method() -> None:
    names = {path.name for path in files_of(["cascadetta_lib.methods.cascade"])}
    assert {"cascade.py", "base.py", "losses.py", "batch_norm.py"} <= names
    assert not {"cotta.py", "eata.py", "pretrain.py", "progress.py"} & names
    assert "parameters.yaml" in {path.name for path in files_of(["cascadetta_lib.data.images"])}
    hashes = [code_hash([f"cascadetta_lib.methods.{name}"]) for name in ("tent", "cascade")]
    assert len(set(hashes)) == 2 and all(len(one) == 16 for one in hashes)


LOADER = "study.published_networks"
STUDY_CODE: dict[str, tuple[str, str, str, str, bool]] = {
    # The module of the study and what is changed in it, the weights, and whether the run must be
    # another one.
    "how a published network is built": (LOADER, '"relu"', '"plain"', "release:0123", True),
    "how a network of a folder is loaded": (LOADER, "own[name].dtype", "0", "folder:0123", True),
    "the loader, of a network that is brought": (LOADER, '"relu"', '"plain"', "mine:0123", False),
    "the loader, of a network trained here": (LOADER, '"relu"', '"plain"', "train", False),
    "how the pixels of a domain are read": (
        "cascadetta_lib.data.digits",
        "(2, 2, 2, 2)",
        "(1, 3, 2, 2)",
        "release:0123",
        True,
    ),
    "how a GPU rounds": ("cascadetta_lib.numerics", "= False", "= True", "release:0123", True),
    "a docstring of the loader": (LOADER, "copies with the prefix", "ones", "release:0123", False),
    "an option that the method is given": (
        "study.make_run",
        'options["value_range"] = dataset.value_range',
        "pass",
        "mine:0123",
        True,
    ),
    "an option that the evaluator is given": (
        "study.make_run",
        "order_seed=request.order_seed",
        "order_seed=None",
        "release:0123",
        True,
    ),
}


@pytest.mark.parametrize("name", STUDY_CODE)
def test_attacks_on_keys_by_the_code_of_the_study(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, old, new, place, another = STUDY_CODE[name]
    request = Study(load_profile("quick")).request("tent")
    checkpoint = request.checkpoint.model_copy(update={"weights": place})
    request = request.model_copy(update={"checkpoint": checkpoint})
    before = code_of_run(request)
    text = Path(str(importlib.import_module(module).__file__)).read_text()
    assert old in text
    changed = tmp_path / "changed.py"
    changed.write_text(text.replace(old, new))
    spec = importlib.util.spec_from_file_location(module, changed)
    assert spec
    monkeypatch.setitem(sys.modules, module, importlib.util.module_from_spec(spec))
    assert (code_of_run(request) != before) == another


def test_the_code_of_a_run_has_all_that_measures_it() -> None:
    """Also the count of its work, by which methods are compared."""
    names = {path.name for path in files_of(MEASURING_MODULES)}
    assert {"evaluator.py", "alarm.py", "distance.py", "cost.py"} <= names
    assert "settings.py" not in {path.name for path in files_of(LOADING_MODULES)}


def test_a_list_of_a_module_of_torchvision_is_part_of_its_key() -> None:
    """The window of a Swin transformer is in neither its weights nor its repr."""
    one = ShiftedWindowAttention(8, [4, 4], [2, 2], 2)
    other = copy.deepcopy(one)
    assert bring(one, "swin").origin == bring(other, "swin").origin
    other.shift_size = [0, 0]
    assert bring(one, "swin").origin != bring(other, "swin").origin
