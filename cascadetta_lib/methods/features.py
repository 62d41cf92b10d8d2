"""Methods that read features: what the last linear layer of a network is given."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cascadetta_lib.models import Outputs, as_outputs


class Reading(NamedTuple):
    """The result of a forward pass: `outputs`, features (B, D), and the layer that took them."""

    outputs: Outputs
    features: Tensor
    layer: nn.Linear


@contextmanager
def calls_of(layers: Sequence[nn.Linear]) -> Iterator[list[tuple[Tensor, nn.Linear]]]:
    """Note each call of one of these layers: its inputs and the layer, in the order of the
    calls.
    """
    calls: list[tuple[Tensor, nn.Linear]] = []

    def note(layer: nn.Linear, inputs: tuple[Tensor, ...]) -> None:
        calls.append((inputs[0], layer))

    with ExitStack() as hooks:
        for layer in layers:
            hooks.enter_context(layer.register_forward_pre_hook(note))
        yield calls


class FeatureReader:
    """Read the features of a network: the input of the last nn.Linear that a forward pass calls. In
    a Cascade, of the last one inside θ_m.

    label: the method that needs them. purpose: what it does with the layer. instead: a method that
    does without.

    Raises ValueError where the network has no nn.Linear; so does a call where the network calls
    none of them as a module.
    """

    def __init__(self, model: nn.Module, label: str, purpose: str, instead: str) -> None:
        self.model = model
        self.label = label
        self.instead = instead
        classifier = getattr(model, "main_classifier", model)
        self.layers = [module for module in classifier.modules() if isinstance(module, nn.Linear)]
        if not self.layers:
            name = type(model).__name__
            raise ValueError(
                f"{label} {purpose} the last nn.Linear, and {name} has none; use {instead}"
            )

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Reading:
        with calls_of(self.layers) as calls:
            outputs = as_outputs(self.model(x))
        if not calls:
            name = type(self.model).__name__
            raise ValueError(
                f"{self.label}: {name} calls none of its nn.Linear as a module; use {self.instead}"
            )
        features, layer = calls[-1]
        return Reading(outputs, features.flatten(1), layer)
