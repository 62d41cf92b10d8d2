"""CascadeTTA: a reproducible study of continual test-time adaptation with an adaptive cascading
network.
"""

import os

import torch

__version__ = "0.1.0"

# Every entrance to the library passes here: notebooks, papermill, run_all.sh and a script of your
# own. The networks are small, so on a CPU several threads mostly wait for each other;
# OMP_NUM_THREADS chooses another number.
if "OMP_NUM_THREADS" not in os.environ and not torch.cuda.is_available():
    torch.set_num_threads(1)
torch.backends.cudnn.allow_tf32 = (
    False  # with its ten bits a meta-gradient was off by 2.5 % (RESULTS.md)
)
