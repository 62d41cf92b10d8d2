"""Look up test-time methods by name in METHODS, and adapt a network of your own with `adapt`.

To add a method, put a file into this folder: profiles and the contract tests find it there. Then
run study.tools.methods_table, which writes the row of the method in docs/methods.md.

To use a method in a loop of your own, call `adapted = adapt(model, "tent")`. Each
`logits = adapted(x)` then adapts to a batch and predicts it, and `adapted.reset()` goes back to the
source. docs/methods.md lists the methods.
"""

import sys
from typing import Any

from torch import nn

from cascadetta_lib.code import class_hash, code_hash
from cascadetta_lib.methods.base import Method
from cascadetta_lib.models.snapshot import copy_of
from cascadetta_lib.registry import Registry

METHODS: Registry[type[Method]] = Registry("method", __name__)


def adapt(model: nn.Module, method: str, **options: Any) -> Method:
    """Return a method that adapts a copy of `model` to each batch, and predicts the batch.

        adapted = adapt(model, "tent", learning_rate=1e-3)
        logits = adapted(x)

    model: takes a batch (B, …) and returns logits (B, C), a tuple that begins with them, or an
        object with the attribute `logits`. `model` itself does not change; the copy is
        `adapted.model`. To save the memory of the copy, call `METHODS[method](model)`, which adapts
        `model` itself.
    method: a name in METHODS.
    options: options of the method. `METHODS[method].options()` lists their names, and
        docs/methods.md explains them.

    Raises ValueError for an unknown name, for a model or an option that the method cannot work
    with, and for a model that cannot be copied.
    """
    kind = METHODS[method]
    copied = copy_of(model, kind.label, "pass the model itself to METHODS[method]")
    return kind(copied, **options)


def modules_of(method: type[Method]) -> set[str]:
    """Return the names of the modules that define a method and its base methods."""
    return {part.__module__ for part in method.__mro__ if issubclass(part, Method)}


def code_of(name: str) -> str:
    """Hash the code of the method `name`, with all modules that it imports from this library or
    from files of your own.

    Comments and docstrings are not hashed. A class that a notebook's cell defines is hashed by
    class_hash. So the same text has the same hash after a restart of the kernel.
    """
    method = METHODS[name]
    found = [code_hash(modules_of(method))]
    for part in method.__mro__:
        if issubclass(part, Method) and not hasattr(sys.modules[part.__module__], "__file__"):
            found.append(class_hash(part))
    return "-".join(found)
