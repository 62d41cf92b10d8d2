#!/usr/bin/env bash
# opencv-python-headless 5.0.0.93, numpy 2.4.6: cv2.resize with fx = fy = 0.2 gives the same bytes
# with INTER_LINEAR and with INTER_CUBIC, and both are every fifth pixel, image[2::5, 2::5].
# Expected: two kinds of average over the 25 pixels that a pixel covers. Seen: neither filters
# against aliasing, and at this factor the centre of a pixel falls on a pixel.
# Limits: tried for uint8, and sides that 5 divides. Where the field meets it: the original code of
# CIFAR-10-C scales its photographs of frost so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --target "$folder" opencv-python-headless==5.0.0.93 numpy==2.4.6
PYTHONPATH=$folder python3 - <<'CODE'
import cv2
import numpy as np

image = np.random.default_rng(0).integers(0, 256, (350, 560, 3), dtype=np.uint8)
linear = cv2.resize(image, (0, 0), fx=0.2, fy=0.2, interpolation=cv2.INTER_LINEAR)
cubic = cv2.resize(image, (0, 0), fx=0.2, fy=0.2, interpolation=cv2.INTER_CUBIC)
area = cv2.resize(image, (0, 0), fx=0.2, fy=0.2, interpolation=cv2.INTER_AREA)
assert np.array_equal(linear, cubic)
assert np.array_equal(linear, image[2::5, 2::5])
assert not np.array_equal(linear, area)
print(f"deviation {linear.std():.1f} of {image.std():.1f}; of means it would be {area.std():.1f}")
CODE
