"""Select the learning rate online, without labels: our own extension.

The criterion and its two numbers, WINDOW and LEAST_AGREEMENT, were chosen on source images alone,
before the criterion met a test stream (docs/rate-criteria.md).
"""

from typing import Any

import torch
from torch import Tensor

from cascadetta_lib.losses import entropy
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.base import Method
from cascadetta_lib.methods.cascade import CascadeMethod
from cascadetta_lib.methods.tent import Tent
from cascadetta_lib.models import Outputs
from cascadetta_lib.models.remembered_statistics import remember, statistics_of

WINDOW = 256
"""The criterion looks back on about this many examples."""
LEAST_AGREEMENT = 0.8
"""The share of these examples on which a copy must predict the same class as the copy at the
smallest rate.
"""


def rates_around(learning_rate: float) -> tuple[float, ...]:
    """Return the rates of the three copies, ascending: a tenth of `learning_rate`, `learning_rate`,
    and ten times `learning_rate`.
    """
    return learning_rate / 10, learning_rate, learning_rate * 10


class WithRateSelection(Method):
    """Adapt three copies of a method side by side, at the rates of `rates_around`, and predict by
    one of them.

    Each copy takes its own step on each batch, by its own loss. If a forward pass changes no state
    of the network except BatchNorm's, each copy is bit for bit what the method alone would be at
    the rate of the copy. After the batch, `preferred` chooses a copy. `step` returns the prediction
    of this copy, and `model` holds its values until the next batch. A step does the work of three
    steps of the method.

    values: (K, P): for each of the K copies, the smallest rate first, the P numbers in which copies
        differ.
    measures: (2, K): for each copy, the share of examples on which it predicts the same class as
        the copy at the smallest rate, and the mean entropy of its predictions in nats. Both are
        means over all examples until WINDOW examples have come, and then moving means over about
        the last WINDOW.
    seen: how many examples have come so far.
    place: the row of `values` that belongs to the copy that adapts, or adapted last.
    """

    values: Tensor
    measures: Tensor
    seen: int
    place: int

    def configure_model(self) -> None:
        super().configure_model()
        count = len(rates_around(self.learning_rate))
        own = self.values_now()
        self.register_buffer("values", own.repeat(count, 1))
        self.register_buffer("measures", own.new_zeros(2, count))

    def differing(self) -> list[Tensor]:
        """Return the model's tensors in which copies differ: the adapted parameters, and the
        statistics that BatchNorm remembers.
        """
        found: list[Tensor] = list(dict.fromkeys(self.adapted_parameters()))
        for given in statistics_of(self.model):
            found += [given.mean, given.variance]
        return found

    def values_now(self) -> Tensor:
        """Return the current values (P,) of the tensors in `differing`."""
        return torch.cat([tensor.detach().flatten() for tensor in self.differing()])

    def hold(self, values: Tensor) -> None:
        """Write the values (P,) of a copy into the model."""
        tensors = self.differing()
        parts = values.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    @torch.no_grad()
    def adapt_and_predict(self, x: Tensor) -> Outputs:
        predicted = []
        held = self.values_now()
        for place, rate in enumerate(rates_around(self.learning_rate)):
            self.hold(self.values[place])
            try:
                predicted.append(self.adapt_copy(x, place, rate))
            except ValueError:
                self.hold(held)
                raise
            self.values[place] = self.values_now()
        main = torch.stack([outputs.main for outputs in predicted])
        auxiliary = [each.auxiliary for each in predicted if each.auxiliary is not None]
        chosen = self.preferred(main)[None]
        self.hold(self.values.index_select(0, chosen)[0])
        return Outputs(
            main.index_select(0, chosen)[0],
            torch.stack(auxiliary).index_select(0, chosen)[0] if auxiliary else None,
        )

    def adapt_copy(self, x: Tensor, place: int, rate: float) -> Outputs:
        """Adapt the copy that the model holds to a batch, and return its prediction.

        place: the row of the copy in `values`.
        rate: the learning rate of the copy.

        The optimiser keeps a state for each copy, under the keys (place, parameter). In a step it
        uses the state of one copy.
        """
        assert self.optimizer is not None
        states: dict[Any, Any] = self.optimizer.state
        parameters = [one for group in self.optimizer.param_groups for one in group["params"]]
        for parameter in parameters:
            states[parameter] = states.pop((place, parameter), {})
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.place = place
        try:
            outputs = super().adapt_and_predict(x)
        finally:
            for parameter in parameters:
                states[place, parameter] = states.pop(parameter)
        remember(self)
        return outputs

    def require_finite(self, values: Tensor) -> None:
        """For the copy at the smallest rate, refuse a loss or logits (B, C) that are not finite.
        Another copy may diverge: `preferred` does not choose it then.
        """
        if self.place == 0:
            super().require_finite(values)

    def preferred(self, z: Tensor) -> Tensor:
        """Choose a copy by the logits z (K, B, C) of all copies on a batch. Return its place, a
        scalar.

        A copy is eligible if it agrees with the copy at the smallest rate on a share of at least
        LEAST_AGREEMENT of the examples (see `measures`), and has not diverged. It has diverged if
        its mean entropy, or the largest logit of an example, is not finite. The eligible copy with
        the lowest mean entropy is chosen. If no copy is eligible, the copy at the smallest rate is
        chosen.
        """
        classes = z.argmax(2)
        alike = (classes == classes[0]).to(self.measures.dtype).mean(1)
        unsure = entropy(z.flatten(0, 1)).view(classes.shape).mean(1)
        self.seen += z.shape[1]
        share = min(1.0, z.shape[1] / min(self.seen, WINDOW))
        self.measures.lerp_(torch.stack([alike, unsure.to(alike.dtype)]), share)
        agreement, mean_entropy = self.measures
        # A network may mask classes by −∞, but never all of them.
        finite = z.amax(2).isfinite().all(1) & mean_entropy.isfinite()
        eligible = finite & (agreement >= LEAST_AGREEMENT)
        return mean_entropy.masked_fill(~eligible, torch.inf).argmin()

    def reset(self) -> None:
        self.seen = 0
        super().reset()


@METHODS.add("tent_rate_selection")
class TentRateSelection(WithRateSelection, Tent):
    """Tent at the rate that a criterion without labels selects after each batch."""

    label = "Tent, rate selected online"


@METHODS.add("cascade_rate_selection")
class CascadeRateSelection(WithRateSelection, CascadeMethod):
    """The cascade at the rate that a criterion without labels selects after each batch.

    The criterion was chosen for Tent. It looks at the main logits.
    """

    label = "Cascade, rate selected online"
