"""Set how this process computes numbers on a GPU. The package imports this file before all others,
and every `code_hash` includes it.
"""

import torch

# With the ten bits of TF32 a meta-gradient was off by 2.5 % (docs/choices.md).
torch.backends.cudnn.allow_tf32 = False
