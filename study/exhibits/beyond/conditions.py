"""Beyond the paper: why θ_a collapses, and what could prevent it, by comparing pre-trainings.

Each of CONDITIONS changes one value of the paper's pre-training. CANDIDATES are all pre-trainings
in which θ_a learns from a self-supervised loss.

All runs are at one seed, on four corruptions of held-out source images. No test stream has these
corruptions, so a choice made here has not seen the test domains.
"""

from functools import partial
from typing import Any

import pandas as pd

from cascadetta_lib.training.objectives import OBJECTIVES
from cascadetta_lib.training.pretrain import kept_epoch
from study.exhibits.kit.exhibit import exhibit
from study.exhibits.kit.histories import MEASURED, ONE_BATCH, PANELS, curves
from study.exhibits.kit.numbers import rounded, spread
from study.exhibits.kit.points import Point
from study.exhibits.kit.rate_choice import ON_SOURCE, OnSource, on_source
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs, by_label
from study.settings import Settings
from study.shipped_networks import present_objectives

CONDITIONS: dict[str, dict[str, Any]] = {
    "outer loss of the paper": {"training_outer_loss": "paper"},
    "outer loss of the release": {"training_outer_loss": "release"},
    "λ = 0": {"training_entropy_weight": 0.0},
    "λ = 1": {"training_entropy_weight": 1.0},
    "no inner step": {"training_inner_learning_rate_ratio": 0.0},
    "inner step with α = β": {"training_inner_learning_rate_ratio": 1.0},
    "inner step on all of ψ": {"training_inner_parameters": "all"},
    "inner step on BN and θ_m": {"training_inner_parameters": "batchnorm_and_classifier"},
}
"""Variations of the paper's pre-training. Each sets one parameter."""
CANDIDATES = [
    name
    for name, one in OBJECTIVES.items()
    if one.auxiliary and one.self_supervised and not one.parallel
]
"""The pre-trainings from which Cascade+'s is chosen, including the paper's own."""
COLUMNS = PANELS | {"gradient_ratio": "‖∇ENT‖ / ‖∇CE‖ on φ, θ_m"}
"""Columns of the training history, with their titles here."""
DRAWN = {
    name: title
    for name, title in COLUMNS.items()
    if name not in ("held_out_accuracy", "entropy_main", "gradient_cosine")
}


@exhibit
class Conditions(OnSource):
    name = "conditions"
    place = 200
    label = "beyond: why θ_a collapses"
    title = "When θ_a collapses, and when not"
    question = (
        "Which part of the pre-training makes θ_a say the same class whatever the "
        "image, and what prevents it?"
    )
    once = True
    on_source = True

    def points(self, settings: Settings) -> list[Point]:
        """Return points of the pre-trainings to compare.

        If the profile trains its networks, these are new networks, trained for `trial_epochs`
        epochs on `trial_train_size` images. Otherwise the pre-trainings are those of CANDIDATES
        whose networks the profile's `image_weights` has. There is no point if the profile lacks the
        cascade.
        """
        image = settings.image
        if "cascade" not in image.methods:
            return []
        trial = on_source(settings, online_learning_rate=image.online.online_learning_rate)
        if not image.weights.trained_here:
            there = present_objectives(image.weights, settings.seeds[0])
            return self._of_candidates(settings, [n for n in CANDIDATES if n in there], trial)
        trial |= {
            "test_size": None,
            "train_size": image.exhibits.trial_train_size,
            "training_epochs": image.exhibits.trial_epochs,
        }
        points = []
        for name, changes in CONDITIONS.items():
            if settings.vary("image", changes) != settings:
                points.append(Point("cascade", "meta", trial | changes, called=name))
        return points + self._of_candidates(settings, CANDIDATES, trial)

    def _of_candidates(
        self, settings: Settings, objectives: list[str], trial: dict[str, Any]
    ) -> list[Point]:
        """Return points of each pre-training: one of AdaBN, and one of the cascade per learning
        rate. The cascade adapts by the loss of the pre-training.
        """
        points = []
        for objective in objectives:
            name = objective.replace("_", " ")
            points.append(Point("adabn", objective, trial, called=name))
            for rate in settings.image.exhibits.choice_learning_rates:
                changes = {
                    "online_learning_rate": rate,
                    "online_diversity": OBJECTIVES[objective].diversity,
                }
                points.append(Point("cascade", objective, trial | changes, called=name))
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        epochs = runs.histories(frame)
        if epochs.empty:
            return ["The trainings of these networks are not on record."]
        main = epochs["gradient_norm_main"]
        epochs["gradient_ratio"] = epochs["gradient_norm_self_supervised"] / main
        kept = pd.DataFrame({label: kept_epoch(each) for label, each in by_label(epochs).items()})
        kept = kept.reindex(list(COLUMNS)).T.map(partial(rounded, alone=2)).rename(columns=COLUMNS)
        table = kept.join(_errors(frame)).fillna("–").rename_axis("pre-training")
        note = (
            f"Columns that begin with E: {ON_SOURCE}. At each rate the cascade adapts by the loss "
            "of its pre-training; not adapted: AdaBN. Other columns: the training, in the epoch "
            f"that was kept. meta: the paper's pre-training. {MEASURED}"
        )
        return [_by_epoch(epochs), Part("conditions", table, note)]


def _errors(frame: pd.DataFrame) -> pd.DataFrame:
    """Return E as text: a row per pre-training, a column without adaptation (AdaBN), and a column
    per rate of the cascade.
    """
    rates = frame["online_learning_rate"].map("E, rate {:g}".format)
    adapted = frame.assign(on=rates.where(frame["method"] == "cascade", "E, not adapted"))
    errors = adapted.groupby(["label", "on"], sort=False)["E"].apply(spread)
    return errors.unstack(sort=False)


def _by_epoch(epochs: pd.DataFrame) -> Part | str:
    """Draw curves by epoch of the paper's pre-training and its variations. If there are no
    variations, draw all pre-trainings. Return a sentence if the histories have only one epoch.
    """
    if epochs["epoch"].nunique() < 2:
        return "No figure: it needs histories of two epochs or more."
    drawn = epochs
    if epochs["label"].nunique() > len(CANDIDATES):
        drawn = epochs[epochs["label"].isin([*CONDITIONS, "meta"])]
    return Part("conditions-figure", curves(drawn, "label", DRAWN), f"By epoch, {ONE_BATCH}.")
