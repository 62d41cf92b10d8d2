"""The networks: φ, θ_m and θ_a of the cascade (Sec. 4.1, appendix), and TTT's parallel network.

Cascade:   x ─ φ ─ θ_m ─► z (main logits) ─ θ_a ─► a (auxiliary logits)
Parallel:  x ─ φ's shared stages ─┬─ last stage ─ θ_m ─► z
                                  └─ a last stage of its own ─ θ_a ─► four rotations

Which tensors belong to which part is a matter of modules, never of parameter names.
"""

import copy
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import AfterValidator, BaseModel, Field
from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.features import ImageFeatures, ResNet34, SmallResNet, speech_features, text_features


def _six_n_plus_two(depth: int) -> int:
    if (depth - 2) % 6:
        raise ValueError("the depth is 6n + 2: 8, 14, 20, 26, 32, …")
    return depth


class ImageNetwork(BaseModel, frozen=True, extra="forbid"):
    """The network of images. Depth, width and block concern the small ResNet (resnet26) alone."""

    architecture: Literal["auto", "resnet26", "resnet34"] = Field(
        "auto", description="auto: the small ResNet for 32×32 pixels, ResNet-34 for Tiny-ImageNet"
    )
    depth: Annotated[int, AfterValidator(_six_n_plus_two)] = Field(26, ge=8, le=1202, description="small ResNet, 6n+2")
    width: int = Field(16, ge=2, le=256, description="channels of its first stage; the paper's ResNet-26 has 16")
    block: Literal["conv_bn_relu", "pre_activation"] = Field(
        "conv_bn_relu", description="residual block as the paper writes it, or as its release has it"
    )
    main_logits: Literal["plain", "relu"] = Field(
        "plain", description="z = θ_m(φ(x)) (paper), or max(z, 0) through the release's in-place ReLU"
    )


class TextNetwork(BaseModel, frozen=True, extra="forbid"):
    """The fully connected network of reviews."""

    hidden: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = Field(
        (1024, 512), min_length=1, description="layers of φ: [1024, 512] (appendix) or [50, 50] (Sec. 5.2)"
    )


class SpeechNetwork(BaseModel, frozen=True, extra="forbid"):
    """The LeNet of log-mel spectrograms with 32 bands and 32 frames; it has nothing to choose."""


Network = SpeechNetwork | TextNetwork | ImageNetwork
"""The one with the fewest fields comes first: of what a file says, the first that fits is taken."""


class Outputs(NamedTuple):
    """Main logits z (B, C) and auxiliary logits a (B, C), or None where the model has none."""

    main: Tensor
    auxiliary: Tensor | None


def as_outputs(result: Any) -> Outputs:
    """What a model returned, as Outputs. A network of somebody's own may return its logits (B, C), an object with the
    attribute `logits`, or a tuple whose first element they are; TypeError for anything else."""
    if isinstance(result, Outputs):
        return result
    logits = getattr(result, "logits", result)
    if isinstance(logits, (tuple, list)) and logits:
        logits = logits[0]
    if not isinstance(logits, Tensor):
        raise TypeError(f"the model returned {type(result).__name__}; logits (B, C), or a tuple that begins with them")
    return Outputs(logits, None)


class Cascade(nn.Module):
    """φ → θ_m → θ_a in a row. Input (B, …); output z (B, C) and a (B, C), a None without θ_a.

    With `relu_logits`, z is max(θ_m(φ(x)), 0): the paper's release has an in-place ReLU before θ_a that changes z too.
    """

    def __init__(
        self,
        feature_extractor: nn.Module,
        main_classifier: nn.Module,
        auxiliary_classifier: nn.Module | None,
        relu_logits: bool = False,
    ) -> None:
        super().__init__()
        self.feature_extractor, self.main_classifier = feature_extractor, main_classifier
        self.auxiliary_classifier, self.relu_logits = auxiliary_classifier, relu_logits

    def extra_repr(self) -> str:
        return f"relu_logits={self.relu_logits}"

    def forward(self, x: Tensor) -> Outputs:
        z = self.main_classifier(self.feature_extractor(x))
        if self.relu_logits:
            z = F.relu(z)
        return Outputs(z, None if self.auxiliary_classifier is None else self.auxiliary_classifier(z))


class Parallel(nn.Module):
    """TTT's network: the rotation branch leaves φ before its last stage and has a last stage of its own."""

    def __init__(self, feature_extractor: ImageFeatures, main_classifier: nn.Module) -> None:
        super().__init__()
        self.feature_extractor, self.main_classifier = feature_extractor, main_classifier
        self.auxiliary_stage = copy.deepcopy(feature_extractor.private)
        self.auxiliary_classifier = nn.Linear(feature_extractor.features, 4)

    @property
    def shared_parameters(self) -> list[nn.Parameter]:
        """The parameters that both branches use."""
        private = set(self.feature_extractor.private.parameters())
        return [parameter for parameter in self.feature_extractor.parameters() if parameter not in private]

    def forward(self, x: Tensor) -> Outputs:
        return Outputs(self.main_classifier(self.feature_extractor(x)), None)

    def rotation_logits(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) → (B, 4): which multiple of 90° x was rotated by."""
        return self.auxiliary_classifier(self.auxiliary_stage(self.feature_extractor.shared(x)))


def build_network(
    network: Network,
    *,
    classes: int,
    inputs: int | None = None,
    architecture: str | None = None,
    parallel: bool = False,
    auxiliary: bool = True,
    seed: int,
) -> Cascade | Parallel:
    """A fresh network, initialised from `seed` without touching torch's global generator.

    inputs: the features of a text. architecture: what "auto" stands for on this dataset (resnet26 where it is None).
    parallel: TTT's network instead of the cascade; ValueError for anything but images, whose rotation is its task.
    auxiliary: whether the cascade has θ_a.
    """
    if parallel and not isinstance(network, ImageNetwork):
        raise ValueError(f"TTT predicts the rotation of images; it has no network like {type(network).__name__}")
    model: Cascade | Parallel
    # The order in which the modules are made decides which random draws each is initialised by.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if isinstance(network, ImageNetwork):
            chosen = (architecture or "resnet26") if network.architecture == "auto" else network.architecture
            large = chosen == "resnet34"
            images = ResNet34() if large else SmallResNet(network.depth, network.width, network.block)
            theta_m = nn.Linear(images.features, classes)
            if parallel:
                model = Parallel(images, theta_m)
            else:
                hidden = 1024 if large else 64
                layers = [nn.Linear(classes, hidden), nn.ReLU(), nn.Linear(hidden, classes)] if auxiliary else []
                theta_a = nn.Sequential(*layers) if auxiliary else None
                model = Cascade(images, theta_m, theta_a, relu_logits=network.main_logits == "relu")
        else:
            classifier: nn.Module
            if isinstance(network, TextNetwork):
                assert inputs is not None
                phi, classifier = text_features(inputs, network.hidden), nn.Linear(network.hidden[-1], classes)
            else:
                lenet = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)]
                phi, classifier = speech_features(), nn.Sequential(*lenet)
            model = Cascade(phi, classifier, nn.Linear(classes, classes) if auxiliary else None)
    # The convolutions of a CPU are faster with the channels last; values and results stay what they are.
    return nn.utils.convert_conv2d_weight_memory_format(model, torch.channels_last)


BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


def batch_norms(module: nn.Module) -> Iterator[BatchNorm]:
    """Every BatchNorm layer of `module`."""
    return (child for child in module.modules() if isinstance(child, BatchNorm))


def batch_norm_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Scale and shift of every BatchNorm layer of `module` that has them."""
    return [parameter for norm in batch_norms(module) if norm.affine for parameter in (norm.weight, norm.bias)]
