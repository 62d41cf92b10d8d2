"""The field: all methods of a profile, each at the online learning rate that the source chose for it, on streams of
four kinds and at batches of many sizes, and what each of them costs."""

from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from cascadetta_lib.methods import METHODS
from cascadetta_lib.settings import Settings
from exhibits.ablations import of_sizes, sweep_table
from exhibits.base import Part, exhibit
from exhibits.cascade_plus import choice, chosen_rates
from exhibits.collapse import OnSource
from exhibits.runs import Point, Runs, main_points, reduced
from exhibits.style import WIDTH, colour, number, typeset
from exhibits.tables import DEFINED, F_NAMES, method_differences, metrics_by_label

STREAMS = ("gradual", "mixed", "correlated")
"""Of batches, beside the profile's own."""
INSTANTANEOUS = "instantaneous"
COSTS = {"work": "work, in forward passes", "seconds": "ms an image", "memory": "state, in networks"}
"""Columns on what a step costs: see `Method.cost`."""
COST_NOTE = "Work: counted, of adapting to a batch and predicting it. Time: measured under changing load."


def rates(settings: Settings) -> dict[str, float]:
    """The online learning rate of each method by label: the best on corruptions of held-out source images. A profile
    with a single rate leaves nothing to choose, which is how a network without source images is measured."""
    image, points = settings.image, main_points(settings, "image")
    if len(image.choice_learning_rates) == 1:
        return {point.label: image.choice_learning_rates[0] for point in points}
    unmoved = {point.label: image.online_learning_rate for point in points if not METHODS[point.method].adapts}
    best = choice(Runs(settings)).idxmin(axis=1)
    return unmoved | {str(label): float(rate) for label, rate in best.items()}


@exhibit
class Field(OnSource):
    name, place, label, title = "field", 240, "beyond: the field", "The cascade among the methods of the field"
    question = "Where does the cascade stand among the methods that one compares with today, and what do they cost?"

    def points(self, settings: Settings) -> list[Point]:
        """Without methods whose rate is not chosen yet. F, which costs as much again, on the instantaneous stream."""
        image, chosen, points = settings.image, rates(settings), []
        whole = {"test_size": image.comparison_test_size, "forward_transfer": image.forward_transfer}
        settings_of: dict[str, dict[str, Any]] = {INSTANTANEOUS: whole}
        settings_of |= {stream: {"stream": stream} for stream in STREAMS}
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
        frame["setting"] = [
            label.removeprefix(name).removeprefix(", ") or INSTANTANEOUS
            for name, label in zip(names, frame["label"], strict=True)
        ]
        frame["label"] = names
        main = frame[frame["setting"] == INSTANTANEOUS]
        if main.empty:
            return ["No method has a run on the instantaneous stream yet."]
        table = metrics_by_label(main).rename(columns=F_NAMES).rename_axis("method")
        table["rate"] = chosen_rates(main)
        costs = main.assign(
            seconds=[1000 * run.batches["seconds"].sum() / run.batches["count"].sum() for run in main["run"]],
            **{name: [run.provenance["cost"][name] for run in main["run"]] for name in ("work", "memory")},
        )
        means = costs.groupby("label")[["E", "work", "seconds", "memory"]].mean().sort_values("E")
        table = table.join(means.rename(columns=COSTS)[list(COSTS.values())].map(number)).loc[means.index]
        sizes = {name: run.request.test_size for name, run in zip(frame["setting"], frame["run"], strict=True)}
        counts = ", ".join(f"{count} ({name})" for name, count in sizes.items())
        note = f"E (%) at the same rates; gradual: at the severities 1 to 5. Images of each domain: {counts}."
        return [
            _map(means, main),
            Part("field", table, f"{DEFINED} {COST_NOTE}"),
            Part("field-settings", sweep_table(frame, "setting").loc[table.index], note),
            *method_differences("field-differences", main),
        ]


def _map(means: pd.DataFrame, frame: pd.DataFrame) -> Part:
    """Error against work: a method that is better and cheaper than another stands below it and to its left."""
    figure, axes = plt.subplots(figsize=(WIDTH, 4.2))
    methods = dict(zip(frame["label"], frame["method"], strict=True))
    apart, height = (means["E"].max() - means["E"].min()) / 18, float("-inf")
    axes.set(xscale="log", xlabel="work for a batch, in forward passes", ylabel="online error E (%)")
    ticks = [passes for passes in (1, 2, 3, 5, 10, 20, 40) if passes <= 1.1 * means["work"].max()]
    axes.set_xticks(ticks, [f"{passes:g}" for passes in ticks])
    axes.minorticks_off()
    for label, row in means.to_dict("index").items():  # From the best on, names beside the panel, one above the other.
        height, dot = max(row["E"], height + apart), colour(methods[str(label)])
        axes.plot(row["work"], row["E"], "o", color=dot)
        axes.annotate(
            f"{typeset(str(label))}  {number(row['E'], 1)}",
            (row["work"], row["E"]),
            (1.03, height),
            textcoords=axes.get_yaxis_transform(),
            arrowprops={"arrowstyle": "-", "color": dot, "lw": 0.6, "relpos": (0, 0.5), "shrinkB": 0},
            va="center",
            fontsize=9,
        )
    return Part("field-figure", figure, "Lower is better, further left is cheaper.")
