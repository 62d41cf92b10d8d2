"""What holds whatever the input: properties, tried by hypothesis on examples of its own."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cascadetta_lib.data.corruptions import CORRUPTIONS
from cascadetta_lib.data.streams import Vocabulary, draw_order, make_stream
from cascadetta_lib.evaluation.metrics import mean_online_error
from cascadetta_lib.methods import METHODS
from study.settings import flat, make_settings

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
