"""The objectives and their losses. An objective is one way to pre-train a network, such as `erm` or
`meta`.

Every objective has a supervised loss: the cross-entropy of z, in some objectives plus that of a.
Most also have a self-supervised loss: the entropy of a (of z without θ_a), or the loss of TTT's
rotation task. Algorithm 1 (meta.py) combines the two losses; without meta-learning they are added
(pretrain.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.allowed import require_choice
from cascadetta_lib.losses import at_least_float32, information_loss, rotate_randomly
from cascadetta_lib.models import Parallel
from cascadetta_lib.training.settings import Training


@dataclass(frozen=True)
class Objective:
    """One way to pre-train: which network, on which augmentation, by which losses.

    parallel: whether the network is TTT's in place of a cascade.
    auxiliary: whether the cascade has θ_a.
    self_supervised: whether the self-supervised loss takes part.
    meta: whether to train by Algorithm 1, in place of minimising a weighted sum of both losses.
    randomised: which examples of a batch go through domain randomisation: `all` or `none`. With
        `both` the network sees each example as it is, and randomised beside it.
    recipe: fields of Training that the objective sets, whatever the profile says.

    The paper trains θ_a by the entropy of a alone. This entropy is smallest if a is one class for
    every x. Two fields change this training:

    supervised: add the cross-entropy of a to that of z. A θ_a of one layer (text, speech) then
        begins as the identity. The reason is text, where a thousand small steps hardly move θ_a
        from its initial weights.
    diversity: the weight of the entropy of a's mean prediction. The self-supervised loss is ENT(a)
        − diversity · H(mean softmax(a)), in the inner and in the outer loss.
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
    # λ is the weight that the entropy has in the release's outer loss: 0.1 · 0.1 = 0.01.
    "multi_task_light_entropy": Objective(recipe={"entropy_weight": 0.01}),
    "meta": Objective(meta=True),
    "meta_no_auxiliary": Objective(meta=True, auxiliary=False),
    # The settings are those of TTT's release. The paper says that it keeps them.
    "ttt": Objective(
        parallel=True,
        randomised="none",
        recipe={"learning_rate": 0.1, "weight_decay": 5e-4, "schedule": "ttt_steps"},
    ),
    # Sec. 6.4 draws the tasks from the randomised source. The rotation loss has the weight of the
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
    # The control for Cascade+ sees the same images, plain and randomised, but learns by the
    # cross-entropy of z alone.
    "both_cross_entropy": Objective(auxiliary=False, self_supervised=False, randomised="both"),
}


def training_for(objective: str, training: Training) -> Training:
    """Return `training` with the settings of the objective's recipe in place of its own.

    Raises ValueError for an unknown objective.
    """
    require_choice("objective", objective, OBJECTIVES)
    return training.model_copy(update=dict(OBJECTIVES[objective].recipe))


class Half(NamedTuple):
    """Examples as the network sees them, such as half a batch.

    x: (B, …). y: the labels, (B,). rotated: for the rotation task, the rotated x, and the multiples
    of 90°, (B,).
    """

    x: Tensor
    y: Tensor
    rotated: tuple[Tensor, Tensor] | None = None


def as_half(x: Tensor, y: Tensor, kind: Objective, draws: torch.Generator) -> Half:
    """Return examples in the form that `losses` takes.

    draws: the generator of the random rotations, for the rotation task.
    """
    return Half(x, y, rotate_randomly(x, draws) if kind.parallel else None)


PAPER = Objective()  # the paper's losses


def losses(model: nn.Module, half: Half, kind: Objective = PAPER) -> tuple[Tensor, Tensor]:
    """Return the supervised and the self-supervised loss of an objective, scalars in nats.

    The supervised loss is the cross-entropy of z, plus that of a if `kind.supervised`. The
    self-supervised loss is the information loss of a (of z without θ_a), or the rotation loss if
    the examples are rotated.
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
        # Add the two losses. Training by their mean instead gave worse results on held-out source
        # images, for all candidates except one.
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
