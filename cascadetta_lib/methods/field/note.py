"""NOTE (Gong et al. 2022): normalisation by an image's own statistics where they differ, and a
memory balanced by predicted classes, against labels that come in runs.
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
"""By how many standard errors an image's statistics must differ before they count."""
MOMENTUM = 0.01
"""The share of the memory in the moving statistics of BatchNorm."""


class InstanceAwareStatistics(MovingStatistics):
    """IABN: normalise each example by the moving mean μ and variance σ², corrected if the example's
    own statistics are far from them.

    With n pixels, ψ(u; λ) = sign(u)·max(|u| − λ, 0), and m and s² the example's own statistics,
    the corrected ones are μ + ψ(m − μ; k·√(σ²/n)) and max(σ² + ψ(s² − σ²; k·σ²·√(2/(n − 1))), 0).
    If an example has one value per channel, nothing is corrected. In training mode the batch's
    statistics take the place of the moving ones, which are updated by the batch. Variances divide
    by n − 1, as in the release.
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
    """Return ψ(u; λ): by how much u lies outside [−λ, λ]."""
    return values - torch.minimum(torch.maximum(values, -limit), limit)


@METHODS.add("note")
class NOTE(WithBank, WithStatistics):
    """Minimise the mean entropy of the examples in a memory, by one step of Adam after every 64
    examples of the stream. Scales and shifts of all normalisation layers are updated; the release
    updates those of BatchNorm, the only ones of its networks.

    A prediction does not depend on its batch, because it uses the moving statistics, `before` or
    `after` the updates in the batch. The settings are those of the release for CIFAR-10-C, whose
    learning rate is 1e-4.

    Three things differ from the release. Here the memory files an example under the class that was
    predicted for it in its batch, there under the class predicted for it alone; the two are the
    same if 64 is a multiple of the batch size. The release divides the loss by the number of
    classes, which does not change Adam's steps. Its authors pre-train networks with IABN; here
    IABN enters the network at test time.
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
        """Let BatchNorm use the statistics of the batch, or the moving ones."""
        for norm in self.norms:
            norm.training = training

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        outputs = as_outputs(self.model(x))
        return entropy(outputs.main).mean(), outputs

    def update(self, x: Tensor) -> Outputs:
        outputs = self.predict(x)
        for example, label in zip(x, outputs.main.argmax(1).tolist(), strict=True):
            self.met[label] += 1
            place = place_for(label, self.kept, self.met, self.generator, self.bank_size)
            self.keep(example, label, place)
            self.arrived += 1
            if self.arrived % self.update_every == 0:
                self.learn()
        return outputs

    def learn(self) -> None:
        """Take a step on the memory, which the moving statistics then take in."""
        self.use_batch(True)
        super().update(self.examples)
        self.use_batch(False)
        remember(self)

    def reset(self) -> None:
        # An update that was interrupted may have left BatchNorm in training.
        self.use_batch(False)
        for statistics in statistics_of(self):
            statistics.seen = None
        self.met: Counter[int] = Counter()
        super().reset()


def place_for(
    label: int, kept: list[int], met: Counter[int], generator: torch.Generator, most: int = MEMORY
) -> int | None:
    """Return where a memory puts an example: its place, len(kept) to add it, or None to leave it
    out. The rule is prediction-balanced reservoir sampling.

    In a full memory the example replaces a random example of a largest class, drawn at random. If
    the example's own class is among the largest, it replaces a random example of that class with
    the probability of reservoir sampling: the number of the class's examples in the memory, divided
    by the number of the class's examples met so far.

    kept: the classes of the examples in the memory.
    met: for each class, how many of its examples were met so far, this one included.
    most: how many examples the memory holds.
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
