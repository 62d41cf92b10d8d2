"""Cascade+: the cascade with a θ_a that does not collapse, and with a memory of statistics. Our own
extension.
"""

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.cascade import CascadeMethod


@METHODS.add("cascade_plus")
class CascadePlus(CascadeMethod):
    """Changes to the cascade. θ_a is trained with the labels too. Its self-supervised loss,
    in the pre-training and at test time, is that of information maximisation, which predicting one
    class for every x does not minimise. And BatchNorm remembers earlier batches
    (models/remembered_statistics.py). On images and speech it is not meta-learned. In the
    pre-training on images, a batch holds each image twice: plain, and with domain randomisation.
    Everything was chosen on held-out source data alone.
    """

    objective_elsewhere = {
        "text": "meta_supervised_information",
        "speech": "multi_task_supervised_information",
    }
    objective = "both_supervised_information"
    label = "Cascade+"
    diversity = 1.0
    memory = 8
