"""Find out which normalisation a network learned with, from its errors on clean images.

Neither a file of weights nor a module that the user brings names its normalisation. A network is
refused if it errs on far fewer images under another normalisation than under the one that was asked
for.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cascadetta_lib.data.base import Dataset
from cascadetta_lib.data.images import SCALINGS, ImageDataset
from cascadetta_lib.models import as_outputs
from cascadetta_lib.models.input_normalization import (
    INPUT_NORMALIZATIONS,
    Normalization,
    Normalize,
    normalization_of,
)
from study.brought_networks import Brought
from study.published_networks import NetworkError

KNOWN_IMAGES = 64
"""The number of clean test images by which a published network is told from others of its shape."""
LEAST_FEWER = 5
"""A difference of at most this many errors may be chance."""
MOST_ERRORS_OF_STANDARD = 0.15
"""The largest error of a network that counts as Standard. Standard's own error is 5.22 %. On 64
images it exceeds 15 % with probability 0.002.
"""
_CLEAN_ERRORS: dict[tuple[str, Normalization, str], int] = {}


def recognise(
    model: nn.Module, network: dict[str, Any], digest: str, path: Path, dataset: Dataset
) -> dict[str, Any]:
    """Say which network a file in RobustBench's form holds, as far as clean images tell. Return the
    fields of its card that say so.

    Many networks of RobustBench have the same shape, and their normalisation is in their class, not
    in the file. A network counts as Standard only if it has Standard's shape, takes images in 0…1,
    and errs on at most 15 % of the first clean test images of CIFAR-10.

    network: its depth and widening factor.
    digest: the hash of the file, under which the counted errors are kept.

    Raises NetworkError if the network errs on far fewer of these images under the other scaling of
    the inputs.
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
    if _far_fewer(errors[best], errors[asked], count):
        raise NetworkError(
            f"{path} errs on {errors[asked]} of {count} clean test images with input_scaling = "
            f"{asked!r}, but only on {errors[best]} with {best!r}: set image_input_scaling={best}"
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
    """Refuse a network that gets images under a normalisation that it did not learn with.

    model: the network, which takes the dataset's prepared images. Here it gets clean test images
        of the same size, under each normalisation.

    Raises NetworkError if the network errs on far fewer of the first clean test images under
    another of INPUT_NORMALIZATIONS. A network is accepted as it is if it errs on at least half of
    these images under each of INPUT_NORMALIZATIONS.
    """
    if not isinstance(dataset, ImageDataset) or not len(dataset.test.y):
        return
    own = normalization_of(model)
    mean, deviation = SCALINGS[dataset.options.input_scaling]
    asked = Normalization((mean,), (deviation,))
    if own is not None:  # The network normalises the scaled images once more.
        asked = Normalization(
            tuple(mean + deviation * each for each in own.mean),
            tuple(deviation * each for each in own.deviation),
        )
    digest = brought.sha256
    count = min(KNOWN_IMAGES, len(dataset.test.y))
    wrong = _clean_errors(model, asked, own, digest, dataset)
    if wrong <= count / 10:
        return  # No other normalisation can have far fewer errors.
    errors = {
        name: _clean_errors(model, other, own, digest, dataset)
        for name, other in INPUT_NORMALIZATIONS.items()
    }
    best = min(errors, key=lambda name: errors[name])
    if _far_fewer(errors[best], wrong, count):
        raise NetworkError(
            f"{brought.origin} errs on {wrong} of {count} clean test images if x in 0…1 is "
            f"normalised by (x − {_numbers(asked.mean)})/{_numbers(asked.deviation)}, but only on "
            f"{errors[best]} with normalization={best!r}; bring it with that"
        )


def _far_fewer(best: int, asked: int, count: int) -> bool:
    """Return whether `best` errors are far fewer than `asked` errors, and fewer than half of
    `count` images.

    asked: the errors under the scaling or normalisation of the inputs that was asked for.
    best: the fewest errors under any.
    """
    return asked - best > max(count / 10, LEAST_FEWER) and best < count / 2


def _clean_errors(
    model: nn.Module,
    wanted: Normalization,
    own: Normalization | None,
    digest: str,
    dataset: ImageDataset,
) -> int:
    """Count a network's errors on the first clean test images under the normalisation `wanted`,
    once for each network and data.

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
                seen = dataset.resize(before(images.float() / 255))
                if own is not None:
                    # The input from which the model's own normalisation makes `seen`.
                    undone = Normalize(own).to(x.device)
                    seen = undone.mean + undone.deviation * seen
                wrong += int((as_outputs(model(seen)).main.argmax(1) != labels).sum())
        _CLEAN_ERRORS[key] = wrong
    return _CLEAN_ERRORS[key]


def _numbers(values: Sequence[float]) -> str:
    """Write one number as it is, and several in parentheses."""
    return f"{values[0]:g}" if len(values) == 1 else f"({', '.join(f'{one:g}' for one in values)})"
