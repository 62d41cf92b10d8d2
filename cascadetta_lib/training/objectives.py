"""The objectives of pre-training and their losses.

Every objective has a supervised loss, the cross-entropy of z, and most have a self-supervised one:
the entropy of a (of z where there is no θ_a), or the rotation task of TTT. Algorithm 1 (meta.py)
puts the two together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.losses import at_least_float32, information_loss, rotate_randomly
from cascadetta_lib.models import Parallel
from cascadetta_lib.training.settings import Training


@dataclass(frozen=True)
class Objective:
    """One way to pre-train: which network, on which augmentation, by which losses.

    parallel: whether the network is TTT's instead of a cascade.
    auxiliary: whether the cascade has θ_a.
    self_supervised: whether the self-supervised loss takes part.
    meta: whether to train by Algorithm 1 instead of minimising the sum of both losses.
    randomised: what domain randomisation changes. `all`: every example of a batch. `none`: no
        example. `both`: the network sees each batch as it is, and randomised beside it.
    recipe: fields of Training that the objective sets, whatever the profile says.

    The paper trains θ_a by the entropy of its own output alone, which is smallest if `a` is one
    class for every x. Two alternatives:

    supervised: add the cross-entropy on `a` to that on z. A θ_a of one layer (text, speech) then
        begins as the identity. The reason is text: a thousand small steps hardly move its θ_a from
        the initial weights.
    diversity: maximise information, by ENT(a) − diversity · H(mean softmax(a)) in the inner and the
        outer loss.
    """

    parallel: bool = False
    auxiliary: bool = True
    self_supervised: bool = True
    meta: bool = False
    randomised: Literal["all", "none", "both"] = "all"
    supervised: bool = False
    diversity: float = 0.0
    recipe: Mapping[str, Any] = field(default_factory=dict)


OBJECTIVES: dict[str, Objective] = {
    "erm": Objective(auxiliary=False, self_supervised=False, randomised="none"),
    "multi_task": Objective(),
    # The weight of the entropy in the release's outer loss: 0.1 λ = 0.01.
    "multi_task_light_entropy": Objective(recipe={"entropy_weight": 0.01}),
    "meta": Objective(meta=True),
    "meta_no_auxiliary": Objective(meta=True, auxiliary=False),
    # The settings are those of TTT's release, which the paper says that it keeps.
    "ttt": Objective(
        parallel=True,
        randomised="none",
        recipe={"learning_rate": 0.1, "weight_decay": 5e-4, "schedule": "ttt_steps"},
    ),
    # Sec. 6.4 draws the tasks from the randomised source. The rotation counts as much as the
    # cross-entropy, as in TTT.
    "meta_ttt": Objective(
        parallel=True, meta=True, recipe={"outer_loss": "paper", "entropy_weight": 1.0}
    ),
    "meta_information": Objective(meta=True, diversity=1),
    "meta_supervised": Objective(meta=True, supervised=True),
    "meta_supervised_information": Objective(meta=True, supervised=True, diversity=1),
    "multi_task_supervised_information": Objective(supervised=True, diversity=1),
    "plain_supervised_information": Objective(supervised=True, diversity=1, randomised="none"),
    "both_supervised_information": Objective(supervised=True, diversity=1, randomised="both"),
    # The control for Cascade+: the same images, plain and randomised, by the cross-entropy on z
    # alone.
    "both_cross_entropy": Objective(auxiliary=False, self_supervised=False, randomised="both"),
}


def training_for(objective: str, training: Training) -> Training:
    """Return `training` with the settings that `objective` prescribes in place of its own."""
    return training.model_copy(update=dict(OBJECTIVES[objective].recipe))


class Half(NamedTuple):
    """Examples as the network sees them, such as half a batch.

    x: (B, …). y: labels, (B,).
    rotated: for the rotation task, x rotated, and by how many multiples of 90°.
    """

    x: Tensor
    y: Tensor
    rotated: tuple[Tensor, Tensor] | None = None


def as_half(x: Tensor, y: Tensor, kind: Objective, draws: torch.Generator) -> Half:
    """Return examples as `losses` takes them. For the rotation task, `draws` rotates them."""
    return Half(x, y, rotate_randomly(x, draws) if kind.parallel else None)


PAPER = Objective()  # the paper's losses


def losses(model: nn.Module, half: Half, kind: Objective = PAPER) -> tuple[Tensor, Tensor]:
    """Return the supervised and the self-supervised loss of an objective, scalars in nats.

    Supervised: the cross-entropy of z, plus that of `a` if `kind.supervised`. Self-supervised: the
    information loss of `a` (of z without θ_a), or the rotation loss.
    """
    outputs = model(half.x)
    z = at_least_float32(outputs.main)
    main = F.cross_entropy(z, half.y)
    if half.rotated is not None:
        return main, _rotation_loss(model, *half.rotated)
    if outputs.auxiliary is None:
        return main, information_loss(z, kind.diversity)
    a = at_least_float32(outputs.auxiliary)
    if kind.supervised:
        # The sum: on held-out source images the mean of the two was worse for all but one of the
        # candidates.
        main = main + F.cross_entropy(a, half.y)
    return main, information_loss(a, kind.diversity)


def self_supervised_loss(model: nn.Module, half: Half, kind: Objective = PAPER) -> Tensor:
    """Return the self-supervised loss alone. For the rotation task, only the rotated images pass
    through the network.
    """
    if half.rotated is not None:
        return _rotation_loss(model, *half.rotated)
    _, self_supervised = losses(model, half, kind)
    return self_supervised


def _rotation_loss(model: nn.Module, x: Tensor, quarters: Tensor) -> Tensor:
    assert isinstance(model, Parallel)
    return F.cross_entropy(at_least_float32(model.rotation_logits(x)), quarters)
