"""Beyond the paper: all methods of a profile on four streams and at several batch sizes, and the
cost of their steps.

Each method has the online learning rate that was chosen for it on the source.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.comparable_runs import comparable
from study.exhibits.kit.exhibit import exhibit
from study.exhibits.kit.intervals import bootstrap, per_network
from study.exhibits.kit.numbers import number, rounded
from study.exhibits.kit.points import Point, main_points, of_sizes, reduced
from study.exhibits.kit.rate_choice import AtChosenRates, chosen_rate, rates_table
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs, by_label
from study.exhibits.kit.style import WIDTH, colour, typeset
from study.exhibits.kit.sweep import sweep_table
from study.exhibits.kit.tables import DEFINED, F_NAMES, method_differences, metrics_by_label
from study.settings import Settings
from study.study import Study

STREAMS = ("gradual", "mixed", "correlated")
"""The streams besides the instantaneous one."""
INSTANTANEOUS = "instantaneous"
COSTS = {
    "work": "work, in forward passes",
    "seconds": "ms an image",
    "memory": "extra memory, relative to the network",
}
"""The columns for the cost of a step (evaluation.cost), with their titles."""
CASCADES = (
    "cascade",
    "cascade_fixed_classifier",
    "cascade_no_auxiliary",
    "cascade_plus",
    "cascade_same_weights",
    "cascade_source_prior",
)
"""The methods that the figure shows in bold and in colour."""
COST_NOTE = (
    "Work: counted for adapting to a batch and predicting it. Time: measured on the fastest "
    "domain. Extra memory: how many numbers the method and its optimiser keep beyond those of the "
    "network, divided by how many the network has."
)


@exhibit
class Field(AtChosenRates):
    name = "field"
    place = 240
    label = "beyond: the field"
    title = "The cascade among the methods of the field"
    question = (
        "Where does the cascade stand among the methods that one compares with today, "
        "and what do they cost?"
    )

    def contestants(self, settings: Settings) -> list[Point]:
        """Return the points of the profile's methods."""
        return main_points(settings, "image")

    def points(self, settings: Settings) -> list[Point]:
        """Return a point per method, stream and batch size. Methods that adapt and have no chosen
        rate yet are left out.

        F doubles the cost, so it is measured only on the instantaneous stream, and not for CoTTA.
        """
        study = Study.without_device(settings)
        points = []
        for one in self.contestants(settings):
            rate = chosen_rate(study, one)
            if rate is None:
                continue
            for variant, changes in _variants(settings).items():
                changed = reduced(settings, **changes) | {"online_learning_rate": rate}
                if one.method == "cotta":  # Its F costs more than everything else together.
                    changed["forward_transfer"] = False
                points.append(replace(one, changes=changed, variant=variant))
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        main = frame[frame["variant"] == ""]
        if main.empty:
            return ["No method has a run on the instantaneous stream yet."]
        costs = _costs(main)
        table = metrics_by_label(main).rename(columns=F_NAMES).rename_axis("method")
        table["rate"] = rates_table(main)
        of_steps = costs.rename(columns=COSTS)[list(COSTS.values())].map(partial(rounded, alone=2))
        table = table.join(of_steps).loc[costs.index]
        by_setting = frame.assign(
            label=[METHODS[name].label for name in frame["method"]],
            setting=frame["variant"].replace("", INSTANTANEOUS),
        )
        settings_table = sweep_table(by_setting, "setting")
        order = [label for label in table.index if label in settings_table.index]
        return [
            _standing(costs, main),
            Part("field", table, f"{DEFINED} {COST_NOTE}"),
            Part("field-settings", settings_table.loc[order], _sizes_note(by_setting)),
            *method_differences("field-differences", main),
        ]


def _variants(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return, by variant, the changes to `reduced`: a variant for each stream and one for each
    batch size. The instantaneous stream comes first, and its variant has an empty name.
    """
    image = settings.image
    variants: dict[str, dict[str, Any]] = {
        "": {
            "test_size": image.exhibits.comparison_test_size,
            "forward_transfer": image.online.forward_transfer,
        }
    }
    for name in STREAMS:
        variants[name] = {"stream": name}
    variants["gradual"]["test_size"] = image.exhibits.gradual_test_size
    for changes in of_sizes(settings, image.exhibits.comparison_batch_sizes):
        variants[f"batch {changes['batch_size']}"] = changes
    return variants


def _costs(main: pd.DataFrame) -> pd.DataFrame:
    """Return E and the cost of a step, a row per label, sorted by E.

    E: in percent.
    work, memory: see evaluation.cost.
    seconds: the milliseconds an image takes in the fastest domain.
    apart: 1 if the label lacks a seed that most labels have, or has a run of an earlier code;
        otherwise 0. Labels with 1 come last.

    E is the mean over the seeds that most labels have (see `comparable`).
    """
    rows = {}
    for label, each in by_label(comparable(main)).items():
        seconds = []
        for run in each["run"]:
            of_domains = run.batches.groupby("step")[["seconds", "count"]].sum()
            seconds.append(1000 * (of_domains["seconds"] / of_domains["count"]).min())
        costs = [run.provenance.cost for run in each["run"]]
        rows[label] = {
            "E": per_network(each, "E").mean(),
            "work": pd.Series([cost["work"] for cost in costs]).mean(),
            "seconds": min(seconds),
            "memory": pd.Series([cost["memory"] for cost in costs]).mean(),
            "apart": float(each["apart"].any()),
        }
    return pd.DataFrame.from_dict(rows, orient="index").sort_values(["apart", "E"])


def _sizes_note(frame: pd.DataFrame) -> str:
    """Return the note of the table by setting, with the number of images per domain."""
    sizes = {}
    for setting, run in zip(frame["setting"], frame["run"], strict=True):
        sizes[setting] = run.examples_by_domain.max()
    counts = ", ".join(f"{count} ({name})" for name, count in sizes.items())
    return (
        f"E (%) at the same rates; gradual: at the severities 1 to 5. Images of each domain: "
        f"{counts}."
    )


def _beside_the_cascade(labels: Mapping[str, pd.DataFrame], errors: pd.Series) -> pd.DataFrame:
    """Return, for each method, the interval of its difference from the cascade, moved so that it
    lies around the method's E.

    The columns low and high are its ends, in percent. The interval is over the test batches, given
    the networks. Both ends are NaN for the cascade, and for a method whose difference is not known.
    """
    cascade = labels.get(METHODS["cascade"].label)
    rows = {}
    for label in errors.index:
        rows[label] = {"low": math.nan, "high": math.nan}
        if cascade is None or label == METHODS["cascade"].label or label not in labels:
            continue
        found = bootstrap(cascade, labels[label])
        if found is not None:
            base = errors[label] - found.mean
            rows[label] = {"low": base + found.low, "high": base + found.high}
    return pd.DataFrame.from_dict(rows, orient="index")


def _standing(costs: pd.DataFrame, frame: pd.DataFrame) -> Part:
    """Draw the error and the work of each method, the best on top, with the interval of its
    difference from the cascade. If some methods are not `apart`, draw only these.
    """
    means = costs[costs["apart"] == 0]
    if means.empty:
        means = costs
    labels = by_label(comparable(frame))
    shown = means.join(_beside_the_cascade(labels, means["E"]))
    shown["method"] = frame.groupby("label")["method"].first()
    note = ""
    if shown["low"].notna().any():
        note += (
            "Bars: the 95 % interval of the difference from the cascade on the same batches, given "
            "the networks, drawn about each method's E. The cascade is the reference, so it has "
            "none; the dotted line is its E. "
        )
    if frame["online_learning_rate"].nunique() == 1:
        note += "Rates were not chosen: all are the same. "
    note += (
        "In bold and in colour: the cascades, in the same colours as in all figures. The last "
        "table has the intervals of the differences."
    )
    return Part("field-figure", standing_figure(shown), note)


def standing_figure(shown: pd.DataFrame) -> Figure:
    """Draw a row per label, from the top: its error with an interval, and its work.

    shown: a row per label. Its columns are E (%); low and high, the ends of the interval, or NaN;
        work, in forward passes per batch; and method. Methods of CASCADES have their colour, all
        others are grey.
    """
    size = (WIDTH, 0.8 + 0.24 * len(shown))
    figure, (error, work) = plt.subplots(1, 2, figsize=size, sharey=True, width_ratios=(3, 2))
    is_cascade = shown["method"].isin(CASCADES)
    shades = [
        colour(method) if one else "0.45"
        for method, one in zip(shown["method"], is_cascade, strict=True)
    ]
    places = range(len(shown))
    for level in shown.loc[shown["method"] == "cascade", "E"]:
        error.axvline(level, color=colour("cascade"), lw=1, ls=":", zorder=1)
    error.hlines(places, shown["low"], shown["high"], color=shades, lw=1.5, zorder=2)
    for axes, name in ((error, "E"), (work, "work")):
        axes.grid(visible=False, axis="y")
        axes.scatter(shown[name], places, color=shades, zorder=3)
        for place, value in zip(places, shown[name], strict=True):
            look: dict[str, Any] = {
                "textcoords": "offset points",
                "fontsize": 7,
                "ha": "center",
                "bbox": {"fc": "white", "ec": "none", "pad": 0.5},
                "zorder": 1.5,
            }
            axes.annotate(number(value, 1), (value, place), (0, 5), **look)
    error.set(xlabel="online error E (%)")
    error.margins(x=0.07)
    # MEMO does more work than all other methods, and only its row needs a longer axis.
    most = max(50, 1.3 * shown["work"].max())
    work.set(xlabel="work per batch\n(forward passes)", xscale="log", xlim=(0.7, most))
    ticks = [tick for tick in (1, 3, 10, 30, 100, 300) if tick < most]
    work.set_xticks(ticks, list(map(str, ticks)))
    work.minorticks_off()
    error.set_yticks(places, [typeset(str(label)) for label in shown.index])
    for tick, one in zip(error.get_yticklabels(), is_cascade, strict=True):
        if one:
            tick.set_fontweight("bold")
    error.set_ylim(len(shown) - 0.5, -0.8)  # the first on top
    return figure
