"""ERM: the source model as it is, with the source's running statistics."""

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.base import Method


@METHODS.add("erm")
class ERM(Method):
    """No update and no batch statistics: plain evaluation."""

    objective, label, in_paper, colour, adapts = "erm", "ERM", True, 7, False

    def configure_model(self) -> None:
        self.model.eval()
        self.model.requires_grad_(False)
