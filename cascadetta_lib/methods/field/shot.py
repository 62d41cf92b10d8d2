"""SHOT-IM (Liang et al. 2020): all of the network except its classifier, by information
maximisation.
"""

from functools import partial

import torch
from torch import Tensor, nn

from cascadetta_lib.losses import information_loss
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.diversity import WithDiversity
from cascadetta_lib.models import Outputs, as_outputs, parameters_of_z


@METHODS.add("shot_im")
class ShotIM(WithDiversity):
    """Minimise the mean entropy of the predictions minus the entropy of their mean, H(p) − H(p̄), by
    SGD with Nesterov momentum 0.9 and weight decay 1e-3, as in the release.

    The classifier, which SHOT calls the hypothesis, is fixed: θ_m in a Cascade, otherwise the last
    nn.Linear of the network. All parameters before it are updated.

    The release adapts in 15 epochs over all target data, at a learning rate that decays from 1e-2
    for the bottleneck and from 1e-3 for the layers before it. Here, as in T3A's release, there is
    one step per batch, at one rate. The release adds 1e-5 to the mean prediction inside the
    logarithm; here nothing is added.
    """

    label = "SHOT-IM"
    diversity = 1.0
    make_optimizer = staticmethod(
        partial(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=1e-3)
    )

    def configure_model(self) -> None:
        linear = [child for child in self.model.modules() if isinstance(child, nn.Linear)]
        if not linear and not hasattr(self.model, "main_classifier"):
            name = type(self.model).__name__
            raise ValueError(
                f"{self.label} keeps the last nn.Linear as it is, and {name} has none; use cotta"
            )
        super().configure_model()

    def adapted_parameters(self) -> list[nn.Parameter]:
        classifier = getattr(self.model, "main_classifier", None)
        if classifier is None:
            linear = [child for child in self.model.modules() if isinstance(child, nn.Linear)]
            classifier = linear[-1]
        fixed = {*classifier.parameters()}
        return [parameter for parameter in parameters_of_z(self.model) if parameter not in fixed]

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        outputs = as_outputs(self.model(x))
        return information_loss(outputs.main, self.diversity), outputs
