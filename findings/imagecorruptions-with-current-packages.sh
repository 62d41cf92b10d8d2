#!/usr/bin/env bash
# imagecorruptions 1.1.2 with scikit-image 0.26.0 and numpy 2.4.6: pip installs them together without
# a word, and three of the corruptions raise: glass_blur and gaussian_blur a TypeError (multichannel),
# fog an AttributeError (np.float_). Expected: all work, since nothing is pinned against them.
# Limits: severity 3 and one random image of 32×32 pixels.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --target "$folder" imagecorruptions==1.1.2 scikit-image==0.26.0 \
  numpy==2.4.6 opencv-python==5.0.0.93 setuptools==80.9.0
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import numpy as np
from imagecorruptions import corrupt, get_corruption_names

image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
raised = {}
for name in get_corruption_names("all"):
    try:
        corrupt(image, corruption_name=name, severity=3)
    except Exception as error:
        raised[name] = type(error).__name__
print(raised)
expected = {"glass_blur": "TypeError", "gaussian_blur": "TypeError", "fog": "AttributeError"}
assert raised == expected
CODE
