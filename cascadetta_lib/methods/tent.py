"""Tent (Wang et al. 2021): update the scale and shift of every normalisation layer to lower the
entropy of the main prediction.
"""

import torch
from torch import Tensor, nn

from cascadetta_lib.losses import information_loss
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.diversity import WithDiversity
from cascadetta_lib.models import Outputs, as_outputs


@METHODS.add("tent")
class Tent(WithDiversity):
    """Minimise the entropy of the prediction by SGD on the scales and shifts of normalisation
    layers.

    SGD is the cascade's optimiser, too. So Tent and the cascade differ only in their losses and in
    the parameters that they update. The cascade's paper does not name the optimiser of its Tent;
    see `tent_adam`.
    """

    label = "Tent"

    def adapted_parameters(self) -> list[nn.Parameter]:
        return self.scales_and_shifts(self.model)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        """Return the loss of x (B, …) and the outputs.

        The loss is the mean entropy minus `diversity` times the entropy of the mean prediction. The
        second term is ours; its weight `diversity` is 0 by default.
        """
        outputs = as_outputs(self.model(x))
        return information_loss(outputs.main, self.diversity), outputs


@METHODS.add("tent_adam")
class TentAdam(Tent):
    """Tent with Adam, as in Tent's release."""

    label = "Tent (Adam)"

    make_optimizer = torch.optim.Adam
