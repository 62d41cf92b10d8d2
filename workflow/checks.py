"""What is checked before any job starts: the profile with the command line's values, names, data."""

import argparse
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from cascadetta_lib.data.base import DataMissing, Modality
from cascadetta_lib.provenance import choose_device
from cascadetta_lib.registry import nearest
from cascadetta_lib.settings import Settings, SettingsError, flat, load_profile, parse_yaml
from cascadetta_lib.study import Study
from workflow.options import DATA_MISSING, Refusal

PLACES = ("seeds", "device", "data_folder", "results_folder", "figures_folder")
"""What changes no number of a job."""


def _from_folder(name: str, value: Any, folder: Path) -> Any:
    """`value` with the relative paths in it taken from `folder`: npz:FOLDER, release:FILE, names ending in _folder."""
    if isinstance(value, list):
        return [item if isinstance(item, list) else _from_folder(name, item, folder) for item in value]
    kind, colon, path = value.partition(":") if isinstance(value, str) else ("", "", "")
    if path and name.endswith(("_dataset", "_weights")):
        return f"{kind}:{folder / Path(path).expanduser()}"
    if kind and (name.endswith("_folder") or (name.endswith("_weights") and kind not in ("train", "shipped"))):
        return str(folder / Path(value).expanduser())
    return value


def load_settings(options: argparse.Namespace, caller: Path) -> Settings:
    """The profile with the command line's values. What these change is run under a label of its own, so that no result
    of the profile itself is replaced. Refusal if anything cannot be used."""
    changes: dict[str, Any] = {}
    for pair in ([f"seeds=[{options.seeds}]"] if options.seeds is not None else []) + options.set:
        name, equals, text = pair.partition("=")
        shown = f"--set {pair[:200]}"
        if not equals:
            raise Refusal(f"{shown}: allowed is NAME=VALUE, such as image_epochs=2")
        if name in changes or name == "seed":
            reason = "each job has one of the profile's seeds; use --seeds" if name == "seed" else "it is given twice"
            raise Refusal(f"{shown}: {reason}")
        try:
            changes[name] = _from_folder(name, parse_yaml(text), caller)
        except (ValueError, RuntimeError) as error:
            raise Refusal(f"{shown}: {error}") from None
    try:
        settings, plain = load_profile(options.profile, changes), flat(load_profile(options.profile))
        changed = {name: value for name, value in flat(settings).items() if value != plain[name] and name not in PLACES}
        if changed and "profile" not in changes:
            label = f"{settings.profile}-{hashlib.sha256(json.dumps(changed).encode()).hexdigest()[:6]}"
            settings = load_profile(options.profile, {"figures_folder": ""} | changes | {"profile": label})
    except SettingsError as error:
        raise Refusal(str(error)) from None
    return settings


def check_names(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Refusal for the first of `names` that is none of `known`."""
    for name in names:
        if name not in known:
            raise Refusal(f"{option} {name}: no such notebook; {nearest(name, known)}")


def check_data(settings: Settings, axes: set[str]) -> None:
    """Load every dataset of `axes` once, so that nothing starts without its data, device, networks or domains."""
    for modality in get_args(Modality):
        for name in settings.datasets(modality) if f"{modality}_dataset" in axes else ():
            try:
                choose_device(settings.device)
                study = Study(settings.vary(modality, {"dataset": name}).model_copy(update={"device": "cpu"}), modality)
                print(f"data: {study.dataset.source}, {len(study.stream)} domains", flush=True)
                for seed in settings.seeds:
                    study.at_seed(seed).check()
            except DataMissing as error:
                raise Refusal(f"data missing for {modality}_dataset = {name}: {error}", DATA_MISSING) from None
            except ValueError as error:
                raise Refusal(f"{modality}_dataset = {name}: {error}") from None
