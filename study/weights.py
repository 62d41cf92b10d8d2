"""Where a network comes from, if it is not trained here: shipped with the study, published by
others, a folder of somebody else's, or any module of the caller's.

A shipped network is three files: NAME.safetensors (its weights), NAME.json (its card: what trained
it, and how good it is) and NAME.csv (a row per epoch of its training). Nothing that is read here
can execute code.
"""

import copy
import functools
import hashlib
import reprlib
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pandas as pd
import torch
from pydantic import BaseModel, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from cascadetta_lib.code import class_hash, code_hash, value_hash
from cascadetta_lib.data.base import Dataset, Modality, fingerprint
from cascadetta_lib.data.images import SCALINGS, ImageDataset
from cascadetta_lib.data.streams import Domain
from cascadetta_lib.models import Cascade, Network, Parallel, as_outputs, build_network
from cascadetta_lib.models.input_normalization import (
    INPUT_NORMALIZATIONS,
    Normalization,
    Normalize,
    normalization_of,
)
from cascadetta_lib.registry import nearest
from cascadetta_lib.training.objectives import OBJECTIVES
from cascadetta_lib.training.pretrain import held_out_accuracy, new_network
from cascadetta_lib.training.settings import KnownTraining
from study.published_networks import (
    NetworkError,
    check_file,
    load_into,
    load_published,
    refuse_larger,
)
from study.settings import absolute
from study.weights_name import PUBLISHED, WeightsName

SAMPLE = 256
"""Examples on which a network must err as its card says."""
ROUNDING = 2
"""Errors among these by which another machine may differ."""
KNOWN_IMAGES = 64
"""Clean test images that tell a published network from others of its shape."""
LEAST_FEWER = 5
"""A difference of at most this many errors may be chance."""
MOST_ERRORS_OF_STANDARD = 0.15
"""Standard's error is 5.22 %. On 64 images it exceeds 15 % with probability 0.002."""
OTHER_ORIGINS = ("train", "shipped", *PUBLISHED)
"""Names that the caller's network must not have, since tables use them for other networks."""
SIMPLE = (bool, int, float, str, tuple, type(None))
OF_TORCH = ("torch", "torchvision")
FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
)
SHIPPED = Path(__file__).resolve().parents[1] / "weights"
FITTED = ("vocabulary_size", "msda_layers", "msda_probability", "train_size", "held_out_fraction")
SEEN_THROUGH: dict[Modality, tuple[str, ...]] = {
    "image": ("input_scaling",),
    "text": FITTED,
    "speech": (),
}
"""The options of a dataset that shape the network's inputs. They must be those of its training."""


Built = TypeVar("Built", bound=nn.Module)
Percent = Annotated[float, Field(ge=0, le=100)]


class Card(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What made a network, and how good it is.

    Errors are in percent, on clean held-out source examples.

    options: how the source was cut, scaled and augmented.
    clean_test_error: on all clean test images, which had no say in the training; None if that is
        not known.
    corrupted_error: E of AdaBN under four corruptions of severity 5, where they are defined.
    sample_errors: the number of errors among the first SAMPLE.
    """

    modality: Modality
    objective: str
    seed: int
    network: Network
    classes: int
    input_shape: tuple[int, ...]
    options: dict[str, Any]
    training: KnownTraining
    weights_sha256: str
    data: str
    data_fingerprint: str
    held_out_examples: int = Field(ge=1)
    clean_error: Percent
    clean_error_batch_statistics: Percent
    clean_test_error: Percent | None = None
    corrupted_error: Percent | None = None
    sample_fingerprint: str
    sample_errors: int = Field(ge=0)
    provenance: dict[str, Any]


@dataclass(frozen=True)
class Brought:
    """A network that was not trained here.

    history: a row per epoch, or None.
    origin: the kind of place and the beginning of a SHA-256 of the weights, such as
        `shipped:1a2b3c4d5e6f`; for a FOLDER, of the weights and the card.
    """

    model: nn.Module
    history: pd.DataFrame | None
    card: dict[str, Any]
    sha256: str
    origin: str


def find(weights: WeightsName, objective: str, seed: int, dataset: Dataset) -> Brought:
    """Return the network that `weights` has for an objective and a seed. `weights` is not `train`.

    Raises NetworkError if there is none, if a file is damaged, foreign or does not match its card,
    and if the network does not fit the dataset.
    """
    place = origin(weights, objective, seed)
    if weights.published:
        path = absolute(weights.place)
        model, card = load_published(weights.kind, path)
        digest = check_file(weights.kind, path, objective)
        if weights.kind == "robustbench":
            shape = card["input_shape"]
            _check_fit(path, card["classes"], shape, _asked_options(dataset), dataset)
            card |= _recognise(model, card["network"], digest, path, dataset)
        else:
            _check_fit(path, card["classes"], card["input_shape"], card, dataset)
        return Brought(model, None, card, digest, place)
    path, described, content = _read_shipped(weights, objective, seed)
    if described.modality != dataset.modality:
        raise NetworkError(
            f"{path} is a network of {described.modality}, and {dataset.name} is {dataset.modality}"
        )
    _check_fit(path, described.classes, described.input_shape, described.options, dataset)
    if described.data_fingerprint != dataset.fingerprint:
        if dataset.modality == "text":
            raise NetworkError(
                f"{path} was trained beside other reviews of source or targets ({described.data})"
            )
        # It may well be meant: a network can be measured on images of another kind.
        warnings.warn(f"networks trained on {described.data} meet {dataset.source}", stacklevel=2)
    build = functools.partial(new_network, dataset, described.network, described.objective, seed)
    built = _built_with(build, content, path)
    sample = dataset.plain_held_out.take(slice(SAMPLE))
    if fingerprint([*sample]) == described.sample_fingerprint:  # else its data are not at hand
        built = built.to(sample.y.device)
        count = len(sample.y)
        told = described.sample_errors
        right = held_out_accuracy(
            built, dataset, running_statistics=True, batch_size=SAMPLE, held_out=sample
        )
        if abs((wrong := round(count * (1 - right))) - told) > ROUNDING:
            raise NetworkError(
                f"{path} errs on {wrong} of {count} examples, by its card (of another?) on {told}"
            )
    table = path.with_suffix(".csv")
    try:
        if (history := pd.read_csv(table) if table.exists() else None) is not None:
            accuracies = history[["epoch", "held_out_accuracy"]].astype(float)["held_out_accuracy"]
            if not accuracies.between(0, 1).all():
                raise ValueError("held_out_accuracy has values outside 0…1")
    except (ValueError, KeyError) as error:
        raise NetworkError(f"{table} is no table of epochs: {error}") from None
    return Brought(
        built.eval(), history, described.model_dump(mode="json"), described.weights_sha256, place
    )


def load_network(name: str, seed: int = 0, *, folder: str = "shipped") -> Cascade | Parallel:
    """Return a network of weights/ by the name of its pre-training: `load_network("meta", seed=0)`.

    It is in evaluation mode on the CPU, and returns z and a of images that are scaled as its card
    says. weights/README.md lists the networks.

    folder: `shipped`, or another FOLDER like weights/.

    Raises NetworkError where there is none of that name and seed, and where its file is damaged or
    does not match its card.
    """
    path, card, content = _read_shipped(WeightsName.parse(folder), name, seed)
    kind = OBJECTIVES[card.objective]
    build = functools.partial(
        build_network,
        card.network,
        classes=card.classes,
        inputs=card.input_shape[0],
        # What "auto" means: Tiny-ImageNet, whose network is the large one, is seen at 224 pixels.
        architecture="resnet34" if 224 in card.input_shape else "resnet26",
        parallel=kind.parallel,
        auxiliary=kind.auxiliary,
        seed=seed,
    )
    return _built_with(build, content, path).eval()


def _read_shipped(weights: WeightsName, objective: str, seed: int) -> tuple[Path, Card, bytes]:
    """Read a network's file; NetworkError unless it is the one that its card describes."""
    path, card = _shipped(weights, objective, seed)
    content = path.read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != card.weights_sha256:
        raise NetworkError(
            f"{path} has SHA-256 {found[:12]}…, its card says {card.weights_sha256[:12]}…: "
            "the file is damaged or another's; fetch both again"
        )
    return path, card, content


def _built_with(build: Callable[[], Built], content: bytes, path: Path) -> Built:
    """Build a network and give it the weights in `content`, that of the safetensors file `path`."""
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise NetworkError(f"{path} is no whole safetensors file: {error}") from None
    refuse_larger(build, tensors, path)
    model = build()
    load_into(model, tensors, path)
    return model


def _asked_options(dataset: Dataset) -> dict[str, Any]:
    """Return what the settings say of how a network sees the data."""
    options = getattr(dataset, "options", None)
    return {name: getattr(options, name, None) for name in SEEN_THROUGH[dataset.modality]}


def _recognise(
    model: nn.Module, network: dict[str, Any], digest: str, path: Path, dataset: Dataset
) -> dict[str, Any]:
    """Say which network a file in RobustBench's form holds, as far as clean images tell.

    Many of its networks have one shape, and their normalisation is in their class, not in the file.
    So the network counts as Standard only where it has Standard's shape and errs as little on
    clean test images of CIFAR-10, and NetworkError is raised where it errs on far fewer of them
    under the other scaling of the inputs.
    """
    shape = f"a WideResNet-{network['depth']}-{network['widening']}"
    if not isinstance(dataset, ImageDataset) or not len(dataset.test.y):
        return {"source": f"{shape} in RobustBench's form; which one is not known"}
    asked = dataset.options.input_scaling
    errors = {
        name: _clean_errors(model, Normalization((mean,), (deviation,)), None, digest, dataset)
        for name, (mean, deviation) in SCALINGS.items()
    }
    count = min(KNOWN_IMAGES, len(dataset.test.y))
    best = min(errors, key=lambda name: errors[name])
    if errors[asked] - errors[best] > count / 10 and errors[best] < count / 2:
        raise NetworkError(
            f"{path} errs on {errors[asked]} of {count} clean test images with input_scaling = "
            f"{asked!r}, on {errors[best]} with {best!r}: set image_input_scaling={best}"
        )
    told = f"it errs on {errors[asked]} of {count} clean test images"
    alike = (
        (network["depth"], network["widening"]) == (28, 10)
        and asked == "unit"
        and dataset.compare_with == "CIFAR-10-C"
        and errors[asked] <= MOST_ERRORS_OF_STANDARD * count
    )
    if alike:
        source = f"RobustBench's CIFAR-10 network Standard, by its shape and clean error: {told}"
    else:
        source = f"{shape} in RobustBench's form, which one is not known: {told}"
    return {"source": source, "input_scaling": asked}


def check_normalization(brought: Brought, model: nn.Module, dataset: Dataset) -> None:
    """Refuse a network that is given images under another normalisation than it learned with.

    model: the network, which takes the dataset's prepared images.

    Raises NetworkError where it errs on far fewer of the first clean test images under another of
    INPUT_NORMALIZATIONS. A network that errs on most of them under all of these is taken as it is.
    """
    if not isinstance(dataset, ImageDataset) or not len(dataset.test.y):
        return
    own = normalization_of(model)
    mean, deviation = SCALINGS[dataset.options.input_scaling]
    asked = own or Normalization((mean,), (deviation,))
    digest = brought.sha256
    count = min(KNOWN_IMAGES, len(dataset.test.y))
    wrong = _clean_errors(model, asked, own, digest, dataset)
    if wrong <= count / 10:
        return  # Nothing can be so much better.
    errors = {
        name: _clean_errors(model, other, own, digest, dataset)
        for name, other in INPUT_NORMALIZATIONS.items()
    }
    best = min(errors, key=lambda name: errors[name])
    far = max(count / 10, LEAST_FEWER)
    if wrong - errors[best] > far and errors[best] < count / 2:
        raise NetworkError(
            f"{brought.origin} errs on {wrong} of {count} clean test images x/255 under (x − "
            f"{_numbers(asked.mean)})/{_numbers(asked.deviation)}, on {errors[best]} under the "
            f"normalisation {best!r}: bring it with normalization={best!r}"
        )


def _numbers(values: Sequence[float]) -> str:
    """Write one number as it is, and several in parentheses."""
    return f"{values[0]:g}" if len(values) == 1 else f"({', '.join(f'{one:g}' for one in values)})"


_CLEAN_ERRORS: dict[tuple[str, Normalization, str], int] = {}


def _clean_errors(
    model: nn.Module,
    wanted: Normalization,
    own: Normalization | None,
    digest: str,
    dataset: ImageDataset,
) -> int:
    """Count the errors on the first clean test images under a normalisation, once per network and
    data.

    own: the normalisation with which the model itself begins, or None.
    """
    key = (digest, wanted, dataset.fingerprint)
    if key not in _CLEAN_ERRORS:
        x, y = dataset.test.take(slice(KNOWN_IMAGES))
        before = Normalize(wanted).to(x.device)
        model = model.to(x.device).eval()
        wrong = 0
        with torch.no_grad():
            for images, labels in zip(x.split(16), y.split(16), strict=True):
                seen = before(images.float() / 255)
                if own is not None:
                    # The input from which the model's own normalisation makes `seen`.
                    undone = Normalize(own).to(x.device)
                    seen = undone.mean + undone.deviation * seen
                wrong += int((as_outputs(model(seen)).main.argmax(1) != labels).sum())
        _CLEAN_ERRORS[key] = wrong
    return _CLEAN_ERRORS[key]


def bring(model: nn.Module, name: str) -> Brought:
    """Take a module of the caller's as a network of the study.

    Its key is a hash of its weights and buffers, of its text, `repr(model)`, of the attributes of
    its modules, of functions that are put on them, and of the code of classes that torch does not
    define. Attributes count by their contents as class_hash says. An attribute of a class that is
    not known counts by its class only. If two networks differ in nothing else, give them different
    names.

    Raises NetworkError for a name that is empty, or that of another kind of networks.
    """
    kind = name.partition(":")[0].strip()
    if not kind or kind in OTHER_ORIGINS:
        raise NetworkError(
            f"name = {name!r}: allowed is one that tells your network from those that are "
            f"called {', '.join(OTHER_ORIGINS)}"
        )
    digest = hashlib.sha256(repr(model).encode())
    for key, module in model.named_modules():
        digest.update(f"{key} {_attributes(module)} {_code_of_class(type(module))}".encode())
        if held := _held_by(module):
            digest.update(value_hash(held, type(module).__module__).encode())
        for hook in _hooks_of(module):
            digest.update(value_hash(hook, _home_of(hook)).encode())
        for name, function in _functions_put_on(module).items():
            digest.update(f"{name} {value_hash(function, _home_of(function))}".encode())
    for key, value in [*model.state_dict().items(), *model.named_buffers()]:
        digest.update(f"{key} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(
            value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        )
    return Brought(
        model, None, {"name": name}, digest.hexdigest(), f"{name}:{digest.hexdigest()[:12]}"
    )


def _attributes(module: nn.Module) -> list[tuple[str, object]]:
    """Return the plain attributes of a module by name, without those that every module has."""
    usual = vars(nn.Module())
    return sorted(
        (name, value)
        for name, value in vars(module).items()
        if name not in usual and isinstance(value, SIMPLE)
    )


def _held_by(module: nn.Module) -> dict[str, object]:
    """Return the other attributes of a module, such as lists.

    Those of torch's own modules follow from their parameters and their `repr`.
    """
    if not _code_of_class(type(module)):
        return {}
    usual = vars(nn.Module())
    return {
        name: value
        for name, value in sorted(vars(module).items())
        if name not in usual and not isinstance(value, SIMPLE)
    }


def _hooks_of(module: nn.Module) -> list[object]:
    """Return what runs before and after the module, and can change what goes in and comes out."""
    return [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]


def _functions_put_on(module: nn.Module) -> dict[str, object]:
    """Return the functions that a module of torch or torchvision holds in place of a method of its
    class, and those that are not torch's, such as an activation of the caller's.
    """
    kind = type(module)
    if _code_of_class(kind) or kind.__module__.startswith("torch._dynamo"):
        return {}  # Another class's count in `_held_by`. A compiled network is the network.
    found = {}
    for name, value in sorted(vars(module).items()):
        if not callable(value) or isinstance(value, type | nn.Module):
            continue
        home = _home_of(value).partition(".")[0]
        is_foreign = home not in (*OF_TORCH, *sys.stdlib_module_names)
        in_place = isinstance(value, FUNCTIONS) and callable(getattr(kind, name, None))
        if is_foreign or in_place:
            found[name] = value
    return found


def _home_of(value: object) -> str:
    """Return the name of the module that defines a function, or the class of an object."""
    return getattr(value, "__module__", None) or type(value).__module__


def _code_of_class(kind: type) -> str:
    """Hash the code of a class; empty for those of torch and torchvision."""
    if kind.__module__.partition(".")[0] in OF_TORCH:
        return ""
    in_file = hasattr(sys.modules.get(kind.__module__), "__file__")
    return code_hash([kind.__module__]) if in_file else class_hash(kind)


def origin(weights: WeightsName, objective: str, seed: int) -> str:
    """Return the key of the network that `weights` has, such as `shipped:1a2b3c4d5e6f`.

    A copy of a shipped network with its card has the shipped one's key. No data are read.
    """
    if weights.published:
        digest = check_file(weights.kind, absolute(weights.place), objective)
        return f"{weights.kind}:{digest[:12]}"
    card = _shipped(weights, objective, seed)[1]
    if (ours := SHIPPED / f"{objective}-{seed}.json").is_file() and read_card(ours) == card:
        return f"shipped:{card.weights_sha256[:12]}"
    said = card.model_dump_json(include={"weights_sha256", "network", "training"})
    return f"folder:{hashlib.sha256(said.encode()).hexdigest()[:12]}"


def present(weights: WeightsName, seed: int) -> list[str]:
    """Return the pre-trainings of which a folder has a file at this seed, whole or damaged. Reads
    no data.
    """
    folder = _folder(weights)
    return [
        objective
        for objective in OBJECTIVES
        if (folder / f"{objective}-{seed}.safetensors").is_file()
    ]


def read_card(path: Path) -> Card:
    """Read the card beside a weights file. Raises NetworkError if there is none."""
    card = path.with_suffix(".json")
    try:
        return Card.model_validate_json(card.read_bytes())
    except FileNotFoundError:
        raise NetworkError(
            f"{path} has no card {card.name} beside it, which says what it is"
        ) from None
    except ValidationError as error:
        # Of a wrong `network` every kind of network complains, and that of images, which most are,
        # comes last.
        fault = error.errors()[-1]
        place = ".".join(map(str, fault["loc"])) or "its text"
        told = "" if fault["type"] == "missing" else f" = {reprlib.repr(fault['input'])}"
        raise NetworkError(
            f"{card} is no card of a network: {place}{told}: {fault['msg']}"
        ) from None


def _folder(weights: WeightsName) -> Path:
    """Return the folder that holds the networks, each with its card."""
    return SHIPPED if weights.kind == "shipped" else absolute(str(weights))


def _shipped(weights: WeightsName, objective: str, seed: int) -> tuple[Path, Card]:
    folder = _folder(weights)
    path = folder / f"{objective}-{seed}.safetensors"
    if not path.is_file():
        seeds = [file.stem for file in folder.glob(f"{objective}-*.safetensors") if file.is_file()]
        there = (
            ", ".join(sorted(seeds or present(weights, seed))) or "none"
        )  # its others, else all of this seed
        lacks = (
            f"{folder} has no network {path.stem} (pre-training and seed). There: {there}. "
            "`train` trains one here"
        )
        known = ["train", "shipped", *(f"{kind}:FILE" for kind in PUBLISHED), "FOLDER"]
        allowed = nearest(Path(str(weights).partition(":")[0]).name, known)
        told = lacks if folder.is_dir() else f"there is no folder {folder}; {allowed}"
        raise NetworkError(f"weights = {str(weights)!r}: {told}")
    card = read_card(path)
    if (card.objective, card.seed) != (objective, seed):
        raise NetworkError(
            f"{path} is by its card {card.objective}-{card.seed}: one of the two was renamed"
        )
    return path, card


def fitting(brought: Brought, dataset: Dataset, domain: Domain) -> nn.Module:
    """Copy a network to the device of the data, in evaluation mode.

    Raises NetworkError unless it returns a logit per class of the dataset, the largest one finite.
    """
    x = dataset.prepare(dataset.domain(*domain).x[:2])
    model = copy.deepcopy(brought.model).to(x.device).eval()
    try:
        with torch.no_grad():
            outputs = as_outputs(model(x))
    except (
        Exception
    ) as error:  # A foreign module may raise anything; torchvision's transformers use assert.
        raise NetworkError(
            f"{brought.origin} cannot take inputs of shape {tuple(x.shape)}: {error!r}"
        ) from None
    logits = outputs.main
    if logits.shape != (len(x), dataset.classes):
        shape = (
            f"{brought.origin} returns logits of shape {tuple(logits.shape)} for {len(x)} examples"
        )
        raise NetworkError(f"{shape}; {dataset.name} has {dataset.classes} classes")
    for name, each in (("logits", logits), ("auxiliary logits", outputs.auxiliary)):
        if each is not None and not each.amax(1).isfinite().all():
            raise NetworkError(
                f"{brought.origin} returns {name} that are not finite; allowed are numbers, and −∞ "
                "for masked classes (if there is a θ_a, mask after it)"
            )
    return model


def _check_fit(
    path: Path, classes: int, shape: tuple[int, ...], options: dict[str, Any], dataset: Dataset
) -> None:
    """Raise NetworkError unless a network with these classes, inputs and options can predict the
    dataset.
    """
    found = tuple(dataset.prepare(dataset.plain_held_out.x[:1]).shape[1:])
    if (classes, tuple(shape)) != (dataset.classes, found):
        raise NetworkError(
            f"{path} has {classes} classes and inputs of shape {tuple(shape)}; {dataset.name} has "
            f"{dataset.classes} "
            f"classes and inputs of shape {found}"
        )
    for name in SEEN_THROUGH[dataset.modality]:
        wanted = options.get(name)
        asked = getattr(getattr(dataset, "options", None), name, None)
        if wanted != asked:
            place = f"{dataset.modality}_{name}={'null' if wanted is None else wanted}"
            advice = f"set {place}" if name in options else "its card does not say by which"
            raise NetworkError(
                f"{path} was trained with {name} = {wanted!r}, not {asked!r}: {advice}"
            )
