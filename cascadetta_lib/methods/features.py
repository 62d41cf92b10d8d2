"""Read the features of a network: the inputs of its last linear layer."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cascadetta_lib.models import Outputs, as_outputs


class Reading(NamedTuple):
    """The result of a forward pass.

    outputs: z and a.
    features: the inputs of the last linear layer, (B, D).
    layer: the last linear layer.
    """

    outputs: Outputs
    features: Tensor
    layer: nn.Linear


@contextmanager
def calls_of(layers: Sequence[nn.Linear]) -> Iterator[list[tuple[Tensor, nn.Linear]]]:
    """List the calls of `layers` inside `with`, in the order of the calls: the input of each call,
    and the layer that was called.
    """
    calls: list[tuple[Tensor, nn.Linear]] = []

    def note(layer: nn.Linear, inputs: tuple[Tensor, ...], named: Mapping[str, Tensor]) -> None:
        calls.append((inputs[0] if inputs else named["input"], layer))

    with ExitStack() as hooks:
        for layer in layers:
            hooks.enter_context(layer.register_forward_pre_hook(note, with_kwargs=True))
        yield calls


class FeatureReader:
    """Read the features of a network: the input of the last nn.Linear that a forward pass calls.

    In a Cascade only the layers inside θ_m count.

    label: the method that needs the features.
    purpose: what the method does with the layer, as words of a message.
    instead: a method that needs no features.

    Raises ValueError if the network has no nn.Linear. A call raises ValueError if the network calls
    none of its nn.Linear layers as a module, or calls the last one on another number of inputs than
    there are examples.
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
        if len(features) != len(x):
            name = type(self.model).__name__
            raise ValueError(
                f"{self.label}: {name} gives its last nn.Linear {len(features)} inputs for "
                f"{len(x)} examples; use {self.instead}"
            )
        return Reading(outputs, features.flatten(1), layer)
