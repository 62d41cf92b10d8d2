"""CMF (Lee and Chang 2024): ROID, with weights pulled toward a Kalman-filtered model
instead of the source model.
"""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.field.roid import ROID

ALPHA = 0.99
"""The hidden model's weight in the prediction step; the source has the rest."""
GAMMA = 0.99
"""The updated weights' own weight in the ensemble; the hidden model has the rest."""
NOISE = 0.005
"""The variance q of a step at the release's number of adapted parameters. q is proportional to the
number.
"""
LEAST = 0.89
"""The smallest β, the hidden model's weight in the correction step."""
SETTLED = 0.9999
"""From this value on, β is set to 1."""


@METHODS.add("cmf")
class CMF(ROID):
    """After each step of ROID's loss, with φ the adapted weights, h the hidden ones, s the source's
    and v the filter's variance, which begins as 0:

    h ← α·h + (1 − α)·s and v ← α²·v + q, the prediction;
    β = r / (v + r) with r = 1 − q, at least 0.89, and 1 from 0.9999 on;
    h ← β·h + (1 − β)·φ and v ← β·v, the correction;
    φ ← γ·φ + (1 − γ)·h, the ensemble.

    The settings are those of the release, where q = 0.005 · P / 38,400 for P adapted parameters,
    and v goes on where the weights are reset; here a reset begins with v = 0. What else differs
    from the release is what differs in ROID.
    """

    label = "CMF"
    released_parameters: ClassVar[int] = 38_400
    """How many parameters are adapted in the release for CIFAR-10."""
    hidden: Tensor
    variance: float

    def configure_model(self) -> None:
        super().configure_model()
        self.register_buffer("hidden", self.anchor.clone())

    @torch.no_grad()
    def draw_back(self) -> None:
        parameters = self.adapted_parameters()
        noise = NOISE * len(self.anchor) / self.released_parameters
        self.hidden.lerp_(self.anchor, 1 - ALPHA)
        self.variance = ALPHA**2 * self.variance + noise
        kept = max((1 - noise) / (self.variance + 1 - noise), LEAST)
        if kept >= SETTLED:
            kept = 1.0
        self.variance *= kept
        self.hidden.lerp_(parameters_to_vector(parameters), 1 - kept)
        self.draw_to(self.hidden, 1 - GAMMA)

    def reset(self) -> None:
        super().reset()
        self.variance = 0.0
