"""CoTTA (Wang et al. 2022): a student taught by its own moving average on augmented copies, with random restoring."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.augment.image import CoTTADraw, cotta_augment, draw_cotta
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.base import Method
from cascadetta_lib.models import Outputs

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
        return [*self.model.feature_extractor.parameters(), *self.model.main_classifier.parameters()]

    def make_optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, self.learning_rate, betas=(0.9, 0.999))

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        return self.teacher(x)

    @torch.no_grad()
    def target(self, x: Tensor) -> Outputs:
        """The teacher's logits: on x where the anchor is sure, else their mean over augmented copies of x."""
        on_x = self.teacher(x)
        if self.anchor(x).main.softmax(1).amax(1).mean() >= CONFIDENCE:
            return on_x
        black, white = self.value_range
        # The release's transforms see a whole batch, so one draw serves all images of a copy.
        draw = CoTTADraw(*(part.repeat_interleave(len(x), 0) for part in draw_cotta(COPIES, self.generator)))
        unit = ((x - black) / (white - black)).repeat(COPIES, 1, 1, 1)
        augmented = black + (white - black) * cotta_augment(unit, draw, self.generator)
        # One forward a copy: each is normalised by its own batch statistics, as in the release.
        copies = torch.stack([self.teacher(copy_).main for copy_ in augmented.split(len(x))])
        return Outputs(copies.mean(0), on_x.auxiliary)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        target = self.target(x)
        return F.cross_entropy(self.model(x).main, target.main.softmax(1)), target

    def update(self, x: Tensor) -> Outputs | None:
        outputs = super().update(x)
        with torch.no_grad():
            for student, teacher, source in self.triples:
                teacher.lerp_(student, 1 - TEACHER_MOMENTUM)
                restored = torch.rand(student.shape, generator=self.generator).to(student.device) < RESTORE_PROBABILITY
                student.copy_(torch.where(restored, source, student))
        return outputs
