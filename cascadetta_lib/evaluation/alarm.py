"""An alarm for methods that collapse. It needs no labels, and any method can carry it:

alarm = Alarm()
for x in batches:
    logits = method(x)
    if rings(alarm(logits)):
        method.reset()
        alarm.reset()

Agreement with the source (source_agreement.py) is a second signal, at one more forward pass per
batch. It is only recorded: along a stream it triggers neither a reset nor a stop.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from cascadetta_lib.losses import probabilities

WINDOW = 256
"""Each signal is a mean over about this many of the last examples."""
LEAST = 0.5
"""The alarm rings below this level. It was set before any stream was looked at."""
LEAST_SOURCE_AGREEMENT = 0.5
"""The second signal, the moving mean of agreement with the source, rings below this level. It was
set before any stream was looked at. The reason: a method that works changes few of the source's
predictions. One that contradicts the source on most examples is wrong wherever the source is right
on most. Where the source is not, the alarm may be false.
"""
OnAlarm = Literal["reset", "stop"]
"""What is done when it rings: go back to the source, or learn nothing more."""


class Alarm:
    """Measures how diverse the predictions of a method are: H(m) / ln C in [0, 1].

    m is the moving mean of the predictions softmax(z), of C classes, over about the last 256
    examples, and H its entropy. m begins as uniform, at level 1. A method that has collapsed into
    one class is near 0; so is one that is right where all examples are of one class.

    The level stays on the device, so that a stream need not wait for it.
    """

    def __init__(self) -> None:
        self.mean: Tensor | None = None

    def reset(self) -> None:
        """Begin at level 1 again."""
        self.mean = None

    @torch.no_grad()
    def __call__(self, z: Tensor) -> Tensor:
        """Take in the logits (B, C) of a batch; return the level, a scalar."""
        p = probabilities(z)
        classes = p.shape[1]
        if self.mean is None:
            self.mean = torch.full_like(p[0], 1 / classes)
        self.mean = self.mean.lerp(p.mean(0), min(1.0, len(p) / WINDOW))
        return torch.special.entr(self.mean).sum() / math.log(classes)


def rings(level: Any) -> Any:
    """Return whether the alarm rings at a level, or at each of a tensor or a column of them."""
    return level < LEAST


def moving_agreement(shares: Sequence[float], counts: Sequence[int]) -> list[float]:
    """Return the moving mean of the agreement with the source after each batch, over about the last
    256 examples. It begins at 1, the agreement of the source with itself.

    shares: of the examples of each batch, in [0, 1]. counts: how many examples these are.
    """
    mean = 1.0
    means = []
    for share, count in zip(shares, counts, strict=True):
        mean += min(1.0, count / WINDOW) * (share - mean)
        means.append(mean)
    return means


def classes_predicted(z: Tensor) -> Tensor:
    """Return the number of different classes predicted in a batch with logits z (B, C), a
    scalar.
    """
    return (z.argmax(1)[:, None] == torch.arange(z.shape[1], device=z.device)).any(0).sum()
