"""Beyond the paper: E by round on a stream whose domains come back, round after round."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.ticker import MaxNLocator

from cascadetta_lib.evaluation.metrics import online_errors
from cascadetta_lib.methods import METHODS
from study.exhibits.kit.comparable_runs import cell, comparable
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.numbers import rounded
from study.exhibits.kit.points import MANY_COPIES, Point, methods_without, points_for, with_alarm
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs, by_label
from study.exhibits.kit.style import WIDTH, draw_lines, legend, reading
from study.settings import Settings

ERM = METHODS["erm"].label


@exhibit
class Recurring(Exhibit):
    name = "recurring"
    place = 86
    label = "beyond: recurring domains"
    title = "Domains that come back"
    question = "Who is still ahead of ERM when every domain has come back many times?"

    def points(self, settings: Settings) -> list[Point]:
        methods = methods_without(settings, MANY_COPIES)
        return points_for(methods, [with_alarm(settings, "recurring")])

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        rounds = [of_rounds(row) for row in frame.to_dict("records")]
        by_round = pd.concat(rounds, ignore_index=True)
        visits = int(by_round["round"].max())
        run = frame["run"].iloc[0]
        count = int(run.examples_by_domain.max())
        note = (
            f"{visits} rounds through {len(set(run.request.stream))} domains of {count} images. "
            "All rounds have the same images in the same order, so from the second round on a "
            "method has seen them."
        )
        ends = frame.assign(
            first=[float(each["E"].iloc[0]) for each in rounds],
            last=[float(each["E"].iloc[-1]) for each in rounds],
            worst=[float(each["E"].max()) for each in rounds],
        )
        return [
            Part("recurring", _table(comparable(ends)), f"E (%) by round. {note}"),
            _figure(by_round, frame, note),
        ]


def of_rounds(row: Mapping[Any, Any]) -> pd.DataFrame:
    """Return a row per round of a run.

    The columns are round, from 1; E, the mean over the round's domains in percent; and label,
    method, objective and seed.

    row: a row of `Runs.frame`.
    """
    run = row["run"]
    errors = online_errors(run.batches).reset_index(name="E")
    errors["round"] = errors["step"] // len(set(run.request.stream)) + 1
    found = (100 * errors.groupby("round")["E"].mean()).reset_index()
    about = ("label", "method", "objective", "seed")
    return found.assign(**{name: row[name] for name in about})


def _table(ends: pd.DataFrame) -> pd.DataFrame:
    """Return E in the first, the worst and the last round of each label, as text. If ERM has run, a
    last column says whether E in the last round is below ERM's.
    """
    labels = by_label(ends)
    rows: dict[str, dict[str, object]] = {}
    for label, each in labels.items():
        rows[label] = {
            "first round": cell(each, "first"),
            "worst round": cell(each, "worst"),
            "last round": cell(each, "last"),
            "last − first": rounded((each["last"] - each["first"]).mean(), sign=True),
        }
        if ERM in labels:
            ahead = "–" if label == ERM else _is_ahead(each, labels[ERM])
            rows[label]["ahead of ERM at the end"] = ahead
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


def _is_ahead(rows: pd.DataFrame, base: pd.DataFrame) -> str:
    """Say whether E in the last round is smaller in `rows` than in `base`, as means over the seeds
    that both have. Return a dash if they share no seed.
    """
    both = rows.merge(base, on="seed", suffixes=("", "_base"))
    if both.empty:
        return "–"
    return "yes" if both["last"].mean() < both["last_base"].mean() else "no"


def _figure(by_round: pd.DataFrame, frame: pd.DataFrame, note: str) -> Part:
    figure, axes = plt.subplots(figsize=(WIDTH, 3.6))
    draw_lines(axes, by_round, "round", "E")
    axes.set(xlabel="round", ylabel="online error E (%)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(figure)
    return Part("recurring-figure", figure, f"{note} {reading(frame)}")
