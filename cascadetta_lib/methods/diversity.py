"""Methods whose loss can also keep the predictions diverse."""

from typing import Any

from torch import nn

from cascadetta_lib.methods.memory import WithMemory


class WithDiversity(WithMemory):
    """A method that takes the option `diversity`.

    diversity: the weight with which the loss also raises the entropy of the mean prediction
        (`losses.information_loss`). None: the method's own, which is 0 except for Cascade+. The
        paper has none.
    """

    diversity: float = 0.0

    def __init__(self, model: nn.Module, *, diversity: float | None = None, **options: Any) -> None:
        if diversity is not None:
            self.diversity = diversity
        super().__init__(model, **options)
