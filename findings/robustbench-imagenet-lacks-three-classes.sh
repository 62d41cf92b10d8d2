#!/usr/bin/env bash
# robustbench 1.1.1: the 5,000 validation images of ImageNet on which it scores models, and on which
# much work on test-time adaptation reads ImageNet-C, are not balanced. Expected: 5 images of each of
# the 1,000 classes. Seen: 3 classes have no image, 37 have one, 3 have twelve; 182 have five. That is
# what drawing without looking at the classes gives: mean 5, variance 4.5.
# Limits: the list of names that the package carries is read, no image. What follows: a mean over
# images is no mean over classes, and an error per class is undefined for three of them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --no-deps --target "$folder" robustbench==1.1.1
python3 - "$folder/robustbench/helper_files" <<'CODE'
import json
import sys
from collections import Counter
from pathlib import Path

folder = Path(sys.argv[1])
names = (folder / "imagenet_test_image_ids.txt").read_text().split()
classes = json.loads((folder / "imagenet_class_to_id_map.json").read_text())
images = Counter(name.split("/")[0] for name in names)
assert len(names) == len(set(names)) == 5000
assert len(classes) == 1000 and set(images) <= set(classes)

missing = sorted(set(classes) - set(images))
sizes = Counter(images.values())
variance = sum((images[name] - 5) ** 2 for name in classes) / len(classes)
print(f"without an image: {missing}; variance of images per class: {variance:.2f}")
print("images per class:", sorted(sizes.items()))
assert len(missing) == 3
assert sizes[1] == 37 and sizes[5] == 182 and sizes[12] == 3 and max(sizes) == 12
CODE
