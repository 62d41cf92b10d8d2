"""How a profile says where networks come from: the value of `image_weights` and its like."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import CoreSchema, core_schema

PUBLISHED = ("release", "robustbench", "efficientnet_lite0")
"""The kinds that are a single network, which others trained on their own images."""


@dataclass(frozen=True)
class WeightsName:
    """Where networks come from. `parse` reads the text of a profile, and `str` gives it back.

    kind: `train`: the networks are trained here. `shipped`: the networks in weights/. `release`,
        `robustbench` and `efficientnet_lite0`: a published network, from the file `place`.
        `folder`: the networks in the folder `place`.
    place: the path as it was written; empty if the kind has none.
    """

    kind: Literal["train", "shipped", "release", "robustbench", "efficientnet_lite0", "folder"]
    place: str = ""

    @classmethod
    def parse(cls, text: str) -> "WeightsName":
        """Read `train`, `shipped`, KIND:FILE with KIND in PUBLISHED, or a FOLDER. Raises ValueError
        for an empty text, or an empty FILE.
        """
        kind, colon, place = text.partition(":")
        is_file = bool(colon) and kind in PUBLISHED
        if not (place if is_file else text).strip():
            allowed = ["train", "shipped", *(f"{each}:FILE" for each in PUBLISHED), "FOLDER"]
            raise ValueError(f"{text!r} names no networks; allowed are {', '.join(allowed)}")
        if is_file:
            return cls(kind, place)  # type: ignore[arg-type]
        if text in ("train", "shipped"):
            return cls(text)  # type: ignore[arg-type]
        return cls("folder", text)

    def __str__(self) -> str:
        if self.kind in PUBLISHED:
            return f"{self.kind}:{self.place}"
        return self.place if self.kind == "folder" else self.kind

    @property
    def trained_here(self) -> bool:
        """Whether the networks are trained here."""
        return self.kind == "train"

    @property
    def published(self) -> bool:
        """Whether this is a single network that others have published."""
        return self.kind in PUBLISHED

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls.parse,
            core_schema.str_schema(),
            serialization=core_schema.to_string_ser_schema(),
        )
