#!/usr/bin/env bash
# torch 2.13.0: under torch.autocast("cpu", torch.bfloat16), softmax, log_softmax, log and sum of a
# layer's output stay in bfloat16, while cross_entropy and kl_div go to float32. Expected: all of
# them go to float32, as PyTorch documents it for autocast on CUDA. Seen: the dtypes printed below,
# and an entropy of 0.0099 nats where the same logits in float32 have 0.0111: 11 % off.
# Limits: seen on a CPU; not compared on a GPU. Where the field meets it: Tent and its kin minimise
# just this entropy, which is small wherever the network is sure.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --target "$folder" torch==2.13.0 numpy==2.4.6
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import torch
from torch.nn import functional

torch.manual_seed(0)
layer = torch.nn.Linear(10, 10)
x = torch.randn(4, 10)
labels = torch.zeros(4, dtype=torch.long)


def entropy(logits):
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


with torch.autocast("cpu", torch.bfloat16):
    z = layer(x)
    found = {
        "softmax": z.softmax(1),
        "log_softmax": z.log_softmax(1),
        "log": z.exp().log(),
        "sum": z.sum(),
        "cross_entropy": functional.cross_entropy(z, labels),
        "kl_div": functional.kl_div(z.log_softmax(1), z.softmax(1), reduction="batchmean"),
    }
    sure = torch.zeros(1, 10, dtype=torch.bfloat16)
    sure[0, 0] = 9
    low = float(entropy(sure))
high = float(entropy(sure.float()))
dtypes = {name: str(value.dtype).removeprefix("torch.") for name, value in found.items()}
print(dtypes)
print(f"entropy: {low:.4f} in bfloat16, {high:.4f} in float32")
in_float32 = {name for name, dtype in dtypes.items() if dtype == "float32"}
assert in_float32 == {"cross_entropy", "kl_div"}
assert abs(low - 0.0099) < 5e-5 and abs(high - 0.0111) < 5e-5
CODE
