"""Networks that were not trained here. A network that the user brings (Study.bring) is used as it
is; a hash of its weights and its code tells it from others.
"""

import functools
import hashlib
import sys
import types
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import pandas as pd
import torch
from torch import nn

from cascadetta_lib.code import class_hash, code_hash, module_of, own_attributes, value_hash
from cascadetta_lib.data.base import Dataset
from cascadetta_lib.data.streams import Domain
from cascadetta_lib.models import as_outputs
from cascadetta_lib.models.snapshot import copy_of
from study.published_networks import NetworkError
from study.weights_name import PUBLISHED

OTHER_ORIGINS = ("train", "shipped", "folder", *PUBLISHED)
"""Names that a network of the user's must not have, since tables use them for other networks."""
SIMPLE = (bool, int, float, str, type(None))
"""The hash of `bring` takes attributes of these types, and tuples of them, as their `repr`."""
OF_TORCH = ("torch", "torchvision")
HOLDING = (tuple, list, dict, set, torch.Tensor, np.ndarray)
"""Of a module of torch or torchvision, the hash of `bring` takes attributes of these types by their
contents.
"""
FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
)


@dataclass(frozen=True)
class Brought:
    """A network that was not trained here.

    history: its training, a row per epoch; None if that is not known.
    card: what is known of the network.
    sha256: a hash of the weights; for a network that the user brings, the hash that `bring` makes.
    origin: where the network comes from, and the beginning of a SHA-256 of the weights, such as
        `shipped:1a2b3c4d5e6f`. For a network from another FOLDER like weights/, the hash is of
        three entries of its card: `weights_sha256`, `network` and `training`. For a network that
        the user brings, the origin begins with the network's name.
    """

    model: nn.Module
    history: pd.DataFrame | None
    card: dict[str, Any]
    sha256: str
    origin: str


def bring(model: nn.Module, name: str) -> Brought:
    """Make a network of the study from a module that the user brings.

    The key of the network is its name and a hash. The hash is made of:

    - the weights and buffers of the network, and its text, `repr(model)`
    - the attributes of its modules, their hooks, and functions that were put on them
    - the code of its classes, except those of torch and torchvision

    Attributes of the types in SIMPLE, and tuples of them, are hashed as their `repr`. All others
    are hashed by their contents, if they are of a type that `class_hash` can look into. Of any
    other object, the name of its class is hashed, and the object's `repr` unless this holds an
    address in memory (`at 0x…`).

    There is an exception. Of a module of torch or torchvision, an attribute that is neither simple
    nor a function is hashed only if it has a type in HOLDING and its name does not begin with `_`.

    Two networks that differ only in what is not hashed get the same key: give them different names.

    Raises NetworkError if `name` is empty, or the name of another kind of networks
    (OTHER_ORIGINS).
    """
    kind = name.partition(":")[0].strip()
    if not kind or kind in OTHER_ORIGINS:
        raise NetworkError(
            f"name = {name!r}: allowed is a name that is not empty; tables use the names "
            f"{', '.join(OTHER_ORIGINS)} for other networks; choose another"
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
        if not _is_dense(value):
            digest.update(f"{key} {_hash_entry(value)}".encode())
            continue
        digest.update(f"{key} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(
            value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        )
    return Brought(
        model, None, {"name": name}, digest.hexdigest(), f"{name}:{digest.hexdigest()[:12]}"
    )


def copied(model: nn.Module, name: str) -> nn.Module:
    """Return a copy of a network, for the study to run on.

    name: what tables call the network, for messages.

    Raises NetworkError if the network cannot be copied.
    """
    try:
        return copy_of(model, name, "adapt the model itself, without a study, by METHODS[method]")
    except ValueError as error:
        raise NetworkError(str(error)) from error


def fitting(brought: Brought, dataset: Dataset, domain: Domain) -> nn.Module:
    """Return a copy of a network, in evaluation mode on the device of the data.

    The copy is tried on two examples of `domain`. Raises NetworkError if the network cannot be
    copied, if it cannot take the examples, if it does not return a logit per class of the dataset,
    or if the largest logit of an example is not finite.
    """
    x = dataset.prepare(dataset.domain(*domain).x[:2])
    model = copied(brought.model, brought.origin).to(x.device).eval()
    try:
        with torch.no_grad():
            returned = model(x)
    # A foreign module may raise anything; torchvision's transformers use assert.
    except Exception as error:
        raise NetworkError(
            f"{brought.origin} cannot take inputs of shape {tuple(x.shape)}: {error!r}"
        ) from None
    try:
        outputs = as_outputs(returned)
    except (TypeError, ValueError) as error:
        raise NetworkError(f"{brought.origin}: {error}") from None
    logits = outputs.main
    if logits.shape != (len(x), dataset.classes):
        shape = (
            f"{brought.origin} returns logits of shape {tuple(logits.shape)} for {len(x)} examples"
        )
        raise NetworkError(f"{shape}; {dataset.name} has {dataset.classes} classes")
    a = outputs.auxiliary
    if a is not None and a.shape != logits.shape:
        raise NetworkError(
            f"{brought.origin} returns auxiliary logits of shape {tuple(a.shape)}, and logits of "
            f"shape {tuple(logits.shape)}; both must have the same shape"
        )
    for name, each in (("logits", logits), ("auxiliary logits", a)):
        if each is not None and not each.amax(1).isfinite().all():
            raise NetworkError(
                f"{brought.origin} returns {name} that are not finite; allowed are numbers, and −∞ "
                "for masked classes (if there is a θ_a, mask after it)"
            )
    return model


def _attributes(module: nn.Module) -> list[tuple[str, object]]:
    """Return name and value of the attributes of a module whose types are in SIMPLE, except those
    that every module has.
    """
    own = own_attributes(module)
    return sorted((name, value) for name, value in own.items() if _is_simple(value))


def _is_simple(value: object) -> bool:
    """Return whether a value has a type in SIMPLE, or is a tuple of such values and tuples."""
    if isinstance(value, tuple):
        return all(map(_is_simple, value))
    return isinstance(value, SIMPLE)


def _is_dense(value: object) -> TypeGuard[torch.Tensor]:
    """Return whether a value is a tensor that is neither sparse nor quantised."""
    if not isinstance(value, torch.Tensor):
        return False
    return value.layout == torch.strided and not value.is_quantized


def _hash_entry(value: object) -> str:
    """Hash an entry of a state_dict that is no dense tensor: what a module's get_extra_state
    returned, weights of a quantised module, or a sparse tensor.
    """
    if isinstance(value, torch.Tensor) and value.is_quantized:
        value = [value.int_repr(), value.dequantize()]
    if isinstance(value, tuple) and any(isinstance(part, torch.Tensor) for part in value):
        return " ".join(_hash_entry(part) for part in value)
    return value_hash(value, module_of(value))


def _held_by(module: nn.Module) -> dict[str, object]:
    """Return the attributes of a module that are not simple, such as lists, by name.

    Of a module of torch or torchvision only attributes of the types in HOLDING are returned, except
    those with a name that begins with `_`. The other attributes that PyTorch gives such a module
    follow from its parameters and its `repr`.
    """
    is_of_torch = not _code_of_class(type(module))
    return {
        name: value
        for name, value in sorted(own_attributes(module).items())
        if not _is_simple(value) and (not is_of_torch or _is_put_on(name, value))
    }


def _is_put_on(name: str, value: object) -> bool:
    """Return whether an attribute of a module of torch may be the user's, or differ between two
    modules with the same `repr`, such as the window of a Swin transformer.
    """
    return isinstance(value, HOLDING) and not name.startswith("_")


def _hooks_of(module: nn.Module) -> list[object]:
    """Return the hooks of a module, which can change what goes in and comes out, and gradients.

    Hooks of parameters are left out, since the copy of the network that runs has none.
    """
    return [
        *module._forward_pre_hooks.values(),
        *module._forward_hooks.values(),
        *module._backward_pre_hooks.values(),
        *module._backward_hooks.values(),
    ]


def _functions_put_on(module: nn.Module) -> dict[str, object]:
    """Return the functions that were put on a module of torch or torchvision, by attribute. These
    are functions in place of a method of its class, and functions that are not torch's, such as an
    activation of the user's own.
    """
    kind = type(module)
    # Functions on modules of other classes count in `_held_by`. A compiled network counts as the
    # network itself.
    if _code_of_class(kind) or kind.__module__.startswith("torch._dynamo"):
        return {}
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
    """Return a hash of the code of a class; empty for classes of torch and torchvision."""
    if kind.__module__.partition(".")[0] in OF_TORCH:
        return ""
    in_file = hasattr(sys.modules.get(kind.__module__), "__file__")
    return code_hash([kind.__module__]) if in_file else class_hash(kind)
