"""Beyond the paper: an alarm that needs no labels, its false alarms and its misses."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from cascadetta_lib.evaluation.alarm import LEAST, rings
from cascadetta_lib.evaluation.metrics import online_errors
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.numbers import number
from study.exhibits.kit.points import MANY_COPIES, Point, methods_without, points_for, reduced
from study.exhibits.kit.ringing import has_alarm, ringing
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.kit.style import WIDTH, draw_lines, legend, reading
from study.settings import Settings

WORSE = 10.0
"""A run has collapsed if it errs by at least this many points more than ERM on the last fifth of
its domains.
"""


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
        """Return points on streams of which some belong to `recurring`, `wild` and `streams`,
        too.
        """
        methods = methods_without(settings, MANY_COPIES)
        size = settings.image.exhibits.gradual_test_size
        slow = reduced(settings, stream="gradual_correlated", test_size=size)
        several = [reduced(settings, stream=name) for name in ("recurring", "correlated")]
        return points_for(methods, [*several, slow])

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        heard = frame[frame["run"].map(has_alarm)]
        if heard.empty:
            return ["None of these runs has recorded the level of the alarm."]
        judged = pd.DataFrame([judge(row, heard) for row in heard.to_dict("records")])
        note = (
            f"The alarm rings where the level is below {LEAST}: the entropy of the mean prediction "
            "over about the last 256 images, over that of a uniform one. Collapsed: E on the last "
            f"fifth of the domains is at least {WORSE:g} points above ERM's on the same seed and "
            "stream. Runs of ERM itself are not counted."
        )
        counted = judged.dropna(subset="collapsed")
        if counted.empty:
            return ["Nothing is judged without ERM on the same streams.", _figure(heard)]
        return [Part("alarm", _table(counted), note), _figure(heard)]


def judge(row: Mapping[Any, Any], frame: pd.DataFrame) -> dict[str, Any]:
    """Say of a run whether it collapsed (None without ERM beside it, and of ERM itself), whether
    the alarm rang, and after which share of the stream it first did.
    """
    run = row["run"]
    same = (frame["stream"] == row["stream"]) & (frame["seed"] == row["seed"])
    erm = frame[same & (frame["method"] == "erm")]
    collapsed = None
    if len(erm) and row["method"] != "erm":
        collapsed = _last_error(run) - _last_error(erm["run"].iloc[0]) >= WORSE
    rings = ringing(run).to_numpy()
    return {
        "stream": row["stream"],
        "label": row["label"],
        "collapsed": collapsed,
        "rang": bool(rings.any()),
        "after": 100 * rings.argmax() / len(rings) if rings.any() else None,
    }


def _last_error(run: Any) -> float:
    """Return E on the last fifth of a run's domains, in percent."""
    errors = online_errors(run.batches)
    return float(100 * errors.iloc[-max(1, len(errors) // 5) :].mean())


def _table(judged: pd.DataFrame) -> pd.DataFrame:
    rows = {}
    for stream, each in judged.groupby("stream", sort=False):
        collapsed = each["collapsed"].astype(bool)
        rang = each["rang"]
        rows[str(stream)] = {
            "runs": str(len(each)),
            "collapsed": str(collapsed.sum()),
            "rang for": str((collapsed & rang).sum()),
            "missed": str((collapsed & ~rang).sum()),
            "false alarms": str((~collapsed & rang).sum()),
            "falsely alarmed": ", ".join(each["label"][~collapsed & rang].unique()) or "–",
            "first ring (% of the stream)": number(each["after"].astype(float).median(), 0),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("stream")


def _figure(heard: pd.DataFrame) -> Part:
    """Draw the level along the first of the streams, and where it rings."""
    first = heard[heard["stream"] == heard["stream"].iloc[0]]
    levels = []
    for row in first.to_dict("records"):
        about = {name: row[name] for name in ("label", "method", "objective", "seed")}
        of_steps = row["run"].batches.groupby("step")["alarm_level"].min().reset_index()
        levels.append(of_steps.assign(**about))
    drawn = pd.concat(levels, ignore_index=True)
    figure, axes = plt.subplots(figsize=(WIDTH, 3.6))
    draw_lines(axes, drawn, "step", "alarm_level")
    axes.axhline(LEAST, color="0.3", lw=1, ls=":")
    ringing_at = drawn[rings(drawn["alarm_level"])]
    axes.plot(
        ringing_at["step"], ringing_at["alarm_level"], "x", color="black", ms=4, label="rings"
    )
    axes.set(xlabel="domain of the stream", ylabel="lowest level in the domain", ylim=(0, 1.03))
    legend(figure)
    stream = first["stream"].iloc[0]
    note = f"On the {stream} stream. Dotted: where the alarm rings. {reading(first)}"
    return Part("alarm-figure", figure, note, list(first["run"]))
