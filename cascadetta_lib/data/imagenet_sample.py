"""1,000 images of ImageNet, one per class, from imagenet-sample/ in the data folder. There are only
test images, for networks that the user brings.

The files are WNID_name.JPEG, as in the public repository EliSchwartz/imagenet-sample-images. The
images may be training images of ImageNet, so an error on them is no benchmark. It only shows
differences between methods. Labels number the WNIDs in sorted order, which is the usual order of a
network's outputs. Grey images get three channels.
"""

from pathlib import Path

import torch

from cascadetta_lib.data import dataset
from cascadetta_lib.data.base import (
    DataMissing,
    Split,
    code_version,
    fingerprint,
    mixed,
    to_device,
)
from cascadetta_lib.data.folder import square, squares
from cascadetta_lib.data.images import ImageDataset, ImageOptions, domains_of
from cascadetta_lib.files import contents_hash, mapped_array

CLASSES = 1000
SIDE = 224


@dataset("imagenet_sample", "image", batch_size=64)
def load_imagenet_sample(argument: str, options: ImageOptions) -> ImageDataset:
    """Load the images as squares of 224 pixels.

    Raises DataMissing unless there is one image per class.
    """
    data_folder = Path(options.folder).expanduser()
    folder = data_folder / "imagenet-sample"
    paths = sorted(folder.glob("n*_*.JPEG"))
    if len({path.name.partition("_")[0] for path in paths}) != CLASSES or len(paths) != CLASSES:
        raise DataMissing(
            f"{folder} has {len(paths)} images WNID_name.JPEG; allowed are {CLASSES}, one per "
            "class, as in the repository EliSchwartz/imagenet-sample-images"
        )
    contents = contents_hash(folder, paths)[:16]
    name = f"imagenet-sample-{contents}-{code_version(__name__, square.__module__)}.npy"
    shape = (CLASSES, 3, SIDE, SIDE)
    x = mapped_array(data_folder / "generated" / name, shape, lambda: squares(paths, SIDE))
    test = mixed(Split(torch.from_numpy(x), torch.arange(CLASSES)))
    nothing = to_device(Split(test.x[:0], test.y[:0]), options.device)
    return ImageDataset(
        name="imagenet_sample",
        source="1,000 images of ImageNet, one per class, perhaps training images",
        fingerprint=fingerprint(test),
        recognised=False,
        compare_with=None,
        class_names=tuple(path.stem.partition("_")[2].replace("_", " ") for path in paths),
        train=nothing,
        held_out=nothing,
        test=to_device(test, options.device),
        architecture="resnet34",
        options=options,
        **domains_of(options, SIDE),
    )
