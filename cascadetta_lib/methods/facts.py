"""The class attributes of a method, which a study reads before it makes the method."""

import inspect
from collections.abc import Mapping
from typing import ClassVar

from cascadetta_lib.data.base import Modality
from cascadetta_lib.methods.optimizers import OPTIMIZERS, MakeOptimizer


class Facts:
    """The class attributes of every method.

    label: the method's name in tables.
    objective: the pre-training that the method starts from.
    objective_elsewhere: the pre-training by modality, for those modalities where it differs from
        `objective`.
    adapts: whether the method ever updates.
    has_state: whether earlier batches change later predictions, apart from BatchNorm's memory. True
        for T3A, which keeps supports. Read only if `adapts` is False.
    steps_alike: whether every step takes the same work, whatever the batches hold.
    modalities: the modalities that the method is defined for.
    needs_source: whether the method needs source examples.
    uses_auxiliary: whether the loss is computed from a, the logits of θ_a.
    make_optimizer: makes the method's own optimiser from the parameters and lr.

    Subclasses add class attributes of their own.
    """

    label: ClassVar[str]
    objective: ClassVar[str] = "meta"
    objective_elsewhere: ClassVar[Mapping[Modality, str]] = {}
    adapts: ClassVar[bool] = True
    has_state: ClassVar[bool] = False
    steps_alike: ClassVar[bool] = True
    modalities: ClassVar[tuple[Modality, ...]] = ("image", "text", "speech")
    needs_source: ClassVar[bool] = False
    uses_auxiliary: ClassVar[bool] = False
    make_optimizer: ClassVar[MakeOptimizer] = staticmethod(OPTIMIZERS["sgd"])

    @classmethod
    def options(cls) -> list[str]:
        """Return the names of the options that the method's class and its base classes take,
        sorted.
        """
        found: set[str] = set()
        for part in cls.__mro__:
            if "__init__" in vars(part) and part is not object:
                for parameter in inspect.signature(part.__init__).parameters.values():  # type: ignore[misc]
                    if parameter.kind is parameter.KEYWORD_ONLY:
                        found.add(parameter.name)
        return sorted(found)

    @classmethod
    def objective_on(cls, modality: Modality) -> str:
        """Return the pre-training that the method starts from on a modality."""
        return cls.objective_elsewhere.get(modality, cls.objective)
