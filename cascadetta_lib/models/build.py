"""Networks from their configuration, per modality, and a seed."""

from typing import Annotated, Literal

import torch
from pydantic import AfterValidator, BaseModel, Field
from torch import nn

from cascadetta_lib.models.backbones import ResNet34, SmallResNet, speech_features, text_features
from cascadetta_lib.models.cascade import Cascade, Parallel


def _six_n_plus_two(depth: int) -> int:
    if (depth - 2) % 6:
        raise ValueError("the depth is 6n + 2: 8, 14, 20, 26, 32, …")
    return depth


class ImageNetwork(BaseModel, frozen=True, extra="forbid"):
    """The network of images. Depth, width and block concern the small ResNet (resnet26) alone."""

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
    """The fully connected network of reviews."""

    hidden: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = Field(
        (1024, 512),
        min_length=1,
        description="layers of φ: [1024, 512] (appendix) or [50, 50] (Sec. 5.2)",
    )


class SpeechNetwork(BaseModel, frozen=True, extra="forbid"):
    """The LeNet of log-mel spectrograms with 32 bands and 32 frames; it has nothing to choose."""


Network = SpeechNetwork | TextNetwork | ImageNetwork
"""The one with the fewest fields comes first: of what a file says, the first that fits is taken."""


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
    """Return a fresh network, initialised from `seed` without touching torch's global generator.

    inputs: the features of a text.
    architecture: what "auto" means on this dataset (resnet26 where it is None).
    parallel: whether to build TTT's network and not the cascade. ValueError unless it is for
        images, whose rotation is its task.
    auxiliary: whether the cascade has θ_a.
    """
    if parallel and not isinstance(network, ImageNetwork):
        raise ValueError(
            f"TTT predicts the rotation of images; it has no network like {type(network).__name__}"
        )
    model: Cascade | Parallel
    # The order in which the modules are made decides which random draws each is initialised by.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if isinstance(network, ImageNetwork):
            chosen = (
                (architecture or "resnet26")
                if network.architecture == "auto"
                else network.architecture
            )
            large = chosen == "resnet34"
            images = (
                ResNet34() if large else SmallResNet(network.depth, network.width, network.block)
            )
            theta_m = nn.Linear(images.features, classes)
            if parallel:
                model = Parallel(images, theta_m)
            else:
                hidden = 1024 if large else 64
                layers = (
                    [nn.Linear(classes, hidden), nn.ReLU(), nn.Linear(hidden, classes)]
                    if auxiliary
                    else []
                )
                theta_a = nn.Sequential(*layers) if auxiliary else None
                model = Cascade(images, theta_m, theta_a, relu_logits=network.main_logits == "relu")
        else:
            classifier: nn.Module
            if isinstance(network, TextNetwork):
                assert inputs is not None
                phi = text_features(inputs, network.hidden)
                classifier = nn.Linear(network.hidden[-1], classes)
            else:
                lenet = [
                    nn.Linear(400, 120),
                    nn.ReLU(),
                    nn.Linear(120, 84),
                    nn.ReLU(),
                    nn.Linear(84, classes),
                ]
                phi = speech_features()
                classifier = nn.Sequential(*lenet)
            model = Cascade(phi, classifier, nn.Linear(classes, classes) if auxiliary else None)
    # The convolutions of a CPU are faster with the channels last. Weights stay what they are; sums
    # run in another order, so results may differ in their last bits.
    return nn.utils.convert_conv2d_weight_memory_format(model, torch.channels_last)
