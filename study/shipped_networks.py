"""Load the networks that come with the study in weights/, or networks from any folder like it.

A network is three files: NAME.safetensors (its weights), NAME.json (its card: what trained it, and
how good it is) and NAME.csv (a row per epoch of its training). NAME is the pre-training and the
seed, such as `meta-0`. Nothing that is read here can execute code.
"""

import functools
import hashlib
import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pandas as pd
from pydantic import AfterValidator, BaseModel, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from cascadetta_lib.data.base import Modality
from cascadetta_lib.models import Cascade, Network, Parallel, build_network
from cascadetta_lib.registry import nearest
from cascadetta_lib.training.objectives import OBJECTIVES
from cascadetta_lib.training.settings import KnownTraining
from study.published_networks import NetworkError, load_into, refuse_larger
from study.settings import absolute
from study.weights_name import PUBLISHED, WeightsName

SHIPPED = Path(__file__).resolve().parents[1] / "weights"


Built = TypeVar("Built", bound=nn.Module)
Percent = Annotated[float, Field(ge=0, le=100)]


def _require_objective(name: str) -> str:
    """Return `name`. Raise ValueError if it is not in OBJECTIVES."""
    if name not in OBJECTIVES:
        raise ValueError(nearest(name, OBJECTIVES))
    return name


class Card(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What made a network, and how good the network is.

    Errors are in percent, on clean held-out source examples.

    options: how the source was cut, scaled and augmented.
    clean_test_error: the error on all clean test images, which the training did not use; None if
        that is not known.
    corrupted_error: E of AdaBN under four corruptions of severity 5; None if these are not defined.
    sample_errors: the number of errors among the first SAMPLE held-out examples.
    """

    modality: Modality
    objective: Annotated[str, AfterValidator(_require_objective)]
    seed: int
    network: Network
    classes: int
    input_shape: tuple[int, ...] = Field(min_length=1)
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


def load_network(name: str, seed: int = 0, *, folder: str = "shipped") -> Cascade | Parallel:
    """Return a network of weights/ by the name of its pre-training: `load_network("meta", seed=0)`.

    The network is in evaluation mode on the CPU. It takes inputs that are scaled as its card says,
    and returns z and a. weights/README.md lists the networks.

    folder: `shipped`, or another FOLDER like weights/.

    Raises NetworkError if `folder` is neither, if there is no network of that name and seed, if its
    card is not valid, or if its file is damaged or does not match its card.
    """
    weights = WeightsName.parse(folder)
    if weights.kind not in ("shipped", "folder"):
        raise NetworkError(f"folder = {folder!r}: allowed are shipped and a FOLDER like weights/")
    path, card, content = read_shipped(weights, name, seed)
    kind = OBJECTIVES[card.objective]
    build = functools.partial(
        build_network,
        card.network,
        classes=card.classes,
        inputs=card.input_shape[0],
        # The architecture that `auto` stands for: ResNet-34 for Tiny-ImageNet, whose images are
        # enlarged to 224 pixels, and the small ResNet for all others.
        architecture="resnet34" if 224 in card.input_shape else "resnet26",
        parallel=kind.parallel,
        auxiliary=kind.auxiliary,
        seed=seed,
    )
    return built_with(build, content, path).eval()


def present_objectives(weights: WeightsName, seed: int) -> list[str]:
    """Return the pre-trainings for which a folder has a file of weights at this seed. The files are
    not read, so they may be damaged.
    """
    folder = _folder(weights)
    return [
        objective
        for objective in OBJECTIVES
        if (folder / f"{objective}-{seed}.safetensors").is_file()
    ]


def read_card(path: Path) -> Card:
    """Read the card beside a weights file. Raises NetworkError if there is none, or if it is not
    valid.
    """
    card = path.with_suffix(".json")
    try:
        return Card.model_validate_json(card.read_bytes())
    except FileNotFoundError:
        raise NetworkError(
            f"{path} has no card {card.name} beside it, which says what it is"
        ) from None
    except ValidationError as error:
        # For a wrong `network` there is an error from every kind of network. The last one is from
        # networks for images, and most networks are for images.
        fault = error.errors()[-1]
        place = ".".join(map(str, fault["loc"])) or "its text"
        told = "" if fault["type"] == "missing" else f" = {reprlib.repr(fault['input'])}"
        reason = fault["msg"].removeprefix("Value error, ")
        raise NetworkError(f"{card} is no card of a network: {place}{told}: {reason}") from None


def origin_of_shipped(weights: WeightsName, objective: str, seed: int) -> str:
    """Return the key of a network in a folder, such as `shipped:1a2b3c4d5e6f`.

    A copy of a shipped network and its card has the key of the shipped network. Raises NetworkError
    if the folder has no such network.
    """
    card = find_card(weights, objective, seed)[1]
    ours = SHIPPED / f"{objective}-{seed}.json"
    if ours.is_file() and read_card(ours) == card:
        return f"shipped:{card.weights_sha256[:12]}"
    said = card.model_dump_json(include={"weights_sha256", "network", "training"})
    return f"folder:{hashlib.sha256(said.encode()).hexdigest()[:12]}"


def read_history(path: Path) -> pd.DataFrame | None:
    """Read the table of epochs beside a weights file; None if there is none.

    Raises NetworkError if the table has no epochs, if it lacks the column epoch or
    held_out_accuracy, if one of these holds something that is no number, or if an accuracy is
    outside 0…1.
    """
    table = path.with_suffix(".csv")
    if not table.exists():
        return None
    try:
        history = pd.read_csv(table)
        accuracies = history[["epoch", "held_out_accuracy"]].astype(float)["held_out_accuracy"]
    except (ValueError, KeyError) as error:
        raise NetworkError(f"{table} is no table of epochs: {error}") from None
    if not len(history):
        raise NetworkError(f"{table} is no table of epochs: it has no rows")
    if not accuracies.between(0, 1).all():
        raise NetworkError(
            f"{table} is no table of epochs: held_out_accuracy has values outside 0…1"
        )
    return history


def read_shipped(weights: WeightsName, objective: str, seed: int) -> tuple[Path, Card, bytes]:
    """Return the path of a network's weights file, its card, and the file's content.

    Raises NetworkError if there is no such network, or if the file is not the one that the card
    describes.
    """
    path, card = find_card(weights, objective, seed)
    content = path.read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != card.weights_sha256:
        raise NetworkError(
            f"{path} has SHA-256 {found[:12]}…, its card says {card.weights_sha256[:12]}…: "
            "the file is damaged or another's; fetch both again"
        )
    return path, card, content


def built_with(build: Callable[[], Built], content: bytes, path: Path) -> Built:
    """Build a network and load the weights from `content`, which is the content of the safetensors
    file `path`.

    Raises NetworkError if the content is damaged or does not fit the network.
    """
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise NetworkError(f"{path} is no whole safetensors file: {error}") from None
    refuse_larger(build, tensors, path)
    model = build()
    load_into(model, tensors, path)
    return model


def _folder(weights: WeightsName) -> Path:
    """Return the folder that holds the networks, each with its card."""
    return SHIPPED if weights.kind == "shipped" else absolute(str(weights))


def find_card(weights: WeightsName, objective: str, seed: int) -> tuple[Path, Card]:
    """Return the path of a network's weights file, and its card.

    Raises NetworkError if there is no such network, or if the card is that of another network.
    """
    folder = _folder(weights)
    path = folder / f"{objective}-{seed}.safetensors"
    if not path.is_file():
        # The networks of this pre-training at other seeds, or else all networks of this seed.
        seeds = [file.stem for file in folder.glob(f"{objective}-*.safetensors") if file.is_file()]
        there = ", ".join(sorted(seeds or present_objectives(weights, seed))) or "none"
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
            f"{path}: its card says {card.objective}-{card.seed}; the file or the card was renamed"
        )
    return path, card
