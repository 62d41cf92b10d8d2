"""The notebooks, and the jobs that a profile makes of them.

A notebook says itself what it works on, by the names in its one cell tagged `parameters`:

- `seed` or `image_dataset` (any of AXES): a job for each seed, for each dataset;
- `seeds`: it is a report, one job that sees all of them and comes last.

So a new notebook is a file in notebooks/ and nothing else.
"""

import ast
import hashlib
import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cascadetta_lib.registry import nearest
from workflow.options import Refusal

AXES = ("image_dataset", "text_dataset", "speech_dataset", "seed")
PRETRAIN = "01_pretrain"
"""Makes the checkpoints, so its jobs come before those of the other notebooks on the same dataset and seed."""
ABLATIONS = "05_ablations"
"""Begins with the networks that it alone needs, so it does not wait for PRETRAIN: two jobs train side by side."""


class NotebookError(Refusal):
    """A notebook that cannot be given its parameters."""


@dataclass(frozen=True)
class Notebook:
    """A notebook and the defaults in its parameters cell, of which None stands for the profile's value."""

    path: Path
    defaults: Mapping[str, object]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def report(self) -> bool:
        """Whether it sees all seeds and datasets."""
        return "seeds" in self.defaults

    @property
    def axes(self) -> tuple[str, ...]:
        """The parameters of which each value is a job of its own."""
        return () if self.report else tuple(axis for axis in AXES if axis in self.defaults)

    def given(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the profile's values that the notebook is executed with, and executed again if they change: what it
        names, and what its modalities have. (The rest it can read from the profile.)"""
        modalities = tuple(f"{name.partition('_')[0]}_" for name in self.defaults if name in AXES[:3])
        return {name: value for name, value in values.items() if name in self.defaults or name.startswith(modalities)}


@dataclass(frozen=True)
class Job:
    """One execution of a notebook. `after` names the jobs that come before it."""

    notebook: Notebook
    parameters: dict[str, Any]
    after: tuple[str, ...] = ()


def code_cells(path: Path) -> Iterator[dict[str, Any]]:
    """The code cells of a notebook, with their source as one string."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            yield cell | {"source": "".join(cell["source"])}


def read_notebook(path: Path) -> Notebook:
    """The notebook at `path`. papermill injects at the top, silently, where the `parameters` tag is missing, and fills
    only the first of two such cells; so anything but one is a NotebookError here."""
    try:
        cells = [cell["source"] for cell in code_cells(path) if "parameters" in cell["metadata"].get("tags", ())]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotebookError(f"{path.name} is no notebook ({type(error).__name__}: {error})") from None
    if len(cells) != 1:
        raise NotebookError(f"{path.name}: {len(cells)} cells are tagged 'parameters', and one is needed")
    defaults: dict[str, object] = {}
    try:
        for line in ast.parse(cells[0]).body:
            if isinstance(line, ast.Assign | ast.AnnAssign) and line.value:
                target = line.target if isinstance(line, ast.AnnAssign) else line.targets[0]
                defaults[ast.unparse(target)] = ast.literal_eval(line.value)
    except (SyntaxError, ValueError) as error:
        raise NotebookError(f"{path.name}: its parameters cell holds more than plain values ({error})") from None
    return Notebook(path, defaults)


def find_notebooks(folder: Path, known: Collection[str]) -> dict[str, Notebook]:
    """The notebooks `NN_name.ipynb` in `folder` by name. papermill only warns about a parameter that a notebook does
    not have; here one that is none of `known` is a NotebookError."""
    notebooks = [read_notebook(path) for path in sorted(folder.glob("[0-9][0-9]_*.ipynb"))]
    if not notebooks:
        raise NotebookError(f"{folder}: no notebook NN_name.ipynb is there")
    for notebook in notebooks:
        for name in notebook.defaults:
            if name not in known:
                raise NotebookError(f"{notebook.path.name}: its parameter {name!r} is none; {nearest(name, known)}")
    return {notebook.name: notebook for notebook in notebooks}


def slug(axis: str, value: object) -> str:
    """A short file name for the value of an axis: digits, npz-pets-1f3a5c, seed0."""
    if axis == "seed":
        return f"seed{value}"
    kind, _, argument = str(value).partition(":")
    if not argument:
        return kind
    last = re.sub(r"\W+", "-", Path(argument).name)
    return f"{kind}-{last}-{hashlib.sha256(argument.encode()).hexdigest()[:6]}"  # two folders may have one name


def make_jobs(notebooks: Iterable[Notebook], values: Mapping[str, Any]) -> dict[str, Job]:
    """The jobs of `notebooks` by name; `values` are the flat settings as JSON has them."""
    jobs: dict[str, Job] = {}
    for notebook in notebooks:
        choices = [values["seeds"] if axis == "seed" else values[axis] for axis in notebook.axes]
        for point in itertools.product(*(each if isinstance(each, list) else [each] for each in choices)):
            axes = dict(zip(notebook.axes, point, strict=True))
            before = tuple(name for name, job in jobs.items() if _precedes(job, notebook, axes))
            name = "-".join([notebook.name, *(slug(axis, value) for axis, value in axes.items())])
            jobs[name] = Job(notebook, notebook.given(values) | axes, before)
    return jobs


def _precedes(earlier: Job, notebook: Notebook, axes: Mapping[str, Any]) -> bool:
    if notebook.report:
        return not earlier.notebook.report
    waits = earlier.notebook.name == PRETRAIN and notebook.name not in (PRETRAIN, ABLATIONS)
    return waits and all(axes.get(axis) == earlier.parameters[axis] for axis in earlier.notebook.axes)
