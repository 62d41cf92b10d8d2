#!/usr/bin/env bash
# torchvision 0.26.0 with torch 2.11.0: AugMix at severity 1, the severity that AugMix's authors take
# for ImageNet, never moves a pixel. Expected: mild rotations, shears and translations, since their
# code draws each strength uniformly between 0.1 and the severity. Seen: the strength is one of
# `severity` fixed steps, of which the first is 0. So at severity 1 all five geometric operations are
# the identity, and at 3, the default, a third of them.
# In 1,000 pictures of two grey levels, mixed at severity 1, each level is mapped to one level; at
# severity 3 nine in ten pictures have levels between.
# Where the field meets it: a training with "AugMix, severity 1" from here sees changes of colour alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --target "$folder" torchvision==0.26.0 torch==2.11.0 numpy==2.4.6
PYTHONPATH=$folder OMP_NUM_THREADS=1 python3 -W ignore - <<'CODE'
import torch
from torchvision import transforms
from torchvision.transforms import v2

picture = torch.full((3, 32, 32), 80, dtype=torch.uint8)
picture[:, 8:20, 10:25] = 170
inside = picture[0] == 170


def moved(mixed):
    """Whether pixels of one level have come to differ."""
    return any(len(mixed[:, region].unique(dim=1).T) > 1 for region in (inside, ~inside))


for transform in (transforms.AugMix, v2.AugMix):
    shares = {}
    for severity in (1, 3):
        torch.manual_seed(0)
        augmix = transform(severity=severity, all_ops=False)
        shares[severity] = sum(moved(augmix(picture)) for _ in range(1000)) / 1000
    print(transform.__module__, shares)
    assert shares[1] == 0
    assert 0.85 < shares[3] < 0.97
CODE
