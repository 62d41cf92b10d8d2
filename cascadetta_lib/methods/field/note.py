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
from cascadetta_lib.methods.memory import WithStatistics
from cascadetta_lib.models import Outputs, as_outputs
from cascadetta_lib.models.batch_norm import BatchNorm
from cascadetta_lib.models.remembered_statistics import MovingStatistics, remember, statistics_of

MEMORY = 64
K = 4.0
"""By how many standard errors an image's statistics must differ before they count."""
MOMENTUM = 0.01
"""The share of the memory in the moving statistics of BatchNorm."""


class InstanceAwareStatistics(MovingStatistics):
    """IABN: each example is normalised by the moving mean μ and variance σ², which are corrected
    where its own differ.

    With n pixels, ψ(u; λ) = sign(u)·max(|u| − λ, 0), and m and s² the example's own statistics:
    μ + ψ(m − μ; k·√(σ²/n)) and max(σ² + ψ(s² − σ²; k·σ²·√(2/(n − 1))), 0). Where an example has
    one value per channel there is nothing to correct. In training mode the batch's statistics take
    the place of the moving ones, which take the batch in. Variances are those by n − 1, as in the
    release.
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
    """Return ψ(u; λ), by how much u lies beyond ±λ."""
    return values - torch.minimum(torch.maximum(values, -limit), limit)


@METHODS.add("note")
class NOTE(WithBank, WithStatistics):
    """The mean entropy of the examples in the memory, in one step of Adam after every 64 examples
    of the stream. Scale and shift of BatchNorm learn. A prediction needs no batch: it is made by
    the moving statistics, `before` or `after` the updates that its batch brings.

    The settings are those of the release for CIFAR-10-C, whose rate is 1e-4. An example's class in
    the memory is the one predicted with its batch, in the release by itself, which is the same
    wherever 64 is a multiple of the batch size. The release's loss is this one divided by the
    number of classes, on which Adam's steps do not depend. Its authors pre-train networks with
    IABN; here IABN comes into the network at test time.
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
            self.keep(example, label, place_for(label, self.kept, self.met, self.generator))
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
    label: int, kept: list[int], met: Counter[int], generator: torch.Generator
) -> int | None:
    """Return the place that an example of a class takes in the memory of classes `kept`, len(kept)
    where it is added, None where it is not taken: prediction-balanced reservoir sampling.

    In a full memory it replaces a random one of a random largest class. Where its own is among the
    largest, it replaces a random one of its own with the probability that reservoir sampling has:
    the class's number in the memory over how many examples of it were met, `met`, this one with
    them.
    """
    if len(kept) < MEMORY:
        return len(kept)
    counts = Counter(kept)
    most = max(counts.values())
    largest = sorted(each for each, count in counts.items() if count == most)
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
