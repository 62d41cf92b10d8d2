"""The networks: φ, θ_m and θ_a of the cascade (Sec. 4.1, appendix), and TTT's parallel network.

Cascade:   x ─ φ ─ θ_m ─► z (main logits) ─ θ_a ─► a (auxiliary logits)
Parallel:  x ─ φ's shared stages ─┬─ last stage ─ θ_m ─► z
                                  └─ a last stage of its own ─ θ_a ─► four rotations

Which tensors belong to which part is a matter of modules (`model.feature_extractor`, `.main_classifier`,
`.auxiliary_classifier`), never of names.
"""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, cast

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from torch.nn import functional as F

Architecture = Literal["resnet26", "resnet34"]
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


class ResNetConfig(BaseModel):
    """For images. depth, width and block concern resnet26 alone (a ResNet for small images, depth 6n + 2)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: Architecture = "resnet26"
    classes: int = 10
    depth: int = 26
    width: int = 16
    block: Literal["conv_bn_relu", "pre_activation"] = "conv_bn_relu"
    main_logits: Literal["plain", "relu"] = "plain"


class MLPConfig(BaseModel):
    """For text. inputs: features of a text; hidden: the sizes of φ's layers, 1024-512 (appendix) or 50-50 (Sec. 5)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: Literal["mlp"] = "mlp"
    classes: int = 2
    inputs: int = 5000
    hidden: tuple[int, ...] = (1024, 512)


class LeNetConfig(BaseModel):
    """For speech: log-mel spectrograms of 32 bands and 32 frames."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: Literal["lenet"] = "lenet"
    classes: int = 30


ModelConfig = ResNetConfig | MLPConfig | LeNetConfig


class Outputs(NamedTuple):
    """Main logits z (B, C) and auxiliary logits a, or None where the model has none."""

    main: Tensor
    auxiliary: Tensor | None


def as_outputs(result: "Outputs | Tensor") -> Outputs:
    """What a model returned, as Outputs: a network of somebody's own may return its logits (B, C) alone."""
    return Outputs(result, None) if isinstance(result, Tensor) else result


class TwoStages(Protocol):
    """A φ in two halves, so that TTT can branch off between them: φ(x) = private(shared(x)), (B, features)."""

    features: int
    private: nn.Module

    def shared(self, x: Tensor) -> Tensor: ...

    def shared_modules(self) -> list[nn.Module]: ...

    def __call__(self, x: Tensor) -> Tensor: ...


class ConvBNReLUBlock(nn.Module):
    """conv-BN-ReLU twice, as the paper's appendix writes it; the shortcut joins before the last ReLU."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        residual = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(shortcut(x, residual.shape[1], self.stride) + residual)


class PreActivationBlock(nn.Module):
    """BN-ReLU-conv twice, as in the paper's release and in TTT's ResNet-26."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        residual = self.conv2(F.relu(self.bn2(self.conv1(F.relu(self.bn1(x))))))
        return shortcut(x, residual.shape[1], self.stride) + residual


def shortcut(x: Tensor, channels: int, stride: int) -> Tensor:
    """The shortcut without parameters: average pooling by `stride`, then zeros for the channels that x lacks."""
    if stride > 1:
        x = F.avg_pool2d(x, stride)
    if x.shape[1] < channels:
        x = F.pad(x, (0, 0, 0, 0, 0, channels - x.shape[1]))
    return x


class LastStage(nn.Module):
    """The last stage of a small ResNet up to the pooled features: (B, 2w, 16, 16) → (B, 4w)."""

    def __init__(self, blocks: nn.Module, bn: nn.Module) -> None:
        super().__init__()
        self.blocks = blocks
        self.bn = bn

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(x)
        # Only the pre-activation network ends in a BatchNorm of its own.
        if isinstance(self.bn, nn.BatchNorm2d):
            x = F.relu(self.bn(x))
        return x.mean((2, 3))


class SmallResNet(nn.Module):
    """φ for 32×32 images: a 3×3 convolution and three stages of (depth − 2)/6 blocks with w, 2w, 4w channels.

    Input (B, 3, H, W), output (B, 4w). Depth 26 and width 16 make the paper's ResNet-26: 366,288 parameters, 1,824
    of them BatchNorm scale and shift, with either kind of block.
    """

    def __init__(self, depth: int, width: int, block: str) -> None:
        super().__init__()
        kind = {"conv_bn_relu": ConvBNReLUBlock, "pre_activation": PreActivationBlock}[block]
        count = (depth - 2) // 6
        pre_activation = block == "pre_activation"

        def stage(channels_in: int, channels: int, stride: int) -> nn.Sequential:
            first = kind(channels_in, channels, stride)
            return nn.Sequential(first, *(kind(channels, channels, 1) for _ in range(count - 1)))

        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.Identity() if pre_activation else nn.BatchNorm2d(width)
        self.stage1 = stage(width, width, 1)
        self.stage2 = stage(width, 2 * width, 2)
        last_bn = nn.BatchNorm2d(4 * width) if pre_activation else nn.Identity()
        self.private = LastStage(stage(2 * width, 4 * width, 2), last_bn)
        self.features = 4 * width
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def shared(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        if isinstance(self.bn1, nn.BatchNorm2d):
            x = F.relu(self.bn1(x))
        return self.stage2(self.stage1(x))

    def shared_modules(self) -> list[nn.Module]:
        return [self.conv1, self.bn1, self.stage1, self.stage2]

    def forward(self, x: Tensor) -> Tensor:
        return self.private(self.shared(x))


class ResNet34(nn.Module):
    """φ for 224×224 images: torchvision's ResNet-34 without its classifier. (B, 3, 224, 224) → (B, 512)."""

    features = 512

    def __init__(self) -> None:
        from torchvision.models import resnet34  # half of all the time that importing this package would take

        super().__init__()
        network = resnet34(weights=None)
        stem = nn.Sequential(network.conv1, network.bn1, network.relu, network.maxpool)
        self.shared_stages = nn.Sequential(stem, network.layer1, network.layer2, network.layer3)
        self.private = nn.Sequential(network.layer4, network.avgpool, nn.Flatten())

    def shared(self, x: Tensor) -> Tensor:
        return self.shared_stages(x)

    def shared_modules(self) -> list[nn.Module]:
        return [self.shared_stages]

    def forward(self, x: Tensor) -> Tensor:
        return self.private(self.shared(x))


def mlp_features(inputs: int, hidden: Sequence[int]) -> nn.Sequential:
    """φ for text: fully connected layers, each with BN and ReLU. (B, inputs) → (B, hidden[-1])."""
    layers: list[nn.Module] = []
    for size_in, size in zip((inputs, *hidden), hidden, strict=False):
        layers += [nn.Linear(size_in, size), nn.BatchNorm1d(size), nn.ReLU()]
    return nn.Sequential(*layers)


def lenet_features() -> nn.Sequential:
    """φ for speech: two 5×5 convolutions with 6 and 16 channels, each with BN, ReLU and 2×2 max-pooling (LeNet).
    (B, 1, 32, 32) → (B, 400)."""
    first = [nn.Conv2d(1, 6, 5), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(6, 16, 5), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, *second, nn.Flatten())


class Cascade(nn.Module):
    """φ → θ_m → θ_a in a row. Input (B, …); output z (B, C) and a (B, C), a None without θ_a.

    With `relu_logits`, z is max(θ_m(φ(x)), 0): the paper's release has an in-place ReLU before θ_a that changes z too.
    """

    feature_extractor: nn.Module
    main_classifier: nn.Module

    def __init__(
        self, feature_extractor: nn.Module, main_classifier: nn.Module, auxiliary: nn.Module | None, relu_logits: bool
    ) -> None:
        super().__init__()
        self.feature_extractor = feature_extractor
        self.main_classifier = main_classifier
        self.auxiliary_classifier = auxiliary
        self.relu_logits = relu_logits

    def forward(self, x: Tensor) -> Outputs:
        z = self.main_classifier(self.feature_extractor(x))
        if self.relu_logits:
            z = F.relu(z)
        return Outputs(z, None if self.auxiliary_classifier is None else self.auxiliary_classifier(z))


class Parallel(nn.Module):
    """TTT's network: the rotation branch leaves φ before its last stage and has a last stage of its own."""

    feature_extractor: nn.Module
    main_classifier: nn.Module

    def __init__(self, feature_extractor: nn.Module, main_classifier: nn.Module) -> None:
        super().__init__()
        self.feature_extractor = feature_extractor
        self.main_classifier = main_classifier
        extractor = cast(TwoStages, feature_extractor)
        self.auxiliary_stage = copy.deepcopy(extractor.private)
        self.auxiliary_classifier = nn.Linear(extractor.features, 4)

    @property
    def shared_parameters(self) -> list[nn.Parameter]:
        """The parameters that both branches use."""
        modules = cast(TwoStages, self.feature_extractor).shared_modules()
        return [parameter for module in modules for parameter in module.parameters()]

    def forward(self, x: Tensor) -> Outputs:
        return Outputs(self.main_classifier(self.feature_extractor(x)), None)

    def rotation_logits(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) → (B, 4): which multiple of 90° x was rotated by."""
        shared = cast(TwoStages, self.feature_extractor).shared(x)
        return self.auxiliary_classifier(self.auxiliary_stage(shared))


def build_cascade(config: ModelConfig, *, auxiliary: bool = True) -> Cascade:
    """The cascade of `config`, θ_a left out where `auxiliary` is false. Initialised from torch's global generator."""
    classes = config.classes
    extractor: nn.Module
    main: nn.Module
    if isinstance(config, ResNetConfig):
        extractor, main = _resnet(config)
        hidden = 1024 if config.architecture == "resnet34" else 64
        theta_a: nn.Module = nn.Sequential(nn.Linear(classes, hidden), nn.ReLU(), nn.Linear(hidden, classes))
        return Cascade(extractor, main, theta_a if auxiliary else None, config.main_logits == "relu")
    if isinstance(config, MLPConfig):
        extractor, main = mlp_features(config.inputs, config.hidden), nn.Linear(config.hidden[-1], classes)
    else:
        layers = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)]
        extractor, main = lenet_features(), nn.Sequential(*layers)
    return Cascade(extractor, main, nn.Linear(classes, classes) if auxiliary else None, relu_logits=False)


def build_parallel(config: ModelConfig) -> Parallel:
    """TTT's network over the φ of `config`. ValueError for anything but images: its task is their rotation."""
    if not isinstance(config, ResNetConfig):
        raise ValueError(f"TTT predicts the rotation of images; it has no network for {config.architecture}")
    return Parallel(*_resnet(config))


def _resnet(config: ResNetConfig) -> tuple[nn.Module, nn.Linear]:
    """φ and θ_m for images."""
    small = config.architecture == "resnet26"
    extractor = SmallResNet(config.depth, config.width, config.block) if small else ResNet34()
    return extractor, nn.Linear(extractor.features, config.classes)


def first_linear(model: nn.Module) -> nn.Linear | None:
    """The linear layer with a bias that φ begins with (text); None where it begins otherwise, or there is no φ."""
    extractor = getattr(model, "feature_extractor", None)
    first = next(iter(extractor), None) if isinstance(extractor, nn.Sequential) else None
    return first if type(first) is nn.Linear and first.bias is not None else None


def batch_norms(module: nn.Module) -> Iterator[nn.BatchNorm1d | nn.BatchNorm2d]:
    """Every BatchNorm layer of `module`."""
    for child in module.modules():
        if isinstance(child, BATCH_NORMS):
            yield child


def batch_norm_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Scale and shift of every BatchNorm layer of `module`."""
    return [parameter for norm in batch_norms(module) for parameter in (norm.weight, norm.bias)]


def load_release_checkpoint(path: str | Path) -> Cascade:
    """The authors' public CIFAR-10 checkpoint as our ResNet-26 cascade, in evaluation mode, on the CPU.

    Reads the file without executing pickled code. It holds every tensor twice under `net`; the copies with the prefix
    `stateless.` are those that the release ends up with. Its residual blocks are pre-activation and its logits pass
    an in-place ReLU, so z is max(z, 0). Raises ValueError where the file does not hold that state dictionary.
    """
    model = build_cascade(ResNetConfig(block="pre_activation", main_logits="relu"))
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)["net"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: no state dictionary under 'net'; this is not the release's checkpoint") from error
    renamed = {}
    for name, tensor in state.items():
        if not name.startswith("stateless."):
            continue
        part, _, rest = name.removeprefix("stateless.").partition(".")
        ours = {
            "conv1": "feature_extractor.conv1",
            "layer1": "feature_extractor.stage1",
            "layer2": "feature_extractor.stage2",
            "layer3": "feature_extractor.private.blocks",
            "bn": "feature_extractor.private.bn",
            "fc": "main_classifier",
            "ssh": "auxiliary_classifier",
        }.get(part)
        if ours is None:
            raise ValueError(f"{path}: unknown tensor {name!r}; this is not the release's CIFAR-10 checkpoint")
        renamed[f"{ours}.{rest}"] = tensor
    try:
        model.load_state_dict(renamed)
    except RuntimeError as error:
        raise ValueError(f"{path}: the tensors do not fit ResNet-26 with 10 classes: {error}") from error
    return model.eval()
