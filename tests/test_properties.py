"""What holds whatever the input: properties, tried by hypothesis on examples of its own."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from cascadetta_lib.data.corruptions import CORRUPTIONS
from cascadetta_lib.data.streams import Vocabulary, draw_order, make_stream
from cascadetta_lib.evaluation.metrics import (
    average_accuracy,
    forward_transfer,
    mean_online_error,
)
from cascadetta_lib.losses import entropy, entropy_of_mean
from cascadetta_lib.methods import METHODS
from study.settings import flat, make_settings
from study.yaml12 import dump_yaml, parse_yaml

settings.register_profile(
    "here", max_examples=30, deadline=None, derandomize=True
)  # The same examples every time.
settings.load_profile("here")

CHANGES = {
    "image_severity": some.integers(1, 5),
    "image_batch_size": some.none() | some.integers(1, 10**6),
    "image_training_learning_rate": some.floats(1e-12, 1e6),
    "image_methods": some.lists(some.sampled_from(sorted(METHODS)), min_size=1, unique=True),
    "image_stream": some.lists(some.sampled_from(CORRUPTIONS), min_size=1),
    "text_network_hidden": some.lists(some.integers(1, 8192), min_size=1, max_size=4),
    "seeds": some.lists(some.integers(0, 2**32 - 1), min_size=1, unique=True),
    "profile": some.from_regex(r"[A-Za-z0-9][A-Za-z0-9 _-]{0,50}", fullmatch=True),
}
STREAM = Vocabulary(("fog", "snow"), ("rain",), (1, 2, 3, 4, 5))


@given(
    some.fixed_dictionaries({}, optional=CHANGES).filter(
        lambda values: values.get("profile") not in ("runs",)
    )
)
def test_settings_survive_their_flat_names(values: dict[str, Any]) -> None:
    made = make_settings(values)
    assert make_settings(flat(made)) == made
    assert {name: flat(made)[name] for name in values} == values


@given(
    some.lists(
        some.tuples(some.sampled_from(["fog", "snow", "rain"]), some.integers(1, 5)), min_size=1
    )
)
def test_a_stream_is_the_list_that_its_domains_are_written_as(
    domains: list[tuple[str, int]],
) -> None:
    made = make_stream([f"{name}:{level}" for name, level in domains], STREAM)
    assert [tuple(domain) for domain in made] == domains
    assert make_stream([str(domain) for domain in made], STREAM) == made


@given(
    some.lists(some.integers(0, 4), min_size=1, max_size=60),
    some.floats(1e-3, 1e3),
    some.integers(0, 2**32 - 1),
)
def test_every_order_has_each_example_once(labels: list[int], delta: float, seed: int) -> None:
    for order in (None, "mixed", "correlated"):
        places = draw_order(order, np.array(labels), delta, np.random.default_rng(seed))  # type: ignore[arg-type]
        assert sorted(places) == list(range(len(labels)))


PLAIN = (
    some.text("0123456789eExXo_.+-:ntfaluy~ #", max_size=8)
    | some.text(max_size=12)
    | some.integers()
    | some.floats(allow_nan=False)
    | some.booleans()
    | some.none()
)


@settings(max_examples=300)
@given(PLAIN)
def test_what_is_written_as_yaml_is_read_as_it_was(value: Any) -> None:
    """Also a text that looks like a number in one of YAML's versions, such as 1e5 or 010."""
    read = parse_yaml(dump_yaml({"alone": value, "in a list": [value]}))
    assert read == {"alone": value, "in a list": [value]}
    assert type(read["alone"]) is type(value)


LOGITS = some.floats(-1e4, 1e4, width=32) | some.just(-np.inf)


@given(some.lists(some.lists(LOGITS, min_size=3, max_size=3), min_size=1, max_size=5))
def test_entropies_are_those_of_probabilities(rows: list[list[float]]) -> None:
    """Between 0 and ln C, and that of a mean at least the mean of theirs, whatever is masked."""
    logits = torch.tensor([[0.0, *row] for row in rows], requires_grad=True)
    own = entropy(logits)
    assert ((own >= 0) & (own <= np.log(4) + 1e-5)).all()
    assert own.mean() - 1e-4 <= entropy_of_mean(logits) <= np.log(4) + 1e-4
    (own.mean() + entropy_of_mean(logits)).backward()
    assert logits.grad is not None and logits.grad.isfinite().all()


measured = some.lists(some.floats(0, 1), min_size=8, max_size=8)


@given(measured, some.permutations(range(12)))
def test_the_order_of_the_rows_says_nothing(values: list[float], order: list[int]) -> None:
    """A and F by hand from three domains, and the same of the rows in any order."""
    after = dict(zip([(0, 3), (1, 2), (1, 3), (2, 3)], values, strict=False))
    alone = {1: values[4], 2: values[5]}
    source = {1: values[6], 2: values[7]}
    rows = [(0, "stream", 1, 0.5), (0, "source", 0, 0.5), (0, "alone", 0, 0.5)]
    rows += [(step, "stream", passed, value) for (step, passed), value in after.items()]
    rows += [(step, "alone", 0, value) for step, value in alone.items()]
    rows += [(step, "source", 0, value) for step, value in source.items()]
    rows.append((1, "stream", 1, 0.25))  # before the stream reached it
    table = pd.DataFrame(rows, columns=["step", "kind", "after", "accuracy"])
    table = table.iloc[order]
    assert average_accuracy(table) == pytest.approx((after[0, 3] + after[1, 3] + after[2, 3]) / 3)
    by_hand = {
        "paper": (after[1, 2] - alone[1] + after[2, 3] - alone[2]) / 2,
        "final": (after[1, 3] - alone[1] + after[2, 3] - alone[2]) / 2,
        "unadapted": (after[1, 3] - source[1] + after[2, 3] - source[2]) / 2,
    }
    for definition, expected in by_hand.items():
        found = forward_transfer(table, definition)  # type: ignore[arg-type]
        assert found == pytest.approx(expected, abs=1e-12), definition


rows = some.lists(
    some.tuples(some.integers(0, 3), some.integers(1, 50), some.floats(0, 1)),
    min_size=1,
    max_size=20,
)


@given(rows)
def test_the_online_error_is_a_mean_over_domains_and_not_over_examples(
    batches: list[tuple[int, int, float]],
) -> None:
    table = pd.DataFrame(batches, columns=["step", "count", "share"]).assign(
        domain="fog", severity=1
    )
    table["errors"] = (table["count"] * table["share"]).round()
    by_hand = []
    for step in {step for step, _, _ in batches}:
        own = [(round(count * share), count) for at, count, share in batches if at == step]
        by_hand.append(sum(wrong for wrong, _ in own) / sum(count for _, count in own))
    assert mean_online_error(table) == pytest.approx(sum(by_hand) / len(by_hand))
