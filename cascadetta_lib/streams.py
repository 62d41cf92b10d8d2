"""Streams: the target domains in the order in which a model meets them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

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


def parse_domain(text: str, names: Sequence[str], severity: int) -> Domain:
    """`fog` or `fog:3`; ValueError for an unknown name or a severity outside 1..5."""
    name, _, level = text.partition(":")
    if name not in names:
        raise ValueError(f"no domain is named {name!r}; {nearest(name, names)}")
    if level and level not in "12345":
        raise ValueError(f"{text!r}: the severity is 1, 2, 3, 4 or 5")
    return Domain(name, int(level) if level else severity)


def make_stream(
    stream: str | Sequence[str], names: Sequence[str], severity: int, extra: Sequence[str] = ()
) -> list[Domain]:
    """`instantaneous`, `gradual`, or a list of your own such as ["fog", "snow:3"], or of `extra` ones."""
    if stream == "instantaneous":
        return instantaneous(names, severity)
    if stream == "gradual":
        return gradual(names)
    if isinstance(stream, str):
        raise ValueError(f"no stream is named {stream!r}; {nearest(stream, ('instantaneous', 'gradual'))}")
    return [parse_domain(text, (*names, *extra), severity) for text in stream]
