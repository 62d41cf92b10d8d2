"""Networks of other people's go through every method that needs no more than logits; the others say
what would do.
"""

import re
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import make_sure, seeded
from torch import Tensor, nn
from torchvision.models import (
    ConvNeXt,
    ResNet,
    VisionTransformer,
    mobilenet_v3_small,
)
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.resnet import BasicBlock

from cascadetta_lib.data.base import Modality
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.models import Cascade, batch_norms

pytestmark = pytest.mark.usefixtures("small_updates")
CLASSES = 4
BATCH = 8
CASCADES = {name for name in METHODS if name.startswith("cascade")}
NEED_MORE = CASCADES | {"ttt"}
"""A Cascade, or TTT's parallel network."""


class BagOfWords(nn.Module):
    """A text classifier with BatchNorm, which returns an object as transformers' models do."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(50, 8)
        self.head = nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, CLASSES))

    def forward(self, tokens: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.head(self.words(tokens)))


class WithFeatures(nn.Module):
    """An image classifier which returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.model = mobilenet_v3_small(num_classes=CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, str]:
        return self.model(x), "features"


class Transformer(nn.Module):
    """A text classifier with LayerNorm, which returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1
        )
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(self.words(tokens)).mean(1)
        return self.head(features), features


def vision_transformer() -> nn.Module:
    sizes = {
        "image_size": 32,
        "patch_size": 8,
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 8,
        "mlp_dim": 16,
    }
    model = VisionTransformer(**sizes, num_classes=CLASSES)
    # torchvision's begin with zeros, by which nothing has a gradient, and with places that hardly
    # count, by which shuffled patches are the same image.
    nn.init.normal_(model.heads.head.weight)
    nn.init.normal_(model.encoder.pos_embedding)
    return model


class Ramp(nn.Module):
    """Lets the place of a pixel count, without which an untrained ConvNeXt takes shuffled patches
    for the same image.
    """

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.linspace(-3, 3, x.shape[-1]) * x.sign()


def convnext() -> nn.Module:
    """ConvNeXt, whose LayerNorm acts on channels; its blocks count from the start here."""
    stages = [CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)]
    return nn.Sequential(Ramp(), ConvNeXt(stages, layer_scale=1.0, num_classes=CLASSES))


def group_norm_resnet() -> nn.Module:
    norm = partial(nn.GroupNorm, 8)
    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=CLASSES, norm_layer=norm)


def from_timm(name: str, **options: Any) -> nn.Module:
    """A network of timm, which users have and the tests need not."""
    timm = pytest.importorskip("timm")
    model: nn.Module = timm.create_model(name, pretrained=False, num_classes=CLASSES, **options)
    return model


def timm_vision_transformer() -> nn.Module:
    model = from_timm("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2)
    # Else places hardly count, and shuffled patches are the same image.
    nn.init.normal_(model.get_parameter("pos_embed"))
    return model


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Modality]] = {
    "ResNet": (lambda: ResNet(BasicBlock, [1, 1, 1, 1], num_classes=CLASSES), "image"),
    "MobileNetV3": (WithFeatures, "image"),
    "bag of words": (BagOfWords, "text"),
    "vision transformer": (vision_transformer, "image"),
    "ConvNeXt": (convnext, "image"),
    "GroupNorm ResNet": (group_norm_resnet, "image"),
    "timm's EfficientNet": (lambda: from_timm("tf_efficientnet_lite0"), "image"),
    "timm's ViT": (timm_vision_transformer, "image"),
    "transformer": (Transformer, "text"),
}
NEED_BATCH_NORM = {
    "adabn",
    "note",
    "petta",
    "rotta",
    "source_prior",
    "tema",
    "tent_source_prior",
}
WITH_BATCH_NORM = ("ResNet", "MobileNetV3", "bag of words", "timm's EfficientNet")
CASES = [
    (kind, name)
    for kind, (_, of) in NETWORKS.items()
    for name in METHODS
    if of in METHODS[name].modalities
]
TOKENS = torch.randint(50, (BATCH, 7), generator=seeded(1))
PIXELS = torch.rand(BATCH, 3, 32, 32, generator=seeded(1)) * 2 - 1


def build(kind: str) -> tuple[nn.Module, Tensor]:
    """A network whose running statistics are those of its input: by others, little of it would
    reach the logits.
    """
    make, modality = NETWORKS[kind]
    torch.manual_seed(0)
    model = make()
    x = TOKENS if modality == "text" else PIXELS
    for norm in batch_norms(model):
        norm.momentum = 1.0
    model(x)
    make_sure(model, model, x)
    return model, x


def method_on(name: str, model: nn.Module, x: Tensor, **options: Any) -> Method:
    copies = "image" if x.ndim == 4 else None
    source = x if METHODS[name].needs_source else None
    return METHODS[name](
        model, **({"learning_rate": 0.01, "copies": copies, "source": source} | options)
    )


def adapts_and_returns(method: Method, x: Tensor) -> None:
    """It predicts, changes what it says it changes, and comes back bit by bit; train() and eval()
    change nothing.
    """
    before = [parameter.detach().clone() for parameter in method.adapted_parameters()]
    first = [method.train()(x), method.eval()(x)]
    assert all(logits.shape == (BATCH, CLASSES) and logits.isfinite().all() for logits in first)
    changed = [
        not torch.equal(*pair) for pair in zip(before, method.adapted_parameters(), strict=True)
    ]
    assert any(changed) == (method.adapts and method.label != "MEMO"), "which forgets each image"
    method.reset()
    assert all(torch.equal(method(x), logits) for logits in first)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_network_goes_through_a_method_or_is_refused(kind: str, name: str) -> None:
    model, x = build(kind)
    words = None
    if name in NEED_MORE:
        words = "use tent"
    elif name in NEED_BATCH_NORM and kind not in WITH_BATCH_NORM:
        words = "use tent, erm, lame or cotta"
    if words is None:
        adapts_and_returns(method_on(name, model, x), x)
        return
    with pytest.raises(ValueError) as refused:
        method_on(name, model, x)
    message = str(refused.value)
    assert words in message and message.startswith(METHODS[name].label)
    assert "\n" not in message and ". " not in message


@pytest.mark.parametrize("kind", ["vision transformer", "ConvNeXt", "GroupNorm ResNet"])
@pytest.mark.parametrize("name", sorted(NEED_BATCH_NORM))
def test_a_method_of_batch_statistics_names_methods_that_would_do(kind: str, name: str) -> None:
    """The test above takes every method but these through these networks."""
    with pytest.raises(ValueError, match="use .*lame") as refused:
        method_on(name, *build(kind))
    named = re.findall(r"\w+", str(refused.value).rpartition("use ")[2].replace(" or ", ", "))
    assert len(named) > 2
    assert set(named) <= set(METHODS) - NEED_BATCH_NORM - NEED_MORE


def test_a_method_that_was_made_works_on_in_double_precision() -> None:
    for name in ("cotta", "rotta", "roid", "cmf", "memo", "note", "shot_im", "t3a"):
        network = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 30 * 30, 3)
        )
        method = METHODS[name](network, copies="image", value_range=(0, 1)).double()
        outputs = [method.step(torch.rand(16, 3, 32, 32, dtype=torch.float64)) for _ in range(2)]
        assert all(
            each.main.dtype == torch.float64 and each.main.isfinite().all() for each in outputs
        ), name


@pytest.mark.parametrize("name", sorted(CASCADES))
def test_a_cascade_on_somebodys_backbone(name: str) -> None:
    backbone, x = build("ResNet")
    theta_m = backbone.fc
    backbone.fc = nn.Identity()
    adapts_and_returns(
        method_on(name, Cascade(backbone, theta_m, nn.Linear(CLASSES, CLASSES)), x), x
    )
