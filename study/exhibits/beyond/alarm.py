"""Beyond the paper: alarms for collapse that need no labels, with their false alarms and misses.

Two signals are judged: the entropy of the mean prediction, and the agreement with the source.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import pandas as pd

from cascadetta_lib.evaluation.alarm import LEAST, LEAST_SOURCE_AGREEMENT
from cascadetta_lib.evaluation.metrics import online_errors
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.numbers import number
from study.exhibits.kit.points import MANY_COPIES, Point, methods_without, points_for, with_alarm
from study.exhibits.kit.ringing import has_alarm, has_source_agreement, moving_source_agreement
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.kit.style import WIDTH, draw_lines, legend, reading
from study.settings import Settings
from study.store import Run

WORSE = 10.0
"""A run counts as collapsed if, on the last fifth of its domains, it errs by at least this many
points more than ERM.
"""


class Signal(NamedTuple):
    """A signal of collapse, which rings where its level is below `least`.

    name: what the table calls it.
    part: the name of its figure.
    recorded: returns whether a run has recorded it.
    levels: returns its level after each batch of a run.
    """

    name: str
    part: str
    least: float
    recorded: Callable[[Run], bool]
    levels: Callable[[Run], pd.Series]


SIGNALS = (
    Signal(
        "entropy of the mean prediction",
        "alarm-figure",
        LEAST,
        has_alarm,
        lambda run: run.batches["alarm_level"],
    ),
    Signal(
        "agreement with the source",
        "alarm-agreement-figure",
        LEAST_SOURCE_AGREEMENT,
        has_source_agreement,
        moving_source_agreement,
    ),
)


@exhibit
class CollapseAlarm(Exhibit):
    name = "alarm"
    place = 88
    label = "beyond: alarm"
    title = "An alarm for collapse, without labels"
    question = (
        "Does an alarm that sees predictions alone ring where a method collapses, and only there?"
    )

    def points(self, settings: Settings) -> list[Point]:
        """Return points on three streams: recurring, correlated, and gradual_correlated. The
        exhibits `recurring`, `streams` and `wild` use the same runs.
        """
        methods = methods_without(settings, MANY_COPIES)
        size = settings.image.exhibits.gradual_test_size
        slow = with_alarm(settings, "gradual_correlated", test_size=size)
        several = [with_alarm(settings, name) for name in ("recurring", "correlated")]
        return points_for(methods, [*several, slow])

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        heard = frame[frame["run"].map(has_alarm)]
        if heard.empty:
            return ["None of these runs has recorded the level of the alarm."]
        judged = pd.DataFrame([judge(row, heard, each) for row, each in _recorded(heard)])
        note = (
            "Each signal is over about the last 256 images. The first signal is the entropy of the "
            f"mean prediction, divided by that of a uniform one. It rings below {LEAST}. The "
            "second is agreement: the share of images for which the method predicts the class that "
            "the source model predicts, both with the method's normalisation. It rings below "
            f"{LEAST_SOURCE_AGREEMENT}. For RoTTA, PeTTA, MEMO, LAME, T3A, ROID and CMF it may be "
            "below 1 before the first update. Both limits were set before any of these streams was "
            "looked at. Collapsed: E on the last fifth of the domains is at least "
            f"{WORSE:g} points above ERM's on the same seed and stream. Runs of ERM itself are not "
            "counted."
        )
        figures = [_figure(heard, signal) for signal in SIGNALS]
        drawn = [each for each in figures if each is not None]
        counted = judged.dropna(subset="collapsed")
        if counted.empty:
            return ["Nothing is judged without ERM on the same streams.", *drawn]
        return [Part("alarm", _table(counted), note), *drawn]


def _recorded(heard: pd.DataFrame) -> list[tuple[dict[Any, Any], Signal]]:
    """Return each row with each signal that its run recorded."""
    rows = heard.to_dict("records")
    return [(row, each) for row in rows for each in SIGNALS if each.recorded(row["run"])]


def judge(row: Mapping[Any, Any], frame: pd.DataFrame, signal: Signal) -> dict[str, Any]:
    """Return whether a run collapsed, whether a signal rang, and when it first rang.

    row: the run's row of `frame`.
    frame: the rows among which ERM on the same stream and seed is looked up.

    The keys are stream, signal and label, and:

    collapsed: whether the run collapsed; None for ERM itself, and if `frame` has no such ERM.
    rang: whether the signal rang.
    after: the share of the run's batches before the first ring, in percent; None if it never rang.
    """
    run = row["run"]
    same = (frame["stream"] == row["stream"]) & (frame["seed"] == row["seed"])
    erm = frame[same & (frame["method"] == "erm")]
    collapsed = None
    if len(erm) and row["method"] != "erm":
        collapsed = _last_error(run) - _last_error(erm["run"].iloc[0]) >= WORSE
    rings = (signal.levels(run) < signal.least).to_numpy()
    return {
        "stream": row["stream"],
        "signal": signal.name,
        "label": row["label"],
        "collapsed": collapsed,
        "rang": bool(rings.any()),
        "after": 100 * rings.argmax() / len(rings) if rings.any() else None,
    }


def _last_error(run: Run) -> float:
    """Return E on the last fifth of a run's domains, in percent."""
    errors = online_errors(run.batches)
    return float(100 * errors.iloc[-max(1, len(errors) // 5) :].mean())


def _table(judged: pd.DataFrame) -> pd.DataFrame:
    rows = {}
    for place, each in judged.groupby(["stream", "signal"], sort=False):
        collapsed = each["collapsed"].astype(bool)
        rang = each["rang"]
        rows[place] = {
            "runs": str(len(each)),
            "collapsed": str(collapsed.sum()),
            "rang for": str((collapsed & rang).sum()),
            "missed": str((collapsed & ~rang).sum()),
            "false alarms": str((~collapsed & rang).sum()),
            "falsely alarmed": ", ".join(each["label"][~collapsed & rang].unique()) or "–",
            "first ring (% of the stream)": number(each["after"].astype(float).median(), 0),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["stream", "signal"])


def _figure(heard: pd.DataFrame, signal: Signal) -> Part | None:
    """Draw the level of a signal along the first stream on which it was recorded, and mark where it
    rings. Return None if no run recorded it.
    """
    known = heard[heard["run"].map(signal.recorded)]
    if known.empty:
        return None
    first = known[known["stream"] == known["stream"].iloc[0]]
    levels = []
    for row in first.to_dict("records"):
        about = {name: row[name] for name in ("label", "method", "objective", "seed")}
        run = row["run"]
        lowest = signal.levels(run).groupby(run.batches["step"]).min()
        levels.append(lowest.rename("level").reset_index().assign(**about))
    drawn = pd.concat(levels, ignore_index=True)
    figure, axes = plt.subplots(figsize=(WIDTH, 3.6))
    draw_lines(axes, drawn, "step", "level")
    axes.axhline(signal.least, color="0.3", lw=1, ls=":")
    ringing_at = drawn[drawn["level"] < signal.least]
    if len(ringing_at):
        axes.plot(ringing_at["step"], ringing_at["level"], "x", color="black", ms=4, label="rings")
    axes.set(xlabel="domain of the stream", ylabel="lowest level in the domain", ylim=(0, 1.03))
    legend(figure)
    stream = first["stream"].iloc[0]
    name = signal.name.capitalize()
    rings = "It rings below the dotted line."
    if ringing_at.empty:
        rings = "It would ring below the dotted line, but does so for none of these runs."
    note = f"{name} on the {stream} stream. {rings} {reading(first)}"
    return Part(signal.part, figure, note, list(first["run"]))
