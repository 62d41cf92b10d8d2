"""Read a notebook's declarations: its parameters and its exhibits.

A notebook has one cell tagged `parameters`, which assigns plain values, and declares its exhibits
in the call `notebook.begin(globals(), exhibits=["main_image"])`. The rest of its code is not read.
"""

import ast
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cascadetta_lib.registry import nearest
from study.workflow.refusal import Refusal


@dataclass(frozen=True)
class Notebook:
    """A notebook's file, the defaults of its parameters, and the exhibits that it declares."""

    path: Path
    parameters: dict[str, Any]
    exhibits: tuple[str, ...]

    @property
    def name(self) -> str:
        """The file's name without its suffix, such as `02_adapt_image`."""
        return self.path.stem


def code_cells(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the code cells of a notebook, each with its source as one string."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            yield cell | {"source": "".join(cell["source"])}


def read_notebook(path: Path, known: Collection[str]) -> Notebook:
    """Read a notebook's declarations. Raises Refusal if its parameters cell is missing or names an
    unknown parameter, or if its list of exhibits cannot be read.
    """
    return Notebook(path, read_parameters(path, known), declared_exhibits(path))


def read_parameters(path: Path, known: Collection[str]) -> dict[str, Any]:
    """Return the defaults in the parameters cell of a notebook. None means the profile's value.

    Raises Refusal unless exactly one cell is tagged `parameters`, it only assigns plain values, and
    all its names are `known`. The check is needed, because papermill would not fail. Without a
    tagged cell, it injects its values at the top, and the notebook's own assignments overwrite
    them. With two such cells, it fills only the first. For an unknown parameter, it only warns.
    """
    try:
        cells = [
            cell["source"]
            for cell in code_cells(path)
            if "parameters" in cell["metadata"].get("tags", ())
        ]
        if len(cells) != 1:
            raise ValueError(f"{len(cells)} cells are tagged 'parameters', and one is needed")
        found = {}
        for line in ast.parse(cells[0]).body:
            if not isinstance(line, ast.Assign | ast.AnnAssign) or line.value is None:
                raise ValueError(f"line {line.lineno} gives no name a value")
            target = line.target if isinstance(line, ast.AnnAssign) else line.targets[0]
            found[ast.unparse(target)] = ast.literal_eval(line.value)
    except (ValueError, KeyError, TypeError, AttributeError, SyntaxError) as error:
        raise Refusal(f"{path.name} has no parameters cell of plain values: {error}") from None
    for name in found:
        if name not in known:
            raise Refusal(f"{path.name}: {name!r} is not a parameter; {nearest(name, known)}")
    return found


def declared_exhibits(path: Path) -> tuple[str, ...]:
    """Return the exhibits in the notebook's call of `notebook.begin`; none if it has no such call.

    `exhibits.run` refuses an exhibit that is not declared. `exhibits.make` refuses none.

    Raises Refusal if the cell with the call is not plain Python, or if the list cannot be read.
    """
    for cell in code_cells(path):
        if "notebook.begin(" not in cell["source"]:
            continue
        try:
            whole = ast.parse(cell["source"])
        except SyntaxError as error:
            raise Refusal(
                f"{path.name}: the cell with notebook.begin is not plain Python "
                f"(line {error.lineno}: {(error.text or '').strip()}): write magics such as "
                "%matplotlib into another cell, because the scheduler reads this one"
            ) from None
        for node in ast.walk(whole):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "notebook.begin":
                return _exhibits(path, node)
    return ()


def _exhibits(path: Path, call: ast.Call) -> tuple[str, ...]:
    """Return the names in `exhibits=[…]` of a call, or in its second argument; none if the call has
    neither. Raises Refusal unless it is a list of texts.
    """
    given = [keyword.value for keyword in call.keywords if keyword.arg == "exhibits"]
    for value in given or call.args[1:2]:
        try:
            names = ast.literal_eval(value)
        except (ValueError, TypeError):
            names = None
        is_list = isinstance(names, list | tuple)
        if not is_list or not all(isinstance(name, str) for name in names):
            raise Refusal(
                f"{path.name}: exhibits={ast.unparse(value)}: allowed is a list of names as they "
                'are, such as ["main_image"], because the scheduler reads it'
            )
        return tuple(names)
    return ()
