"""SHOT-IM (Liang et al. 2020): update all of the network except its classifier, by information
maximisation.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from cascadetta_lib.losses import information_loss
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.diversity import WithDiversity
from cascadetta_lib.methods.features import calls_of
from cascadetta_lib.models import Outputs, as_outputs, parameters_of_z


@METHODS.add("shot_im")
class ShotIM(WithDiversity):
    """Minimise the mean entropy of the predictions minus the entropy of their mean, H(p) − H(p̄),
    by SGD with Nesterov momentum 0.9 and weight decay 1e-3, as in the release.

    The classifier, which SHOT calls the hypothesis, is fixed: θ_m in a Cascade, otherwise the last
    nn.Linear of the network. All other parameters except those of θ_a are updated. Without θ_m, a
    step raises ValueError if the network calls another nn.Linear last.

    The release adapts in 15 epochs over all target data. Its learning rate decays, from 1e-2 for
    the bottleneck and from 1e-3 for the layers before it. Here, as in T3A's release, there is one
    step per batch, at one rate. The release adds 1e-5 to the mean prediction inside the logarithm;
    here nothing is added.
    """

    label = "SHOT-IM"
    diversity = 1.0
    make_optimizer = staticmethod(
        partial(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=1e-3)
    )

    def configure_model(self) -> None:
        if not self.linear and not hasattr(self.model, "main_classifier"):
            name = type(self.model).__name__
            raise ValueError(
                f"{self.label} keeps the last nn.Linear as it is, and {name} has none; use cotta"
            )
        super().configure_model()

    @property
    def linear(self) -> list[nn.Linear]:
        """Every nn.Linear of the network, in the order of registration."""
        return [child for child in self.model.modules() if isinstance(child, nn.Linear)]

    @property
    def classifier(self) -> nn.Module:
        """The part of the network that stays fixed."""
        theta_m: nn.Module | None = getattr(self.model, "main_classifier", None)
        return self.linear[-1] if theta_m is None else theta_m

    def adapted_parameters(self) -> list[nn.Parameter]:
        fixed = {*self.classifier.parameters()}
        return [parameter for parameter in parameters_of_z(self.model) if parameter not in fixed]

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        with calls_of(self.linear) as calls:
            outputs = as_outputs(self.model(x))
        if not hasattr(self.model, "main_classifier"):
            self.require_called_last([layer for _, layer in calls])
        return information_loss(outputs.main, self.diversity), outputs

    def require_called_last(self, called: Sequence[nn.Linear]) -> None:
        """Refuse a network that calls another nn.Linear after the fixed one."""
        if not called or called[-1] is self.classifier:
            return
        names = {module: name for name, module in self.model.named_modules()}
        raise ValueError(
            f"{self.label} keeps the last nn.Linear as it is, and {type(self.model).__name__} "
            f"registers {names[self.classifier]} last and calls {names[called[-1]]} last; register "
            "the classifier last, or use cotta"
        )
