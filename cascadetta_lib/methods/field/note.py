"""NOTE (Gong et al. 2022), for correlated labels: correct BatchNorm's moving statistics
where an example's own are far from them, and learn from a memory that is balanced by predicted
classes.
"""

import math
from collections import Counter
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from cascadetta_lib.losses import entropy
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.bank import WithBank
from cascadetta_lib.methods.statistics_memory import WithStatistics
from cascadetta_lib.models import Outputs, as_outputs
from cascadetta_lib.models.batch_norm import BatchNorm
from cascadetta_lib.models.remembered_statistics import MovingStatistics, remember, statistics_of

MEMORY = 64
K = 4.0
"""An example's own statistics count only beyond this many standard errors."""
MOMENTUM = 0.01
"""The share of the memory's statistics in the moving statistics of BatchNorm."""


class InstanceAwareStatistics(MovingStatistics):
    """IABN: normalise each example by the moving mean μ and variance σ². Correct μ and σ² if the
    example's own mean m and variance s² are far from them.

    For an example of n pixels the corrected statistics are

        mean      μ + ψ(m − μ; k·√((σ² + ε)/n))
        variance  max(σ² + ψ(s² − σ²; k·(σ² + ε)·√(2/(n − 1))), 0)

    with ψ(u; λ) = sign(u)·max(|u| − λ, 0) and BatchNorm's ε. If an example has one value per
    channel, nothing is corrected. In training mode the batch's statistics take the place of μ and
    σ², and then update the moving statistics. Variances divide by n − 1, as in the release.
    """

    in_evaluation = True
    k: ClassVar[float] = K

    def normalise(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor:
        exact = x.to(self.mean.dtype)
        shape = (-1,) + (1,) * (x.ndim - 2)
        pixels = list(range(2, x.ndim))
        mean, variance = self.mean, self.variance
        if self.norm.training:
            variance, mean = torch.var_mean(exact, [0, *pixels])
            moved = self.blend(mean.detach(), variance.detach(), len(x))
            self.seen = moved
        mean = mean.view(shape)
        variance = variance.view(shape)
        count = math.prod(x.shape[2:])
        if count > 1:
            own_variance, own_mean = torch.var_mean(exact, pixels, keepdim=True)
            error = ((variance + eps) / count).sqrt()
            error_of_variance = (variance + eps) * math.sqrt(2 / (count - 1))
            mean = mean + beyond(own_mean - mean, self.k * error)
            apart = beyond(own_variance - variance, self.k * error_of_variance)
            variance = (variance + apart).clamp(min=0)
        normalised = (exact - mean) * torch.rsqrt(variance + eps)
        if weight is not None:
            normalised = normalised * weight.view(shape)
        if bias is not None:
            normalised = normalised + bias.view(shape)
        return normalised.to(x.dtype)


def beyond(values: Tensor, limit: Tensor) -> Tensor:
    """Return ψ(u; λ): by how much each of the values u lies outside [−λ, λ], with its sign."""
    return values - torch.minimum(torch.maximum(values, -limit), limit)


@METHODS.add("note")
class NOTE(WithBank, WithStatistics):
    """Minimise the mean entropy of the examples in a memory, by one step of Adam after every 64
    examples of the stream.

    The scales and shifts of all normalisation layers are updated. The release updates those of
    BatchNorm, the only normalisation in its networks. Predictions use BatchNorm's moving
    statistics, so each is independent of the other examples of its batch. `predict` says whether
    predictions are made before or after the updates in the batch. The settings are those of the
    release for CIFAR-10-C, except the learning rate, which is 1e-4 there.

    Differences from the release:

    - An example is stored under its predicted class. Here all examples of a batch are predicted
      before the first update in the batch. The release predicts each example when its turn comes,
      so after the updates that precede it in the batch. The predicted classes are the same if 64 is
      a multiple of the batch size, because then updates come only at the end of a batch.
    - The release divides the loss by the number of classes, which does not change Adam's steps.
    - The authors pre-train networks with IABN. Here IABN enters the network at test time.
    """

    label = "NOTE"
    steps_alike = False
    update_every: ClassVar[int] = 64
    """Examples from one update to the next."""
    make_optimizer = torch.optim.Adam
    bank_size = MEMORY
    make_statistics: ClassVar = partial(InstanceAwareStatistics, momentum=MOMENTUM)
    kept: list[int]

    def configure_model(self) -> None:
        self.give_statistics(self.make_statistics)
        super().configure_model()
        self.norms: list[BatchNorm] = [statistics.norm for statistics in statistics_of(self)]
        self.use_batch(False)

    def adapted_parameters(self) -> list[nn.Parameter]:
        return self.scales_and_shifts(self.model)

    def use_batch(self, training: bool) -> None:
        """Let BatchNorm use the batch's statistics if `training`, and otherwise the moving ones."""
        for norm in self.norms:
            norm.training = training

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        outputs = as_outputs(self.model(x))
        return entropy(outputs.main).mean(), outputs

    def update(self, x: Tensor) -> Outputs:
        outputs = self.predict(x)
        self.require_finite(outputs.main)
        for example, label in zip(x, outputs.main.argmax(1).tolist(), strict=True):
            self.met[label] += 1
            place = place_for(label, self.kept, self.met, self.generator, self.bank_size)
            self.keep(example, label, place)
            self.arrived += 1
            if self.arrived % self.update_every == 0:
                self.learn()
        return outputs

    def learn(self) -> None:
        """Take a step on the memory, then update the moving statistics by the memory's."""
        self.use_batch(True)
        super().update(self.examples)
        self.use_batch(False)
        remember(self)

    def reset(self) -> None:
        # An update that was interrupted may have left BatchNorm in training mode.
        self.use_batch(False)
        for statistics in statistics_of(self):
            statistics.seen = None
        self.met: Counter[int] = Counter()
        super().reset()


def place_for(
    label: int, kept: list[int], met: Counter[int], generator: torch.Generator, most: int = MEMORY
) -> int | None:
    """Choose the place of a new example in a memory, by prediction-balanced reservoir sampling.

    Return len(kept) to add the example, a smaller place to replace the example there, or None to
    leave the new example out.

    A memory that is not full takes every example. In a full memory, a new example of a largest
    class replaces a random example of its class with probability a/b, and is otherwise left out. a
    is the number of the class's examples in the memory, and b the number met so far. A new example
    of any other class replaces a random example of a largest class, which is drawn at random.

    label: the predicted class of the new example.
    kept: the classes of the examples in the memory.
    met: for each class, how many of its examples were met so far, the new example included.
    most: the largest number of examples in the memory.
    """
    if len(kept) < most:
        return len(kept)
    counts = Counter(kept)
    highest = max(counts.values())
    largest = sorted(each for each, count in counts.items() if count == highest)
    if label in largest:
        if torch.rand((), generator=generator).item() > counts[label] / met[label]:
            return None
        replaced = label
    else:
        replaced = largest[_draw(len(largest), generator)]
    places = [place for place, each in enumerate(kept) if each == replaced]
    return places[_draw(len(places), generator)]


def _draw(count: int, generator: torch.Generator) -> int:
    return int(torch.randint(count, (), generator=generator).item())
