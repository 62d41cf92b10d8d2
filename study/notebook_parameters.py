"""Make settings from the variables of a notebook. papermill may have injected some of them."""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from study.modality_parameters import SECTIONS
from study.settings import (
    PARAMETERS,
    PLAIN,
    Settings,
    SettingsError,
    instead_of,
    make_settings,
    read_profile,
)

INTERPRETERS_OWN = re.compile(r"__\w+__|_{1,3}|_(i{1,3}|ih|oh|dh|i?\d+|exit_code)|In|Out")
"""Names that Python and IPython themselves put among a notebook's variables."""


def settings_from(variables: Mapping[str, Any]) -> Settings:
    """Make settings from a notebook's own variables: `settings_from(globals())` after its
    parameters cell.

    If the notebook does not set a parameter, the value comes from the profile that `profile` names.
    None counts as not set, unless the parameter may be None.

    Raises SettingsError for a value that cannot be used, and for a misspelt parameter: papermill
    injects it too, with only a warning. A variable is taken for a misspelt parameter if it has a
    plain value, is no parameter, and is assigned only in cells that assign nothing but literals.
    """
    values: dict[str, Any] = {}
    own = _names_bound_by(variables.get("In", ()))
    for name, value in variables.items():
        if name in PARAMETERS:
            if value is not None or type(None) in get_args(PARAMETERS[name].annotation):
                values[name] = value
        elif isinstance(value, PLAIN | list | tuple | dict) and name not in own:
            if not INTERPRETERS_OWN.fullmatch(name):
                told = _instead_of_variable(name, value)
                raise SettingsError(f"{name} (from the notebook) is no parameter; {told}")
    base, path = read_profile(str(values.pop("profile", "quick")))
    origins = dict.fromkeys(base, path) | dict.fromkeys(values, "the notebook's parameters")
    return make_settings(base | values, origins)


def _instead_of_variable(name: str, value: Any) -> str:
    """Say what is allowed in place of a name that is no parameter. For a group of values, such as
    `image: {severity: 3}`, suggest the flat name.
    """
    if name in SECTIONS and isinstance(value, dict) and value:
        return f"write {name}_{next(iter(value))} = … in place of a group of values"
    return instead_of(name)


def _names_bound_by(cells: Sequence[str]) -> set[str]:
    """Return the names to which cells give a value.

    Cells that only give plain values to names are left out. These are the parameters cell, and the
    cell that papermill injects.
    """
    names = set()
    for source in cells:
        try:
            lines = ast.parse(source).body
        except SyntaxError:
            continue
        if all(_is_parameter(line) for line in lines):
            continue
        for line in lines:
            for node in ast.walk(line):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    names.add(node.id)
                elif isinstance(node, ast.alias):  # of an import
                    names.add(node.asname or node.name)
                elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
                    names.add(node.name)
                elif isinstance(node, ast.MatchMapping) and node.rest:
                    names.add(node.rest)
    return names


def _is_parameter(line: ast.stmt) -> bool:
    """Return whether a statement only assigns a literal to one name, such as `name = 3`."""
    if not isinstance(line, ast.Assign | ast.AnnAssign) or line.value is None:
        return False
    targets = line.targets if isinstance(line, ast.Assign) else [line.target]
    if len(targets) > 1 or not isinstance(targets[0], ast.Name):
        return False
    try:
        ast.literal_eval(line.value)
    except (ValueError, TypeError, RecursionError):  # TypeError for {[]: 1}
        return False
    return True
