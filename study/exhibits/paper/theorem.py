"""Theorem 1: the check of the decomposition of the meta-gradient."""

import pandas as pd

from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.points import Point
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.settings import Settings
from study.store import Run
from study.study import Study

TRAININGS = ("meta", "multi_task")
"""The pre-trainings whose networks are checked."""
NOTE = (
    "Error: the distance of a formula from the meta-gradient, divided by the meta-gradient's norm. "
    "H is the Hessian of ENT. Formulas at the training's α and β: chain rule, with α and H at ψ; "
    "as printed, with β and H at ψ′; first order, without H. Two more formulas at α = β: moved "
    "point, with H at ψ′; first order equal rates, without H. Curvatures: of H at ψ′. If a "
    "curvature is clearly below 0, it refutes the theorem's assumption."
)


@exhibit
class Theorem(Exhibit):
    """Check the decomposition of Theorem 1 on one batch.

    The cosine of both gradients along pre-training is in the curves of the exhibit
    `training_image`.
    """

    name = "theorem"
    place = 75
    label = "Theorem 1"
    title = "Does the meta-gradient decompose as stated?"
    question = (
        "How large is the term that aligns the two gradients, and how large is what the "
        "theorem leaves out?"
    )

    def points(self, settings: Settings) -> list[Point]:
        if "cascade" not in settings.image.methods:
            return []
        return [Point("cascade", objective, called=objective) for objective in TRAININGS]

    def make(self, study: Study) -> list[Run]:
        """Make the runs. If there are two training examples or more, check the decomposition on
        each network whose training is known.
        """
        made = super().make(study)
        if not made or len(study.dataset.train.y) < 2:
            return made
        for run in made:
            if run.request.checkpoint.training or run.provenance.card.get("training"):
                study.theorem(run.request.checkpoint.objective)
        return made

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        """Return a table of the numbers of theorem.check_theorem, a row per network."""
        rows = {}
        for run in frame["run"]:
            found = runs.study.store.theorem(run)
            if found is not None:
                rows[f"{run.request.checkpoint.objective}, seed {run.seed}"] = found
        if not rows:
            return ["Missing: the decomposition was not checked."]
        table = pd.DataFrame(rows).T.map(lambda value: f"{value:.2g}".replace("-", "−"))
        table.columns = [str(name).replace("_", " ") for name in table.columns]
        return [Part("theorem", table.rename_axis("pre-training"), NOTE)]
