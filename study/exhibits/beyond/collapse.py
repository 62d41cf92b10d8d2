"""Why θ_a collapses, and what could prevent it: pre-trainings that differ in one value or one term
each.

Everything here is judged at one seed, on four corruptions of held-out source images that no test
stream has, so that what is chosen by it has not seen the test domains.
"""

from dataclasses import replace
from typing import Any

import pandas as pd

from cascadetta_lib.data.corruptions import HELD_OUT_CORRUPTIONS
from cascadetta_lib.training.objectives import OBJECTIVES
from cascadetta_lib.training.pretrain import kept_epoch
from study.exhibits.kit.exhibit import Exhibit, Part, Shown, exhibit
from study.exhibits.kit.networks import not_held_out
from study.exhibits.kit.runs import Point, Runs, by_label, reduced
from study.exhibits.kit.style import number, spread
from study.exhibits.paper.training import MEASURED, ONE_BATCH, PANELS, curves
from study.settings import Settings
from study.study import Run, Study
from study.weights import present

CONDITIONS: dict[str, dict[str, Any]] = {
    "outer loss of the paper": {"outer_loss": "paper"},
    "outer loss of the release": {"outer_loss": "release"},
    "λ = 0": {"entropy_weight": 0.0},
    "λ = 1": {"entropy_weight": 1.0},
    "no inner step": {"inner_learning_rate_ratio": 0.0},
    "inner step with α = β": {"inner_learning_rate_ratio": 1.0},
    "inner step on all of ψ": {"inner_parameters": "all"},
    "inner step on BN and θ_m": {"inner_parameters": "batchnorm_and_classifier"},
}
"""How the paper's pre-training is varied, one value at a time."""
CANDIDATES = [
    name
    for name, one in OBJECTIVES.items()
    if one.auxiliary and one.self_supervised and not one.parallel
]
"""The pre-trainings that compete for Cascade+, the paper's own among them."""
COLUMNS = PANELS | {"gradient_ratio": "‖∇ENT‖ / ‖∇CE‖ on φ, θ_m"}
"""Of the history, and what they are called here."""
ON_SOURCE = "E on four corruptions of held-out source images (%)"


def on_source(settings: Settings, **changes: Any) -> dict[str, Any]:
    """The changes of a run on the four corruptions of held-out source images."""
    return reduced(
        settings, stream=HELD_OUT_CORRUPTIONS, test_size=settings.image.choice_size, **changes
    )


class OnSource(Exhibit):
    """An exhibit that needs the four corruptions, which are defined for images of 32×32 alone; what
    runs on them, all that is made `once`, needs held-out images. It compares networks of the
    profile's own, and rates that are chosen so: `show` says where one may know the held-out images.
    """

    of_several = True

    def make(self, study: Study) -> list[Run]:
        held_out = study.dataset.held_out
        can_be = tuple(held_out.x.shape[-2:]) == (32, 32) and (len(held_out.y) or not self.once)
        if not can_be:
            print(
                f"{self.name} is not made: it takes images of 32×32 pixels, and held-out ones of "
                "the source."
            )
        return super().make(study) if can_be else []

    def show(self, runs: Runs) -> Shown:
        shown = super().show(runs)
        chosen = len(runs.settings.image.choice_learning_rates) > 1
        doubts = dict.fromkeys(filter(None, map(not_held_out, shown.runs if chosen else [])))
        return replace(
            shown, content=[*shown.content, *(f"**No clean choice:** {doubt}." for doubt in doubts)]
        )


@exhibit
class Conditions(OnSource):
    name, place, label, title = (
        "conditions",
        200,
        "beyond: why θ_a collapses",
        "When θ_a collapses, and when not",
    )
    question = (
        "Which part of the pre-training makes θ_a say the same class whatever the "
        "image, and what prevents it?"
    )
    once = True

    def points(self, settings: Settings) -> list[Point]:
        """Of the networks that are there, else of the profile's, trained for `trial_epochs` on
        `trial_train_size`.
        """
        image, points = settings.image, []
        trial = on_source(settings, online_learning_rate=image.online_learning_rate)
        if "cascade" not in image.methods:
            return []
        if trains := image.weights == "train":
            trial |= {
                "test_size": None,
                "train_size": image.trial_train_size,
                "epochs": image.trial_epochs,
            }
        for label, changes in CONDITIONS.items() if trains else ():
            if any(getattr(image, name) != value for name, value in changes.items()):
                points.append(Point(label, "cascade", "meta", trial | changes))
        for name in (
            name
            for name in CANDIDATES
            if trains or name in present(image.weights, settings.seeds[0])
        ):
            label = name.replace("_", " ")
            points.append(Point(label, "adabn", name, trial))
            for rate in image.choice_learning_rates:
                changes = {
                    "online_learning_rate": rate,
                    "online_diversity": OBJECTIVES[name].diversity,
                }
                points.append(Point(label, "cascade", name, trial | changes))
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        epochs = runs.histories(frame)
        if epochs.empty:
            return ["The trainings of these networks are not on record."]
        epochs["gradient_ratio"] = (
            epochs["gradient_norm_self_supervised"] / epochs["gradient_norm_main"]
        )
        kept = pd.DataFrame({label: kept_epoch(each) for label, each in by_label(epochs).items()})
        kept = kept.reindex(list(COLUMNS)).T.map(number).rename(columns=COLUMNS)
        rates = frame["online_learning_rate"].map("E, rate {:g}".format)
        adapted = frame.assign(on=rates.where(frame["method"] == "cascade", "E, not adapted"))
        errors = adapted.pivot_table(
            index="label", columns="on", values="E", aggfunc=spread, sort=False
        )
        table = kept.join(errors).fillna("–").rename_axis("pre-training")
        in_kept = (
            f"In the epoch kept, and {ON_SOURCE}, adapted by the pre-training's loss. "
            "meta: the paper's."
        )
        figure: Part | str = "No figure of one epoch."
        if epochs["epoch"].nunique() > 1:
            drawn = (
                epochs[epochs["label"].isin([*CONDITIONS, "meta"])]
                if len(kept) > len(CANDIDATES)
                else epochs
            )
            told = {name: COLUMNS[name] for name in list(COLUMNS)[2:] if name != "gradient_cosine"}
            figure = Part(
                "conditions-figure", curves(drawn, "label", told), f"By epoch, {ONE_BATCH}."
            )
        return [figure, Part("conditions", table, f"{in_kept} {MEASURED}")]
