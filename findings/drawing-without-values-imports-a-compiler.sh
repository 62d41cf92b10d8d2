#!/usr/bin/env bash
# torch 2.14.1: normal_ and exponential_ on the device meta import Inductor, Dynamo and ONNX.
# Expected: a tensor on meta has no values, so drawing its values does nothing and costs nothing.
# Seen: the first normal_ or exponential_ imports more than 800 modules, which takes about as long as
# `import torch` itself; uniform_, random_ and bernoulli_ import none. So counting the parameters of a
# network on meta costs nothing where its initialisation is uniform, as that of nn.Linear, and a
# second of CPU where it is normal, as that of torchvision's ResNets.
# Limits: CPython 3.11 on Linux, torch as pip installs it; the first call in a process. Where the
# field meets it: networks that are built on meta to be counted before they are made.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --target "$folder" torch==2.14.1 numpy==2.4.6
for call in "uniform_()" "random_()" "bernoulli_()" "normal_()" "exponential_()"; do
  CALL=$call PYTHONPATH=$folder python3 - <<'CODE'
import os
import sys
import time

import torch

call = os.environ["CALL"]
before = len(sys.modules)
began = time.process_time()
eval(f"torch.empty(3, device='meta').{call}")
taken = time.process_time() - began
more = len(sys.modules) - before
print(f"{call}: {more} modules more, {taken:.2f} s of CPU")
compiles = "torch._inductor" in sys.modules and "torch.onnx" in sys.modules
if call in ("normal_()", "exponential_()"):
    assert more > 800 and compiles
else:
    assert more == 0 and not compiles
CODE
done
