"""RPL (Rusak et al. 2022): learn from pseudo-labels by a bounded cross-entropy, which limits the
harm of a wrong label.
"""

from torch import Tensor, nn

from cascadetta_lib.losses import probabilities
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.statistics_memory import WithMemory
from cascadetta_lib.models import Outputs, as_outputs

Q = 0.8
"""q of the loss, as in RPL's paper. For q → 0 the loss is cross-entropy, for q = 1 it is 1 − p."""


@METHODS.add("rpl")
class RPL(WithMemory):
    """Minimise the mean of the generalised cross-entropy (1 − p^q)/q, where p is the probability of
    the predicted class. Scales and shifts are updated.

    The authors' example updates all parameters by plain SGD. The version in CCC's code updates
    scales and shifts, as here, by SGD with plain momentum 0.9, not Nesterov momentum.
    """

    label = "RPL"

    def adapted_parameters(self) -> list[nn.Parameter]:
        return self.scales_and_shifts(self.model)

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        outputs = as_outputs(self.model(x))
        return ((1 - probabilities(outputs.main).max(1).values ** Q) / Q).mean(), outputs
