"""The learning rate selected online: its copies, its criterion, how the criterion was chosen, and
what the exhibit says of it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import seeded
from made_up_runs import Numbers, content, made_up_runs, points_of, quick, stored
from test_methods import make, network
from torch import Tensor

from cascadetta_lib.evaluation.cost import cost
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.methods.rate_selection import (
    LEAST_AGREEMENT,
    WINDOW,
    CascadeRateSelection,
    TentRateSelection,
    WithRateSelection,
    rates_around,
)
from study.exhibits.kit.exhibit import EXHIBITS
from study.tools import rate_criteria
from study.tools.rate_criteria import RATES, RECIPES, Record

RATE = 0.05


def batches(count: int = 4) -> list[Tensor]:
    return [torch.randn(8, 3, 32, 32, generator=seeded(place)) for place in range(count)]


def at_place(kind: type[WithRateSelection], place: int, **options: Any) -> Method:
    """The method, where one copy is always preferred."""

    class Fixed(kind):  # type: ignore[misc, valid-type]
        def preferred(self, z: Tensor) -> Tensor:
            return torch.tensor(place, device=z.device)

    return Fixed(network("meta"), learning_rate=RATE, **options)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "options",
    [{}, {"predict": "before"}, {"optimizer": "adam"}, {"memory": 16}, {"diversity": 1.0}],
    ids=str,
)
@pytest.mark.parametrize(
    ("kind", "fixed"), [(TentRateSelection, "tent"), (CascadeRateSelection, "cascade")]
)
def test_each_copy_is_the_method_at_its_rate_bit_for_bit(
    kind: type[WithRateSelection], fixed: str, options: dict[str, Any], place: int
) -> None:
    method = at_place(kind, place, **options)
    alone = METHODS[fixed](network("meta"), learning_rate=rates_around(RATE)[place], **options)
    for _ in range(2):
        for x in batches():
            found = method.step(x)
            expected = alone.step(x)
            assert torch.equal(found.main, expected.main)
            assert torch.equal(found.auxiliary, expected.auxiliary)
            assert torch.equal(method.predict(x).main, alone.predict(x).main)
        for name, value in alone.model.state_dict().items():
            assert torch.equal(method.model.state_dict()[name], value), name
        method.reset()
        alone.reset()


def test_a_copy_that_is_not_preferred_adapts_on() -> None:
    """The second batch is answered by another copy than the first, as if it always had been."""

    class Changing(TentRateSelection):
        def preferred(self, z: Tensor) -> Tensor:
            places.append(len(places) % 3)
            return torch.tensor(places[-1])

    places: list[int] = []
    method = Changing(network("meta"), learning_rate=RATE)
    rates = rates_around(RATE)
    alone = [METHODS["tent"](network("meta"), learning_rate=rate) for rate in rates]
    for x in batches(6):
        found = method(x)
        expected = [tent(x) for tent in alone]
        assert torch.equal(found, expected[places[-1]])
    assert places == [0, 1, 2, 0, 1, 2]


def test_the_rates_of_the_default_are_those_of_the_study() -> None:
    method = METHODS["tent_rate_selection"](network("meta"))
    assert rates_around(method.learning_rate) == (1e-4, 1e-3, 1e-2) == RATES


def test_its_cost_counts_every_copy() -> None:
    x = batches(1)
    measured = {name: cost(make(name), x) for name in ("tent", "tent_rate_selection")}
    assert measured["tent_rate_selection"]["work"] == 3 * measured["tent"]["work"]
    selecting = make("tent_rate_selection")
    adapted = sum(parameter.numel() for parameter in selecting.adapted_parameters())
    size = sum(value.numel() for value in selecting.model.state_dict().values())
    values_and_momentum = 2 * 3 * adapted / size
    assert measured["tent_rate_selection"]["memory"] == pytest.approx(values_and_momentum, rel=0.2)


@pytest.mark.parametrize("sure", [1.0, 3.0])
def test_the_criterion_is_the_one_that_was_chosen(sure: float) -> None:
    """As it was tried on records, by other code: logits that change along 2,000 examples."""
    table = pd.read_csv(rate_criteria.TABLE)
    row = table.loc[rate_criteria.chosen(table)]
    assert (row["criterion"], row["window"]) == ("agreement", WINDOW)
    assert row["threshold"] == LEAST_AGREEMENT
    generator = seeded(1)
    sizes = [64, 17] * 24 + [200]
    shared = torch.randn(sum(sizes), 1, 4, generator=generator)
    apart = torch.linspace(0, 3, sum(sizes))[:, None, None] * torch.tensor([0, 0.3, 1])[:, None]
    z = sure * (shared + apart * torch.randn(sum(sizes), 3, 4, generator=generator))
    z = z * torch.tensor([1, 1.2, 1.5])[:, None]
    made = Record(z.numpy(), np.zeros(len(z)), np.array(sizes))
    seen = rate_criteria.measures(made, WINDOW)
    expected = rate_criteria.agreement(seen, LEAST_AGREEMENT)
    assert set(expected) == {0, 1, 2}, "all of them, as the copies part"
    method = TentRateSelection(network("meta"))
    with torch.no_grad():
        for _ in range(2):
            found = [int(method.preferred(part.transpose(0, 1))) for part in z.split(sizes)]
            assert found == expected.tolist()
            method.reset()


def test_a_copy_that_diverges_does_not_answer() -> None:
    """Its agreement falls slowly, so it stays high for a batch."""
    method = TentRateSelection(network("meta"))
    sure = torch.randn(3, 32, 4, generator=seeded(0)).mul(5)
    sure[1:] = sure[0] * torch.tensor([1.1, 1.2])[:, None, None]
    diverged = sure.clone()
    diverged[2] = torch.nan
    with torch.no_grad():
        for _ in range(20):
            assert int(method.preferred(sure)) == 2, "the surest"
        assert int(method.preferred(diverged)) == 1
        assert int(method.preferred(sure)) == 1, "its entropy is not known any more"
        method.reset()
        assert int(method.preferred(sure)) == 2


def test_a_masked_class_is_no_divergence() -> None:
    """All copies were left out, and the smallest rate always answered."""
    method = TentRateSelection(network("meta"))
    sure = torch.randn(32, 4, generator=seeded(0)).mul(5)
    z = torch.stack([sure, 1.1 * sure, 1.2 * sure])
    z[:, :, 3] = -torch.inf
    with torch.no_grad():
        assert int(method.preferred(z)) == 2, "the surest"
        z[2, 0] = -torch.inf
        assert int(method.preferred(z)) == 1, "all classes are masked in an example of copy 2"


def test_a_copy_may_diverge_and_the_step_goes_on() -> None:
    """Only what is not finite at the smallest rate comes from the batch or the network."""
    method = TentRateSelection(network("meta"), learning_rate=RATE)
    x = batches(1)[0]
    method(x)
    with torch.no_grad():
        method.values[2].fill_(torch.nan)
    assert method(x).isfinite().all()
    with torch.no_grad():
        method.values[0].fill_(torch.nan)
    before = method.values_now()
    with pytest.raises(ValueError, match="the batch or the network gave NaN or infinity"):
        method(x)
    assert torch.equal(method.values_now(), before)


# ---------------------------------------------------------------- the choice of the criterion


def record(classes: list[list[int]], labels: list[int], size: int = 2) -> Record:
    """What copies predicted, surely, in batches of `size`: their classes by example."""
    logits = 20 * np.eye(3)[np.array(classes)]
    return Record(logits, np.array(labels), np.full(len(labels) // size, size))


def test_a_moving_mean_begins_as_the_mean_of_all() -> None:
    values = np.array([1.0, 3.0, 5.0, 7.0, 10.0, 20.0, 0.0])
    found = rate_criteria.moving_means(values, np.array([2, 2, 2, 1]), window=4)
    assert found == pytest.approx([2, 4, 4 + (15 - 4) / 2, 9.5 - 9.5 / 4])


def test_errors_are_those_of_the_selected_copies() -> None:
    made = record([[0, 1, 1], [0, 0, 1], [2, 1, 1], [0, 2, 1]], [0, 0, 2, 2])
    fixed = [rate_criteria.error(made, np.full(2, place)) for place in range(3)]
    assert fixed == [25, 50, 100]
    assert rate_criteria.error(made, np.array([0, 1])) == 25
    assert rate_criteria.error(made, np.array([1, 0])) == 50


COLLAPSED = record([[0, 0, 1], [1, 1, 1], [2, 2, 1], [0, 0, 1]] * 2, [0, 1, 2, 0] * 2)
"""The largest rate predicts one class, and the two others are right."""
BETTER = record([[0, 1, 1], [0, 0, 0], [0, 2, 2], [0, 1, 1]] * 2, [1, 0, 2, 1] * 2)
"""The smallest rate predicts one class, and the two others are right."""


@pytest.mark.parametrize(
    ("select", "threshold", "collapsed", "better"),
    [
        (rate_criteria.mutual_information, np.nan, 0, 1),
        (rate_criteria.consensus, np.nan, 0, 1),
        (rate_criteria.surprise, np.nan, 0, 1),
        (rate_criteria.diversity, 0.9, 1, 2),
        (rate_criteria.agreement, 0.9, 0, 0),
        (rate_criteria.divergence, 0.05, 1, 0),
    ],
)
def test_a_criterion_sees_a_collapse(
    select: Any, threshold: float, collapsed: int, better: int
) -> None:
    for made, place in ((COLLAPSED, collapsed), (BETTER, better)):
        seen = rate_criteria.measures(made, 1024)
        assert select(seen, threshold)[-1] == place


def test_the_rule_takes_the_smallest_worst_regret_and_of_equal_ones_the_first() -> None:
    records = dict.fromkeys(RECIPES, COLLAPSED) | {"recurring": BETTER}
    table = rate_criteria.compare(records)
    always = table[table["window"] == 0].set_index("criterion")
    assert always.loc["always 0.01", "pairs"] == pytest.approx(75)
    assert always.loc["always 0.01", "recurring"] == 0
    tried = table[table["window"] > 0]
    assert len(tried) == len(rate_criteria.candidates())
    assert rate_criteria.chosen(table) == tried.index[0]
    worse = table.copy()
    worse.loc[tried.index[0], "worst"] += 0.2
    assert rate_criteria.chosen(worse) == tried.index[1]


def test_the_page_of_criteria_is_that_of_its_table() -> None:
    """If not: python -m study.tools.rate_criteria compare RECORDS."""
    table = pd.read_csv(rate_criteria.TABLE)
    text = rate_criteria.PAGE.read_text(encoding="utf-8")
    revision = text.partition("Revision ")[2].partition(".")[0]
    assert text == rate_criteria.page(table, revision)


# ---------------------------------------------------------------- the exhibit


def shown_of(errors: Callable[[dict[str, Any], int], dict[str, int]]) -> Any:
    """The exhibit of made-up runs: errors of 20 images of each domain, by rate and `selected`."""
    settings = quick(image_methods=("tent", "tent_rate_selection"), image_recurring_visits=2)

    def world(method: str, objective: str, changes: dict[str, Any], seed: int) -> Numbers:
        rate = changes.get("online_learning_rate")
        name = f"{rate:g}" if method == "tent" else "selected"
        distance = 10.0 if rate is None else rate
        return Numbers((errors(changes, seed)[name], 0), moved=(distance, 0.0))

    runs = made_up_runs(settings, world, points_of(settings, ["rate_selection"]), (0, 1))
    return settings, runs


def test_the_regret_is_against_the_best_fixed_rate() -> None:
    def errors(changes: dict[str, Any], seed: int) -> dict[str, int]:
        if changes["stream"] == "correlated":
            return {"0.0001": 3 + seed, "0.001": 5, "0.01": 9, "selected": 6}
        return {"0.0001": 5, "0.001": 4, "0.01": 9, "selected": 4}

    settings, runs = shown_of(errors)
    shown = EXHIBITS["rate_selection"].show(stored(settings, runs))
    table = content(shown, "rate-selection")
    assert len(table) == 8
    row = table.loc[(METHODS["tent_rate_selection"].label, "correlated")]
    assert [str(cell) for cell in row] == [
        *("17.50", "25.00", "45.00", "30.00", "0.0001", "+12.50", "2"),
    ], "over two networks"
    assert {str(cell) for cell in table["regret"]} == {"0.00", "+12.50"}
    assert shown.content[0] == (
        "Within 0.5 points of the best fixed rate on 7 of 8 streams. The largest regret is 12.50 "
        "points, on correlated."
    )


def test_around_the_rate_0_there_is_one_fixed_rate() -> None:
    settings = quick(
        image_methods=("tent", "tent_rate_selection"),
        image_recurring_visits=2,
        image_online_learning_rate=0.0,
    )
    points = points_of(settings, ["rate_selection"])
    runs = made_up_runs(settings, lambda *asked: Numbers((4, 0)), points, (0,))
    table = content(EXHIBITS["rate_selection"].show(stored(settings, runs)), "rate-selection")
    assert list(table.columns) == ["0", "selected online", "best fixed rate", "regret", "n"]
    assert {str(cell) for cell in table["regret"]} == {"0.00"}


def test_the_notes_say_of_which_seed_the_figures_are() -> None:
    """The right panel and the figure over time are those of one run, all else is a mean."""
    settings, runs = shown_of(
        lambda changes, seed: {
            "0.0001": 5,
            "0.001": 4 + seed,
            "0.01": 9,
            "selected": 6 + 2 * seed,
        }
    )
    shown = EXHIBITS["rate_selection"].show(stored(settings, runs))
    notes = {part.name: part.note for part in shown.parts}
    assert (
        "means over the seeds. Right: at the first of these seeds"
        in (notes["rate-selection-figure"])
    )
    assert "at the first seed" in notes["rate-selection-over-time"]
    [right] = [
        axes
        for axes in content(shown, "rate-selection-figure").axes
        if "so far" in axes.get_ylabel()
    ]
    ends = [line.get_ydata()[-1] for line in right.lines if len(line.get_ydata()) > 2]
    assert len(ends) == 8 and ends == pytest.approx([10.0] * 8), "(6 − 4) of 20 images, at seed 0"


def size(corners: np.ndarray) -> float:
    """The area of a polygon, (N, 2)."""
    x, y = corners.T
    return float(abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2)


def test_the_figure_shows_which_rate_was_selected() -> None:
    """A run that is as far from the source as that at the largest rate, then as the smallest."""
    settings, runs = shown_of(
        lambda changes, seed: dict.fromkeys(("0.0001", "0.001", "0.01", "selected"), 4)
    )
    changed = []
    for run in runs:
        if run.method == "tent_rate_selection":
            half = len(run.batches) // 2
            moved = np.where(np.arange(len(run.batches)) < half, 0.01, 0.0001)
            run = replace(run, batches=run.batches.assign(moved_normalization=moved))
        changed.append(run)
    figure = content(
        EXHIBITS["rate_selection"].show(stored(settings, changed)), "rate-selection-over-time"
    )
    for axes in figure.axes:
        smallest, middle, largest = (
            size(area.get_paths()[0].vertices) for area in axes.collections
        )
        assert middle == 0 and smallest == pytest.approx(largest, rel=0.1), (
            "half of the stream each"
        )
        heights = axes.collections[0].get_paths()[0].vertices
        assert heights[heights[:, 0] < 45, 1].max() == 0, "the largest rate alone in the first half"


def test_a_stream_without_every_rate_is_left_out() -> None:
    settings, runs = shown_of(
        lambda changes, seed: dict.fromkeys(("0.0001", "0.001", "0.01", "selected"), 4)
    )
    kept = [run for run in runs if run.method != "tent" or run.request.order != "mixed"]
    table = content(EXHIBITS["rate_selection"].show(stored(settings, kept)), "rate-selection")
    assert "mixed" not in table.index.get_level_values("stream") and len(table) == 7
    alone = [run for run in runs if run.method != "tent"]
    lines = EXHIBITS["rate_selection"].show(stored(settings, alone)).lines
    assert lines[0].startswith("Nothing to compare: this needs, on one stream and at one seed,")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["record", "RECORDS"], "record needs WEIGHTS and RECORDS"),
        (["compare", "RECORDS"], "RECORDS has no correlated.npz"),
        (["compare", "WEIGHTS", "RECORDS"], "compare needs RECORDS alone, without WEIGHTS"),
        (["record", "no-such-file", "RECORDS"], "no-such-file"),
    ],
)
def test_what_the_tool_lacks_is_told(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        rate_criteria.main(arguments)
    told = capsys.readouterr().err
    assert stopped.value.code == 2 and said in told and "Traceback" not in told
