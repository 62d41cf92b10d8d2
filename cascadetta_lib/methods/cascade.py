"""The paper's method (Sec. 4) and variants of it. The method updates the scales and shifts of φ's
normalisation layers, and all of θ_m, to lower the entropy of θ_a's output. θ_a stays fixed.
"""

from torch import Tensor, nn

from cascadetta_lib.losses import information_loss
from cascadetta_lib.methods import METHODS, refusals
from cascadetta_lib.methods.diversity import WithDiversity
from cascadetta_lib.models import Cascade, Outputs


@METHODS.add("cascade")
class CascadeMethod(WithDiversity):
    """Take one step of SGD on the mean entropy of softmax(a), where a = θ_a(z) and z = θ_m(φ(x)).

    The prediction is z. Raises ValueError unless the model is a Cascade with θ_a.
    """

    label = "Cascade"
    uses_auxiliary = True
    """If False, the loss is the entropy of z."""
    model: Cascade

    def configure_model(self) -> None:
        if not isinstance(self.model, Cascade):
            raise ValueError(
                f"{self.label} needs a cascadetta_lib.Cascade; use tent, or wrap φ, θ_m and θ_a in "
                "one"
            )
        if self.uses_auxiliary and self.model.auxiliary_classifier is None:
            others = "cascade_no_auxiliary or cascade_same_weights"
            raise ValueError(f"{self.label} was given a Cascade without θ_a; use {others}")
        super().configure_model()

    def adapted_parameters(self) -> list[nn.Parameter]:
        return [
            *self.scales_and_shifts(self.model.feature_extractor),
            *self.model.main_classifier.parameters(),
        ]

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        outputs = self.model(x)
        # The check waits for the device, so it is made in the first step only.
        if self.uses_auxiliary and not self.checks.step_taken:
            refusals.require_readable_logits(self.label, outputs)
        logits = outputs.auxiliary if self.uses_auxiliary else outputs.main
        return information_loss(logits, self.diversity), outputs


@METHODS.add("cascade_fixed_classifier")
class CascadeFixedClassifier(CascadeMethod):
    """The cascade with θ_m fixed: only the scales and shifts of φ's normalisation layers are
    updated.

    The right panel of the paper's figure on the parts of the cascade shows it.
    """

    label = "Cascade, θ_m fixed"

    def adapted_parameters(self) -> list[nn.Parameter]:
        return self.scales_and_shifts(self.model.feature_extractor)


@METHODS.add("cascade_no_auxiliary")
class CascadeNoAuxiliary(CascadeMethod):
    """The cascade without θ_a: the network is pre-trained without θ_a, and adapts by the entropy of
    z.

    The left panel of the paper's figure on the parts of the cascade shows it.
    """

    objective = "meta_no_auxiliary"
    label = "Cascade, no θ_a"
    uses_auxiliary = False


@METHODS.add("cascade_same_weights")
class CascadeSameWeights(CascadeNoAuxiliary):
    """Adapt the cascade's own network, pre-trained with θ_a, by the entropy of z in place of a.

    "Without θ_a" in the paper can be read in two ways: as this method, or as
    `cascade_no_auxiliary`.
    """

    objective = "meta"
    label = "Cascade, entropy of θ_m"
