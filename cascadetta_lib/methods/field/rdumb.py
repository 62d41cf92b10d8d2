"""RDumb (Press et al. 2023): ETA, which starts from the source again and again."""

from torch import Tensor

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.field.eata import ETA
from cascadetta_lib.models import Outputs

UPDATES = 1000
"""Between one reset and the next, in the paper and its release."""


@METHODS.add("rdumb")
class RDumb(ETA):
    """ETA with the settings of methods/eata.py, reset to the source after every 1,000 updates. The
    release has those of ImageNet: E₀ = ln(1000)/2 − 1, which is 0.36 of ln C, and cosines below
    0.05."""

    label = "RDumb"

    def update(self, x: Tensor) -> Outputs | None:
        if self.updates == UPDATES:
            self.reset()
        self.updates += 1
        return super().update(x)

    def reset(self) -> None:
        super().reset()
        self.updates = 0
