#!/usr/bin/env bash
# torchopt 0.7.3 with torch 2.13.0: recover_state_dict puts a network's parameters back to where
# extract_state_dict found them, but not BatchNorm's running statistics, although with_buffers is
# True. Expected: both go back, since the state that was taken holds both. Seen: by="reference", the
# default, keeps the buffer itself; an optimiser of torchopt replaces parameters, but BatchNorm
# writes into its buffers, so the state moves along. by="copy" puts them back.
# Limits: tried for BatchNorm1d in training mode. Where the field meets it: MAML's inner loop, where
# each task starts from the statistics that the task before has left.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --target "$folder" torchopt==0.7.3 torch==2.13.0 numpy==2.4.6
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import torch
import torchopt

restored = {}
for by in ("reference", "copy"):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    optimizer = torchopt.MetaSGD(network, lr=0.1)
    weight = network[1].weight.detach().clone()
    mean = network[0].running_mean.clone()

    state = torchopt.extract_state_dict(network, by=by, with_buffers=True)
    optimizer.step(network(torch.randn(8, 3) + 5).square().mean())
    assert not torch.equal(network[1].weight, weight)
    torchopt.recover_state_dict(network, state)

    assert torch.equal(network[1].weight, weight)
    restored[by] = torch.equal(network[0].running_mean, mean)
    print(by, network[0].running_mean.tolist(), int(network[0].num_batches_tracked))
assert restored == {"reference": False, "copy": True}
CODE
