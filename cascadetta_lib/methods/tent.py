"""Tent (Wang et al. 2021): learn the scale and shift of every normalisation layer, by the entropy
of the main prediction.
"""

import torch
from torch import Tensor, nn

from cascadetta_lib.losses import information_loss
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.diversity import WithDiversity
from cascadetta_lib.models import Outputs, as_outputs


@METHODS.add("tent")
class Tent(WithDiversity):
    """Minimise the entropy of the prediction by SGD, the cascade's optimiser, so that Tent and the
    cascade differ only in loss and parameters. The cascade's paper does not say which
    optimiser it ran Tent with; see `tent_adam`.
    """

    label = "Tent"

    def adapted_parameters(self) -> list[nn.Parameter]:
        return self.scales_and_shifts(self.model)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        """Return the loss and the outputs.

        The loss is the mean entropy, less `diversity` (ours, 0 by default) times the entropy of the
        mean prediction.
        """
        outputs = as_outputs(self.model(x))
        return information_loss(outputs.main, self.diversity), outputs


@METHODS.add("tent_adam")
class TentAdam(Tent):
    """Tent with Adam, as in its release."""

    label = "Tent (Adam)"

    make_optimizer = torch.optim.Adam
