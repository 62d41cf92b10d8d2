"""CascadeTTA: continual test-time adaptation with an adaptive cascading network.

    import cascadetta_lib

    adapted = cascadetta_lib.adapt(model, "tent")  # any nn.Module that returns logits
    logits = adapted(x)

The other public names are Cascade, METHODS, evaluate and meta_gradient.

Six files to read first, in this order:

    models/cascade.py          the network: φ, θ_m and θ_a
    training/meta.py           Algorithm 1: the inner step, and the gradient through it
    training/pretrain.py       the loop that trains a network, by Algorithm 1 or otherwise
    methods/base.py            what every test-time method shares: a step, a prediction, a reset
    methods/cascade.py         the paper's method (Tent is beside it, in methods/tent.py)
    evaluation/evaluator.py    the loop that runs a method over a stream
"""

import importlib
import os
from typing import Any

import torch

from cascadetta_lib import numerics as numerics  # sets how numbers are computed
from cascadetta_lib.public import PUBLIC

__version__ = "0.2.0"
__all__ = ["METHODS", "Cascade", "adapt", "evaluate", "meta_gradient"]

# Use one thread if there is no GPU and OMP_NUM_THREADS is not set: the networks are small, and more
# threads mostly wait. The number is set here, because every use of the library imports this file.
if "OMP_NUM_THREADS" not in os.environ and not torch.cuda.is_available():
    torch.set_num_threads(1)


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = PUBLIC[name]
    return getattr(importlib.import_module(module), attribute)
