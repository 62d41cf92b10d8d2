"""Beyond the paper: the learning rate selected online, without labels, beside each fixed rate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from cascadetta_lib.data.streams import RECURRING, RESET_EACH
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.rate_selection import rates_around
from study.exhibits.kit.comparable_runs import count
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.numbers import number, rounded
from study.exhibits.kit.points import Point, reduced
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.kit.style import WIDTH, legend, panels
from study.settings import Settings
from study.store import Run

SELECTING = {"tent_rate_selection": "tent", "cascade_rate_selection": "cascade"}
"""Each method that selects its rate online, and the method whose copies it carries."""
STREAMS = (
    *("instantaneous", "mixed", "correlated", "mixed_correlated", RESET_EACH),
    *(RECURRING, "gradual", "gradual_correlated"),
)
LONG = (RECURRING, "gradual", "gradual_correlated")
"""Streams of many domains. On these, a domain has `gradual_test_size` images. In other exhibits, a
domain of the recurring stream has as many images as a domain in the ablations.
"""
BOUND = 0.5
"""The most points of E that the selection may lose against the best fixed rate. It was set before
the selection was run.
"""
SELECTED = "selected online"
COLUMNS = 4
"""The most panels in a row."""
BINS = 60
"""The number of equal parts of a stream in which the figure counts selections."""


@dataclass(frozen=True)
class Compared:
    """A method that selects its rate, compared with the same method at each fixed rate, on one
    stream.

    label: the label of the selecting method.
    rates: the fixed rates, as text.
    errors: E in percent: a row per seed at which all of these runs are stored, a column per rate,
        and the column SELECTED.
    selecting: the run of the selecting method at the first of these seeds.
    fixed: the runs at the fixed rates at that seed, in the order of `rates`.
    networks: the number of networks behind `errors`.
    """

    label: str
    stream: str
    rates: Sequence[str]
    errors: pd.DataFrame
    selecting: Run
    fixed: Sequence[Run]
    networks: int

    @property
    def means(self) -> pd.Series:
        """The mean E at each rate and of the selection, in percent."""
        return self.errors.mean()

    @property
    def best(self) -> str:
        """The fixed rate with the smallest mean E."""
        return str(self.means[list(self.rates)].idxmin())

    @property
    def regret(self) -> float:
        """Points of E that the selection loses against the best fixed rate."""
        return float(self.means[SELECTED] - self.means[self.best])

    @property
    def selected_is_known(self) -> bool:
        """Whether all of these runs have the distances moved after each batch, which `selected`
        needs.
        """
        return all(run.provenance.distances_by_batch for run in (self.selecting, *self.fixed))

    @property
    def selected(self) -> np.ndarray:
        """The place in `rates` of the selected rate, for each row of the selecting run's batches,
        (rows,).

        After a batch, the model holds the values of the selected copy. This copy is as far from the
        source as the run at its fixed rate. So the rate is found by comparing distances. The result
        is meaningful only if `selected_is_known`.
        """
        distances = [_moved(each) - _moved(self.selecting) for each in self.fixed]
        return np.abs(np.stack(distances)).sum(2).argmin(0)


@exhibit
class RateSelection(Exhibit):
    name = "rate_selection"
    place = 89
    label = "beyond: rate selection"
    title = "The learning rate selected online, without labels"
    question = (
        "Does a rule that sees no label stay within half a point of the best fixed rate on every "
        "stream?"
    )

    def points(self, settings: Settings) -> list[Point]:
        """Return points on every stream. Each method of the profile that selects its rate has one.
        The method whose copies it carries has one per fixed rate.
        """
        image = settings.image
        points = []
        for selecting, fixed in SELECTING.items():
            if selecting not in image.methods:
                continue
            for stream in STREAMS:
                changes = reduced(settings, stream=stream)
                if stream in LONG:
                    changes["test_size"] = image.exhibits.gradual_test_size
                points.append(Point(selecting, None, changes))
                for rate in fixed_rates(settings):
                    at_rate = changes | {"online_learning_rate": rate}
                    points.append(Point(fixed, None, at_rate, f"rate {rate:g}"))
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        compared = compare(frame, [f"{rate:g}" for rate in fixed_rates(runs.settings)])
        if not compared:
            return [
                "Nothing to compare: this needs, on one stream and at one seed, a run that selects "
                "its rate and a run at each fixed rate."
            ]
        within = sum(each.regret <= BOUND for each in compared)
        most = max(compared, key=lambda each: each.regret)
        largest = rounded(most.regret, alone=2)
        said = (
            f"Within {BOUND:g} points of the best fixed rate on {within} of {len(compared)} "
            f"streams. The largest regret is {largest} points, on {most.stream}."
        )
        note = (
            "E (%). Each copy of the selection is the method at a fixed rate. Regret: E of the "
            "selection minus E of the best fixed rate, in points. Only the labels tell which "
            "rate is best. The criterion was chosen on source images (docs/rate-criteria.md)."
        )
        return [
            said,
            Part("rate-selection", _table(compared), note),
            _figure(compared),
            *_over_time(compared),
        ]


def fixed_rates(settings: Settings) -> list[float]:
    """Return the three rates of the selection's copies, ascending. If the profile's rate is 0, all
    three are 0, and a single 0 is returned.
    """
    return sorted(set(rates_around(settings.image.online.online_learning_rate)))


def compare(frame: pd.DataFrame, rates: Sequence[str]) -> list[Compared]:
    """Return a comparison per selecting method and stream.

    A stream is left out unless at least one seed has both the selecting run and a run at each fixed
    rate.

    frame: the stored runs of the exhibit's points.
    rates: the fixed rates, as text.
    """
    found = []
    for selecting, fixed in SELECTING.items():
        for stream in STREAMS:
            here = frame[(frame["stream"] == stream) & frame["method"].isin([selecting, fixed])]
            rate = [f"{run.request.online_learning_rate:g}" for run in here["run"]]
            selects = here["method"] == selecting
            here = here.assign(rate=pd.Series(rate, here.index).mask(selects, SELECTED))
            errors = here.pivot(index="seed", columns="rate", values="E")
            errors = errors.reindex(columns=[*rates, SELECTED]).dropna()
            if errors.empty:
                continue
            kept = here[here["seed"].isin(errors.index)]
            first = kept[kept["seed"] == errors.index[0]].set_index("rate")["run"]
            one = Compared(
                label=METHODS[selecting].label,
                stream=stream,
                rates=rates,
                errors=errors,
                selecting=first[SELECTED],
                fixed=[first[rate] for rate in rates],
                networks=count(kept),
            )
            found.append(one)
    return found


def _moved(run: Run) -> np.ndarray:
    """Return the distances of the model from the source after each batch, (rows, 2). The first
    column is for the scales and shifts of the normalisation layers, the second for all other
    adapted parameters.
    """
    return run.batches[["moved_normalization", "moved_others"]].to_numpy(float)


def _table(compared: Sequence[Compared]) -> pd.DataFrame:
    rows = []
    for each in compared:
        errors = {name: rounded(error, alone=2) for name, error in each.means.items()}
        rows.append(
            {"method": each.label, "stream": each.stream}
            | errors
            | {
                "best fixed rate": each.best,
                "regret": rounded(each.regret, alone=2, sign=True),
                "n": str(each.networks),
            }
        )
    return pd.DataFrame(rows).set_index(["method", "stream"])


def _named(compared: Sequence[Compared]) -> list[str]:
    """Return a name for each comparison: its stream, preceded by its method if there are several
    methods.
    """
    if len({each.label for each in compared}) == 1:
        return [each.stream for each in compared]
    return [f"{each.label}: {each.stream}" for each in compared]


def _shades(rates: Sequence[str]) -> dict[str, Any]:
    return dict(zip(rates, sns.color_palette("flare", len(rates)), strict=True))


def _figure(compared: Sequence[Compared]) -> Part:
    """Draw the regret of each rate and of the selection by stream on the left, and how the
    selection's regret grows along each stream on the right.
    """
    height = max(3.2, 1.6 + 0.28 * len(compared))
    figure, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, height))
    rates = compared[0].rates
    places = np.arange(len(compared))
    for rate, shade in _shades(rates).items():
        worse = [each.means[rate] - each.means[each.best] for each in compared]
        left.plot(worse, places, "o", color=shade, ms=6, label=f"rate {rate}", clip_on=False)
    regrets = [each.regret for each in compared]
    left.plot(regrets, places, "D", mfc="none", mec="black", ms=7, label=SELECTED)
    left.axvline(BOUND, color="0.3", lw=1, ls=":")
    left.set_xscale("symlog", linthresh=1)
    left.margins(x=0.08)
    left.set_xticks(*_ticks(left.get_xlim()))
    left.set_yticks(places, _named(compared), fontsize=8)
    left.set_ylim(len(compared) - 0.5, -0.5)
    left.set(xlabel="E minus the best fixed rate's (points)")
    colours = sns.color_palette("colorblind", len(compared))
    for name, each, colour in zip(_named(compared), compared, colours, strict=True):
        _draw_growth(right, name, each, colour)
    right.axhline(BOUND, color="0.3", lw=1, ls=":")
    right.set(xlabel="share of the stream (%)", ylabel="regret so far (points of E)")
    right.set_yscale("symlog", linthresh=1)
    right.set_yticks(*_ticks(right.get_ylim()))
    legend(figure)
    note = (
        "Left: by stream, means over the seeds. Right: at the first of these seeds, how many "
        "more errors the selection has made so far than the rate that is best on the left, in "
        f"percent of all images of the stream. Dotted: {BOUND:g} points. Both scales are linear "
        "from −1 to 1 and logarithmic beyond."
    )
    return Part("rate-selection-figure", figure, note)


def _ticks(limits: tuple[float, float]) -> tuple[list[float], list[str]]:
    """Return the ticks of an axis that is linear from −1 to 1 and logarithmic beyond, and their
    texts.
    """
    sizes = (1, 3, 10, 30, 100)
    wanted = [-size for size in reversed(sizes)] + [0.0, BOUND] + list(sizes)
    shown = [tick for tick in wanted if min(limits) <= tick <= max(limits)]
    return shown, [number(tick, 1 if tick == BOUND else 0) for tick in shown]


def _draw_growth(axes: Axes, name: str, each: Compared, colour: Any) -> None:
    own = each.selecting.batches
    best = each.fixed[list(each.rates).index(each.best)].batches
    counts = own["count"].to_numpy()
    more = own["errors"].to_numpy() - best["errors"].to_numpy()
    share = 100 * counts.cumsum() / counts.sum()
    axes.plot(share, 100 * more.cumsum() / counts.sum(), color=colour, lw=1.2, label=name)


def _over_time(compared: Sequence[Compared]) -> list[Part | str]:
    """Draw which rate was selected along each stream where this is known, and name the other
    streams in a sentence.
    """
    known = [each for each in compared if each.selected_is_known]
    unknown = [each for each in compared if not each.selected_is_known]
    shown: list[Part | str] = []
    if known:
        shown.append(_figure_over_time(known))
    if unknown:
        shown.append(
            "Not drawn: which rate was selected along the stream, on "
            f"{', '.join(_named(unknown))}. To find it, the distance moved after each batch is "
            "needed. These runs come from the committed files, which keep only their distances at "
            "the end of each domain."
        )
    return shown


def _figure_over_time(compared: Sequence[Compared]) -> Part:
    """Draw a panel per stream with the share of images that was predicted at each rate."""
    figure, grid = panels(len(compared), 1.7, COLUMNS, sharex=True, sharey=True)
    shades = _shades(compared[0].rates)
    for axes, name, each in zip(grid, _named(compared), compared, strict=True):
        counts = each.selecting.batches["count"].to_numpy()
        middle = (counts.cumsum() - counts / 2) / counts.sum()
        part = (BINS * middle).astype(int)
        images = np.zeros((len(shades), BINS))
        np.add.at(images, (each.selected, part), counts)
        totals = images.sum(0)
        there = totals > 0
        shares = 100 * images[:, there] / totals[there]
        ends = 100 * (np.arange(BINS)[there] + 0.5) / BINS
        labels = [f"rate {rate}" for rate in shades]
        axes.stackplot(ends, shares, colors=list(shades.values()), labels=labels, lw=0)
        axes.set_title(name)
        axes.set(xlim=(0, 100), ylim=(0, 100), xticks=(20, 40, 60, 80))
    for axes in grid[::COLUMNS]:
        axes.set_ylabel("images (%)")
    for axes in grid[-COLUMNS:]:  # the lowest of each column; not all are in the last row
        axes.set_xlabel("share of the stream (%)")
    legend(figure)
    note = (
        "The share of images that were predicted by the copy at each rate, at the first seed at "
        "which the selection and all fixed rates have a run."
    )
    return Part("rate-selection-over-time", figure, note)
