"""RoTTA (Yuan et al. 2023): a student learns from its own moving average, the teacher, on a
class-balanced memory of recent examples.
"""

import math
from collections import Counter
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.losses import at_least_float32, entropy, probabilities
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.augmented_copies import WithCopies
from cascadetta_lib.methods.bank import WithBank
from cascadetta_lib.methods.statistics_memory import WithStatistics
from cascadetta_lib.methods.updates import finite_logits
from cascadetta_lib.models import Outputs, as_outputs
from cascadetta_lib.models.remembered_statistics import MovingStatistics, remember, statistics_of
from cascadetta_lib.models.snapshot import copy_of

MEMORY = 64
"""How many examples the memory holds."""
LAMBDA_T = 1.0
LAMBDA_U = 1.0
"""The weights of age and of uncertainty in the score by which an example leaves the memory."""
NU = 0.001
"""The teacher's step towards the student at each update."""
ALPHA = 0.05
"""The share of a batch's statistics in the moving statistics of BatchNorm."""


class Example(NamedTuple):
    """What the memory knows of an example.

    label: the class that the teacher predicted.
    arrival: how many examples of the stream came before.
    uncertainty: the entropy of the prediction divided by ln C.
    """

    label: int
    arrival: int
    uncertainty: float


def place_for(new: Example, kept: list[Example], classes: int, most: int = MEMORY) -> int | None:
    """Choose the place of a new example in the memory `kept`.

    Return len(kept) to add the example, a smaller place to replace the example there, or None to
    leave the new example out. The share of a class is `most`/`classes` examples.

    - If the class of the new example has less than its share and the memory is not full, the
      example is added.
    - If the class has less than its share and the memory is full, the new example competes with the
      examples of the largest classes.
    - If the class has its share, the new example competes with the examples of its class.

    The competitor with the highest score λ_t·sigmoid(age/most) + λ_u·uncertainty is replaced if its
    score is above the new example's. Otherwise the new example is left out.

    classes: the number of classes.
    most: the largest number of examples in the memory.
    """
    counts = Counter(one.label for one in kept)
    crowded = {new.label}
    if counts[new.label] < most / classes:
        if len(kept) < most:
            return len(kept)
        largest = max(counts.values())
        crowded = {label for label, count in counts.items() if count == largest}

    def score(one: Example) -> float:
        return (
            LAMBDA_T / (1 + math.exp((one.arrival - new.arrival) / most))
            + LAMBDA_U * one.uncertainty
        )

    worst = max(
        (place for place, one in enumerate(kept) if one.label in crowded),
        key=lambda place: score(kept[place]),
    )
    return worst if score(kept[worst]) > score(new) else None


@METHODS.add("rotta")
class RoTTA(WithCopies, WithBank, WithStatistics):
    """Update scales and shifts of the normalisation layers by Adam after every 64 examples, even in
    the middle of a batch.

    The settings are those of RoTTA's release. The augmented copies are CoTTA's, or the dataset's
    own. Raises ValueError if `copies` is None.

    Predictions are the teacher's, by its moving statistics. `predict` says whether they are made
    before or after the updates in the batch. The memory takes one example after the other, and
    needs their classes and entropies. To read these, each step waits once for the device.
    """

    label = "RoTTA"
    steps_alike = False
    update_every: ClassVar[int] = 64
    """Examples from one update to the next."""
    modalities = ("image", "speech")
    make_optimizer = torch.optim.Adam
    bank_size = MEMORY
    kept: list[Example]

    def configure_model(self) -> None:
        if self.copies is None:
            raise ValueError(
                f"{self.label} learns from augmented copies; pass a function as copies, or use tent"
            )
        super().configure_model()
        self.give_statistics(partial(MovingStatistics, momentum=ALPHA))
        copied = copy_of(self.model, self.label, "use tent")
        self.teacher = copied.requires_grad_(False).eval()
        pairs = zip(self.model.parameters(), self.teacher.parameters(), strict=True)
        self.pairs = [(student, teacher) for student, teacher in pairs if student.requires_grad]

    def adapted_parameters(self) -> list[nn.Parameter]:
        return self.scales_and_shifts(self.model)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        return as_outputs(self.teacher(x))

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        """Return the loss on the memory x, and the student's outputs for a copy of x.

        The loss is the cross-entropy of the student's prediction of an augmented copy of x. The
        target is the teacher's prediction of x. Older examples weigh less. The moving statistics by
        which student and teacher normalise include the batch that they are given.
        """
        student = as_outputs(self.model(self.copy_of(x)))
        target = probabilities(self.target(x))
        timeliness = x.new_tensor(
            [(one.arrival - self.arrived) / self.bank_size for one in self.kept]
        ).sigmoid()
        z = finite_logits(at_least_float32(student.main))
        return (timeliness * F.cross_entropy(z, target, reduction="none")).mean(), student

    def copy_of(self, x: Tensor) -> Tensor:
        """Return an augmented copy of a batch."""
        copies = self.copies_of(x)
        assert copies is not None
        return next(iter(copies(x, 1, self.generator)))

    def target(self, x: Tensor) -> Tensor:
        """Return the teacher's logits (B, C), by moving statistics that include the batch."""
        for statistics in statistics_of(self.teacher):
            statistics.norm.training = True
        z = self.predict(x).main
        self.teacher.eval()
        return z

    def update(self, x: Tensor) -> Outputs:
        outputs = self.predict(x)
        self.require_finite(outputs.main)
        for example, known in zip(x, self.described(outputs.main), strict=True):
            self.take_in(example, known)
            if self.arrived % self.update_every == 0:
                self.learn(NU)
        return outputs

    def described(self, z: Tensor) -> list[Example]:
        """Return what the memory needs to know of each example, from its logits in z (B, C)."""
        self.classes = z.shape[1]
        found = torch.stack([z.argmax(1), entropy(z) / math.log(self.classes)], 1).tolist()
        return [
            Example(int(label), self.arrived + place, uncertainty)
            for place, (label, uncertainty) in enumerate(found)
        ]

    def take_in(self, example: Tensor, known: Example) -> None:
        """Offer the next example of the stream to the memory."""
        place = place_for(known, self.kept, self.classes, self.bank_size)
        self.keep(example, known, place)
        self.arrived += 1

    def learn(self, share: Tensor | float) -> None:
        """Take a step on the memory, then move the teacher a share of the way to the student."""
        super().update(self.examples)
        remember(self)
        with torch.no_grad():
            for student, teacher in self.pairs:
                teacher.lerp_(student, share)

    def reset(self) -> None:
        # An update that was interrupted may have left the teacher in training mode, and statistics
        # that wait to be remembered.
        self.teacher.eval()
        for statistics in statistics_of(self):
            statistics.seen = None
        super().reset()
