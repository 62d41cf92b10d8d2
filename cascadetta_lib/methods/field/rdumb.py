"""RDumb (Press et al. 2023): ETA, reset to the source at regular intervals."""

from typing import ClassVar

from torch import Tensor

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.field.eata import ETA
from cascadetta_lib.models import Outputs


@METHODS.add("rdumb")
class RDumb(ETA):
    """ETA, reset to the source after every 1,000 updates.

    E₀ is 0.4·ln C, as in RDumb's release since August 2023 (before that, ln(1000)/2 − 1). The limit
    of the cosine is 0.4, ETA's for CIFAR-10. RDumb's release has 0.05, ETA's for ImageNet.
    """

    label = "RDumb"
    reset_every: ClassVar[int] = 1000
    """The number of updates from one reset to the next, as in RDumb's paper and release."""

    def update(self, x: Tensor) -> Outputs | None:
        if self.updates == self.reset_every:
            self.reset()
        self.updates += 1
        return super().update(x)

    def reset(self) -> None:
        super().reset()
        self.updates = 0
