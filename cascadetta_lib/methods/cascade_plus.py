"""The cascade with a θ_a that means something: our answer to its collapse (see notebooks/08_collapse)."""

from collections.abc import Mapping
from typing import ClassVar

from cascadetta_lib.data.base import Modality
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.cascade import CascadeMethod


@METHODS.add("cascade_plus")
class CascadePlus(CascadeMethod):
    """θ_a is trained with the labels too, and by information maximisation, which one class for every x does not
    minimise; the same loss adapts φ's BatchNorm and θ_m at test time, and BatchNorm remembers the batches before this
    one. For images all of it was chosen on corruptions of held-out source images (notebooks/08_collapse), for text
    and speech the pre-training on held-out reviews and augmented held-out utterances
    (benchmarks/choose_pretraining.py)."""

    objective_elsewhere: ClassVar[Mapping[Modality, str]] = {
        "text": "meta_supervised_information",
        "speech": "multi_task_supervised_information",
    }
    objective, label, in_paper, colour = "both_supervised_information", "Cascade+", False, 9
    diversity, memory = 1.0, 8
