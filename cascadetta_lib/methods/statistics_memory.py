"""Methods whose BatchNorm can remember earlier batches (models/remembered_statistics.py)."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cascadetta_lib.allowed import require_whole
from cascadetta_lib.methods.base import Method
from cascadetta_lib.methods.refusals import require_batch_norm
from cascadetta_lib.models import BatchNorm, Outputs
from cascadetta_lib.models.remembered_statistics import (
    RememberedStatistics,
    give_statistics,
    remember,
)


class WithStatistics(Method):
    """A method whose BatchNorm may normalise by other statistics than the batch's."""

    def give_statistics(self, make: Callable[[BatchNorm], RememberedStatistics]) -> None:
        """Let the model's BatchNorm normalise by other statistics; ValueError if one cannot."""
        require_batch_norm(self.label, self.model)
        try:
            give_statistics(self.model, make)
        except ValueError as error:
            raise ValueError(f"{self.label}: {error}") from None

    @torch.inference_mode(False)
    def step(self, x: Tensor) -> Outputs:
        outputs = super().step(x)
        remember(self)
        return outputs


class WithMemory(WithStatistics):
    """A method that takes the option `memory`.

    memory: BatchNorm blends the batch's statistics with those of about this many earlier examples;
        0: the batch's alone. None: the method's own number. The paper has no memory. The methods
        with a source prior blend in the source's statistics instead, which count as this many
        examples: N, 16 by default.

    Class attributes:

    memory_statistics: makes a layer's statistics.
    ends_with_batch: whether an update's last forward pass is of the unchanged batch. If `predict`
        is `before`, this pass is the last one, and BatchNorm remembers its statistics.
    """

    memory: int = 0
    memory_statistics: ClassVar[type[RememberedStatistics]] = RememberedStatistics
    ends_with_batch: ClassVar[bool] = True

    def __init__(self, model: nn.Module, *, memory: int | None = None, **options: Any) -> None:
        # Set before super().__init__, which configures the model.
        if memory is not None:
            require_whole(f"{self.label}: memory", memory)
            self.memory = memory
        super().__init__(model, **options)

    def configure_model(self) -> None:
        if self.memory:
            if self.prediction_time == "before" and not self.ends_with_batch:
                raise ValueError(
                    f"{self.label}: memory needs predict='after'; with 'before' the last forward "
                    "pass is not of the batch, and BatchNorm would remember other examples"
                )
            self.give_statistics(partial(self.memory_statistics, examples=self.memory))
        super().configure_model()
