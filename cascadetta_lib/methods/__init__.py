"""Test-time methods by name. A method is one file in this folder; the contract tests run over all of them.

Usable alone in a loop of your own:

    method = METHODS["tent"](model, learning_rate=1e-3)
    for x in stream:
        logits = method(x)      # adapts, then predicts
    method.reset()
"""

from cascadetta_lib.methods.base import Method
from cascadetta_lib.registry import Registry

METHODS: Registry[type[Method]] = Registry("method", __name__)
