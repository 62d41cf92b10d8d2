"""Where a network comes from, if it is not trained here: shipped with the study, the authors' release, a folder of
somebody else's, or any module of the caller's.

A shipped network is three files: NAME.safetensors (its weights), NAME.json (its card: what trained it, and how good it
is) and NAME.csv (a row an epoch of its training). Nothing that is read here can execute code.
"""

import hashlib
import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from cascadetta_lib.data.base import Dataset, Modality, fingerprint, write_atomically
from cascadetta_lib.models import Cascade, ImageNetwork, SpeechNetwork, TextNetwork, build_network
from cascadetta_lib.objectives import OBJECTIVES, Training
from cascadetta_lib.pretrain import held_out_accuracy

SHIPPED = Path(__file__).resolve().parents[1] / "weights"
RELEASE_SHA256 = "6369a581a746d0cf55dbbb6a992329b62fb8dc92e99ee4fadee166bbbd83bfe8"
RELEASE = f"069c8695_pretrained.pth (3,076,113 bytes, SHA-256 {RELEASE_SHA256}, from the repository Nyquixt/CascadeTTA)"
RELEASE_NETWORK = ImageNetwork(depth=26, width=16, block="pre_activation", main_logits="relu")
RELEASE_SERVES = ("erm", "meta")
"""The pre-trainings that the authors' one network stands for: their own, and ERM's evaluation of it as it is."""
SAMPLE = 256
"""Held-out examples on which a test holds a shipped network to its card."""


class NetworkError(ValueError):
    """A network that cannot be used. The message names the file, what is wrong with it and what would do."""


class Card(BaseModel):
    """What made a network, and how good it is. Errors are in percent, on clean held-out source examples; sample_errors
    counts those among the first SAMPLE. options: how the source was cut, scaled and augmented."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    modality: Modality
    objective: str
    seed: int
    network: SpeechNetwork | TextNetwork | ImageNetwork  # fewest fields first: the first that fits is taken
    classes: int
    input_shape: tuple[int, ...]
    options: dict[str, Any]
    training: Training
    weights_sha256: str
    data: str
    data_fingerprint: str
    held_out_examples: int
    clean_error: float
    clean_error_batch_statistics: float
    sample_fingerprint: str
    sample_errors: int
    provenance: dict[str, Any]


@dataclass(frozen=True)
class Brought:
    """A network that was not trained here. history: a row an epoch, or None. origin: the kind of place and the
    beginning of the SHA-256 of the weights, such as `shipped:1a2b3c4d5e6f`."""

    model: nn.Module
    history: pd.DataFrame | None
    card: dict[str, Any]
    sha256: str
    origin: str


def find(weights: str, objective: str, seed: int, dataset: Dataset) -> Brought:
    """The network that `weights` (shipped, release:FILE or a FOLDER) has for an objective and a seed.

    Raises NetworkError where there is none, where a file is damaged, foreign or does not match its card, and where the
    network does not fit the dataset.
    """
    place = origin(weights, objective, seed)
    if weights.startswith("release:"):
        path = _release_file(weights, objective)
        _check_fit(path, 10, (3, 32, 32), {"input_scaling": "symmetric"}, dataset)
        card = {"source": RELEASE, "network": RELEASE_NETWORK.model_dump()}
        return Brought(load_release(path), None, card, RELEASE_SHA256, place)
    path = _shipped_file(weights, objective, seed)
    described, content = read_card(path), path.read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != described.weights_sha256:
        raise NetworkError(
            f"{path} has SHA-256 {found[:12]}…, its card says {described.weights_sha256[:12]}…: the file is damaged or "
            "another's; fetch both again"
        )
    _check_fit(path, described.classes, described.input_shape, described.options, dataset)
    kind = OBJECTIVES[described.objective]
    facts = dataset.network_facts | {"parallel": kind.parallel, "auxiliary": kind.auxiliary, "seed": seed}
    model = build_network(described.network, **facts)
    try:
        _load(model, load(content), path)
    except SafetensorError as error:
        raise NetworkError(f"{path} is no whole safetensors file: {error}") from None
    history = pd.read_csv(path.with_suffix(".csv")) if path.with_suffix(".csv").exists() else None
    return Brought(model.eval(), history, described.model_dump(mode="json"), described.weights_sha256, place)


def bring(model: nn.Module, name: str) -> Brought:
    """A module of the caller's as a network of the study: what stands for it is the hash of its weights."""
    digest = hashlib.sha256()
    for key, value in model.state_dict().items():
        digest.update(f"{key} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return Brought(model, None, {"name": name}, digest.hexdigest(), f"{name}:{digest.hexdigest()[:12]}")


def origin(weights: str, objective: str, seed: int) -> str:
    """What stands for the network that `weights` has for an objective and a seed. Reads neither data nor weights."""
    if weights.startswith("release:"):
        _release_file(weights, objective)
        return f"release:{RELEASE_SHA256[:12]}"
    card = read_card(_shipped_file(weights, objective, seed))
    return f"{'shipped' if weights == 'shipped' else 'folder'}:{card.weights_sha256[:12]}"


def read_card(path: Path) -> Card:
    """The card beside a weights file. Raises NetworkError where there is none."""
    card = path.with_suffix(".json")
    try:
        return Card.model_validate_json(card.read_bytes())
    except FileNotFoundError:
        raise NetworkError(f"{path} has no card {card.name} beside it, which says what it is") from None
    except ValidationError as error:
        raise NetworkError(f"{card} is no card of a network: {error.errors()[0]['msg']}") from None


def _shipped_file(weights: str, objective: str, seed: int) -> Path:
    folder = SHIPPED if weights == "shipped" else Path(weights).expanduser()
    path = folder / f"{objective}-{seed}.safetensors"
    if not path.is_file():
        there = ", ".join(sorted(found.stem for found in folder.glob("*.safetensors"))) or "none"
        raise NetworkError(
            f"weights = {weights!r}: {folder} has no network {path.stem} (pre-training and seed). There: {there}. "
            "weights=train trains one here"
        )
    return path


def _load(model: nn.Module, tensors: dict[str, torch.Tensor], path: Path) -> None:
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        fault = str(error).splitlines()[-1].strip()
        raise NetworkError(f"{path} does not fit the network that it should hold: {fault}") from None


def _check_fit(path: Path, classes: int, shape: tuple[int, ...], options: dict[str, Any], dataset: Dataset) -> None:
    """NetworkError unless a network with these classes, inputs and input scaling can predict the dataset."""
    found = tuple(dataset.prepare(dataset.plain_held_out.x[:1]).shape[1:])
    if (classes, tuple(shape)) != (dataset.classes, found):
        raise NetworkError(
            f"{path} has {classes} classes and inputs of shape {tuple(shape)}; {dataset.name} has {dataset.classes} "
            f"classes and inputs of shape {found}"
        )
    asked = getattr(getattr(dataset, "options", None), "input_scaling", None)
    if options.get("input_scaling") != asked:
        raise NetworkError(f"{path} was trained with input_scaling = {options['input_scaling']!r}, not {asked!r}")


def pack(folder: Path, model: nn.Module, history: pd.DataFrame, dataset: Dataset, **card: Any) -> Path:
    """Write a trained network, its card and its history into `folder`, and return the path of the weights. `card` has
    the fields of Card that cannot be measured: network, objective, training, seed, options, provenance."""
    content = save({name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()})
    accuracies = [held_out_accuracy(model, dataset, running_statistics=how, batch_size=200) for how in (True, False)]
    described = Card(
        modality=dataset.modality,
        classes=dataset.classes,
        input_shape=tuple(dataset.prepare(dataset.plain_held_out.x[:1]).shape[1:]),
        weights_sha256=hashlib.sha256(content).hexdigest(),
        data=dataset.source,
        data_fingerprint=dataset.fingerprint,
        held_out_examples=len(dataset.held_out.y),
        clean_error=round(100 * (1 - accuracies[0]), 3),
        clean_error_batch_statistics=round(100 * (1 - accuracies[1]), 3),
        sample_fingerprint=fingerprint([*dataset.plain_held_out.take(slice(SAMPLE))]),
        sample_errors=sample_errors(model, dataset),
        **card,
    )
    path = folder / f"{described.objective}-{described.seed}.safetensors"
    text = json.dumps(described.model_dump(mode="json"), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    write_atomically(path.with_suffix(".csv"), lambda file: history.to_csv(file, index=False))
    write_atomically(path.with_suffix(".json"), lambda file: file.write(text.encode()))
    write_atomically(path, lambda file: file.write(content))
    return path


@torch.no_grad()
def sample_errors(model: nn.Module, dataset: Dataset) -> int:
    """How many of the first SAMPLE held-out examples the model errs on, with the source's statistics."""
    x, y = dataset.plain_held_out.take(slice(SAMPLE))
    return int((model.eval()(dataset.prepare(x)).main.argmax(1) != y).sum())


def _release_file(weights: str, objective: str) -> Path:
    """The file of `release:FILE`, if it is the authors' and stands for the objective."""
    path = Path(weights.removeprefix("release:")).expanduser()
    if not path.is_file():
        raise NetworkError(f"weights = {weights!r}: there is no such file; it is the authors' {RELEASE}")
    if (found := hashlib.sha256(path.read_bytes()).hexdigest()) != RELEASE_SHA256:
        raise NetworkError(f"{path} has SHA-256 {found}, so it is not the authors' {RELEASE}")
    if objective not in RELEASE_SERVES:
        raise NetworkError(
            f"the authors' release has one network, which stands for the pre-trainings {' and '.join(RELEASE_SERVES)}, "
            f"not for {objective}: leave out the methods that start from another"
        )
    return path


def load_release(path: str | Path) -> Cascade:
    """The authors' public CIFAR-10 checkpoint as our ResNet-26 cascade, in evaluation mode, on the CPU.

    The file holds every tensor twice under `net`; the copies with the prefix `stateless.` are those that the release
    ends up with. Its residual blocks are pre-activation, and its logits pass an in-place ReLU, so that z is max(z, 0).
    Raises NetworkError where the file does not hold that state dictionary.
    """
    parts = {
        "conv1": "feature_extractor.conv1",
        "layer1": "feature_extractor.stage1",
        "layer2": "feature_extractor.stage2",
        "layer3": "feature_extractor.private.blocks",
        "bn": "feature_extractor.private.bn",
        "fc": "main_classifier",
        "ssh": "auxiliary_classifier",
    }
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)["net"]
        names = [name.removeprefix("stateless.") for name in state if name.startswith("stateless.")]
        found = {f"{parts[name.split('.')[0]]}.{name.split('.', 1)[1]}": state[f"stateless.{name}"] for name in names}
    except (KeyError, TypeError, IndexError, EOFError, RuntimeError, OSError, pickle.UnpicklingError):
        # torch's own message would advise to load the file unsafely.
        raise NetworkError(f"{path} holds no state dictionary of the release that can be read safely") from None
    model = build_network(RELEASE_NETWORK, classes=10, architecture="resnet26", seed=0)
    _load(model, found, Path(path))
    assert isinstance(model, Cascade)
    return model.eval()
