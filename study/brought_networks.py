"""A network of the caller's: taken as it is, told from others by its weights and its code."""

import copy
import functools
import hashlib
import sys
import types
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import nn

from cascadetta_lib.code import class_hash, code_hash, module_of, value_hash
from cascadetta_lib.data.base import Dataset
from cascadetta_lib.data.streams import Domain
from cascadetta_lib.models import as_outputs
from study.published_networks import NetworkError
from study.weights_name import PUBLISHED

OTHER_ORIGINS = ("train", "shipped", "folder", *PUBLISHED)
"""Names that the caller's network must not have, since tables use them for other networks."""
SIMPLE = (bool, int, float, str, tuple, type(None))
OF_TORCH = ("torch", "torchvision")
FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
)


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
            digest.update(value_hash(hook, module_of(hook)).encode())
        for attribute, function in _functions_put_on(module).items():
            digest.update(f"{attribute} {value_hash(function, module_of(function))}".encode())
    for key, value in [*model.state_dict().items(), *model.named_buffers()]:
        digest.update(f"{key} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(
            value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        )
    return Brought(
        model, None, {"name": name}, digest.hexdigest(), f"{name}:{digest.hexdigest()[:12]}"
    )


def fitting(brought: Brought, dataset: Dataset, domain: Domain) -> nn.Module:
    """Copy a network to the device of the data, in evaluation mode.

    Raises NetworkError unless it returns a logit per class of the dataset, the largest one finite.
    """
    x = dataset.prepare(dataset.domain(*domain).x[:2])
    model = copy.deepcopy(brought.model).to(x.device).eval()
    try:
        with torch.no_grad():
            outputs = as_outputs(model(x))
    # A foreign module may raise anything; torchvision's transformers use assert.
    except Exception as error:
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
        home = module_of(value).partition(".")[0]
        is_foreign = home not in (*OF_TORCH, *sys.stdlib_module_names)
        in_place = isinstance(value, FUNCTIONS) and callable(getattr(kind, name, None))
        if is_foreign or in_place:
            found[name] = value
    return found


def _code_of_class(kind: type) -> str:
    """Hash the code of a class; empty for those of torch and torchvision."""
    if kind.__module__.partition(".")[0] in OF_TORCH:
        return ""
    in_file = hasattr(sys.modules.get(kind.__module__), "__file__")
    return code_hash([kind.__module__]) if in_file else class_hash(kind)
