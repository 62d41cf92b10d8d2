"""The field: all methods of a profile, each at the online learning rate that the source chose for
it, on streams of four kinds and at batches of many sizes, and what each of them costs."""

from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from cascadetta_lib.methods import METHODS
from study.exhibits.beyond.cascade_plus import choice, chosen_rates
from study.exhibits.beyond.collapse import OnSource
from study.exhibits.kit.exhibit import Part, exhibit
from study.exhibits.kit.runs import Point, Runs, main_points, reduced
from study.exhibits.kit.style import WIDTH, colour, number, reading, typeset
from study.exhibits.kit.tables import DEFINED, F_NAMES, method_differences, metrics_by_label
from study.exhibits.paper.ablations import of_sizes, sweep_table
from study.settings import Settings

STREAMS = ("gradual", "mixed", "correlated")
"""Of batches, beside the profile's own."""
INSTANTANEOUS = "instantaneous"
COSTS = {
    "work": "work, in forward passes",
    "seconds": "ms an image",
    "memory": "state, in networks",
}
"""Columns on what a step costs: see `Method.cost`."""
COST_NOTE = "Work: counted, of adapting to a batch and predicting it. Time: of the fastest domain."


def rates(settings: Settings) -> dict[str, float]:
    """The online learning rate of each method by label: the best on corruptions of held-out source
    images. A profile with a single rate leaves nothing to choose, which is how a network without
    source images is measured."""
    image, points = settings.image, main_points(settings, "image")
    if len(image.choice_learning_rates) == 1:
        return {point.label: image.choice_learning_rates[0] for point in points}
    unmoved = {
        point.label: image.online_learning_rate
        for point in points
        if not METHODS[point.method].adapts
    }
    best = choice(Runs(settings)).idxmin(axis=1)
    return unmoved | {str(label): float(rate) for label, rate in best.items()}


@exhibit
class Field(OnSource):
    name, place, label, title = (
        "field",
        240,
        "beyond: the field",
        "The cascade among the methods of the field",
    )
    question = (
        "Where does the cascade stand among the methods that one compares with today, "
        "and what do they cost?"
    )

    def points(self, settings: Settings) -> list[Point]:
        """Without methods whose rate is not chosen yet. F, which costs as much again, on the
        instantaneous stream.
        """
        image, chosen, points = settings.image, rates(settings), []
        whole = {
            "test_size": image.comparison_test_size,
            "forward_transfer": image.forward_transfer,
        }
        settings_of: dict[str, dict[str, Any]] = {INSTANTANEOUS: whole} | {
            name: {"stream": name} for name in STREAMS
        }
        settings_of["gradual"]["test_size"] = image.gradual_test_size
        sized = of_sizes(settings, image.comparison_batch_sizes)
        settings_of |= {f"batch {changes['batch_size']}": changes for changes in sized}
        for one in main_points(settings, "image"):
            for name, changes in settings_of.items() if one.label in chosen else ():
                if one.method == "cotta":  # Its F costs more than everything else together.
                    changes = changes | {"forward_transfer": False}
                changed = reduced(settings, **changes) | {"online_learning_rate": chosen[one.label]}
                label = one.label if name == INSTANTANEOUS else f"{one.label}, {name}"
                points.append(replace(one, label=label, changes=changed))
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        names = [METHODS[name].label for name in frame["method"]]
        pairs = zip(names, frame["label"], strict=True)
        frame["setting"] = [
            label.removeprefix(name).removeprefix(", ") or INSTANTANEOUS for name, label in pairs
        ]
        frame["label"] = names
        main = frame[frame["setting"] == INSTANTANEOUS]
        if main.empty:
            return ["No method has a run on the instantaneous stream yet."]
        table = metrics_by_label(main).rename(columns=F_NAMES).rename_axis("method")
        table["rate"] = chosen_rates(main)
        domains = [run.batches.groupby("step")[["seconds", "count"]].sum() for run in main["run"]]
        told = {
            name: [run.provenance["cost"][name] for run in main["run"]]
            for name in ("work", "memory")
        }
        costs = main.assign(
            **told, seconds=[1000 * (each["seconds"] / each["count"]).min() for each in domains]
        )
        how = {"E": "mean", "work": "mean", "seconds": "min", "memory": "mean"}
        means = costs.groupby("label").agg(how).sort_values("E")
        table = table.join(means.rename(columns=COSTS)[list(COSTS.values())].map(number)).loc[
            means.index
        ]
        shown = zip(frame["setting"], frame["run"], strict=True)
        sizes = {name: run.batches.groupby("step")["count"].sum().max() for name, run in shown}
        counts = ", ".join(f"{count} ({name})" for name, count in sizes.items())
        note = (
            "E (%) at the same rates; gradual: at the severities 1 to 5. Images of each "
            f"domain: {counts}."
        )
        return [
            _standing(means, main),
            Part("field", table, f"{DEFINED} {COST_NOTE}"),
            Part("field-settings", sweep_table(frame, "setting").loc[table.index], note),
            *method_differences("field-differences", main),
        ]


def _standing(means: pd.DataFrame, frame: pd.DataFrame) -> Part:
    """Every method's error, the best on top, and its work beside it."""
    size = (WIDTH, 0.8 + 0.24 * len(means))
    figure, (error, work) = plt.subplots(1, 2, figsize=size, sharey=True, width_ratios=(3, 2))
    shades = [colour(method) for method in frame.groupby("label")["method"].first()[means.index]]
    spreads, places = frame.groupby("label")["E"].std()[means.index], range(len(means))
    error.errorbar(means["E"], places, xerr=spreads, fmt="none", ecolor=shades)
    for axes, name in ((error, "E"), (work, "work")):
        axes.grid(visible=False, axis="y")
        axes.hlines(places, 0, means[name], color="0.85", zorder=1)
        axes.scatter(means[name], places, color=shades, zorder=3)
        for place, value in zip(places, means[name], strict=True):
            axes.annotate(
                number(value, 1),
                (value, place),
                (0, 4),
                textcoords="offset points",
                fontsize=7,
                ha="center",
            )
    error.set(
        xlabel="online error E (%)",
        xlim=(0.9 * means["E"].min(), 1.07 * (means["E"] + spreads.fillna(0)).max()),
    )
    work.set(xlabel="work (forward passes)", xscale="log", xlim=(0.7, 50))
    work.set_xticks([1, 3, 10, 30], ["1", "3", "10", "30"])
    work.minorticks_off()
    error.set_yticks(places, map(typeset, map(str, means.index)))
    for tick in error.get_yticklabels():
        tick.set_fontweight("bold" if tick.get_text().startswith("Cascade") else "normal")
    error.set_ylim(len(means) - 0.5, -0.8)  # the first on top
    note = (
        "Rates were not chosen: all are the same. "
        if frame["online_learning_rate"].nunique() == 1
        else ""
    )
    note += f"{reading(frame[['seed']])}Intervals of differences: in the last table."
    return Part("field-figure", figure, note)
