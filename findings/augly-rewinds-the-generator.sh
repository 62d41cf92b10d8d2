#!/usr/bin/env bash
# augly 1.0.0: an image that passes one of its transforms, with no word of a seed, sets back the generator
# of NumPy that the whole program draws from.
# Expected: RandomNoise and ShufflePixels draw from the global generator and move it on, as two draws of
# numpy.random do; or they have one of their own. Seen: each image that passes RandomNoise() calls
# numpy.random.seed(42), ShufflePixels() seed(10). So all images get the same noise, to the bit; and of 200
# images whose severity is drawn by NumPy before each, the last 199 have one severity, whatever the seed of
# the run. RandomNoise(seed=None) is refused.
# Limits: of augly only transforms of images; its extra "image" wants a Pillow older than Python 3.11, so
# a newer one is pinned. Where the field meets it: corrupted streams, augmented copies, and the spread over
# seeds of both.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --no-compile --target "$folder" augly==1.0.0 numpy==2.4.6 pillow==13.0.0
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import augly.image
import numpy as np
from PIL import Image

SEEDS = range(5)
levels = np.arange(32 * 32 * 3).reshape(32, 32, 3) % 64 + 96
picture = Image.fromarray(levels.astype(np.uint8))


def corrupt(transform):
    """Return the 200 results for one picture, and the severities drawn before them."""
    severities, results = [], []
    for _ in range(200):
        severities.append(np.random.randint(1, 6))
        results.append(np.asarray(transform(picture)).tobytes())
    return results, severities


for transform in (augly.image.RandomNoise(), augly.image.ShufflePixels(factor=0.5)):
    results, after = set(), set()
    for seed in SEEDS:
        np.random.seed(seed)
        of_seed, severities = corrupt(transform)
        results.update(of_seed)
        after.update(severities[1:])
    print(f"{type(transform).__name__}: 1000 times {len(results)} result, severities after the first image {after}")
    assert len(results) == len(after) == 1 and results != {picture.tobytes()}
np.random.seed(0)
assert set(corrupt(lambda image: image)[1]) == {1, 2, 3, 4, 5}  # left alone, NumPy draws all
try:
    augly.image.RandomNoise(seed=None)(picture)
except AssertionError as refused:
    print("RandomNoise(seed=None):", refused)
else:
    raise SystemExit("RandomNoise takes seed=None now")
CODE
