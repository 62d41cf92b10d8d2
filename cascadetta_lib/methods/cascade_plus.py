"""Cascade+, our own variant of the cascade: a θ_a that does not collapse, and a memory of
BatchNorm's statistics.
"""

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.cascade import CascadeMethod


@METHODS.add("cascade_plus")
class CascadePlus(CascadeMethod):
    """Change the cascade as follows. Each choice was made on held-out source data alone.

    - θ_a is trained with the labels, too.
    - The self-supervised loss, in pre-training and at test time, is that of information
      maximisation. Predicting one class for every x does not minimise this loss.
    - BatchNorm remembers earlier batches (models/remembered_statistics.py).
    - The networks for images and speech are not meta-learned; that for text is.
    - In pre-training on images, a batch holds each image twice: plain, and with domain
      randomisation.
    """

    objective_elsewhere = {
        "text": "meta_supervised_information",
        "speech": "multi_task_supervised_information",
    }
    objective = "both_supervised_information"
    label = "Cascade+"
    diversity = 1.0
    memory = 8
