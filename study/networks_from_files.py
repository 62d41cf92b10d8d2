"""Find the networks that a profile names: shipped with the study, published by others, or in any
other folder.
"""

import functools
import warnings
from pathlib import Path
from typing import Any

from cascadetta_lib.data.base import Dataset, Modality, fingerprint
from cascadetta_lib.models import Cascade, Parallel
from cascadetta_lib.training.pretrain import held_out_accuracy, new_network
from study.brought_networks import Brought
from study.clean_errors import recognise
from study.published_networks import NetworkError, check_file, load_published
from study.settings import absolute
from study.shipped_networks import (
    Card,
    built_with,
    origin_of_shipped,
    read_history,
    read_shipped,
)
from study.weights_name import WeightsName

SAMPLE = 256
"""The number of held-out examples on which a network is checked: among them it must make as many
errors as its card says, give or take ROUNDING.
"""
ROUNDING = 2
"""The number of these examples on which another machine may predict otherwise."""
FITTED = ("vocabulary_size", "msda_layers", "msda_probability", "train_size", "held_out_fraction")
SEEN_THROUGH: dict[Modality, tuple[str, ...]] = {
    "image": ("input_scaling",),
    "text": FITTED,
    "speech": (),
}
"""The options of a dataset that shape a network's inputs. Their values must be those of the
network's training.
"""


def find_network(weights: WeightsName, objective: str, seed: int, dataset: Dataset) -> Brought:
    """Return the network of a pre-training and a seed.

    weights: where the network comes from; any but `train`.
    objective: the name of the pre-training, such as `meta`.

    Raises NetworkError if there is no such network, if a file is damaged, foreign or does not match
    its card, or if the network does not fit the dataset.
    """
    if weights.published:
        return _find_published(weights, objective, seed, dataset)
    path, card, content = read_shipped(weights, objective, seed)
    if card.modality != dataset.modality:
        raise NetworkError(
            f"{path} is a network for {card.modality} data, but {dataset.name} is "
            f"{dataset.modality} data"
        )
    _check_fit(path, card.classes, card.input_shape, card.options, dataset)
    _check_source(path, card, dataset)
    build = functools.partial(new_network, dataset, card.network, card.objective, seed)
    model = built_with(build, content, path)
    _check_errors(path, card, model, dataset)
    return Brought(
        model.eval(),
        read_history(path),
        card.model_dump(mode="json"),
        card.weights_sha256,
        network_origin(weights, objective, seed),
    )


def network_origin(weights: WeightsName, objective: str, seed: int) -> str:
    """Return the key of the network of a pre-training (`objective`) and a seed, such as
    `shipped:1a2b3c4d5e6f`. Reads no data.

    Raises NetworkError if there is no such network.
    """
    if weights.published:
        digest = check_file(weights.kind, absolute(weights.place), objective)
        return f"{weights.kind}:{digest[:12]}"
    return origin_of_shipped(weights, objective, seed)


def _find_published(weights: WeightsName, objective: str, seed: int, dataset: Dataset) -> Brought:
    place = network_origin(weights, objective, seed)
    path = absolute(weights.place)
    model, card = load_published(weights.kind, path)
    digest = check_file(weights.kind, path, objective)
    of_robustbench = weights.kind == "robustbench"
    options = _asked_options(dataset) if of_robustbench else card
    _check_fit(path, card["classes"], card["input_shape"], options, dataset)
    if of_robustbench:
        card |= recognise(model, card["network"], digest, path, dataset)
    return Brought(model, None, card, digest, place)


def _check_source(path: Path, card: Card, dataset: Dataset) -> None:
    """Raise NetworkError if a text network was trained on other reviews than the dataset's. Warn if
    an image or speech network was trained on other examples.
    """
    if card.data_fingerprint == dataset.fingerprint:
        return
    if dataset.modality == "text":
        raise NetworkError(
            f"{path} was trained with other reviews of the source or the targets than the "
            f"dataset's ({card.data})"
        )
    # This may be intended, to measure a network on images of another kind.
    _warn_once(
        f"networks that were trained on the source examples of {card.data} are used on "
        f"{dataset.source}"
    )


@functools.cache
def _warn_once(message: str) -> None:
    """Warn in the name of the caller of `find_network`, at the first call with a message only.

    Python by itself repeats a warning once any package has changed the filters of warnings.
    """
    warnings.warn(message, stacklevel=4)


def _check_errors(path: Path, card: Card, model: Cascade | Parallel, dataset: Dataset) -> None:
    """Raise NetworkError unless a network errs on as many of the first held-out examples as its
    card says.

    If the dataset has other held-out examples than the card, nothing is checked. The network is
    moved to the device of the examples.
    """
    sample = dataset.plain_held_out.take(slice(SAMPLE))
    if fingerprint([*sample]) != card.sample_fingerprint:
        return
    model.to(sample.y.device)
    count = len(sample.y)
    right = held_out_accuracy(
        model, dataset, running_statistics=True, batch_size=SAMPLE, held_out=sample
    )
    wrong = round(count * (1 - right))
    if abs(wrong - card.sample_errors) > ROUNDING:
        raise NetworkError(
            f"{path} errs on {wrong} of {count} examples, and its card says "
            f"{card.sample_errors}: is it the card of another network?"
        )


def _asked_options(dataset: Dataset) -> dict[str, Any]:
    """Return the settings' values of the options that shape a network's inputs."""
    options = getattr(dataset, "options", None)
    return {name: getattr(options, name, None) for name in SEEN_THROUGH[dataset.modality]}


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
            f"{dataset.classes} classes and inputs of shape {found}"
        )
    for name in SEEN_THROUGH[dataset.modality]:
        wanted = options.get(name)
        asked = getattr(getattr(dataset, "options", None), name, None)
        if wanted != asked:
            if name not in options:
                raise NetworkError(
                    f"the card of {path} does not say with which {name} the network was trained; "
                    f"the settings ask for {asked!r}"
                )
            place = f"{dataset.modality}_{name}={'null' if wanted is None else wanted}"
            raise NetworkError(
                f"{path} was trained with {name} = {wanted!r}, not {asked!r}: set {place}"
            )
