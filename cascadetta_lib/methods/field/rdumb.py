"""RDumb (Press et al. 2023): ETA, which starts from the source again and again."""

from torch import Tensor

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.field.eata import ETA
from cascadetta_lib.models import Outputs

UPDATES = 1000
"""Between one reset and the next, in the paper and its release."""


@METHODS.add("rdumb")
class RDumb(ETA):
    """ETA, reset to the source after every 1,000 updates.

    E₀ is 0.4·ln C, as in its release since August 2023 (before, ln(1000)/2 − 1). The largest cosine
    is ETA's for CIFAR-10, 0.4; the release has that for ImageNet, 0.05.
    """

    label = "RDumb"

    def update(self, x: Tensor) -> Outputs | None:
        if self.updates == UPDATES:
            self.reset()
        self.updates += 1
        return super().update(x)

    def reset(self) -> None:
        super().reset()
        self.updates = 0
