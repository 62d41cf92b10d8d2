"""How many layers of mSDA the features of reviews have, judged on held-out source reviews alone.

`./run_all.sh python benchmarks/choose_layers.py --set text_dataset=amazon`

Prints a row a number of layers: the error (%) of ERM on the held-out reviews, in the epoch that was kept, at each seed
and on average. All seeds share the held-out reviews, so what chance does to them is in all columns alike. A network
that the store lacks is trained.
"""

import argparse
from pathlib import Path

import pandas as pd

from cascadetta_lib.pretrain import kept_epoch
from cascadetta_lib.provenance import provenance
from cascadetta_lib.study import Study
from workflow.command import Refusal
from workflow.run import load_settings

LAYERS = (1, 2, 3)


def held_out_error(study: Study) -> float:
    """Of ERM at the study's seed, in percent."""
    history = study.checkpoint("erm").history
    assert history is not None
    return 100 * (1 - float(kept_epoch(history)["held_out_accuracy"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="laptop")
    parser.add_argument("--seeds", default="0,1,2,3,4", help="such as 0,1,2 (default 0,1,2,3,4)")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="as in run_all.sh")
    arguments = parser.parse_args()
    try:
        settings = load_settings(arguments, Path.cwd())
    except Refusal as error:
        parser.error(str(error))
    errors: dict[int, dict[str, float]] = {}
    for layers in LAYERS:
        study = Study(settings, "text").varied(msda_layers=layers)
        errors[layers] = {f"seed {seed}": held_out_error(study.at_seed(seed)) for seed in settings.seeds}
    table = pd.DataFrame.from_dict(errors, orient="index").rename_axis("layers")
    print(table.assign(mean=table.mean(axis=1)).round(1).to_markdown())
    made = provenance(study.device, 0)
    dataset = study.dataset
    print(f"\n{len(dataset.held_out.y)} held-out reviews, {len(dataset.train.y)} to train on. {dataset.source};")
    where = f"{made['device']}, torch {made['packages']['torch']}, code {made['code_revision']}"
    print(f"profile {arguments.profile}; {where}")


if __name__ == "__main__":
    main()
