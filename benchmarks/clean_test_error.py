"""What the shipped networks err on where nothing is corrupted: beside the held-out images that each
was chosen by, test images, which chose nothing.

`./run_all.sh python benchmarks/clean_test_error.py npz:FOLDER` takes the images that the networks
in weights/ were trained on, and prints the clean error (%) of each on both, by the source's
statistics and without any adaptation.
"""

import argparse
from typing import cast

import pandas as pd

from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.training.pretrain import held_out_accuracy
from study.provenance import provenance
from study.settings import load_profile
from study.study import Study
from study.weights import SHIPPED

BATCH = 500


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", help="as image_dataset of a profile")
    study = Study(load_profile("study", {"image_dataset": parser.parse_args().dataset}))
    dataset, made, errors = cast(ImageDataset, study.dataset), provenance(study.device, 0), {}
    for path in sorted(SHIPPED.glob("*.safetensors")):
        objective, seed = path.stem.rsplit("-", 1)
        model = study.at_seed(int(seed)).checkpoint(objective).model
        errors[path.stem] = {
            f"{len(split.y):,} {name} images": 100
            * (
                1
                - held_out_accuracy(
                    model, dataset, running_statistics=True, batch_size=BATCH, held_out=split
                )
            )
            for name, split in (("held-out", dataset.plain_held_out), ("test", dataset.test))
        }
    print(
        pd.DataFrame.from_dict(errors, orient="index")
        .rename_axis("clean error (%)")
        .to_markdown(floatfmt=".2f")
    )
    print(
        f"\n{dataset.source}; {made['device']}; torch {made['packages']['torch']}; code "
        f"{made['code_revision']}"
    )


if __name__ == "__main__":
    main()
