"""The first images of CIFAR-10's official test set, for networks that the user brings:
`cifar10_sample:FILE`.

The file holds x, uint8 (N, 32, 32, 3), and y, int64 (N,), of torchvision's CIFAR10(train=False).
There are no source images, so no network can be trained on this dataset.
"""

from pathlib import Path

import torch

from cascadetta_lib.data import DatasetName, dataset
from cascadetta_lib.data.base import DataMissing, Split, fingerprint, to_device
from cascadetta_lib.data.images import ImageDataset, ImageOptions, domains_of
from cascadetta_lib.data.npz import read_images

DISTINCT = 992
"""How many different images are used. They fill 31 batches of 32. So, in batches of 32, the n-th
batch of every repetition holds the same images.
"""
VERSIONS = 10
"""How often each image comes on the longest stream: as it is, mirrored, as it is, and so on. Each
time the corruption is drawn anew. So a domain has 310 batches of 32, nearly as many as the paper's
313 updates.
"""
FINGERPRINT = "e77557675fae79fa"
"""The `fingerprint` of the official images and labels, repeated VERSIONS times."""
FILE = "3,055,850 bytes, SHA-256 5444ae7861d26abea95eff49da76558b11381f7647f4ff955fac141626eee02e"
"""Size and hash of the file that two lines in profiles/released.yaml write."""
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataset("cifar10_sample", "image", folder="must")
def load_sample(argument: str, options: ImageOptions) -> ImageDataset:
    """Load the images. With an `options.test_size` of DISTINCT each comes once. With more, the
    images come again and again, as on a long stream. With None each comes VERSIONS times.

    Raises DataMissing if there is no file `argument`. Raises ValueError if the file has fewer than
    DISTINCT images, images of another size, or other labels than 0..9.
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
