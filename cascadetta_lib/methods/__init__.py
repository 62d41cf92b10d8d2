"""Test-time methods by name. A new file in this folder is all that a new method needs; the contract
tests find it.

A method can be used alone, in a loop of your own: with `method = METHODS["tent"](model,
learning_rate=1e-3)` each `logits = method(x)` adapts to a batch, then predicts it; `method.reset()`
goes back to the source.
"""

import sys

from cascadetta_lib.code import class_hash, code_hash
from cascadetta_lib.methods.base import Method
from cascadetta_lib.registry import Registry

METHODS: Registry[type[Method]] = Registry("method", __name__)


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
