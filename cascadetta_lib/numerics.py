"""How this process computes numbers on a GPU. The package imports this file before all others, and
its code is in every hash.
"""

import torch

# With the ten bits of TF32 a meta-gradient was off by 2.5 % (docs/choices.md).
torch.backends.cudnn.allow_tf32 = False
