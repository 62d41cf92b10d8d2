"""TTT (Sun et al. 2020): the shared stages of φ by rotation prediction, both heads fixed."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.augment.image import crop_and_flip
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.base import Method
from cascadetta_lib.models import Outputs, Parallel
from cascadetta_lib.pretrain import rotate_randomly


@METHODS.add("ttt")
class TTT(Method):
    """Each image is cropped and flipped at random, as in TTT's release, and turned by a random multiple of 90°; the
    rotation head says which. Its network is pre-trained with the profile's schedule, not with TTT's own (learning rate
    0.1, weight decay 5e-4, ×0.1 at 50 and 65 of 75 epochs), so that the networks differ by their objective alone.

    Statistics of the current batch as for every method here (TTT's release normalises by groups instead), plain SGD.
    The rotated images are not the images to predict, so there is no prediction before the update to record: that
    order costs a forward pass of its own.
    """

    objective, label, in_paper, colour = "ttt", "TTT", True, 4

    modalities = ("image",)  # its task is the rotation of images

    def adapted_parameters(self) -> list[nn.Parameter]:
        return cast(Parallel, self.model).shared_parameters

    def make_optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, self.learning_rate)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs | None]:
        before = self.predict(x) if self.order == "before" else None
        rotated = rotate_randomly(crop_and_flip(x, self.generator, black=self.value_range[0]), self.generator)
        logits = cast(Parallel, self.model).rotation_logits(rotated.x)
        return F.cross_entropy(logits, rotated.quarters), before
