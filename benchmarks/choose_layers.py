"""How many layers of mSDA the features of reviews have, judged on held-out source reviews alone.

`./run_all.sh python benchmarks/choose_layers.py --set text_dataset=amazon`

Prints a row a number of layers, once for the features of the last layer, and once for those of all
layers and the n-gram counts side by side, as Chen et al. (2012) and this study use them (0: the
counts alone): the error (%) of ERM on the held-out reviews, in the epoch that is kept, at each seed
and on average. All seeds share the held-out reviews, so what chance does to them is in all columns
alike.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import cast

import pandas as pd
import torch
from torch import Tensor

from cascadetta_lib.data.base import Split
from cascadetta_lib.data.msda import apply_msda, fit_msda
from cascadetta_lib.data.reviews import TextDataset
from cascadetta_lib.training.pretrain import kept_epoch, pretrain
from study.provenance import provenance
from study.study import Study
from study.workflow.configuration import load_settings
from study.workflow.refusal import Refusal

LAYERS = (1, 2, 3)


def with_features(counts: TextDataset) -> dict[str, TextDataset]:
    """The dataset under each kind of features, its training and held-out reviews alone; `counts`
    has n-gram counts.
    """
    sizes = [len(counts.train.y), len(counts.held_out.y)]
    rows = torch.cat([counts.train.x, counts.held_out.x])
    x = counts.bank[rows]
    weights = fit_msda(
        x[: sizes[0]], layers=max(LAYERS), probability=counts.options.msda_probability
    )
    outputs = apply_msda(x, weights)
    banks: dict[str, Tensor] = {f"{layers}, the last": outputs[layers] for layers in LAYERS}
    banks |= {
        f"{layers}, all and the counts": torch.cat(outputs[: layers + 1], 1)
        for layers in (0, *LAYERS)
    }
    places = torch.arange(len(rows), device=rows.device).split(sizes)
    train, held_out = (
        Split(x, split.y) for x, split in zip(places, (counts.train, counts.held_out), strict=True)
    )
    return {
        name: replace(counts, bank=bank, train=train, held_out=held_out)
        for name, bank in banks.items()
    }


def held_out_error(study: Study, dataset: TextDataset) -> float:
    """Of ERM at the study's seed, in percent."""
    request = study.checkpoint_request("erm")
    assert request.network is not None and request.training is not None
    _, history = pretrain(dataset, request.network, "erm", request.training, request.seed)
    return 100 * (1 - float(kept_epoch(history)["held_out_accuracy"]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="laptop")
    parser.add_argument("--seeds", default="0,1,2,3,4", help="such as 0,1,2 (default 0,1,2,3,4)")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="as in run_all.sh"
    )
    arguments = parser.parse_args()
    try:
        settings = load_settings(arguments, Path.cwd())
    except Refusal as error:
        parser.error(str(error))
    study = Study(settings, "text")
    errors = {
        name: {
            f"seed {seed}": held_out_error(study.at_seed(seed), dataset) for seed in settings.seeds
        }
        for name, dataset in with_features(
            cast(TextDataset, study.varied(msda_layers=0).dataset)
        ).items()
    }
    table = pd.DataFrame.from_dict(errors, orient="index").rename_axis("layers")
    print(table.assign(mean=table.mean(axis=1)).round(1).to_markdown())
    made = provenance(study.device, 0)
    dataset = study.dataset
    print(
        f"\n{len(dataset.held_out.y)} held-out reviews, {len(dataset.train.y)} to train on. "
        f"{dataset.source};"
    )
    where = f"{made['device']}, torch {made['packages']['torch']}, code {made['code_revision']}"
    print(f"profile {arguments.profile}; {where}")


if __name__ == "__main__":
    main()
