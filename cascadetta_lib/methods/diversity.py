"""Methods that minimise an entropy of predictions."""

from typing import Any

from torch import nn

from cascadetta_lib.methods.memory import WithMemory


class WithDiversity(WithMemory):
    """A method that takes the option `diversity`.

    diversity: the weight of the entropy of the mean prediction, which the loss then raises
        (`losses.information_loss`); None is the method's own, 0 except for Cascade+. The paper has
        none.
    """

    diversity: float = 0.0

    def __init__(self, model: nn.Module, *, diversity: float | None = None, **options: Any) -> None:
        if diversity is not None:
            self.diversity = diversity
        super().__init__(model, **options)
