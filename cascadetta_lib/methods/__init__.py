"""Test-time methods by name. A new file in this folder is all that a new method needs; the contract tests find it.

A method can be used alone, in a loop of your own:

    method = METHODS["tent"](model, learning_rate=1e-3)
    for x in stream:
        logits = method(x)      # adapts to the batch, then predicts it
    method.reset()
"""

from cascadetta_lib.methods.base import Method
from cascadetta_lib.registry import Registry

METHODS: Registry[type[Method]] = Registry("method", __name__)
