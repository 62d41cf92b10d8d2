"""TTT (Sun et al. 2020): update the shared stages of φ by the task of predicting rotations. The
last stages and the classifiers of both branches stay fixed.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.augment.image import crop_and_flip
from cascadetta_lib.losses import rotate_randomly
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.statistics_memory import WithMemory
from cascadetta_lib.methods.value_range import ValueRange
from cascadetta_lib.models import Outputs, Parallel


@METHODS.add("ttt")
class TTT(WithMemory):
    """Crop and flip each image at random, turn it by a random multiple of 90°, and learn to predict
    the rotation by plain SGD.

    TTT's release differs in three ways. Its networks have GroupNorm instead of batch statistics. It
    updates the rotation head, too. It takes one step per image, on 32 copies of that image.

    Raises ValueError unless the model is a models.Parallel.

    value_range: the values of black and white in images x. None: (−1, 1). Crops are padded with
        black. If the first batch has other values, a warning says so.
    """

    objective = "ttt"
    label = "TTT"
    modalities = ("image",)
    make_optimizer = torch.optim.SGD
    ends_with_batch = False
    model: Parallel

    def __init__(
        self, model: nn.Module, *, value_range: tuple[float, float] | None = None, **options: Any
    ) -> None:
        self.value_range = ValueRange(self.label, value_range)
        super().__init__(model, **options)

    def configure_model(self) -> None:
        if not isinstance(self.model, Parallel):
            raise ValueError(
                f"{self.label} needs models.Parallel, which build_network(..., parallel=True) "
                "makes; without it use tent"
            )
        super().configure_model()

    def adapted_parameters(self) -> list[nn.Parameter]:
        return self.model.shared_parameters

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs | None]:
        before = self.predict(x) if self.prediction_time == "before" else None
        self.value_range.check(x)
        cropped = crop_and_flip(x, self.generator, black=self.value_range.ends[0])
        rotated, quarters = rotate_randomly(cropped, self.generator)
        return F.cross_entropy(self.model.rotation_logits(rotated), quarters), before
