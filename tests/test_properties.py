"""What holds whatever the input: properties, tried by hypothesis on examples of its own."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays
from test_methods import make, same, snapshot
from torch import Tensor

from cascadetta_lib.augment.image import crop_and_flip
from cascadetta_lib.data.corruptions import CORRUPTIONS, HELD_OUT_CORRUPTIONS, corrupt
from cascadetta_lib.evaluate import average_accuracy, forward_transfer, mean_online_error
from cascadetta_lib.methods import METHODS
from cascadetta_lib.settings import flat, make_settings
from cascadetta_lib.streams import Vocabulary, draw_order, make_stream

settings.register_profile("here", max_examples=30, deadline=None, derandomize=True)  # The same examples every time.
settings.load_profile("here")
few = settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])

CHANGES = {
    "image_severity": some.integers(1, 5),
    "image_batch_size": some.none() | some.integers(1, 10**6),
    "image_learning_rate": some.floats(1e-12, 1e6),
    "image_methods": some.lists(some.sampled_from(sorted(METHODS)), min_size=1, unique=True),
    "image_stream": some.lists(some.sampled_from(CORRUPTIONS), min_size=1),
    "text_hidden": some.lists(some.integers(1, 65_536), min_size=1, max_size=4),
    "seeds": some.lists(some.integers(0, 2**32 - 1), min_size=1, unique=True),
    "profile": some.from_regex(r"[A-Za-z0-9][A-Za-z0-9 _-]{0,50}", fullmatch=True),
}
STREAM = Vocabulary(("fog", "snow"), ("rain",), (1, 2, 3, 4, 5))


@given(some.fixed_dictionaries({}, optional=CHANGES).filter(lambda values: values.get("profile") not in ("runs",)))
def test_settings_survive_their_flat_names(values: dict[str, Any]) -> None:
    made = make_settings(values)
    assert make_settings(flat(made)) == made
    assert {name: flat(made)[name] for name in values} == values


@given(some.lists(some.tuples(some.sampled_from(["fog", "snow", "rain"]), some.integers(1, 5)), min_size=1))
def test_a_stream_is_the_list_that_its_domains_are_written_as(domains: list[tuple[str, int]]) -> None:
    made = make_stream([f"{name}:{level}" for name, level in domains], STREAM)
    assert [tuple(domain) for domain in made] == domains
    assert make_stream([str(domain) for domain in made], STREAM) == made


@given(some.lists(some.integers(0, 4), min_size=1, max_size=60), some.floats(1e-3, 1e3), some.integers(0, 2**32 - 1))
def test_every_order_has_each_example_once(labels: list[int], delta: float, seed: int) -> None:
    for order in ("mixed", "correlated"):
        places = draw_order(order, np.array(labels), delta, np.random.default_rng(seed))  # type: ignore[arg-type]
        assert sorted(places) == list(range(len(labels)))


rows = some.lists(some.tuples(some.integers(0, 3), some.integers(1, 50), some.floats(0, 1)), min_size=1, max_size=20)


@given(rows)
def test_the_online_error_is_a_mean_over_domains_and_not_over_examples(batches: list[tuple[int, int, float]]) -> None:
    table = pd.DataFrame(batches, columns=["step", "count", "share"]).assign(domain="fog", severity=1)
    table["errors"] = (table["count"] * table["share"]).round()
    by_hand = []
    for step in {step for step, _, _ in batches}:
        own = [(round(count * share), count) for at, count, share in batches if at == step]
        by_hand.append(sum(wrong for wrong, _ in own) / sum(count for _, count in own))
    assert mean_online_error(table) == pytest.approx(sum(by_hand) / len(by_hand))


@given(arrays(float, some.tuples(some.integers(2, 6), some.just(4)), elements=some.floats(0, 1)))
def test_accuracy_and_transfer_are_as_their_equations_say(values: np.ndarray) -> None:
    """A row a domain: its accuracy right after it, at the end, of the source, and alone."""
    kinds = [("stream", 0), ("stream", len(values)), ("source", 0), ("alone", 0)]
    rows = [
        {"step": step, "domain": "fog", "severity": 1, "kind": kind, "accuracy": value}
        | {"after": step + 1 if place == 0 else after}
        for step, accuracies in enumerate(values)
        for place, ((kind, after), value) in enumerate(zip(kinds, accuracies, strict=True))
        if (step or kind == "stream") and not (place == 1 and step == len(values) - 1)  # measured once at the end
    ]
    table, end = pd.DataFrame(rows), values[:, 1].copy()
    end[-1] = values[-1, 0]
    assert average_accuracy(table) == pytest.approx(end.mean())
    assert forward_transfer(table) == pytest.approx((values[1:, 0] - values[1:, 3]).mean())
    assert forward_transfer(table, "final") == pytest.approx((end[1:] - values[1:, 3]).mean())
    assert forward_transfer(table, "release") == pytest.approx((end[1:] - values[1:, 2]).mean())


@pytest.mark.parametrize("name", [name for name in METHODS if "image" in METHODS[name].modalities])
@given(sizes=some.lists(some.integers(1, 5), min_size=1, max_size=4))
@settings(few, max_examples=3)
def test_reset_undoes_any_sequence_of_batches(name: str, sizes: list[int]) -> None:
    method = make(name)
    source = snapshot(method)
    first = method(torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    for place, size in enumerate(sizes):
        method(torch.rand(size, 3, 32, 32, generator=torch.Generator().manual_seed(place)))
    method.reset()
    assert same(snapshot(method), source)
    assert torch.equal(method(torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))), first)


@given(
    arrays(
        np.uint8,
        some.tuples(some.integers(1, 3), some.just(3), some.just(32), some.just(32)),
        fill=some.integers(0, 255),
    ),
    some.sampled_from([*CORRUPTIONS, *HELD_OUT_CORRUPTIONS]),
    some.integers(1, 5),
)
def test_a_corruption_of_any_image_is_an_image_and_always_the_same(images: np.ndarray, name: str, level: int) -> None:
    x = torch.from_numpy(images)
    corrupted = corrupt(x, name, level)
    assert corrupted.dtype == torch.uint8 and corrupted.shape == x.shape
    assert torch.equal(corrupt(x, name, level), corrupted) and torch.equal(x, torch.from_numpy(images))


@given(some.integers(0, 2**31), some.floats(-1, 0))
def test_a_crop_holds_pixels_of_its_image_or_black(seed: int, black: float) -> None:
    x = torch.arange(2 * 3 * 32 * 32).reshape(2, 3, 32, 32).float()
    cropped: Tensor = crop_and_flip(x, torch.Generator().manual_seed(seed), black=black)
    assert cropped.shape == x.shape
    for one, source in zip(cropped, x, strict=True):
        assert set(one.flatten().tolist()) <= {*source.flatten().tolist(), float(torch.tensor(black))}
