"""Streams: the target domains in the order in which a model meets them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cascadetta_lib.data import corruptions, speech, text
from cascadetta_lib.data.base import Modality
from cascadetta_lib.registry import nearest

GRADUAL_SEVERITIES = (1, 2, 3, 4, 5, 4, 3, 2, 1)


class Domain(NamedTuple):
    """A target domain: its name and, for corruptions, the severity 1..5."""

    name: str
    severity: int

    def __str__(self) -> str:
        return f"{self.name}:{self.severity}"


def instantaneous(names: Iterable[str], severity: int) -> list[Domain]:
    """Every domain once at one severity."""
    return [Domain(name, severity) for name in names]


def gradual(names: Iterable[str]) -> list[Domain]:
    """Every domain through the severities 1 2 3 4 5 4 3 2 1 before the next (Sec. 6.1): 135 domains from 15."""
    return [Domain(name, severity) for name in names for severity in GRADUAL_SEVERITIES]


@dataclass(frozen=True)
class Vocabulary:
    """The domains of a modality: those of its standard stream, others that a stream may name, and the severities."""

    standard: tuple[str, ...]
    others: tuple[str, ...]
    severities: tuple[int, ...]


def vocabulary(modality: Modality) -> Vocabulary:
    """The source domain itself (`books`, `clean`) is none of the standard targets, as in the paper's tables."""
    if modality == "image":
        return Vocabulary(corruptions.CORRUPTIONS, corruptions.HELD_OUT_CORRUPTIONS, corruptions.SEVERITIES)
    source = text if modality == "text" else speech
    return Vocabulary(source.DOMAINS, (source.SOURCE_DOMAIN,), (1,))


def parse_domain(written: str, known: Vocabulary, severity: int) -> Domain:
    """`fog` or `fog:3`; ValueError for an unknown name or severity."""
    name, colon, level = written.partition(":")
    names = known.standard + known.others
    if name not in names:
        raise ValueError(f"no domain is named {name!r}; {nearest(name, names)}")
    if len(known.severities) == 1:
        if colon:
            raise ValueError(f"{written!r}: only the corruptions of images have a severity; allowed is {name!r}")
        return Domain(name, known.severities[0])
    if colon and level not in map(str, known.severities):
        raise ValueError(f"{written!r}: the severity is {', '.join(map(str, known.severities))}")
    return Domain(name, int(level) if level else severity)


def make_stream(stream: str | Sequence[str], modality: Modality, severity: int = 1) -> list[Domain]:
    """`instantaneous`, `gradual` (images), or a list of your own such as ["fog", "snow:3"]."""
    known = vocabulary(modality)
    if stream == "instantaneous":
        return instantaneous(known.standard, severity if modality == "image" else 1)
    if stream == "gradual" and modality == "image":
        return gradual(known.standard)
    if isinstance(stream, str):
        allowed = ("instantaneous", "gradual") if modality == "image" else ("instantaneous",)
        raise ValueError(f"no stream of {modality} is named {stream!r}; {nearest(stream, allowed)}")
    if not stream:
        raise ValueError("the list of domains is empty")
    return [parse_domain(name, known, severity) for name in stream]
