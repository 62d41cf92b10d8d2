"""Base classes of methods whose BatchNorm can use more than the batch's statistics, such as those
of earlier batches (models/remembered_statistics.py).
"""

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
    statistics_of,
)


class WithStatistics(Method):
    """A method that can replace the statistics by which its BatchNorm layers normalise."""

    def give_statistics(self, make: Callable[[BatchNorm], RememberedStatistics]) -> None:
        """Let every BatchNorm layer of the model normalise by the statistics that `make` returns
        for it.

        Raises ValueError if there is no such layer, or if one cannot use other statistics.
        """
        require_batch_norm(self.label, self.model)
        try:
            give_statistics(self.model, make)
        except ValueError as error:
            raise ValueError(f"{self.label}: {error}") from None

    @torch.inference_mode(False)
    def step(self, x: Tensor) -> Outputs:
        """Adapt to a batch and return its prediction, as Method.step does. If a BatchNorm of the
        method blends in other statistics, also raise ValueError for a prediction that is not
        finite, and remember the statistics of the last forward pass.
        """
        outputs = super().step(x)
        if any(statistics_of(self)):
            self.checks.require_finite(outputs.main)
        remember(self)
        return outputs


class WithMemory(WithStatistics):
    """A method that takes the option `memory`.

    memory: BatchNorm blends the batch's statistics with the statistics of about this many earlier
        examples. 0: the batch's statistics alone. None: the method's own number. The paper has no
        memory. In the methods with a source prior, BatchNorm blends in the source's statistics
        instead, and these count as N = `memory` examples, 16 by default.

    Class attributes:

    memory_statistics: the class of a layer's statistics.
    ends_with_batch: whether the last forward pass of an update is over the batch itself, at the
        weights from before the update. If so, `predict="before"` returns the prediction of this
        pass. A method sets it to False if another pass comes last, such as a pass over augmented
        copies, or if another network predicts. Then `memory` with `predict="before"` raises
        ValueError, because BatchNorm would remember the statistics of a pass that does not predict.
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
                    f"{self.label}: memory needs predict='after'; with 'before' the prediction "
                    "does not come from the last forward pass of the update, whose statistics "
                    "BatchNorm would remember"
                )
            self.give_statistics(partial(self.memory_statistics, examples=self.memory))
        super().configure_model()
