#!/usr/bin/env bash
# torch-ttt 0.0.2 with torch 2.11.0: its TentEngine, used as its docstring shows (engine.eval(), then
# engine(inputs)), normalises by the BatchNorm statistics of the source, and adapts each batch from
# the source anew. Expected: as in Tent's paper and release, the statistics of the batch, and steps
# that add up along the stream. Seen: with a learning rate of 0 the output is that of the plain
# model in eval mode, to the bit; with another rate a second call on the same batch gives the first
# one's output, and the model that was passed in has not moved.
# Why: track_running_stats becomes False, but running_mean and running_var stay, so eval mode goes on
# using them; and copy_model is on by default.
# Limits: tried for BatchNorm2d, in the documented use alone. Where the field meets it: a comparison with this Tent is one with another method.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --target "$folder" torch==2.11.0 torchvision==0.26.0 numpy==2.4.6 \
  einops==0.8.2 tqdm==4.70.1
python3 -m pip install --quiet --target "$folder" --no-deps torch-ttt==0.0.2
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import copy

import torch
from torch_ttt.engine.tent_engine import TentEngine

torch.manual_seed(0)
source = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(8, 4),
)
x = 3 * torch.randn(32, 3, 8, 8) + 2
by_source = copy.deepcopy(source).eval()(x)
by_batch = copy.deepcopy(source).train()(x)

still = TentEngine(copy.deepcopy(source), {"lr": 0.0})
still.eval()
output, _ = still(x)
print("from the source's statistics", float((output - by_source).abs().max().detach()))
print("from the batch's", float((output - by_batch).abs().max().detach()))
assert torch.equal(output, by_source)
assert not torch.allclose(output, by_batch, atol=0.1)

moving = TentEngine(copy.deepcopy(source), {"lr": 0.01})
moving.eval()
first, _ = moving(x)
second, _ = moving(x)
assert not torch.equal(first, by_source)
assert torch.equal(first, second)
assert all(map(torch.equal, moving.model.parameters(), source.parameters()))
print("two calls on one batch give one output, and the model has not moved")
CODE
