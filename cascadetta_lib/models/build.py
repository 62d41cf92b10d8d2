"""Build a network from its configuration and a seed. Each modality has its own configuration."""

from typing import Annotated, Literal

import torch
from pydantic import AfterValidator, BaseModel, Field
from torch import nn

from cascadetta_lib.allowed import require_choice, require_whole
from cascadetta_lib.models.backbones import ResNet34, SmallResNet, speech_features, text_features
from cascadetta_lib.models.cascade import Cascade, Parallel


def _six_n_plus_two(depth: int) -> int:
    if (depth - 2) % 6:
        raise ValueError("the depth is 6n + 2: 8, 14, 20, 26, 32, …")
    return depth


class ImageNetwork(BaseModel, frozen=True, extra="forbid"):
    """The configuration of a network for images.

    Depth, width and block apply to the small ResNet alone. It is called resnet26, whatever its
    depth.
    """

    architecture: Literal["auto", "resnet26", "resnet34"] = Field(
        "auto", description="auto: the small ResNet for 32×32 pixels, ResNet-34 for Tiny-ImageNet"
    )
    depth: Annotated[int, AfterValidator(_six_n_plus_two)] = Field(
        26, ge=8, le=1202, description="small ResNet, 6n+2"
    )
    width: int = Field(
        16, ge=2, le=256, description="channels of its first stage; the paper's ResNet-26 has 16"
    )
    block: Literal["conv_bn_relu", "pre_activation"] = Field(
        "conv_bn_relu",
        description="residual block as the paper writes it, or as its release has it",
    )
    main_logits: Literal["plain", "relu"] = Field(
        "plain",
        description="z = θ_m(φ(x)) (paper), or max(z, 0) through the release's in-place ReLU",
    )


class TextNetwork(BaseModel, frozen=True, extra="forbid"):
    """The configuration of the fully connected network for reviews."""

    hidden: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = Field(
        (1024, 512),
        min_length=1,
        description="layers of φ: [1024, 512] (appendix) or [50, 50] (Sec. 5.2)",
    )


class SpeechNetwork(BaseModel, frozen=True, extra="forbid"):
    """The configuration of LeNet for log-mel spectrograms (32 bands, 32 frames), without fields."""


Network = SpeechNetwork | TextNetwork | ImageNetwork
"""The class with the fewest fields comes first, because pydantic takes the first one that fits a
stored configuration.
"""


def build_network(
    network: Network,
    *,
    classes: int,
    inputs: int | None = None,
    architecture: Literal["resnet26", "resnet34"] | None = None,
    parallel: bool = False,
    auxiliary: bool = True,
    seed: int,
) -> Cascade | Parallel:
    """Return a fresh network, initialised from `seed` without touching torch's global generator.

    classes: the number C of classes.
    inputs: the number of features of a text. Required for text, ignored otherwise.
    architecture: what "auto" means on this dataset. None means resnet26.
    parallel: whether to build TTT's network in place of a cascade; for images only.
    auxiliary: whether the cascade has θ_a.

    Raises ValueError for a value that is not allowed, and if `parallel` is set for text or speech.
    """
    require_whole("classes", classes, least=2)
    if isinstance(network, TextNetwork):
        require_whole("inputs", inputs, least=1)
    if architecture is not None:
        require_choice("architecture", architecture, ["resnet26", "resnet34"])
    if parallel and not isinstance(network, ImageNetwork):
        raise ValueError(
            f"TTT predicts the rotation of images; it has no network like {type(network).__name__}"
        )
    model: Cascade | Parallel
    # The order in which modules are made decides which random draws initialise each of them.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if isinstance(network, ImageNetwork):
            chosen: str = network.architecture
            if chosen == "auto":
                chosen = architecture or "resnet26"
            model = _image_network(network, chosen, classes, parallel, auxiliary)
        elif isinstance(network, TextNetwork):
            assert inputs is not None, "it is a whole number"
            model = _text_network(network, inputs, classes, auxiliary)
        else:
            model = _speech_network(classes, auxiliary)
    # On a CPU convolutions are faster with the channels last. The weights keep their values. Sums
    # run in another order, so results may differ in their last bits.
    return nn.utils.convert_conv2d_weight_memory_format(model, torch.channels_last)


def _image_network(
    network: ImageNetwork, architecture: str, classes: int, parallel: bool, auxiliary: bool
) -> Cascade | Parallel:
    images: ResNet34 | SmallResNet
    if architecture == "resnet34":
        images = ResNet34()
        hidden = 1024
    else:
        images = SmallResNet(network.depth, network.width, network.block)
        hidden = 64
    theta_m = nn.Linear(images.features, classes)
    relu_logits = network.main_logits == "relu"
    if parallel:
        return Parallel(images, theta_m, relu_logits)
    theta_a = None
    if auxiliary:
        theta_a = nn.Sequential(nn.Linear(classes, hidden), nn.ReLU(), nn.Linear(hidden, classes))
    return Cascade(images, theta_m, theta_a, relu_logits)


def _text_network(network: TextNetwork, inputs: int, classes: int, auxiliary: bool) -> Cascade:
    phi = text_features(inputs, network.hidden)
    theta_m = nn.Linear(network.hidden[-1], classes)
    theta_a = nn.Linear(classes, classes) if auxiliary else None
    return Cascade(phi, theta_m, theta_a)


def _speech_network(classes: int, auxiliary: bool) -> Cascade:
    theta_m = nn.Sequential(
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)
    )
    phi = speech_features()
    theta_a = nn.Linear(classes, classes) if auxiliary else None
    return Cascade(phi, theta_m, theta_a)
