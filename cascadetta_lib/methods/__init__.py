"""Test-time methods by name. A new file in this folder is all that a new method needs; the contract tests find it.

A method can be used alone, in a loop of your own:

    method = METHODS["tent"](model, learning_rate=1e-3)
    for x in stream:
        logits = method(x)      # adapts to the batch, then predicts it
    method.reset()
"""

import sys

from cascadetta_lib.data.base import code_version
from cascadetta_lib.methods.base import Method
from cascadetta_lib.registry import Registry

METHODS: Registry[type[Method]] = Registry("method", __name__)


def code_of(name: str) -> str:
    """A hash of the files that define a method, without what all methods share; one in a notebook's cell has none."""
    modules = {part.__module__ for part in METHODS[name].__mro__ if issubclass(part, Method) and part is not Method}
    return code_version(*sorted(module for module in modules if hasattr(sys.modules[module], "__file__")))
