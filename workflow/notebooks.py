"""The notebooks and the jobs that a profile makes of them.

A notebook says itself what it works on, by the names in its one cell tagged `parameters`:

- `seed` or `image_dataset` (any of AXES): a job for each seed, for each dataset;
- `seeds`: one job that sees all of them and comes last (the report).

So a new notebook is a file in notebooks/ and nothing else.
"""

import ast
import hashlib
import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

AXES = ("image_dataset", "text_dataset", "speech_dataset", "seed")
PRETRAIN = "01_pretrain"
"""Makes the checkpoints, so its jobs come before those of the other notebooks on the same dataset and seed."""
ABLATIONS = "05_ablations"
"""Begins with the networks that it alone needs, so it does not wait for PRETRAIN: two jobs train side by side."""
REPORT = "_report"
"""The executed notebook whose name ends so is also written as report.html."""


class NotebookError(Exception):
    """A notebook that cannot be given its parameters."""


@dataclass(frozen=True)
class Notebook:
    """A notebook and the defaults in its parameters cell."""

    path: Path
    defaults: Mapping[str, object]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def axes(self) -> tuple[str, ...]:
        """The parameters of which each value is a job of its own."""
        return () if "seeds" in self.defaults else tuple(axis for axis in AXES if axis in self.defaults)


@dataclass(frozen=True)
class Job:
    """One execution of a notebook. `after` names the jobs that come before it."""

    name: str
    notebook: Notebook
    parameters: Mapping[str, object]
    after: tuple[str, ...] = ()


def code_cells(path: Path) -> Iterator[dict[str, Any]]:
    """The code cells of a notebook, with their source as one string."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            yield cell | {"source": "".join(cell["source"])}


def _assignments(source: str) -> Iterator[tuple[str, ast.expr]]:
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign):
            yield from ((target.id, statement.value) for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            yield statement.target.id, statement.value


def read_notebook(path: Path) -> Notebook:
    """The notebook at `path`. papermill injects at the top, silently, where the `parameters` tag is missing, and fills
    only the first of two such cells; so anything but one is a NotebookError here."""
    cells = [cell["source"] for cell in code_cells(path) if "parameters" in cell["metadata"].get("tags", ())]
    if len(cells) != 1:
        raise NotebookError(f"{path.name}: {len(cells)} cells are tagged 'parameters', and one is needed")
    try:
        return Notebook(path, {name: ast.literal_eval(value) for name, value in _assignments(cells[0])})
    except (SyntaxError, ValueError) as error:
        raise NotebookError(f"{path.name}: its parameters cell holds more than plain values ({error})") from None


def find_notebooks(folder: Path, known: Collection[str]) -> dict[str, Notebook]:
    """The notebooks `NN_name.ipynb` in `folder` by name; each parameter must be one of `known`.

    papermill only warns about a parameter that a notebook does not have; here a wrong one ends the run.
    """
    from cascadetta_lib.registry import nearest

    notebooks = [read_notebook(path) for path in sorted(folder.glob("[0-9][0-9]_*.ipynb"))]
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


def _points(notebook: Notebook, values: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    """The combinations of axis values that the notebook works on."""
    choices = []
    for axis in notebook.axes:
        several = values["seeds"] if axis == "seed" else values[axis]
        choices.append(several if isinstance(several, list) else [several])
    for combination in itertools.product(*choices):
        yield dict(zip(notebook.axes, combination, strict=True))


def _agree(one: Job, other: Job) -> bool:
    shared = set(one.notebook.axes) & set(other.notebook.axes)
    return all(one.parameters[axis] == other.parameters[axis] for axis in shared)


def _precedes(earlier: Job, job: Job) -> bool:
    if not job.notebook.axes:  # a report
        return bool(earlier.notebook.axes)
    covers = set(earlier.notebook.axes) <= set(job.notebook.axes)
    waits = job.notebook.name not in (PRETRAIN, ABLATIONS)
    return earlier.notebook.name == PRETRAIN and waits and covers and _agree(earlier, job)


def make_jobs(notebooks: Iterable[Notebook], values: Mapping[str, Any]) -> dict[str, Job]:
    """The jobs of `notebooks` by name; `values` are the settings as JSON has them. A job gets what its notebook's
    parameters cell declares."""
    jobs = []
    for notebook in notebooks:
        for point in _points(notebook, values):
            name = "-".join([notebook.name, *(slug(axis, value) for axis, value in point.items())])
            jobs.append(Job(name, notebook, {name: values[name] for name in notebook.defaults} | point))
    before = {job.name: tuple(other.name for other in jobs if _precedes(other, job)) for job in jobs}
    return {job.name: replace(job, after=before[job.name]) for job in jobs}
