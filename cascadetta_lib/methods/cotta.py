"""CoTTA (Wang et al. 2022): a student learns from its own moving average, the teacher, on augmented
copies, and random weights are restored to the source's.
"""

import copy
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.augment import generator_for
from cascadetta_lib.losses import at_least_float32, probabilities
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.augmented_copies import WithCopies
from cascadetta_lib.methods.statistics_memory import WithMemory
from cascadetta_lib.methods.updates import finite_logits
from cascadetta_lib.models import Outputs, as_outputs, parameters_of_z
from cascadetta_lib.models.snapshot import copy_of

TEACHER_MOMENTUM = 0.999


@METHODS.add("cotta")
class CoTTA(WithCopies, WithMemory):
    """Update all parameters except those of θ_a, by Adam. The settings are those of CoTTA's release
    for CIFAR-10.

    The student learns a target. If the anchor, which is the source model, is sure of the batch, the
    target is the teacher's prediction of x. Otherwise it is the mean of the teacher's logits over
    augmented copies. Without copies it is always the teacher's prediction of x.

    The prediction is the teacher's. With `predict="after"` it is the updated teacher's prediction
    of x. With `predict="before"` it is the target, as in the release.
    """

    label = "CoTTA"
    ends_with_batch = False
    steps_alike = False
    make_optimizer = torch.optim.Adam
    copy_count: ClassVar[int] = 32
    confidence: ClassVar[float] = 0.92
    """If the anchor's mean confidence is below this, the target is a mean over copies."""
    restore_probability: ClassVar[float] = 0.01

    def configure_model(self) -> None:
        super().configure_model()
        self.teacher = copy_of(self.model, self.label, "use tent").requires_grad_(False)
        self.anchor = copy.deepcopy(self.teacher)
        networks = (self.model, self.teacher, self.anchor)
        triples = zip(*(network.parameters() for network in networks), strict=True)
        # θ_a is left out, since z does not depend on it.
        self.triples = [triple for triple in triples if triple[0].requires_grad]

    def adapted_parameters(self) -> list[nn.Parameter]:
        return parameters_of_z(self.model)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        return as_outputs(self.teacher(x))

    @torch.no_grad()
    def target(self, x: Tensor) -> Outputs:
        """Return the target: the teacher's logits for x if the anchor is sure of the batch or if
        there are no copies, otherwise the mean of the teacher's logits over augmented copies.
        """
        copies = self.copies_of(x)
        on_x = as_outputs(self.teacher(x))
        if copies is None:
            return on_x
        if probabilities(as_outputs(self.anchor(x)).main).amax(1).mean() >= self.confidence:
            return on_x
        # Each copy of the batch has its own forward pass, with its own batch statistics.
        copied = copies(x, self.copy_count, self.generator)
        logits = [at_least_float32(as_outputs(self.teacher(each)).main) for each in copied]
        return Outputs(torch.stack(logits).mean(0), on_x.auxiliary)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        target = self.target(x)
        student = at_least_float32(as_outputs(self.model(x)).main)
        loss = F.cross_entropy(finite_logits(student), probabilities(target.main))
        return loss, target

    def update(self, x: Tensor) -> Outputs | None:
        outputs = super().update(x)
        generator = generator_for(x, self.generator)
        with torch.no_grad():
            for student, teacher, source in self.triples:
                teacher.lerp_(student, 1 - TEACHER_MOMENTUM)
                draw = torch.rand(student.shape, generator=generator, device=student.device)
                student.copy_(torch.where(draw < self.restore_probability, source, student))
        return outputs
