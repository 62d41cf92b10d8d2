"""MEMO (Zhang et al. 2022): for each example alone, minimise the entropy of the mean prediction
over augmented copies.
"""

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from cascadetta_lib.augment.image import augmix_copies
from cascadetta_lib.losses import entropy_of_mean
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.augmented_copies import WithCopies
from cascadetta_lib.methods.statistics_memory import WithStatistics
from cascadetta_lib.models import Outputs, as_outputs, batch_norms, parameters_of_z
from cascadetta_lib.models.remembered_statistics import PriorStatistics

PRIOR = 16
"""The number of examples that the source's statistics count as, in the release for ImageNet."""


class CountedAsOne(PriorStatistics):
    """Blend the mean and the variance alike, as (N·source + batch)/(N + 1), whatever the batch
    size.

    As in the release, no gradient flows through the statistics.
    """

    def blend(self, mean: Tensor, variance: Tensor, count: int) -> tuple[Tensor, Tensor]:
        return super().blend(mean.detach(), variance.detach(), 1)


@METHODS.add("memo")
class MEMO(WithCopies, WithStatistics):
    """For each example take one step on H(p̄), predict the example, and go back to the source. p̄
    is the mean prediction over 32 augmented copies of the example.

    All parameters of φ and θ_m are updated by plain SGD. The release's learning rate is 5e-3 for
    CIFAR-10 and 2.5e-4 for ImageNet. Copies of images are those of the release: crop, flip and
    AugMix at severity 1.

    BatchNorm blends the source's statistics (weight 16/17) with those of the copies, or of the
    example that is predicted (weight 1/17), as in the release for ImageNet. The release for
    CIFAR-10 has GroupNorm.

    No example affects the next, provided that a forward pass changes no state of the network. So A
    and F are the same as for a network that does not adapt. A step takes as long as 32 forward and
    backward passes of the batch. Raises ValueError if `copies` is None.
    """

    label = "MEMO"
    modalities = ("image", "speech")
    make_optimizer = torch.optim.SGD
    image_copies = staticmethod(augmix_copies)
    make_statistics: ClassVar = partial(CountedAsOne, examples=PRIOR)
    copy_count: ClassVar[int] = 32
    """As in the release for CIFAR-10; 64 for ImageNet."""

    def configure_model(self) -> None:
        if self.copies is None:
            raise ValueError(
                f"{self.label} learns from augmented copies; pass a function as copies, or use tent"
            )
        if any(batch_norms(self.model)):
            self.give_statistics(self.make_statistics)
        super().configure_model()
        self.pairs = [(value, value.detach().clone()) for value in self.adapted_parameters()]

    def adapted_parameters(self) -> list[nn.Parameter]:
        return parameters_of_z(self.model)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        return joined([as_outputs(self.model(one)) for one in x.split(1)])

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs | None]:
        before = self.predict(x) if self.prediction_time == "before" else None
        copies = self.copies_of(x)
        assert copies is not None
        copied = torch.cat(list(copies(x, self.copy_count, self.generator)))
        return entropy_of_mean(as_outputs(self.model(copied)).main), before

    def adapt_and_predict(self, x: Tensor) -> Outputs:
        found = []
        for one in x.split(1):
            found.append(super().adapt_and_predict(one))
            self.forget()
        return joined(found)

    @torch.no_grad()
    def forget(self) -> None:
        """Restore the source's weights, and empty the optimiser's state."""
        assert self.optimizer is not None
        for value, source in self.pairs:
            value.copy_(source)
        self.optimizer.state.clear()


def joined(parts: list[Outputs]) -> Outputs:
    """Concatenate the outputs of several batches."""
    auxiliary = [part.auxiliary for part in parts if part.auxiliary is not None]
    return Outputs(
        torch.cat([part.main for part in parts]), torch.cat(auxiliary) if auxiliary else None
    )
