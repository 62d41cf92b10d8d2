"""The settings of a run: a profile with the command line's values."""

import argparse
import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cascadetta_lib.data import DatasetName
from study.settings import PLACES, Settings, SettingsError, flat, load_profile
from study.weights_name import WeightsName
from study.workflow.refusal import Refusal
from study.yaml12 import parse_yaml

KEEP_THE_FOLDER = (
    "seeds",
    "device",
    "data_folder",
    "results_folder",
    "figures_folder",
    "figures_notebooks",
)
"""Parameters that --set may change while the results stay in the profile's folder, because they
change no number. More seeds only add runs. The first seed is an exception: exhibits choose rates at
the first seed, so another first seed needs another folder.
"""
OF_TRAINING = ("image_trial_epochs", "image_trial_train_size")
"""Parameters of exhibits that matter only for networks that are trained here."""


def from_folder(name: str, value: Any, folder: Path) -> Any:
    """Return the value of a parameter, with a relative path in it joined to `folder`. In a list,
    this is done for each item.

    Paths are in npz:FOLDER, release:FILE and the like, and in parameters whose names end in
    _folder. Raises ValueError for a wrong name of a dataset or of weights.
    """
    if isinstance(value, list):
        return [
            item if isinstance(item, list) else from_folder(name, item, folder) for item in value
        ]
    if not isinstance(value, str):
        return value
    if name.endswith("_dataset"):
        dataset = DatasetName.parse(value)
        if dataset.folder:
            return str(replace(dataset, folder=_within(folder, dataset.folder)))
    elif name.endswith("_weights"):
        weights = WeightsName.parse(value)
        if weights.place:
            return str(replace(weights, place=_within(folder, weights.place)))
    elif name.endswith("_folder") and value:
        return _within(folder, value)
    return value


def _within(folder: Path, path: str) -> str:
    """Join `folder` and `path`; an absolute `path` stays."""
    return str(folder / Path(path).expanduser())


def values_of_pairs(pairs: Sequence[str], caller: Path) -> dict[str, Any]:
    """Return the values of --set, by the parameters' names. Raises Refusal for a value that cannot
    be read.

    pairs: texts NAME=VALUE, whose values are YAML.
    caller: the folder that relative paths start from.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        try:
            values[name] = from_folder(name, parse_yaml(text), caller)
        except (ValueError, RuntimeError) as error:
            raise Refusal(f"--set {pair[:200]}: {error}") from None
    return values


def settings_of_command_line(options: argparse.Namespace, caller: Path) -> Settings:
    """Return the settings of a profile, with the values of --set and --seeds.

    If these values change a number, the settings have a profile name of their own, so that the run
    replaces no result of the profile itself. Raises Refusal for a value that cannot be used.

    caller: the folder that relative paths in --set start from.
    """
    pairs = list(options.set)
    if options.seeds is not None:
        pairs.insert(0, f"seeds=[{options.seeds}]")
    changes = values_of_pairs(pairs, caller)
    try:
        plain = load_profile(options.profile)
        settings = load_profile(options.profile, changes, "--set")
        changed = _changed(plain, settings)
        if changed:
            digest = hashlib.sha256(json.dumps(changed).encode()).hexdigest()[:6]
            own = {"figures_folder": "", "profile": f"{settings.profile}-{digest}"}
            settings = load_profile(options.profile, own | changes, "--set")
    except SettingsError as error:
        raise Refusal(str(error)) from None
    _check_training(changed, flat(settings))
    return settings


def _changed(plain: Settings, settings: Settings) -> dict[str, Any]:
    """Return the changed values that need a results folder of their own, by name."""
    before = flat(plain)
    changed = {
        name: value
        for name, value in flat(settings).items()
        if value != before[name] and name not in KEEP_THE_FOLDER
    }
    first = settings.seeds[:1]
    if first != plain.seeds[:1]:
        changed["seeds"] = first
    return changed


def _check_training(changed: dict[str, Any], values: dict[str, Any]) -> None:
    """Raise Refusal if a parameter of the network or of training has changed, although no network
    is trained.
    """
    for name, value in changed.items():
        modality, *place = PLACES.get(name, ("",))
        if place[:1] not in (["network"], ["training"]) and name not in OF_TRAINING:
            continue
        weights = WeightsName.parse(values[f"{modality}_weights"])
        if not weights.trained_here:
            raise Refusal(
                f"--set {name}={value}: it would change nothing, because {modality}_weights = "
                f"{weights} trains no network"
            )
