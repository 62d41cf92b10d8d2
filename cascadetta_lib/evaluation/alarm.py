"""An alarm for collapse. It needs no labels and works with any method:

    alarm = Alarm()
    for x in batches:
        logits = method(x)
        if rings(alarm(logits)):
            method.reset()
            alarm.reset()

Agreement with the source (source_agreement.py) is a second signal, which costs one more forward
pass per batch. The evaluator only records this signal: it causes neither a reset nor a stop.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from cascadetta_lib.losses import probabilities

WINDOW = 256
"""Each signal is a mean over about this many of the latest examples."""
LEAST = 0.5
"""The alarm rings below this level. It was set before any stream was looked at."""
LEAST_SOURCE_AGREEMENT = 0.5
"""The second signal, the moving mean of agreement with the source, rings below this level. It was
set before any stream was looked at.

The reason: a method that works changes few of the source's predictions. If the source is right on
a share r of the examples and a method contradicts it on a share c, the method is wrong on at least
r + c − 1 of them. If the source is wrong on most examples, the alarm may be false.
"""
OnAlarm = Literal["reset", "stop"]
"""What to do when the alarm rings: reset the method to the source, or stop learning."""


class Alarm:
    """Measure how diverse the predictions of a method are: the level is H(m) / ln C, in [0, 1].

    H is the entropy, and m is the moving mean of the predictions softmax(z), of C classes, over
    about the last 256 examples. At first m is uniform, which is level 1. The level is near 0 if the
    method has collapsed into one class. It is near 0, too, if the method is right and all examples
    are of one class.

    The level stays on the device, so that a stream need not wait for it.
    """

    def __init__(self) -> None:
        self.mean: Tensor | None = None

    def reset(self) -> None:
        """Begin at level 1 again."""
        self.mean = None

    @torch.no_grad()
    def __call__(self, z: Tensor) -> Tensor:
        """Take in the logits z (B, C) of a batch. Return the level after it, a scalar."""
        p = probabilities(z)
        classes = p.shape[1]
        if self.mean is None:
            self.mean = torch.full_like(p[0], 1 / classes)
        self.mean = self.mean.lerp(p.mean(0), min(1.0, len(p) / WINDOW))
        return torch.special.entr(self.mean).sum() / math.log(classes)


def rings(level: Any) -> Any:
    """Return whether the alarm rings at a level. For a tensor or a column of levels, return one
    answer per level.
    """
    return level < LEAST


def moving_agreement(shares: Sequence[float], counts: Sequence[int]) -> list[float]:
    """Return the moving mean of the agreement with the source after each batch, over about the last
    256 examples.

    The mean begins at 1, the agreement of the source with itself.

    shares: the agreement on each batch, in [0, 1]. counts: the number of examples in each batch.
    """
    mean = 1.0
    means = []
    for share, count in zip(shares, counts, strict=True):
        mean += min(1.0, count / WINDOW) * (share - mean)
        means.append(mean)
    return means


def classes_predicted(z: Tensor) -> Tensor:
    """Return how many different classes are predicted in a batch with logits z (B, C), as a scalar
    tensor.
    """
    return (z.argmax(1)[:, None] == torch.arange(z.shape[1], device=z.device)).any(0).sum()
