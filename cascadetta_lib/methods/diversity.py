"""Methods whose loss can also keep the predictions diverse."""

from typing import Any

from torch import nn

from cascadetta_lib.allowed import require_number
from cascadetta_lib.methods.statistics_memory import WithMemory


class WithDiversity(WithMemory):
    """A method that takes the option `diversity`.

    diversity: how much of the mean prediction's entropy is subtracted from the loss
        (`losses.information_loss`). None: the method's own, which is 0 except for Cascade+ and
        SHOT-IM. The paper has no such term.

    A method of this kind takes the option `memory` too.
    """

    diversity: float = 0.0

    def __init__(self, model: nn.Module, *, diversity: float | None = None, **options: Any) -> None:
        # Set before super().__init__, which configures the model.
        if diversity is not None:
            require_number(f"{self.label}: diversity", diversity)
            self.diversity = diversity
        super().__init__(model, **options)
