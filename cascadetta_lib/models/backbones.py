"""The feature extractors φ.

The paper's appendix has small ResNets and ResNet-34 for images, a fully connected network for text,
and LeNet for speech. The wide ResNet is the network on which the field compares methods.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain

from torch import Tensor, nn
from torch.nn import functional as F

from cascadetta_lib.allowed import require_choice


class ConvBNReLUBlock(nn.Module):
    """A residual block of conv-BN-ReLU twice, as the paper's appendix writes it. The shortcut is
    added before the last ReLU.
    """

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        residual = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(shortcut(x, self.conv1) + residual)


class PreActivationBlock(nn.Module):
    """A residual block of BN-ReLU-conv twice, as in the paper's release and in TTT's ResNet-26."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        residual = self.conv2(F.relu(self.bn2(self.conv1(F.relu(self.bn1(x))))))
        return shortcut(x, self.conv1) + residual


class WideBlock(PreActivationBlock):
    """A pre-activation block. If the number of channels changes, the shortcut is a 1×1 convolution
    of the first ReLU's output.
    """

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__(channels_in, channels, stride)
        same = channels_in == channels
        self.shortcut = (
            nn.Identity() if same else nn.Conv2d(channels_in, channels, 1, stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.bn1(x))
        residual = self.conv2(F.relu(self.bn2(self.conv1(active))))
        return self.shortcut(x if isinstance(self.shortcut, nn.Identity) else active) + residual


BLOCKS = {"conv_bn_relu": ConvBNReLUBlock, "pre_activation": PreActivationBlock, "wide": WideBlock}


def stage(
    kind: type[nn.Module], count: int, channels_in: int, channels: int, stride: int
) -> nn.Sequential:
    """Return `count` blocks in a row. The first changes the number of channels and, by `stride`,
    the size.
    """
    others = [kind(channels, channels, 1) for _ in range(count - 1)]
    return nn.Sequential(kind(channels_in, channels, stride), *others)


def shortcut(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Bring x into the shape of conv(x), without parameters: average pooling by the stride, and
    zeros for missing channels.

    If the stride does not divide the size, the last means are over what is left.
    """
    if conv.stride[0] > 1:
        x = F.avg_pool2d(x, conv.stride[0], ceil_mode=True)
    missing = conv.out_channels - conv.in_channels
    return F.pad(x, (0, 0, 0, 0, 0, missing)) if missing else x


class ImageFeatures(nn.Module, ABC):
    """A φ for images in two parts: φ(x) = private(shared(x)), (B, 3, H, W) → (B, features). TTT's
    rotation branch leaves φ between them.
    """

    features: int
    private: nn.Module

    @abstractmethod
    def shared(self, x: Tensor) -> Tensor:
        """Return the features that both branches of TTT's network start from."""

    def forward(self, x: Tensor) -> Tensor:
        return self.private(self.shared(x))


class LastStage(nn.Module):
    """The last stage of a small ResNet up to the pooled features: (B, 2w, 16, 16) → (B, 4w)."""

    def __init__(self, blocks: nn.Module, bn: nn.Module) -> None:
        super().__init__()
        self.blocks = blocks
        self.bn = bn

    def forward(self, x: Tensor) -> Tensor:
        # Where the blocks end in a ReLU, bn is nn.Identity, and this ReLU changes nothing.
        return F.relu(self.bn(self.blocks(x))).mean((2, 3))


class SmallResNet(ImageFeatures):
    """φ for 32×32 images: a 3×3 convolution, and three stages of (depth − 2)/6 blocks with w, 2w
    and 4w channels. (B, 3, H, W) → (B, 4w).

    The paper's ResNet-26 has depth 26 and width w = 16, and 366,288 parameters.

    block: a name in BLOCKS. Raises ValueError for another name. stem: the channels of the first
    convolution; None for w.
    """

    def __init__(self, depth: int, width: int, block: str, stem: int | None = None) -> None:
        super().__init__()
        require_choice("block", block, BLOCKS)
        kind = BLOCKS[block]
        count = (depth - 2) // 6
        stem = stem or width
        pre_activation = issubclass(kind, PreActivationBlock)
        self.conv1 = nn.Conv2d(3, stem, 3, 1, 1, bias=False)
        self.bn1 = nn.Identity() if pre_activation else nn.BatchNorm2d(stem)
        self.stage1 = stage(kind, count, stem, width, 1)
        self.stage2 = stage(kind, count, width, 2 * width, 2)
        last_bn = nn.BatchNorm2d(4 * width) if pre_activation else nn.Identity()
        self.private = LastStage(stage(kind, count, 2 * width, 4 * width, 2), last_bn)
        self.features = 4 * width
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def shared(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        if isinstance(self.bn1, nn.BatchNorm2d):
            x = F.relu(self.bn1(x))
        return self.stage2(self.stage1(x))


class WideResNet(SmallResNet):
    """φ of the wide ResNet (Zagoruyko and Komodakis 2016) for 32×32 images: a 3×3 convolution to 16
    channels, and three stages of n blocks with 16k, 32k and 64k channels. (B, 3, H, W) → (B, 64k).

    depth: 6n + 4. widening: k.
    """

    def __init__(self, depth: int, widening: int) -> None:
        super().__init__(depth, 16 * widening, "wide", stem=16)


class ResNet34(ImageFeatures):
    """φ for 224×224 images: torchvision's ResNet-34 without its classifier. (B, 3, 224, 224) →
    (B, 512).
    """

    features = 512

    def __init__(self) -> None:
        # Imported here: at the top of the file it would take half of this package's time to import.
        from torchvision.models import resnet34

        super().__init__()
        network = resnet34(weights=None)
        stem = nn.Sequential(network.conv1, network.bn1, network.relu, network.maxpool)
        self.shared_stages = nn.Sequential(stem, network.layer1, network.layer2, network.layer3)
        self.private = nn.Sequential(network.layer4, network.avgpool, nn.Flatten())

    def shared(self, x: Tensor) -> Tensor:
        return self.shared_stages(x)


def text_features(inputs: int, hidden: Sequence[int]) -> nn.Sequential:
    """Make φ for text: fully connected layers, each with BN and ReLU. (B, inputs) →
    (B, hidden[-1]).
    """
    sizes = zip((inputs, *hidden), hidden, strict=False)
    layers = [(nn.Linear(before, size), nn.BatchNorm1d(size), nn.ReLU()) for before, size in sizes]
    return nn.Sequential(*chain.from_iterable(layers))


def speech_features() -> nn.Sequential:
    """Make φ for speech: LeNet's two 5×5 convolutions, each with BN, ReLU and 2×2 max-pooling.
    (B, 1, 32, 32) → (B, 400).
    """
    first = [nn.Conv2d(1, 6, 5), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(6, 16, 5), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, *second, nn.Flatten())
