"""Pack the networks for images that a profile has trained, and put them into weights/:

    ./run_all.sh python study/tools/pack_networks.py [PROFILE]

For a run with --set, PROFILE is the profile.yaml in its results folder.

A network that weights/ has already stays. If a network there learned from other data than the
profile's, nothing is packed. The table in weights/README.md is written anew from all cards.
"""

import argparse
import hashlib
import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pandas as pd
from safetensors.torch import save
from torch import nn

from cascadetta_lib.data.base import DataMissing, Dataset, fingerprint
from cascadetta_lib.data.corruptions import HELD_OUT_CORRUPTIONS
from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.files import write_atomically
from cascadetta_lib.training.objectives import OBJECTIVES
from cascadetta_lib.training.pretrain import held_out_accuracy
from study.exhibits.kit.numbers import number
from study.exhibits.kit.rendering import markdown
from study.networks_from_files import SAMPLE
from study.requests import content_of_checkpoint
from study.settings import SettingsError, load_profile
from study.shipped_networks import SHIPPED, Card, read_card
from study.study import Study

BEGIN = "<!-- The table below is written by study/tools/pack_networks.py. -->\n"


def pack(
    folder: Path, model: nn.Module, history: pd.DataFrame, dataset: Dataset, **card: Any
) -> Path:
    """Write a trained network, its card and its history into `folder`, and return the path of the
    weights.

    history: a row per epoch.
    card: the fields of Card that cannot be measured: network, objective, training, seed, options
        and provenance.
    """
    content = save(
        {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    )
    accuracy = partial(held_out_accuracy, model, dataset, batch_size=200)
    names = HELD_OUT_CORRUPTIONS if tuple(dataset.held_out.x.shape[-2:]) == (32, 32) else ()
    sample = dataset.plain_held_out.take(slice(SAMPLE))
    corrupted = [
        accuracy(running_statistics=False, held_out=dataset.domain(name, 5)) for name in names
    ]
    tested = None
    if isinstance(dataset, ImageDataset):
        tested = round(100 * (1 - accuracy(running_statistics=True, held_out=dataset.test)), 3)
    described = Card(
        modality=dataset.modality,
        classes=dataset.classes,
        input_shape=tuple(dataset.prepare(dataset.plain_held_out.x[:1]).shape[1:]),
        weights_sha256=hashlib.sha256(content).hexdigest(),
        data=dataset.source,
        data_fingerprint=dataset.fingerprint,
        held_out_examples=len(dataset.held_out.y),
        clean_error=round(100 * (1 - accuracy(running_statistics=True)), 3),
        clean_error_batch_statistics=round(100 * (1 - accuracy(running_statistics=False)), 3),
        clean_test_error=tested,
        corrupted_error=round(100 * (1 - sum(corrupted) / len(corrupted)), 3)
        if corrupted
        else None,
        sample_fingerprint=fingerprint([*sample]),
        sample_errors=round(
            len(sample.y) * (1 - accuracy(running_statistics=True, held_out=sample))
        ),
        **card,
    )
    path = folder / f"{described.objective}-{described.seed}.safetensors"
    text = (
        json.dumps(described.model_dump(mode="json"), indent=1, sort_keys=True, ensure_ascii=False)
        + "\n"
    )
    write_atomically(path.with_suffix(".csv"), lambda file: history.to_csv(file, index=False))
    write_atomically(path.with_suffix(".json"), lambda file: file.write(text.encode()))
    write_atomically(path, lambda file: file.write(content))
    return path


def table() -> pd.DataFrame:
    """Return a row per shipped network, from its card."""
    cards = [read_card(path) for path in sorted(SHIPPED.glob("*.safetensors"))]
    rows = {
        f"{card.objective}-{card.seed}": {
            "epochs": str(card.training.epochs or f"{card.training.iterations} batches"),
            "precision": card.training.precision,
            "clean error (%)": number(card.clean_error, 1),
            "with batch statistics (%)": number(card.clean_error_batch_statistics, 1),
            "AdaBN, corrupted (%)": number(
                math.nan if card.corrupted_error is None else card.corrupted_error, 1
            ),
            "minutes": f"{card.provenance['seconds'] / 60:.0f}",
            "code": card.provenance["code_revision"],
            "SHA-256": card.weights_sha256[:12],
        }
        for card in cards
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("network")


def study_of(profile: str, packed: Path = SHIPPED) -> Study:
    """Return the study of a profile.

    Raises SettingsError and DataMissing. Raises ValueError if a network in `packed` learned from
    other data than the profile's.
    """
    study = Study(load_profile(profile))
    for path in packed.glob("*.safetensors"):
        if (known := read_card(path)).data_fingerprint != study.dataset.fingerprint:
            here = f"{study.dataset_name} ({study.dataset.source})"
            raise ValueError(
                f"{path} learned from {known.data}, not from {here}: first move all networks out "
                "of this folder; leave README.md"
            )
    return study


def pack_all(study: Study) -> None:
    """Pack every trained network of the study, at each of its seeds, unless it is packed already.
    Write the table of README.md anew.
    """
    for seed in study.settings.seeds:
        for objective in study.objectives:
            request = study.at_seed(seed).checkpoint_request(objective)
            content = content_of_checkpoint(request, study.dataset.fingerprint)
            trained = study.store.path("checkpoints", request, content)
            if (SHIPPED / f"{objective}-{seed}.safetensors").exists():
                print(f"there already: {objective}-{seed}")
                continue
            if not trained.exists():
                print(f"not trained: {objective}-{seed}")
                continue
            found = study.at_seed(seed).checkpoint(objective)
            assert found.history is not None and request.training is not None
            asked = {
                name: getattr(request, name)
                for name in ("network", "objective", "training", "seed", "options")
            }
            if OBJECTIVES[
                objective
            ].meta:  # pretrain never rounds a meta-gradient, whatever the profile says
                asked["training"] = request.training.model_copy(update={"precision": "float32"})
            assert found.provenance
            card = asked | {"provenance": found.provenance.to_json()}
            print(
                "packed",
                pack(SHIPPED, found.model, found.history, study.dataset, **card).name,
            )
    readme = SHIPPED / "README.md"
    text = (
        readme.read_text(encoding="utf-8").partition(BEGIN)[0]
        + BEGIN
        + "\n"
        + markdown(table())
        + "\n"
    )
    write_atomically(readme, lambda file: file.write(text.encode()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Pack the networks for images that a profile has trained into weights/."
    )
    parser.add_argument(
        "profile",
        nargs="?",
        default="networks",
        help="its name, or a YAML file (default: networks)",
    )
    try:
        asked = study_of(parser.parse_args().profile)
    except (SettingsError, ValueError, DataMissing) as error:
        parser.exit(2, f"pack_networks.py: {error}\n")
    pack_all(asked)
