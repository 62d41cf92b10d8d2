"""The networks: φ, θ_m and θ_a of the cascade (Sec. 4.1, appendix), and TTT's parallel network.

Cascade:   x ─ φ ─ θ_m ─► z (main logits) ─ θ_a ─► a (auxiliary logits)
Parallel:  x ─ φ's shared stages ─┬─ last stage ─ θ_m ─► z
                                  └─ a last stage of its own ─ θ_a ─► four rotations

Code finds these parts as attributes of the network, such as `main_classifier`, never by the names
of parameters.
"""

import copy

from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.models.backbones import ImageFeatures
from cascadetta_lib.models.outputs import Outputs


def parameters_of_z(model: nn.Module) -> list[nn.Parameter]:
    """Return all parameters of a network except those of θ_a, which takes no part in z.

    For a Parallel the list includes the last stage of the rotation branch, although z does not use
    it.
    """
    theta_a = getattr(model, "auxiliary_classifier", None)
    apart = set() if theta_a is None else set(theta_a.parameters())
    return [parameter for parameter in model.parameters() if parameter not in apart]


class Cascade(nn.Module):
    """Chain φ, θ_m and θ_a. Maps x (B, …) to z and a, both (B, C); a is None without θ_a.

    feature_extractor: φ.
    main_classifier: θ_m.
    auxiliary_classifier: θ_a, or None.
    relu_logits: whether z is max(θ_m(φ(x)), 0) in place of θ_m(φ(x)), as in the paper's release.
        There an in-place ReLU before θ_a changes z as well.
    """

    def __init__(
        self,
        feature_extractor: nn.Module,
        main_classifier: nn.Module,
        auxiliary_classifier: nn.Module | None,
        relu_logits: bool = False,
    ) -> None:
        super().__init__()
        self.feature_extractor = feature_extractor
        self.main_classifier = main_classifier
        self.auxiliary_classifier = auxiliary_classifier
        self.relu_logits = relu_logits

    def extra_repr(self) -> str:
        return f"relu_logits={self.relu_logits}"

    def forward(self, x: Tensor) -> Outputs:
        z = self.main_classifier(self.feature_extractor(x))
        if self.relu_logits:
            z = F.relu(z)
        return Outputs(
            z, None if self.auxiliary_classifier is None else self.auxiliary_classifier(z)
        )


class Parallel(nn.Module):
    """TTT's network. Its rotation branch leaves φ before the last stage of φ, and has a last stage
    and a classifier θ_a of its own.

    Maps x (B, 3, H, W) to z (B, C); there is no a. `rotation_logits` computes the other branch.

    relu_logits: as in Cascade, so that TTT's network can be compared with a cascade.
    """

    def __init__(
        self,
        feature_extractor: ImageFeatures,
        main_classifier: nn.Module,
        relu_logits: bool = False,
    ) -> None:
        super().__init__()
        self.feature_extractor = feature_extractor
        self.main_classifier = main_classifier
        self.auxiliary_stage = copy.deepcopy(feature_extractor.private)
        self.auxiliary_classifier = nn.Linear(feature_extractor.features, 4)
        self.relu_logits = relu_logits

    @property
    def shared_parameters(self) -> list[nn.Parameter]:
        """The parameters that both branches use."""
        private = set(self.feature_extractor.private.parameters())
        return [
            parameter
            for parameter in self.feature_extractor.parameters()
            if parameter not in private
        ]

    def forward(self, x: Tensor) -> Outputs:
        z = self.main_classifier(self.feature_extractor(x))
        return Outputs(F.relu(z) if self.relu_logits else z, None)

    def rotation_logits(self, x: Tensor) -> Tensor:
        """Return the logits of the multiple of 90° by which each image was rotated: (B, 3, H, W) →
        (B, 4).
        """
        return self.auxiliary_classifier(self.auxiliary_stage(self.feature_extractor.shared(x)))
