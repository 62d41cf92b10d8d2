"""CoTTA (Wang et al. 2022): a student taught by its own moving average on augmented copies, with random restoring."""

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.base import Method
from cascadetta_lib.models import Outputs, as_outputs
from cascadetta_lib.pretrain import adam

TEACHER_MOMENTUM = 0.999
CONFIDENCE = 0.92  # below this mean confidence of the anchor the target is averaged over augmented copies
COPIES = 32
RESTORE_PROBABILITY = 0.01


@METHODS.add("cotta")
class CoTTA(Method):
    """The settings are those of CoTTA's release for CIFAR-10; all parameters of φ and θ_m are updated by Adam.

    The prediction is the teacher's: `after` the update on x itself, `before` it the target that the student was
    taught (averaged over the augmented copies where the anchor is unsure), which is what the release returns.
    """

    label, in_paper, colour = "CoTTA", True, 2

    def configure_model(self) -> None:
        super().configure_model()
        self.teacher = copy.deepcopy(self.model).requires_grad_(False)
        self.anchor = copy.deepcopy(self.teacher)
        # Pairs of (student, teacher, source) tensors; θ_a takes no part in z and stays out.
        self.triples = [
            (ours, dict(self.teacher.named_parameters())[name], dict(self.anchor.named_parameters())[name])
            for name, ours in self.model.named_parameters()
            if ours.requires_grad
        ]

    def adapted_parameters(self) -> list[nn.Parameter]:
        theta_a = getattr(self.model, "auxiliary_classifier", None)
        apart = set() if theta_a is None else set(theta_a.parameters())
        return [parameter for parameter in self.model.parameters() if parameter not in apart]

    def make_optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return adam(parameters, self.learning_rate)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        return as_outputs(self.teacher(x))

    @torch.no_grad()
    def target(self, x: Tensor) -> Outputs:
        """The teacher's logits: on x where the anchor is sure or there are no augmented copies, else their mean over
        these."""
        on_x = as_outputs(self.teacher(x))
        if self.copies is None or as_outputs(self.anchor(x)).main.softmax(1).amax(1).mean() >= CONFIDENCE:
            return on_x
        # Each copy is a forward pass of its own, normalised by its own batch statistics.
        copies = [as_outputs(self.teacher(copy)).main for copy in self.copies(x, COPIES, self.generator)]
        return Outputs(torch.stack(copies).mean(0), on_x.auxiliary)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        target = self.target(x)
        return F.cross_entropy(as_outputs(self.model(x)).main, target.main.softmax(1)), target

    def update(self, x: Tensor) -> Outputs | None:
        outputs = super().update(x)
        with torch.no_grad():
            for student, teacher, source in self.triples:
                teacher.lerp_(student, 1 - TEACHER_MOMENTUM)
                places = bernoulli_places(student.numel(), RESTORE_PROBABILITY, self.generator).to(student.device)
                restored = torch.unravel_index(places, student.shape)
                student[restored] = source[restored]
        return outputs


def bernoulli_places(count: int, probability: float, generator: torch.Generator) -> Tensor:
    """The places among `count` that are chosen, each with `probability` on its own, in ascending order (int64).

    The gaps between them are geometric, so only as many numbers are drawn as places are chosen: a seventh of the time
    of a draw for each of the text network's five million weights.
    """
    most = int(count * probability + 6 * math.sqrt(count * probability) + 10)
    places = torch.empty(0, dtype=torch.int64)
    while len(places) == 0 or places[-1] < count:
        gaps = torch.empty(most, dtype=torch.int64).geometric_(probability, generator=generator)
        places = torch.cat([places, gaps.cumsum(0) + (places[-1] if len(places) else -1)])
    return places[places < count]
