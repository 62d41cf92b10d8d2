"""How a profile says where networks come from: the value of `image_weights`."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import CoreSchema, core_schema

PUBLISHED = ("release", "robustbench", "efficientnet_lite0")
"""The kinds of one network that others trained, on their own images."""


@dataclass(frozen=True)
class WeightsName:
    """Where networks come from. `parse` reads the text of a profile, and `str` gives it back.

    kind: `train`: they are trained here. `shipped`: those in weights/. `release`, `robustbench` and
        `efficientnet_lite0`: a published network, from the file `place`. `folder`: those in the
        folder `place`.
    place: the path as it was written; empty where the kind has none.
    """

    kind: Literal["train", "shipped", "release", "robustbench", "efficientnet_lite0", "folder"]
    place: str = ""

    @classmethod
    def parse(cls, text: str) -> "WeightsName":
        """Read `train`, `shipped`, KIND:FILE with KIND in PUBLISHED, or a FOLDER."""
        kind, colon, place = text.partition(":")
        if colon and kind in PUBLISHED:
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
        """Whether a training here makes the networks."""
        return self.kind == "train"

    @property
    def published(self) -> bool:
        """Whether it is one network that others have published."""
        return self.kind in PUBLISHED

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls.parse,
            core_schema.str_schema(),
            serialization=core_schema.to_string_ser_schema(),
        )
