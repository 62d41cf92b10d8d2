"""Test-time methods by name. A new file in this folder is all that a new method needs; the contract
tests find it.

A method can be used alone, in a loop of your own: with `method = METHODS["tent"](model,
learning_rate=1e-3)` each `logits = method(x)` adapts to a batch, then predicts it; `method.reset()`
goes back to the source.
"""

import os
import sys

from cascadetta_lib.data.base import code_version
from cascadetta_lib.methods.base import Method
from cascadetta_lib.registry import Registry

METHODS: Registry[type[Method]] = Registry("method", __name__)
CELLS: dict[
    type[Method], str
] = {}  # what stands for the code of a method in a notebook's cell, anew at each execution


def code_of(name: str) -> str:
    """A hash of the files that define a method, without what all methods share; of a notebook's
    cell one of CELLS.
    """
    modules = {
        part.__module__
        for part in METHODS[name].__mro__
        if issubclass(part, Method) and part is not Method
    }
    in_files = all(hasattr(sys.modules[module], "__file__") for module in modules)
    return (
        code_version(*sorted(modules))
        if in_files
        else CELLS.setdefault(METHODS[name], os.urandom(4).hex())
    )
