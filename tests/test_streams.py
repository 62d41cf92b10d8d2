"""Streams and the domains that they may name."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from cascadetta_lib.data.streams import (
    STREAMS,
    Domain,
    Vocabulary,
    draw_order,
    make_stream,
    shuffle_domains,
    shuffle_examples,
)
from study.settings import load_profile
from study.tools import streams_table

IMAGES = Vocabulary(("fog", "snow"), ("spatter",), (1, 2, 3, 4, 5))
SPEECH = Vocabulary(("pitch", "noise"), ("clean",), (1,))


def test_instantaneous_and_gradual() -> None:
    assert make_stream("instantaneous", IMAGES, 4) == [("fog", 4), ("snow", 4)]
    gradual = make_stream("gradual", IMAGES, 5)
    assert [domain.severity for domain in gradual] == [1, 2, 3, 4, 5, 4, 3, 2, 1] * 2
    assert [domain.name for domain in gradual] == ["fog"] * 9 + ["snow"] * 9
    assert make_stream("instantaneous", SPEECH, 5) == [("pitch", 1), ("noise", 1)]
    assert make_stream("gradual_correlated", IMAGES) == gradual
    for name in ("mixed", "correlated", "mixed_correlated", "reset_each"):
        assert make_stream(name, IMAGES, 4) == [("fog", 4), ("snow", 4)]


def test_a_recurring_stream_comes_back_to_each_domain_in_one_order() -> None:
    assert make_stream("recurring", IMAGES, 4, visits=3) == [("fog", 4), ("snow", 4)] * 3
    assert len(make_stream("recurring", SPEECH)) == 2 * 20
    section = load_profile("quick", {"image_stream": "recurring", "image_recurring_visits": 4})
    settings = {"image_stream": "recurring", "image_recurring_visits": 3, "image_order_seed": 3}
    shuffled = load_profile("quick", settings).image
    assert len(section.image.domains) == 60 and len(set(section.image.domains)) == 15
    first = shuffled.domains[:15]
    assert shuffled.domains == first * 3 and first != section.image.domains[:15]


def test_a_walk_goes_from_each_corruption_to_the_next_and_back_to_the_first() -> None:
    stream = make_stream("walk", IMAGES)
    assert stream == [("fog_to_snow", k) for k in range(1, 21)] + [
        ("snow_to_fog", k) for k in range(1, 21)
    ]
    assert make_stream("walk", IMAGES, walk_steps=2) == [
        ("fog_to_snow", 10),
        ("fog_to_snow", 20),
        ("snow_to_fog", 10),
        ("snow_to_fog", 20),
    ]
    for steps in (3, 30):
        with pytest.raises(ValueError, match=f"walk_steps = {steps}; allowed are the divisors"):
            make_stream("walk", IMAGES, walk_steps=steps)
    settings = {"image_stream": "walk", "image_walk_steps": 4, "image_order_seed": 3}
    domains = load_profile("quick", settings).image.domains
    names = [name.split("_to_") for name, place in domains if place == 20]
    assert len(domains) == 60 and all(each[1] == then[0] for each, then in pairwise(names))
    assert names[-1][1] == names[0][0], "the last goes to the first"
    in_order = load_profile("quick", {"image_stream": "instantaneous", "image_order_seed": 3})
    assert [first for first, _ in names] == [name for name, _ in in_order.image.domains]


def test_the_page_of_streams_is_that_of_the_code() -> None:
    """If not: python -m study.tools.streams_table."""
    assert streams_table.PAGE.read_text(encoding="utf-8") == streams_table.page()
    for name in STREAMS:
        assert make_stream(name, IMAGES)
        if name.startswith("gradual") or name == "walk":
            with pytest.raises(ValueError, match="no stream is named"):
                make_stream(name, SPEECH)
        else:
            assert make_stream(name, SPEECH)


def test_a_list_of_ones_own() -> None:
    assert make_stream(["snow:2", "spatter", "fog"], IMAGES, 4) == [
        ("snow", 2),
        ("spatter", 4),
        ("fog", 4),
    ]
    assert make_stream(("clean", "noise"), SPEECH) == [("clean", 1), ("noise", 1)]
    assert str(Domain("fog", 3)) == "fog:3"


@pytest.mark.parametrize(
    ("stream", "vocabulary", "severity", "message"),
    [
        (["frog"], IMAGES, 5, "did you mean 'fog'"),
        (["fog:6"], IMAGES, 5, "severity = 6 of 'fog'; allowed are 1, 2, 3, 4, 5"),
        (["fog:"], IMAGES, 5, "severity"),
        (["fog"], IMAGES, 0, "severity"),
        ([3], IMAGES, 5, "holds 3; allowed are names, such as 'fog'"),
        ([], IMAGES, 5, "empty"),
        ("gradul", IMAGES, 5, "did you mean 'gradual'"),
        ("gradual", SPEECH, 1, "allowed are instantaneous, mixed, correlated"),
        ("mix", IMAGES, 5, "did you mean 'mixed'"),
        (["pitch:2"], SPEECH, 1, "only the corruptions of images have a severity"),
    ],
)
def test_streams_that_are_refused(
    stream: str | Sequence[str], vocabulary: Vocabulary, severity: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_stream(stream, vocabulary, severity)


LABELS = np.random.default_rng(0).integers(5, size=500)


def changes(delta: float, seed: int = 0) -> int:
    """How often the label changes along a correlated order of LABELS."""
    order = draw_order("correlated", LABELS, delta, np.random.default_rng(seed))
    return int((np.diff(LABELS[order]) != 0).sum())


@pytest.mark.parametrize(
    ("order", "delta"),
    [
        (None, None),
        ("mixed", None),
        ("correlated", 0.1),
        ("correlated", 1000),
        ("mixed_correlated", 0.1),
    ],
)
def test_the_seed_decides_the_order(order: Any, delta: float | None) -> None:
    first, again, other = (
        draw_order(order, LABELS, delta, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert first.tolist() == again.tolist() and (first.tolist() == other.tolist()) == (
        order is None
    )


@pytest.mark.parametrize(
    ("order", "delta", "words"),
    [
        ("corelated", 0.1, "order = 'corelated'; .*did you mean 'correlated'"),
        ("correlated", None, "dirichlet_delta = None; allowed is a finite number above 0"),
        ("mixed_correlated", 0.0, "dirichlet_delta = 0.0; allowed is"),
        ("correlated", math.nan, "dirichlet_delta = nan; allowed is"),
    ],
)
def test_an_order_that_there_is_not_is_refused(order: Any, delta: float | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        draw_order(order, np.arange(4), delta, np.random.default_rng(0))


def test_delta_is_how_long_the_runs_of_a_label_are() -> None:
    assert changes(1e-6) == 4, "five labels, a run each"
    # 25 pieces, of which two of one label seldom meet; a random order changes at 4 of 5 places.
    assert 18 <= changes(1000) <= 24 and all(
        4 <= changes(0.1, seed) <= changes(1000, seed) for seed in range(5)
    )
    order = draw_order("correlated", LABELS, 1000, np.random.default_rng(0))
    assert np.bincount(LABELS[order[:100]], minlength=5).min() >= 15, (
        "each fifth of the order holds all labels"
    )


def test_the_pieces_of_the_labels_by_hand() -> None:
    """Two labels of ten and five examples, cut in the proportions that the generator draws
    first."""
    labels = np.array([0, 0, 1] * 5)
    delta = 1.0
    shares = (generator := np.random.default_rng(7)).dirichlet([delta, delta], 2)
    of_0 = round(10 * shares[0, 0])
    of_1 = round(5 * shares[1, 0])
    zeros, ones = (np.flatnonzero(labels == label) for label in (0, 1))
    turns = [(zeros[:of_0], ones[:of_1]), (zeros[of_0:], ones[of_1:])]
    expected = [
        place for turn in turns for label in generator.permutation(2) for place in turn[label]
    ]
    assert draw_order("correlated", labels, delta, np.random.default_rng(7)).tolist() == expected


def test_mixed_and_correlated_has_the_runs_of_the_one_and_the_domains_of_the_other() -> None:
    """500 examples of each of four domains, whose labels are the same."""
    labels = np.tile(LABELS, 4)
    domains = np.repeat(np.arange(4), len(LABELS))
    order = draw_order("mixed_correlated", labels, 1e-6, np.random.default_rng(0))
    assert sorted(order) == list(range(len(labels)))
    assert (np.diff(labels[order]) != 0).sum() == 4, "five labels, a run each"
    of_batches = [np.unique(domains[order[start : start + 50]]) for start in range(0, 2000, 50)]
    assert all(len(each) == 4 for each in of_batches)


def test_an_order_seed_moves_domains_of_one_name_together() -> None:
    gradual = make_stream("gradual", IMAGES)
    assert shuffle_domains(gradual, None) == gradual
    orders = [shuffle_domains(gradual, seed) for seed in range(20)]
    assert all(order in (gradual, gradual[9:] + gradual[:9]) for order in orders)
    assert gradual in orders and gradual[9:] + gradual[:9] in orders
    assert shuffle_domains(gradual, 3) == shuffle_domains(gradual, 3)


def test_an_order_seed_gives_domains_of_one_size_one_order() -> None:
    first = shuffle_examples(50, 3)
    assert sorted(first) == list(range(50)) and first.tolist() != list(range(50))
    assert first.tolist() == shuffle_examples(50, 3).tolist()
    assert first.tolist() != shuffle_examples(50, 4).tolist()
