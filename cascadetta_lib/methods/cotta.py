"""CoTTA (Wang et al. 2022): a student taught by its own moving average on augmented copies, with
random restoring.
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
from cascadetta_lib.models import Outputs, as_outputs, parameters_of_z

TEACHER_MOMENTUM = 0.999


@METHODS.add("cotta")
class CoTTA(WithCopies, WithMemory):
    """Update all parameters, except those of θ_a, by Adam. The settings are those of CoTTA's
    release for CIFAR-10.

    The prediction is the teacher's. predict="after": the updated teacher's on x. "before": the
    target that the student learned from, as in the release. If the anchor, which is the source
    model, is unsure, the target is the teacher's mean over augmented copies.
    """

    label = "CoTTA"
    ends_with_batch = False
    steps_alike = False
    make_optimizer = torch.optim.Adam
    copy_count: ClassVar[int] = 32
    confidence: ClassVar[float] = 0.92
    """Where the anchor's mean confidence is below this, the target is averaged over copies."""
    restore_probability: ClassVar[float] = 0.01

    def configure_model(self) -> None:
        super().configure_model()
        self.teacher = copy.deepcopy(self.model).requires_grad_(False)
        self.anchor = copy.deepcopy(self.teacher)
        networks = (self.model, self.teacher, self.anchor)
        triples = zip(*(network.parameters() for network in networks), strict=True)
        # θ_a takes no part in z and stays out.
        self.triples = [triple for triple in triples if triple[0].requires_grad]

    def adapted_parameters(self) -> list[nn.Parameter]:
        return parameters_of_z(self.model)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        return as_outputs(self.teacher(x))

    @torch.no_grad()
    def target(self, x: Tensor) -> Outputs:
        """Return the teacher's logits: on x if the anchor is sure of the batch, otherwise their
        mean over augmented copies.
        """
        copies = self.copies_of(x)
        on_x = as_outputs(self.teacher(x))
        if copies is None:
            return on_x
        if probabilities(as_outputs(self.anchor(x)).main).amax(1).mean() >= self.confidence:
            return on_x
        # Each copy is a forward pass of its own, normalised by its own batch statistics.
        copied = copies(x, self.copy_count, self.generator)
        logits = [at_least_float32(as_outputs(self.teacher(each)).main) for each in copied]
        return Outputs(torch.stack(logits).mean(0), on_x.auxiliary)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        target = self.target(x)
        student = at_least_float32(as_outputs(self.model(x)).main)
        return F.cross_entropy(student, probabilities(target.main)), target

    def update(self, x: Tensor) -> Outputs | None:
        outputs = super().update(x)
        generator = generator_for(x, self.generator)
        with torch.no_grad():
            for student, teacher, source in self.triples:
                teacher.lerp_(student, 1 - TEACHER_MOMENTUM)
                draw = torch.rand(student.shape, generator=generator, device=student.device)
                student.copy_(torch.where(draw < self.restore_probability, source, student))
        return outputs
