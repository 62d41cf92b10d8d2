"""The class attributes of a method, which a study reads before it makes one."""

from collections.abc import Mapping
from typing import ClassVar

from cascadetta_lib.data.base import Modality
from cascadetta_lib.methods import refusals


class Facts:
    """The class attributes of every method.

    label: its name in tables.
    objective: the pre-training that it starts from.
    objective_elsewhere: the same, per modality where it differs.
    adapts: whether it ever updates.
    steps_alike: whether every step takes the same work, whatever the batches hold.
    modalities: those that it is defined for.
    needs_source: whether it needs source examples.
    """

    label: ClassVar[str]
    objective: ClassVar[str] = "meta"
    objective_elsewhere: ClassVar[Mapping[Modality, str]] = {}
    adapts: ClassVar[bool] = True
    steps_alike: ClassVar[bool] = True
    modalities: ClassVar[tuple[Modality, ...]] = ("image", "text", "speech")
    needs_source: ClassVar[bool] = False

    @classmethod
    def options(cls) -> list[str]:
        """Return the names of this method's options."""
        return refusals.options_of(cls)

    @classmethod
    def objective_on(cls, modality: Modality) -> str:
        """Return the pre-training that the method starts from on a modality."""
        return cls.objective_elsewhere.get(modality, cls.objective)
