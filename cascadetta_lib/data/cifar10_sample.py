"""`cifar10_sample:FILE`: the first images of CIFAR-10's official test set, for measuring networks
that are brought.

The file holds x, uint8 (N, 32, 32, 3), and y, int64 (N,), of torchvision's CIFAR10(train=False).
There are no source images: nothing can be trained on it.
"""

from pathlib import Path

import torch

from cascadetta_lib.data import DatasetName, dataset
from cascadetta_lib.data.base import DataMissing, Split, fingerprint, to_device
from cascadetta_lib.data.images import ImageDataset, ImageOptions, domains_of
from cascadetta_lib.data.npz import read_images

DISTINCT = 992
"""How many images are used: 31 batches of 32, so that a batch always holds the same images."""
VERSIONS = 10
"""How often an image comes in a long stream, in turn as it is and mirrored, each time under another
draw of the corruption. So a domain has 310 batches of 32, nearly the paper's 313 updates.
"""
FINGERPRINT = "e77557675fae79fa"
"""Fingerprint of the images, used VERSIONS times."""
FILE = "3,055,850 bytes, SHA-256 5444ae7861d26abea95eff49da76558b11381f7647f4ff955fac141626eee02e"
"""The file that the two lines in profiles/released.yaml write."""
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataset("cifar10_sample", "image", folder="must")
def load_sample(argument: str, options: ImageOptions) -> ImageDataset:
    """Load the images. With a test_size of DISTINCT each comes once; with more they are a long
    stream.

    The longest has each VERSIONS times. Raises DataMissing where there is no file `argument`, and
    ValueError where it is not as it must be.
    """
    path = Path(argument).expanduser()
    if not path.is_file():
        raise DataMissing(
            f"there is no {path}; two lines in profiles/released.yaml write it ({FILE})"
        )
    images = read_images(path)
    if images.x.shape[-1] != 32 or len(images.x) < DISTINCT or images.y.max() >= len(CLASSES):
        raise ValueError(
            f"{path}: allowed are {DISTINCT} images or more of 32×32 pixels with labels 0..9"
        )
    x, y = images.take(slice(DISTINCT))
    test = Split(torch.cat([x, x.flip(3)] * (VERSIONS // 2)), y.repeat(VERSIONS))
    told = f"the first {DISTINCT} images of CIFAR-10's official test set"
    found = fingerprint(test)
    nothing = to_device(Split(x[:0], y[:0]), options.device)
    return ImageDataset(
        name=DatasetName("cifar10_sample", argument).key,
        source=told
        if found == FINGERPRINT
        else f"{DISTINCT} images of the user's, which are not {told}",
        fingerprint=found,
        recognised=False,
        compare_with="CIFAR-10-C",
        class_names=CLASSES,
        train=nothing,
        held_out=nothing,
        test=to_device(test, options.device),
        options=options,
        **domains_of(options, side=32),
    )
