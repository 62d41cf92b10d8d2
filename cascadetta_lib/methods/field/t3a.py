"""T3A (Iwasawa and Matsuo 2021): change no weight, and replace the rows of the last linear layer by
means of features with sure predictions.
"""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from cascadetta_lib.losses import entropy, full_precision
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.features import FeatureReader, Reading
from cascadetta_lib.methods.unadapted import ERM
from cascadetta_lib.models import Outputs


class Supports(NamedTuple):
    """The supports: features of which the templates are means.

    features: (C, M, D), at most M supports for each class, each of length 1.
    entropies: the entropies of the supports' predictions, (C, M); infinite for a free place.
    """

    features: Tensor
    entropies: Tensor


@METHODS.add("t3a")
class T3A(ERM):
    """Predict by the logits z_k = f(x)·c_k. f(x) are the features of x, and the template c_k is the
    mean of the supports of class k, scaled to length 1. The supports have length 1, too.

    At first the supports are the rows of the last linear layer, each filed under the class that the
    layer predicts for it. Each example of a batch becomes a support of the class that the network
    predicts. This happens before the batch is predicted, or after it with `predict="before"`. Each
    class keeps its M supports of lowest entropy. As in the release, BatchNorm uses the source's
    running statistics.

    A class without a support has the logit −∞, so it is never predicted. In the release it has the
    logit 0, which is the largest if all others are negative.
    """

    objective = "meta"
    label = "T3A"
    steps_alike = False
    most_supports: ClassVar[int] = 100
    """M, the largest number of supports of a class: those of lowest entropy are kept. The release
    chooses M from 1, 5, 20, 50, 100 and all, by held-out accuracy.
    """
    has_state = True
    features: Tensor | None
    entropies: Tensor | None

    def configure_model(self) -> None:
        super().configure_model()
        self.read = FeatureReader(self.model, self.label, "replaces the rows of", "erm")
        # The first forward pass tells which layer is the last.
        self.register_buffer("features", None)
        self.register_buffer("entropies", None)

    def supports(self, reading: Reading) -> Supports:
        """Return the current supports: before the first batch, the rows of the last layer.

        Raises ValueError if the layer has not one row per logit, or rows of another length than the
        features.
        """
        if self.features is not None and self.entropies is not None:
            return Supports(self.features, self.entropies)
        rows = reading.layer.weight
        features, z = reading.features, reading.outputs.main
        if rows.shape != (z.shape[1], features.shape[1]):
            raise ValueError(
                f"{self.label} needs logits that are the outputs of the last nn.Linear, with a row "
                f"of it for each class; found {z.shape[1]} logits, {len(rows)} rows of "
                f"{rows.shape[1]} numbers, and features of {features.shape[1]}; use erm or lame"
            )
        free = Supports(
            rows.new_zeros(len(rows), self.most_supports, rows.shape[1]),
            rows.new_full((len(rows), self.most_supports), torch.inf),
        )
        return added(free, rows, reading.layer(rows))

    @torch.no_grad()
    def predict(self, x: Tensor) -> Outputs:
        reading = self.read(x)
        return by_templates(reading, self.supports(reading))

    @torch.no_grad()
    def adapt_and_predict(self, x: Tensor) -> Outputs:
        reading = self.read(x)
        self.require_finite(reading.outputs.main)
        before = self.supports(reading)
        after = added(before, reading.features, reading.outputs.main)
        self.features, self.entropies = after
        return by_templates(reading, before if self.prediction_time == "before" else after)


def added(supports: Supports, features: Tensor, z: Tensor) -> Supports:
    """Add features (B, D) to the supports, each to the class of its largest logit in z (B, C).
    Return the M supports of lowest entropy of each class.
    """
    classes, places = supports.entropies.shape
    predicted = z.argmax(1)
    own = predicted == torch.arange(classes, device=z.device)[:, None]
    unsure = entropy(z).to(supports.entropies.dtype)
    candidates = torch.cat([supports.entropies, unsure.where(own, torch.inf)], 1)
    entropies, chosen = candidates.topk(places, largest=False)
    new = F.normalize(features, dim=1).to(supports.features.dtype)
    each_class_has = torch.cat([supports.features, new.expand(classes, -1, -1)], 1)
    of_class = torch.arange(classes, device=z.device)[:, None]
    return Supports(each_class_has[of_class, chosen], entropies)


def by_templates(reading: Reading, supports: Supports) -> Outputs:
    """Return the logits that the templates of the classes give for the features in `reading`."""
    taken = supports.entropies.isfinite()
    sums = (supports.features * taken[:, :, None]).sum(1)
    templates = F.normalize(sums, dim=1)
    with full_precision(templates):
        z = reading.features.to(templates.dtype) @ templates.T
    return Outputs(z.masked_fill(~taken.any(1), -torch.inf), reading.outputs.auxiliary)
