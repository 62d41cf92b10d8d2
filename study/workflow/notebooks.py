"""The notebooks, and the jobs that a profile makes of them.

A notebook says itself what it works on, by the names in its one cell tagged `parameters`: `seed` or
`image_dataset` (any of AXES) make a job for each seed, for each dataset; `seeds` makes a report,
one job that sees all and comes last. So a new notebook is a file in notebooks/ and nothing else.
"""

import ast
import hashlib
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cascadetta_lib.registry import nearest
from cascadetta_lib.training.objectives import OBJECTIVES
from study import weights as networks
from study.settings import ROOT
from study.store import STORE_FORMAT
from study.workflow.command import Refusal

AXES = ("image_dataset", "text_dataset", "speech_dataset", "seed")
PRETRAIN = "01_pretrain"
"""Makes the checkpoints, so its jobs come before those of the other notebooks on the same dataset
and seed.
"""
ABLATIONS = "05_ablations"
"""Begins with the networks that it alone needs, so it does not wait for PRETRAIN: two jobs train
side by side.
"""


def code_cells(path: Path) -> Iterator[dict[str, Any]]:
    """The code cells of a notebook, with their source as one string."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            yield cell | {"source": "".join(cell["source"])}


def read_parameters(path: Path, known: Collection[str]) -> dict[str, Any]:
    """The defaults in the parameters cell of a notebook, of which None stands for the profile's
    value.

    papermill injects at the top, silently, where the tag is missing, fills only the first of two
    such cells, and only warns of a parameter that there is not; so anything but one cell of names
    that are `known` is a Refusal here.
    """
    try:
        cells = [
            cell["source"]
            for cell in code_cells(path)
            if "parameters" in cell["metadata"].get("tags", ())
        ]
        if len(cells) != 1:
            raise ValueError(f"{len(cells)} cells are tagged 'parameters', and one is needed")
        lines: list[Any] = ast.parse(cells[0]).body
        names = [ast.unparse(getattr(line, "target", None) or line.targets[0]) for line in lines]
        found = {
            name: ast.literal_eval(line.value) for name, line in zip(names, lines, strict=True)
        }
    except (ValueError, KeyError, TypeError, AttributeError, SyntaxError) as error:
        raise Refusal(f"{path.name} has no parameters cell of plain values: {error}") from None
    if unknown := [name for name in found if name not in known]:
        raise Refusal(
            f"{path.name}: its parameter {unknown[0]!r} is none; {nearest(unknown[0], known)}"
        )
    return found


def slug(value: object) -> str:
    """A short file name for the value of an axis: digits, npz-pets, seed0. Settings refuse two
    folders of one name.
    """
    kind, colon, folder = str(value).partition(":")
    return (
        f"seed{value}"
        if isinstance(value, int)
        else quote(f"{kind}{'-' * len(colon)}{Path(folder).name}", safe="")
    )


def origins(weights: str, seeds: Iterable[int]) -> list[str]:
    """What stands for every network, of any objective, that `weights` has at these seeds. Reads no
    data.
    """
    found = []
    for objective, seed in itertools.product(OBJECTIVES, seeds):
        with suppress(networks.NetworkError):
            found.append(networks.origin(weights, objective, seed))
    return found


def make_jobs(folder: Path, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The jobs of the notebooks `NN_name.ipynb` in `folder` by name, as the Snakefile reads them.

    `values` are the flat settings as JSON has them: a job is given those that its notebook names
    and those of its modalities, and is done again if they, its text, the exhibits, the methods or
    the store's format change; the rest it reads from the profile. `after` names jobs before it: of
    a notebook that chooses learning rates, which is done at the first seed alone, the other seeds
    wait for that one.
    """
    jobs: dict[str, dict[str, Any]] = {}
    folders = ("study/exhibits", "cascadetta_lib/methods")
    code = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("[!.]*.*")
        if path.suffix != ".pyc"
    ]
    shown_by = b"".join(path.read_bytes() for path in sorted(code))
    for path in sorted(folder.glob("[0-9][0-9]_*.ipynb")):
        names = read_parameters(path, values)
        report, chooses = (
            "seeds" in names,
            any('make("choice"' in cell["source"] for cell in code_cells(path)),
        )
        modalities = tuple(f"{name.partition('_')[0]}_" for name in names if name in AXES[:3])
        given = {
            name: values[name] for name in values if name in names or name.startswith(modalities)
        }
        several = (
            {}
            if report
            else {
                axis: values["seeds" if axis == "seed" else axis] for axis in AXES if axis in names
            }
        )
        waits = PRETRAIN if path.stem not in (PRETRAIN, ABLATIONS) else None
        for point in itertools.product(
            *(each if isinstance(each, list) else [each] for each in several.values())
        ):
            axes = dict(zip(several, point, strict=True))
            first = (
                {"notebook": path.stem, "axes": axes | {"seed": values["seeds"][0]}}
                if chooses
                else {}
            )
            weights = [given[name] for name in given if name.endswith("_weights")]
            seeds = [axes["seed"]] if "seed" in axes else values["seeds"]
            jobs["-".join([path.stem, *map(slug, point)])] = {
                "notebook": path.stem,
                "path": str(path),
                "sha256": hashlib.sha256(
                    path.read_bytes() + shown_by + bytes([STORE_FORMAT])
                ).hexdigest(),
                "report": report,
                "chooses": chooses,
                "networks": [origin for each in weights for origin in origins(each, seeds)],
                "gpu": int(values["device"] == "cuda" and not report),
                "axes": axes,
                "parameters": given | axes,
                "after": [
                    name
                    for name, job in jobs.items()
                    if report
                    or (job["notebook"] == waits and job["axes"].items() <= axes.items())
                    or (chooses and first.items() <= job.items())
                ],
            }
    return jobs


def outdated_reports(jobs: Mapping[str, Any], folder: Path, runs: Path) -> set[str]:
    """The reports since which a run has come into the store, such as one of another seed, which
    they show as well.
    """
    made = {
        name: folder / "notebooks" / f"{name}.ipynb" for name, job in jobs.items() if job["report"]
    }
    latest = runs.stat().st_mtime if runs.exists() else 0.0
    return {
        name for name, report in made.items() if report.exists() and report.stat().st_mtime < latest
    }
