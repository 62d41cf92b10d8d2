"""CMF (Lee and Chang 2024): ROID, with the weights drawn towards a Kalman-filtered model instead of
the source model.
"""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.field.roid import ROID

ALPHA = 0.99
"""The share of the hidden model in the prediction step; the source has the rest."""
GAMMA = 0.99
"""The share of the updated weights in the ensemble; the hidden model has the rest."""
NOISE = 0.005
"""The release's value of q, the variance that a step adds. The release adapts 38,400 parameters.
For P parameters q is multiplied by P/38,400.
"""
LEAST = 0.89
"""The smallest β, which is the share of the hidden model in the correction step."""
SETTLED = 0.9999
"""From this value on, β is set to 1."""


@METHODS.add("cmf")
class CMF(ROID):
    """Take a step of ROID's loss, then filter the adapted weights θ.

    h are the hidden weights, which begin as the source's weights s. v is the variance of the
    filter, which begins as 0. After each step:

        prediction  h ← α·h + (1 − α)·s   and   v ← α²·v + q
        gain        β = r / (v + r) with r = 1 − q; at least 0.89, and 1 from 0.9999 on
        correction  h ← β·h + (1 − β)·θ   and   v ← β·v
        ensemble    θ ← γ·θ + (1 − γ)·h

    The settings are those of the release, where q = 0.005 · P / 38,400 for P adapted parameters.
    Here `reset` sets v to 0. In the release v stays as it is when the weights are reset. The other
    differences from the release are those of ROID.
    """

    label = "CMF"
    released_parameters: ClassVar[int] = 38_400
    """The number of parameters that the release adapts on CIFAR-10."""
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
