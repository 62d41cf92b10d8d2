"""Streams: which target domains a model meets, and in which order they and their examples come."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, NamedTuple, get_args

import numpy as np

from cascadetta_lib.allowed import require_choice, require_number, require_whole
from cascadetta_lib.data.walks import WALK_STEPS, walk_name
from cascadetta_lib.registry import nearest

Order = Literal["mixed", "correlated", "mixed_correlated"]
"""How the examples of a stream are ordered.

None: domain after domain. Within a domain the examples come in the order in which they are stored,
or in the order that an order seed draws.
mixed: all domains shuffled together.
correlated: domain after domain, with the examples of each label in runs.
mixed_correlated: all domains shuffled together, with the examples of each label in runs.
"""
MIXED: tuple[Order, ...] = ("mixed", "mixed_correlated")
"""The orders in which a batch may hold examples of any domain."""
ORDERS: dict[str, Order] = {
    "mixed": "mixed",
    "correlated": "correlated",
    "mixed_correlated": "mixed_correlated",
    "gradual_correlated": "correlated",
}
"""The order of the examples, by the name of the stream. On all other streams it is None."""
RESET_EACH = "reset_each"
"""The stream on which a method is reset to the source before each domain."""
RECURRING = "recurring"
"""The stream that repeats its domains, round after round."""
WALK = "walk"
"""The stream that goes slowly from each corruption to the next."""
STREAMS = {
    "instantaneous": "every standard domain once, at one severity",
    "mixed": "the same domains, all examples shuffled together",
    "correlated": "the same domains, with the labels of each domain in runs",
    "mixed_correlated": "the same domains, all examples together, with the labels in runs",
    RESET_EACH: "the same domains; the method is reset to the source before each domain, as if it "
    "knew where the domains change (an oracle)",
    RECURRING: "the same domains again and again, round after round in one order: by default "
    "20 rounds, as in PeTTA and ReservoirTTA",
    "gradual": "every standard domain through the severities 1 2 3 4 5 4 3 2 1 before the next "
    "(Sec. 6.1): 15 corruptions give 135 domains; for images alone",
    "gradual_correlated": "the domains of the gradual stream, with the labels of each domain in "
    "runs; for images alone",
    WALK: "slowly from each standard corruption A to the next one, B, and from the last back to "
    "the first, after CCC (Press et al. 2023): images are corrupted by A at severity 5 − s, then "
    "by B at s, where s goes from 0.25 to 5; 15 corruptions give 300 domains; for images alone",
}
"""The streams that have a name, each with a description of what comes."""

GRADUAL_SEVERITIES = (1, 2, 3, 4, 5, 4, 3, 2, 1)


class Domain(NamedTuple):
    """A target domain.

    name: such as `fog`, or `fog_to_snow` for a walk.
    severity: 1..5 for a corruption; for a walk, the place 1..20 on it (walks.py); for any other
        domain 1.
    """

    name: str
    severity: int

    def __str__(self) -> str:
        return f"{self.name}:{self.severity}"


@dataclass(frozen=True)
class Vocabulary:
    """The domains and severities that a stream may name.

    standard: the domains of the standard stream, in order. As in the paper's tables, the source
        domain (`books`, `clean`) is not one of them.
    others: further domains that a stream may name.
    severities: the allowed severities; (1,) for domains without severities.
    """

    standard: tuple[str, ...]
    others: tuple[str, ...]
    severities: tuple[int, ...]


def require_domain(name: str, known: Sequence[str]) -> None:
    """Raise ValueError if `name` is not in `known`. The message says which names are allowed."""
    if name not in known:
        raise ValueError(f"no domain is named {name!r}; {nearest(str(name), known)}")


def make_stream(
    stream: str | Sequence[str],
    vocabulary: Vocabulary,
    severity: int = 1,
    visits: int = 20,
    walk_steps: int = WALK_STEPS,
) -> list[Domain]:
    """Return the domains of a stream, in order.

    stream: a name in STREAMS, or a list of domains such as ["fog", "snow:3"].
    vocabulary: the domains and severities that are allowed.
    severity: the severity of domains that are named without one. The gradual streams and the walk
        set their own.
    visits: the number of rounds of the recurring stream.
    walk_steps: how many of a walk's 20 places are used, at equal distances; a divisor of 20.

    Raises ValueError for any other value, also for a domain or severity that is not in
    `vocabulary`.
    """
    require_whole("visits", visits, least=1)
    require_whole("walk_steps", walk_steps, least=1)
    if WALK_STEPS % walk_steps:
        raise ValueError(f"walk_steps = {walk_steps}; allowed are the divisors of {WALK_STEPS}")
    one_severity = len(vocabulary.severities) == 1
    names = [name for name in STREAMS if not (one_severity and name.startswith(("gradual", WALK)))]
    if isinstance(stream, str) and stream not in names:
        raise ValueError(
            f"no stream is named {stream!r}; {nearest(stream, names)}, or a list of domains"
        )
    if not stream:
        raise ValueError("the list of domains is empty")
    if stream in ("gradual", "gradual_correlated"):
        return [Domain(name, level) for name in vocabulary.standard for level in GRADUAL_SEVERITIES]
    if stream == WALK:
        return _walk(vocabulary.standard, WALK_STEPS // walk_steps)
    domains = []
    for written in vocabulary.standard if isinstance(stream, str) else stream:
        if not isinstance(written, str):
            raise ValueError(
                f"the list of domains holds {written!r}; allowed are names, such as "
                f"{vocabulary.standard[0]!r}"
            )
        name, colon, level = written.partition(":")
        require_domain(name, vocabulary.standard + vocabulary.others)
        if one_severity and colon:
            raise ValueError(
                f"{written!r}: only the corruptions of images have a severity; allowed is {name!r}"
            )
        chosen = level if colon else str(vocabulary.severities[0] if one_severity else severity)
        if chosen not in map(str, vocabulary.severities):
            raise ValueError(
                f"severity = {chosen} of {name!r}; allowed are "
                f"{', '.join(map(str, vocabulary.severities))}"
            )
        domains.append(Domain(name, int(chosen)))
    return domains * (visits if stream == RECURRING else 1)


def _walk(names: Sequence[str], stride: int) -> list[Domain]:
    """Return the domains of the walks from each corruption to the next, and from the last back to
    the first. Of each walk, every `stride`-th place is used.
    """
    places = range(stride, WALK_STEPS + 1, stride)
    ends = [*names[1:], names[0]]
    pairs = zip(names, ends, strict=True)
    return [Domain(walk_name(first, last), place) for first, last in pairs for place in places]


def shuffle_standard(vocabulary: Vocabulary, order_seed: int | None) -> Vocabulary:
    """Return the vocabulary with its standard domains shuffled by `order_seed`, in the order that
    `shuffle_domains` draws. None leaves them as they are.
    """
    domains = [Domain(name, 1) for name in vocabulary.standard]
    names = [domain.name for domain in shuffle_domains(domains, order_seed)]
    return replace(vocabulary, standard=tuple(names))


def shuffle_domains(stream: Sequence[Domain], order_seed: int | None) -> list[Domain]:
    """Return the domains in the order that `order_seed` draws. None leaves them as they are.

    Neighbouring domains of one name, such as the nine severities of a corruption on the gradual
    stream, move together and keep their order.
    """
    blocks = [list(block) for _, block in groupby(stream, key=lambda domain: domain.name)]
    if order_seed is None:
        places = np.arange(len(blocks))
    else:
        places = np.random.default_rng([order_seed, 0]).permutation(len(blocks))
    return [domain for place in places for domain in blocks[place]]


def shuffle_examples(count: int, order_seed: int) -> np.ndarray:
    """Return the places of a domain's examples, (count,), in the order that `order_seed` draws.

    The order depends only on `count` and `order_seed`. So corrupted images come in the same order
    in each domain.
    """
    return np.random.default_rng([order_seed, 1]).permutation(count)


def require_order(order: Order | None, delta: float | None) -> None:
    """Raise ValueError for an unknown order, or for a correlated one without a δ above 0."""
    if order is None:
        return
    require_choice("order", order, get_args(Order))
    if order != "mixed":
        require_number("dirichlet_delta", delta, positive=True)


def draw_order(
    order: Order | None, labels: np.ndarray, delta: float | None, generator: np.random.Generator
) -> np.ndarray:
    """Draw an order of examples by their labels, (N,). Return the places of the examples in this
    order, a permutation (N,).

    None: the examples stay as stored.
    mixed: any order is equally likely.
    correlated: much as in NOTE and RoTTA. The examples of each of the C labels are cut into C
        pieces. The sizes of the pieces are in the proportions of a draw from Dirichlet(δ, ..., δ).
        The first pieces of all labels come first, in a random order of the labels. Then come the
        second pieces, and so on. With δ near 0 all examples of a label come in one run; with a
        large δ they come in C runs of equal length.
    mixed_correlated: as `correlated`, with the examples of all domains together. The examples of
        each label are shuffled before they are cut.

    Raises ValueError for another order, or for a correlated one without a δ above 0.
    """
    require_order(order, delta)
    if order is None:
        return np.arange(len(labels))
    if order == "mixed":
        return generator.permutation(len(labels))
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    if order == "mixed_correlated":
        members = [generator.permutation(each) for each in members]
    shares = generator.dirichlet(np.full(len(members), delta), len(members))
    cuts = [
        np.rint(share.cumsum()[:-1] * len(each)).astype(int)
        for share, each in zip(shares, members, strict=True)
    ]
    pieces = [np.split(each, cut) for each, cut in zip(members, cuts, strict=True)]
    classes = range(len(members))
    in_turn = []
    for turn in classes:  # Each label has as many pieces as there are labels.
        for label in generator.permutation(classes):
            in_turn.append(pieces[label][turn])
    return np.concatenate(in_turn)


def order_of_examples(
    order: Order | None,
    labels: np.ndarray,
    delta: float | None,
    generator: np.random.Generator,
    order_seed: int | None = None,
) -> np.ndarray:
    """Return the places of examples with these labels, (N,), in the order in which a stream shows
    them.

    With an `order`, `draw_order` draws the places by `generator` alone, which the evaluator has
    seeded with the order seed if there is one. Without an `order`, the examples come as stored, or
    shuffled by `order_seed` if it is given (`shuffle_examples`).
    """
    if order is None and order_seed is not None:
        return shuffle_examples(len(labels), order_seed)
    return draw_order(order, labels, delta, generator)
