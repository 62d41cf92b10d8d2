#!/usr/bin/env bash
# torch 2.13.0: a TorchFunctionMode that only passes every call on changes what a TransformerEncoder
# in evaluation mode puts out. Expected: the same bits. Seen: under torch.no_grad() the encoder takes
# a fused path that returns zeros at padded positions; a mode (as a profiler, a counter of operations
# or a tracer uses it) switches that path off, and so does recording gradients: the padded positions
# then hold values of order 1, and the others differ in their last bits. A forward hook does not.
# Limits: tried on a CPU with two layers, batch_first, float32 and a padding mask. Where the field
# meets it: a mean over all positions, or an entropy per position, differs with who watches.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --target "$folder" torch==2.13.0 numpy==2.4.6
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import torch
from torch.overrides import TorchFunctionMode

class PassOn(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
encoder = torch.nn.TransformerEncoder(layer, 2).eval()
sequences = torch.randn(2, 5, 16)
padded = torch.zeros(2, 5, dtype=torch.bool)
padded[1, 3:] = True

with torch.no_grad():
    alone = encoder(sequences, src_key_padding_mask=padded)
    with PassOn():
        watched = encoder(sequences, src_key_padding_mask=padded)
    encoder.layers[0].self_attn.register_forward_hook(lambda *arguments: None)
    hooked = encoder(sequences, src_key_padding_mask=padded)
recorded = encoder(sequences, src_key_padding_mask=padded).detach()

runs = {"alone": alone, "hooked": hooked, "watched": watched, "recorded": recorded}
for name, outputs in runs.items():
    print(f"{name}: largest value at a padded position {outputs[padded].abs().max():.2f}")
assert (alone[padded] == 0).all() and (hooked[padded] == 0).all()
assert watched[padded].abs().max() > 1 and recorded[padded].abs().max() > 1
assert torch.allclose(watched[~padded], alone[~padded], atol=1e-5)
CODE
