"""Cascade+ beside the others: every method at the online learning rate that is chosen for it on the
source alone.

The choice reads runs on four corruptions of held-out source images, at one seed. The fifteen test
corruptions are then run once, at every seed. What is left to θ_a shows on one network: Tent, with
SGD and with Adam, on Cascade+'s own, and on that of a control, which is trained on the same images
with the cross-entropy alone.
"""

from dataclasses import replace

import pandas as pd

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.cascade_plus import CascadePlus
from study.exhibits.beyond.collapse import ON_SOURCE, OnSource, on_source
from study.exhibits.kit.exhibit import Part, exhibit
from study.exhibits.kit.runs import Point, Runs, main_points, reduced
from study.exhibits.kit.style import number, spread
from study.exhibits.kit.tables import DEFINED, F_NAMES, method_differences, metrics_by_label
from study.exhibits.paper.ablations import of_sizes
from study.settings import Settings

PLUS, CONTROL, ALIKE = (
    METHODS["cascade_plus"].label,
    "both_cross_entropy",
    ("adabn", "tent", "tent_adam"),
)
UNADAPTED, *SAME_NETWORK = (f"{METHODS[name].label} on {PLUS}'s network" for name in ALIKE)
ALIKE_NOTE = (
    f"On {PLUS}'s network and the control all have its memory of statistics, both "
    "Tents its diversity, too."
)
SIZES = (128, 16, 4)
"""Of batches at which Cascade+ is measured besides."""
ON_CONTROL = [f"{METHODS[name].label} on the control" for name in ALIKE]


def contestants(settings: Settings) -> list[Point]:
    """The profile's methods; then on Cascade+'s network and on the control's some with its memory
    and diversity.
    """
    points = main_points(settings, "image")
    plus = CascadePlus
    if "cascade_plus" in settings.image.methods:
        alike = {"statistics_memory": plus.memory, "online_diversity": plus.diversity}
        for labels, objective in (
            ((UNADAPTED, *SAME_NETWORK), plus.objective),
            (ON_CONTROL, CONTROL),
        ):
            points += [
                Point(label, name, objective, alike)
                for label, name in zip(labels, ALIKE, strict=True)
            ]
    return points


def choice(runs: Runs) -> pd.DataFrame:
    """E (%) on the source by contestant and learning rate, at the first seed. One whose runs are
    not all stored is left out: a choice among a part of the rates would be another one tomorrow."""
    frame = runs.frame(Choice().points(runs.settings), runs.settings.seeds[:1])
    if frame.empty:
        return pd.DataFrame()
    table = frame.pivot_table(index="label", columns="online_learning_rate", values="E", sort=False)
    # Rounded, so that of two alike the smaller rate is chosen: their sums may differ in the last
    # bit.
    return (
        table.reindex(columns=sorted(runs.settings.image.choice_learning_rates)).dropna().round(6)
    )


def chosen_rates(frame: pd.DataFrame) -> pd.Series:
    """The online learning rate by label, as text; a dash for a method that does not adapt."""
    first, adapts = (
        frame.groupby("label").first(),
        [name for name in METHODS if METHODS[name].adapts],
    )
    return first["online_learning_rate"].map("{:g}".format).where(first["method"].isin(adapts), "–")


@exhibit
class Choice(OnSource):
    name, place, label, title = (
        "choice",
        220,
        "beyond: choice",
        "Learning rates chosen on the source",
    )
    question = (
        "Which online learning rate suits each method, by corruptions that no test stream has?"
    )
    once = True

    def points(self, settings: Settings) -> list[Point]:
        """Every contestant that adapts, on the source at each learning rate."""
        return [
            replace(one, changes=on_source(settings, online_learning_rate=rate) | dict(one.changes))
            for one in contestants(settings)
            for rate in settings.image.choice_learning_rates
            if METHODS[one.method].adapts
        ]

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        errors = choice(runs)
        if errors.empty:
            return ["No method has a run at every rate yet."]
        text, is_best = errors.map(number), errors.eq(errors.min(axis=1), axis=0)
        table = (
            text.mask(is_best, "**" + text + "**")
            .rename(columns="{:g}".format)
            .rename_axis("method")
        )
        note = (
            f"{ON_SOURCE} by online learning rate. Bold: chosen; beyond an edge of the grid "
            "may be better still."
        )
        return [Part("choice", table.rename_axis(None, axis=1), note)]


@exhibit
class Comparison(OnSource):
    name, place, label, title = (
        "comparison",
        230,
        "beyond: comparison",
        "Every method at the rate chosen for it",
    )
    question = f"Does {PLUS} err less than its rivals, and less than Tent on the same network?"

    def points(self, settings: Settings) -> list[Point]:
        """Every contestant on the test domains at the rate chosen for it, read off the stored runs
        of the choice; those that adapt without one are left out. Cascade+ also at other batch
        sizes, and with AdaBN where it is gradual."""
        image, points, rates = settings.image, [], choice(Runs(settings)).idxmin(axis=1)
        whole = {
            "test_size": image.comparison_test_size,
            "forward_transfer": image.forward_transfer,
        }
        gradual = {
            "stream": "gradual",
            "test_size": image.gradual_test_size,
            "forward_transfer": False,
        }
        for one in contestants(settings):
            if METHODS[one.method].adapts and one.label not in rates.index:
                continue
            rate = {"online_learning_rate": float(rates.get(one.label, image.online_learning_rate))}
            changes = reduced(settings, **whole) | rate | dict(one.changes)
            points.append(replace(one, changes=changes))
            if one.label in (PLUS, UNADAPTED):
                points.append(
                    replace(one, label=f"{one.label}, gradual", changes=changes | gradual)
                )
            for of_size in (
                of_sizes(settings, SIZES, test_size=image.comparison_test_size)
                if one.label == PLUS
                else ()
            ):
                label = f"{PLUS}, batch {of_size['batch_size']}"
                points.append(replace(one, label=label, changes=changes | of_size))
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        is_held = frame["label"].str.contains(", batch|, gradual")
        main, held = frame[~is_held], frame[is_held]
        table = (
            metrics_by_label(main)
            .rename(columns=F_NAMES)
            .rename_axis("method")
            .assign(rate=chosen_rates(main))
        )
        errors = (
            held.groupby("label", sort=False)["E"]
            .agg(spread)
            .to_frame("E (%)")
            .rename_axis("method")
        )
        holding = (
            [Part("comparison-holding", errors, "Other batch sizes; the gradual stream.")]
            if len(held)
            else []
        )
        own = Part("comparison", table, f"{DEFINED} {ALIKE_NOTE}")
        return [own, *method_differences("comparison-differences", main, PLUS), *holding]
