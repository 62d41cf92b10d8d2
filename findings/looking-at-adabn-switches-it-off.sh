#!/usr/bin/env bash
# torch 2.14.1, torchvision 0.29.1, monai 1.6.1, torchattacks 3.5.1, torchinfo 1.8.0, thop 0.1.1.post2209072238
# and ptflops 0.7.5: tools that look at a network leave its BatchNorm layers in another mode. A network
# for AdaBN has two modes: all of it in eval(), and BatchNorm in train(). Frozen training has the reverse.
# Expected: a feature extractor, a summary, a count of operations, an attack, or a block "with
# eval_mode(network)", which by MONAI's words will "return to original state at the end", leave the mode
# of every layer alone. Seen: they, update_bn, and the ONNX export with dynamo=False put the mode of the
# root back for all layers (ptflops: eval). So AdaBN's next batch is predicted by the statistics of the
# source, to the bit, and frozen layers begin to move; nothing is raised. The extractor that torchvision
# returns has the wrong modes too. FlopCounterMode and torch.export change no mode.
# Limits: tried on a CPU with a small network. Where the field meets it: features taken for alignment,
# or costs counted, once the network has been configured for adaptation.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --no-compile --target "$folder" torch==2.14.1 torchvision==0.29.1 numpy==2.4.6 \
  monai==1.6.1 torchinfo==1.8.0 ptflops==0.7.5 onnx==1.23.2 scipy==1.17.1 tqdm==4.70.1 requests==2.34.2
python3 -m pip install --quiet --no-compile --target "$folder" --no-deps thop==0.1.1.post2209072238 torchattacks==3.5.1
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import copy
import io

import ptflops
import thop
import torch
import torchattacks
import torchinfo
from monai.networks import eval_mode
from torch.optim.swa_utils import update_bn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models.feature_extraction import create_feature_extractor

torch.manual_seed(0)
x = torch.rand(16, 3, 16, 16)
extractors = []


def convert(network):
    torch.onnx.export(network, (x,), io.BytesIO(), dynamo=False)


def enter(network):
    with eval_mode(network):
        network(x)


def count(network):
    with FlopCounterMode(display=False):
        network(x)


TOOLS = {
    "torchvision, create_feature_extractor": lambda n: extractors.append(create_feature_extractor(n, ["4"])),
    "monai, eval_mode": enter,
    "torchattacks, FGSM": lambda n: torchattacks.FGSM(n)(x, torch.zeros(16, dtype=torch.long)),
    "torchinfo, summary": lambda n: torchinfo.summary(n, input_data=x, verbose=0),
    "thop, profile": lambda n: thop.profile(n, (x,), verbose=False),
    "ptflops": lambda n: ptflops.get_model_complexity_info(n, (3, 16, 16), print_per_layer_stat=False),
    "torch, ONNX with dynamo=False": convert,
    "torch, update_bn": lambda n: update_bn([x], n),
    "torch, FlopCounterMode": count,
    "torch.export": lambda n: torch.export.export(n, (x,)),
}
KEEP = {"torch, FlopCounterMode", "torch.export"}


def network(adabn):
    made = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 4),
    ).train(not adabn)
    made[1].train(adabn)
    return made


def word(training):
    return "train" if training else "eval"


for name, look in TOOLS.items():
    after = {}
    for adabn in (True, False):
        looked = network(adabn)
        look(looked)
        after[adabn] = looked[1].training
        if adabn:
            source = torch.equal(looked(x), copy.deepcopy(looked).eval()(x))
            assert source == (name not in KEEP)
    print(f"{name}: BatchNorm of AdaBN train -> {word(after[True])}, frozen eval -> {word(after[False])}")
    kept = {True: True, False: False}
    assert after == (kept if name in KEEP else {True: False, False: name != "ptflops"})

of_adabn, of_frozen = (extractor.get_submodule("1").training for extractor in extractors)
print("torchvision's extractors: AdaBN", word(of_adabn), "frozen", word(of_frozen))
assert (of_adabn, of_frozen) == (False, True)
CODE
