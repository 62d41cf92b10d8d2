#!/usr/bin/env bash
# torch 2.11.0, ema-pytorch 0.8.3, torch-ema 0.3 and timm 1.0.31: asked for a decay of 0.999, four
# packages make unlike mean teachers of one student. Teacher and student start at 0; before
# the first update the student goes to 1, before the second to 2. Expected everywhere, as in CoTTA
# and RoTTA: the teacher's weight is 0.001 and then 0.002999, and its running mean either follows
# or stays at 0. Seen after the two updates:
#   torch, AveragedModel          weight 1.000, 1.001   running mean 1.000, 2.000
#   ema-pytorch, EMA              weight 1.000, 1.000   running mean 1.000, 1.000
#   torch-ema                     weight 0.818, 1.705   no buffers
#   timm, ModelEmaV2              weight 0.001, 0.003   running mean as the weight
#   timm, ModelEmaV3              weight 0.001, 0.003   running mean as the weight
# torch takes the student itself at the first update, and copies buffers at each. ema-pytorch takes
# it at the calls 1, 11, … 101, averages at each tenth from then on, and does nothing between.
# torch-ema warms the decay up from 2/11. So in these three the source model is gone, all or most of
# it, after one batch.
# Limits: each with its defaults but for the decay; tried for BatchNorm1d and Linear. Where the
# field meets it: a mean teacher that shall remember the source model along a stream.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --target "$folder" torch==2.11.0 numpy==2.4.6 torchvision==0.26.0 \
  ema-pytorch==0.8.3 torch-ema==0.3 timm==1.0.31
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import torch
from ema_pytorch import EMA
from timm.utils import ModelEmaV2, ModelEmaV3
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch_ema import ExponentialMovingAverage

DECAY = 0.999


def put(network, value):
    with torch.no_grad():
        network[0].running_mean.fill_(value)
        for parameter in network.parameters():
            parameter.fill_(value)


def student():
    network = torch.nn.Sequential(torch.nn.BatchNorm1d(1), torch.nn.Linear(1, 1))
    put(network, 0.0)
    return network


def of_torch(network):
    teacher = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    return lambda: teacher.update_parameters(network), lambda: both(teacher.module)


def of_ema_pytorch(network):
    teacher = EMA(network, beta=DECAY)
    return teacher.update, lambda: both(teacher.ema_model)


def of_torch_ema(network):
    teacher = ExponentialMovingAverage(network.parameters(), decay=DECAY)
    return teacher.update, lambda: (teacher.shadow_params[2].item(), None)


def of_timm(kind):
    def make(network):
        teacher = kind(network, decay=DECAY)
        return lambda: teacher.update(network), lambda: both(teacher.module)

    return make


def both(network):
    return network[1].weight.item(), network[0].running_mean.item()


PACKAGES = {
    "torch": of_torch,
    "ema-pytorch": of_ema_pytorch,
    "torch-ema": of_torch_ema,
    "timm V2": of_timm(ModelEmaV2),
    "timm V3": of_timm(ModelEmaV3),
}
seen = {}
for name, make in PACKAGES.items():
    network = student()
    update, values = make(network)
    found = []
    for value in (1.0, 2.0):
        put(network, value)
        update()
        found.append(values())
    weights, means = zip(*found)
    seen[name] = [round(weight, 3) for weight in weights]
    print(name, "weight", seen[name], "running mean", means)
    if name == "torch":
        assert means == (1.0, 2.0)
assert seen == {
    "torch": [1.0, 1.001],
    "ema-pytorch": [1.0, 1.0],
    "torch-ema": [0.818, 1.705],
    "timm V2": [0.001, 0.003],
    "timm V3": [0.001, 0.003],
}
CODE
