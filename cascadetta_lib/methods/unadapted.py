"""The two methods that never update: ERM, and AdaBN (Li et al. 2018)."""

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.base import Method


@METHODS.add("erm")
class ERM(Method):
    """Plain evaluation by the source's running statistics."""

    objective, label, adapts = "erm", "ERM", False

    def configure_model(self) -> None:
        self.model.eval()
        self.model.requires_grad_(False)


@METHODS.add("adabn")
class AdaBN(Method):
    """The statistics of the current batch in every BatchNorm, which is what Tent is at learning
    rate 0.
    """

    label, adapts = "AdaBN", False

    def configure_model(self) -> None:
        super().configure_model()
        self.require_batch_norm(self.model)
