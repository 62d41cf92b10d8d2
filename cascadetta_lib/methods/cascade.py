"""The paper's method (Sec. 4): BatchNorm of φ and all of θ_m by the entropy of θ_a's output, θ_a fixed."""

from typing import cast

from torch import Tensor, nn

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.base import Method
from cascadetta_lib.models import Cascade, Outputs, batch_norm_parameters


@METHODS.add("cascade")
class CascadeMethod(Method):
    """One step of SGD on mean entropy of softmax(a), a = θ_a(θ_m(φ(x))); the prediction is z = θ_m(φ(x))."""

    label, in_paper, colour = "Cascade", True, 3

    def adapted_parameters(self) -> list[nn.Parameter]:
        model = cast(Cascade, self.model)
        return [*batch_norm_parameters(model.feature_extractor), *model.main_classifier.parameters()]

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        outputs = self.model(x)
        if outputs.auxiliary is None:
            raise ValueError("the cascade needs a model with θ_a; without one, use cascade_no_auxiliary")
        return self.uncertainty(outputs.auxiliary), outputs


@METHODS.add("cascade_fixed_classifier")
class CascadeFixedClassifier(CascadeMethod):
    """θ_m fixed (fig:cascade, right): only BatchNorm's scale and shift move."""

    label, in_paper, colour = "Cascade, θ_m fixed", False, 5

    def adapted_parameters(self) -> list[nn.Parameter]:
        return batch_norm_parameters(cast(Cascade, self.model).feature_extractor)


@METHODS.add("cascade_no_auxiliary")
class CascadeNoAuxiliary(CascadeMethod):
    """θ_a discarded (fig:cascade, left): the entropy is that of z, in the pre-training too."""

    objective, label, in_paper, colour = "meta_no_auxiliary", "Cascade, no θ_a", False, 6

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        outputs = self.model(x)
        return self.uncertainty(outputs.main), outputs
