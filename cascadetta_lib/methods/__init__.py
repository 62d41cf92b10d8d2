"""Test-time methods by name. A new method is a file in this folder: profiles and the contract tests
find it there. Its row in docs/methods.md is written by study.tools.methods_table.

A method can be used alone, in a loop of your own: with `adapted = adapt(model, "tent")` each
`logits = adapted(x)` adapts to a batch, then predicts it; `adapted.reset()` goes back to the
source. docs/methods.md lists the methods.
"""

import copy
import sys
from typing import Any

from torch import nn

from cascadetta_lib.code import class_hash, code_hash
from cascadetta_lib.methods.base import Method
from cascadetta_lib.registry import Registry

METHODS: Registry[type[Method]] = Registry("method", __name__)


def adapt(model: nn.Module, method: str, **options: Any) -> Method:
    """Return a method that adapts a copy of `model` to each batch that it predicts.

        adapted = adapt(model, "tent", learning_rate=1e-3)
        logits = adapted(x)

    model: takes a batch (B, …) and returns logits (B, C), a tuple that begins with them, or an
        object with the attribute `logits`. It is left as it is; `adapted.model` is the copy.
        `METHODS[method](model)` works on the model itself, and saves the memory of the copy.
    method: a name in METHODS.
    options: those of the method (`METHODS[method].options()`); docs/methods.md explains them.

    Raises ValueError for a name that is unknown, and for a model or an option that the method
    cannot work with.
    """
    return METHODS[method](copy.deepcopy(model), **options)


def modules_of(method: type[Method]) -> set[str]:
    """Return the modules that define a method, with those of the methods that it builds on."""
    return {part.__module__ for part in method.__mro__ if issubclass(part, Method)}


def code_of(name: str) -> str:
    """Hash the code of a method and of everything in this library that it uses.

    Comments and docstrings do not count. A class of a notebook's cell counts by what it does, so
    that the same text has the same hash after the kernel was restarted.
    """
    method = METHODS[name]
    found = [code_hash(modules_of(method))]
    for part in method.__mro__:
        if issubclass(part, Method) and not hasattr(sys.modules[part.__module__], "__file__"):
            found.append(class_hash(part))
    return "-".join(found)
