"""The base class of methods whose loss can also keep the predictions diverse."""

from typing import Any

from torch import nn

from cascadetta_lib.allowed import require_number
from cascadetta_lib.methods.statistics_memory import WithMemory


class WithDiversity(WithMemory):
    """A method that takes the options `diversity` and `memory`.

    diversity: the weight, from 0 on, with which the entropy of the mean prediction is subtracted
        from the loss (`losses.information_loss`). None: the method's own weight, which is 1 for
        Cascade+ and SHOT-IM, and 0 for all others. The paper has no such term.

    A subclass that defines its own loss must itself subtract `self.diversity * entropy_of_mean(z)`
    from it, where z are the logits whose entropy it minimises (θ_a's logits in the cascade).
    """

    diversity: float = 0.0

    def __init__(self, model: nn.Module, *, diversity: float | None = None, **options: Any) -> None:
        # Set before super().__init__, which configures the model.
        if diversity is not None:
            require_number(f"{self.label}: diversity", diversity)
            self.diversity = diversity
        super().__init__(model, **options)
