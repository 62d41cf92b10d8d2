"""The pre-trainings that compete for cascade_plus on text or speech, judged on held-out source
examples alone.

`./run_all.sh python benchmarks/choose_pretraining.py --modality speech --set
speech_dataset=speech_commands`

Prints a row a candidate: its error (%) on the held-out examples as they are, and on augmented
versions of them, which no target domain has a part in (reviews outside the training have none, so
that both are one); and how often a agrees with z. Chosen is, of the candidates whose a agrees with
z on 80 % of the held-out examples at least, the one of least error on the augmented versions. A
candidate that the store lacks is trained.
"""

import argparse
from pathlib import Path

import pandas as pd
import torch

from cascadetta_lib.data.base import Dataset, Split
from cascadetta_lib.models import Cascade
from cascadetta_lib.training.meta import batch_statistics
from study.exhibits.beyond.conditions import CANDIDATES
from study.provenance import provenance
from study.study import Study
from study.workflow.configuration import load_settings
from study.workflow.refusal import Refusal

DRAWS = 5
"""How often the held-out examples are augmented."""
LEAST_AGREEMENT = 80
"""Percent of the held-out examples on which the a of a candidate has to agree with z."""


@torch.no_grad()
def judged(
    model: Cascade, dataset: Dataset, examples: Split, batch_size: int
) -> tuple[float, float]:
    """Error and agreement of a and z, both in percent, with batch statistics."""
    wrong = agree = 0
    with batch_statistics(model):
        for part in torch.arange(len(examples.y)).tensor_split(
            max(1, len(examples.y) // batch_size)
        ):
            x, y = examples.take(part.to(examples.y.device))
            z, a = model(dataset.prepare(x))
            wrong += int((z.argmax(1) != y).sum())
            agree += int((z.argmax(1) == a.argmax(1)).sum())
    return 100 * wrong / len(examples.y), 100 * agree / len(examples.y)


def row(study: Study, objective: str) -> dict[str, object]:
    """What one candidate does at the study's seed."""
    model, dataset = study.checkpoint(objective).model, study.dataset
    assert isinstance(model, Cascade)
    generator = torch.Generator().manual_seed(0)
    plain = dataset.held_out
    error, agreement = judged(model, dataset, plain, study.batch_size)
    augmented = [Split(dataset.randomise(plain.x, generator), plain.y) for _ in range(DRAWS)]
    errors = [judged(model, dataset, each, study.batch_size)[0] for each in augmented]
    return {
        "objective": objective,
        "error": error,
        "error, augmented": sum(errors) / DRAWS,
        "agreement": agreement,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="laptop")
    parser.add_argument("--modality", choices=["text", "speech"], required=True)
    parser.add_argument("--seeds", default="0", help="such as 0,1,2 (default 0)")
    parser.add_argument(
        "--objectives", nargs="+", choices=CANDIDATES, default=CANDIDATES, help="default: all"
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="as in run_all.sh"
    )
    arguments = parser.parse_args()
    try:
        settings = load_settings(arguments, Path.cwd())
    except Refusal as error:
        parser.error(str(error))
    study = Study(settings, arguments.modality)
    studies = [study.at_seed(seed) for seed in settings.seeds]
    rows = [row(study, objective) for objective in arguments.objectives for study in studies]
    table = pd.DataFrame(rows).groupby("objective", sort=False).mean()
    holding = table[table["agreement"] >= LEAST_AGREEMENT]
    print(table.round(1).to_markdown())
    print(
        "\nchosen: "
        f"{holding['error, augmented'].idxmin() if len(holding) else 'none, no a agrees with z'}"
    )
    made = provenance(study.device, 0)
    where = f"{made['device']}, code {made['code_revision']}"
    print(
        f"\n{study.dataset.source}; profile {arguments.profile}, seeds {list(settings.seeds)}, "
        f"{where}"
    )


if __name__ == "__main__":
    main()
