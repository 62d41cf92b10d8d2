"""Beyond the paper: every method at the online learning rate that was chosen for it on the source.

Each method runs once per seed on the fifteen test corruptions. AdaBN and Tent, with SGD and with
Adam, also run on Cascade+'s network and on a control network. The control is trained on the same
images by the cross-entropy alone. On both networks Tent has Cascade+'s memory and diversity. So on
Cascade+'s network, Cascade+ and Tent (with SGD) differ only in their rates, in θ_a, and in the
update of θ_m.
"""

from dataclasses import replace

import pandas as pd

from study.exhibits.kit.exhibit import exhibit
from study.exhibits.kit.points import Point, of_sizes, reduced
from study.exhibits.kit.rate_choice import (
    PLUS,
    PLUS_NETWORK,
    AtChosenRates,
    chosen_rate,
    contestants,
    rates_table,
)
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.kit.sweep import sweep_table
from study.exhibits.kit.tables import DEFINED, F_NAMES, method_differences, metrics_by_label
from study.settings import Settings
from study.study import Study

ALIKE_NOTE = (
    f"On {PLUS}'s network and on the control, all methods have {PLUS}'s memory of statistics, and "
    "both Tents have its diversity."
)
SIZES = (128, 16, 4)
"""Other batch sizes at which Cascade+ is measured."""


@exhibit
class Comparison(AtChosenRates):
    name = "comparison"
    place = 230
    label = "beyond: comparison"
    title = "Every method at the rate chosen for it"
    question = f"Does {PLUS} err less than its rivals, and less than Tent on the same network?"

    def contestants(self, settings: Settings) -> list[Point]:
        return contestants(settings)

    def points(self, settings: Settings) -> list[Point]:
        """Return a point per contestant on the test domains, at the rate chosen for it.

        Contestants that adapt and have no rate yet are left out. Cascade+ also runs at other batch
        sizes. Cascade+, and AdaBN on Cascade+'s network, also run on the gradual stream.
        """
        image = settings.image
        study = Study.without_device(settings)
        size = image.exhibits.comparison_test_size
        transfer = image.online.forward_transfer
        whole = reduced(settings, test_size=size, forward_transfer=transfer)
        gradual = {
            "stream": "gradual",
            "test_size": image.exhibits.gradual_test_size,
            "forward_transfer": False,
        }
        points = []
        for one in self.contestants(settings):
            rate = chosen_rate(study, one)
            if rate is None:
                continue
            changes = whole | {"online_learning_rate": rate} | dict(one.changes)
            points.append(replace(one, changes=changes))
            is_plus = one.method == "cascade_plus"
            if is_plus or (one.method == "adabn" and one.network == PLUS_NETWORK):
                points.append(replace(one, changes=changes | gradual, variant="gradual"))
            if is_plus:
                for sized in of_sizes(settings, SIZES, test_size=size):
                    variant = f"batch {sized['batch_size']}"
                    points.append(replace(one, changes=changes | sized, variant=variant))
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        main = frame[frame["variant"] == ""]
        held = frame[frame["variant"] != ""]
        parts: list[Part | str] = []
        if len(main):
            table = metrics_by_label(main).rename(columns=F_NAMES).rename_axis("method")
            table["rate"] = rates_table(main)
            parts.append(Part("comparison", table, f"{DEFINED} {ALIKE_NOTE}"))
            parts += method_differences("comparison-differences", main, PLUS)
        if len(held):
            errors = sweep_table(held.assign(metric="E (%)"), "metric")
            note = "E (%) at other batch sizes, and on the gradual stream."
            parts.append(Part("comparison-holding", errors, note))
        return parts
