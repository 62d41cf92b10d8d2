#!/usr/bin/env bash
# augly 1.0.0 and textaugment 3.0.0: asking for an augmentation, with no word of a seed, sets back the
# generator of NumPy or Python that the whole program draws from.
# Expected: RandomNoise and ShufflePixels of augly, EDA, AEDA and MIXUP of textaugment draw from the global
# generator and move it on, as two draws of numpy.random do; or they have one of their own. Seen: 1. each
# image that passes RandomNoise() calls numpy.random.seed(42), ShufflePixels() seed(10). So all images get the
# same noise, to the bit; and of 200 images whose severity is drawn by NumPy before each, the last 199 have
# one severity, whatever the seed of the run. RandomNoise(seed=None) is refused. 2. The constructors of
# textaugment call random.seed(1), MIXUP's also numpy.random.seed(1): made anew for each batch, they augment
# each batch as the first; and an order that is drawn after them is one order for all seeds of the run.
# Limits: of augly only transforms of images; its extra "image" wants a Pillow older than Python 3.11, so
# a newer one is pinned. EDA is given its stop words and does no synonyms, so nothing is downloaded.
# Where the field meets it: corrupted streams, augmented copies, and the spread over seeds of both.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --no-compile --target "$folder" augly==1.0.0 numpy==2.4.6 pillow==13.0.0 \
  nltk==3.10.4 gensim==4.4.0 googletrans==4.0.2 nest-asyncio==1.6.0
# textaugment alone also wants the package asyncio, which must not stand before Python's own
python3 -m pip install --quiet --no-compile --target "$folder" --no-deps textaugment==3.0.0
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import random

import augly.image
import nltk
import numpy as np
from PIL import Image
from textaugment import AEDA, EDA, MIXUP

nltk.download = lambda name: True  # EDA's constructor asks for two corpora, which are not used here
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

review = "the plot is thin but the two leads are a joy to watch until the last scene"
rows = np.arange(8.0)[:, None]


def eda():
    made = EDA(stop_words=[])
    return lambda: made.random_swap(review) + made.random_deletion(review)


def aeda():
    made = AEDA()
    return lambda: made.punct_insertion(review)


def mixup():
    made = MIXUP()
    return lambda: made.mixup_data(rows).tobytes()


for name, make in {"EDA": eda, "AEDA": aeda, "MIXUP": mixup}.items():
    draw = np.random.permutation if name == "MIXUP" else lambda count: random.sample(range(count), count)
    anew, kept, orders = set(), set(), set()
    for seed in SEEDS:
        random.seed(seed)
        np.random.seed(seed)
        augment = make()
        orders.add(tuple(map(int, draw(100))))
        kept.update(augment() for _ in range(4))
        anew.update(make()() for _ in range(4))
    print(f"{name}: of 20, {len(anew)} result made anew for each, {len(kept)} made once a run, {len(orders)} order")
    assert len(anew) == len(orders) == 1 and len(kept) == 4
CODE
