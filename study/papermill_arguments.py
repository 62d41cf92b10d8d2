"""Check that papermill's command line means what the same texts mean in a profile.

papermill reads values by YAML 1.1 or by Python. There 010 is 8 or 10, 1:30 is 90, and `no` is
false. The notebook sees only the result. So the texts are looked up in the command line of the
process that started the kernel.
"""

import argparse
import base64
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from study.settings import SettingsError
from study.yaml12 import Yaml12, parse_yaml


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise SettingsError if papermill reads a number or a truth value differently from a profile.

    arguments: the words of a command line. If it is not papermill's, nothing is checked.

    Raises SettingsError also for a file of parameters that cannot be found from here.
    """
    for value in _values(_papermills_own(arguments)):
        if isinstance(value.theirs, str):  # The settings themselves read texts.
            continue
        with suppress(ValueError, yaml.YAMLError):
            if _are_alike(value.theirs, value.read_ours()):
                continue
        told = _written(value.theirs)
        raise SettingsError(
            f"{value.name} = {value.text} (from papermill's {value.place}): papermill reads this "
            f"as {value.theirs!r}, but in a profile it is refused or another value; write {told} "
            f"if you mean {told}"
        )


def command_of_parent() -> list[str]:
    """Return the command line of the process that started this one. Without Linux's /proc return an
    empty list.
    """
    with suppress(OSError):
        content = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
        return content.decode(errors="replace").split("\0")[:-1]
    return []


class _Value(NamedTuple):
    """A parameter that papermill was given.

    place: papermill's option. name: the parameter's name. text: the value as it was written.
    theirs: the value as papermill reads it. read_ours: returns the value as a profile has it.
    """

    place: str
    name: str
    text: str
    theirs: Any
    read_ours: Callable[[], Any]


def _papermills_own(arguments: Sequence[str]) -> Sequence[str]:
    """Return the words after `papermill` in a command line, which may begin with a Python and its
    options. Return none for the command line of another program.
    """
    names = [Path(word).name for word in arguments]
    if names[:1] == ["papermill"]:
        return arguments[1:]
    place = 1
    while place < len(names) and names[place].startswith("-"):
        option = names[place]
        place += 2 if option in ("-X", "-W") else 1
        if re.fullmatch("-[A-Za-z]*m", option):  # such as -m or -Im, which ends the options
            break
    return arguments[place + 1 :] if names[place : place + 1] == ["papermill"] else ()


def _values(arguments: Sequence[str]) -> Iterator[_Value]:
    """Yield each parameter. `arguments` are papermill's own words."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-p", "--parameters", nargs=2, action="append", default=[])
    parser.add_argument("-f", "--parameters_file", action="append", default=[])
    parser.add_argument("-y", "--parameters_yaml", action="append", default=[])
    parser.add_argument("-b", "--parameters_base64", action="append", default=[])
    parser.add_argument("--cwd")
    try:
        given, _ = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError:  # which papermill itself refuses
        return
    for name, text in given.parameters:
        yield _Value("-p", name, text, _number(text), partial(parse_yaml, text))
    texts = [(f"-f {name}", _content(name, given.cwd)) for name in given.parameters_file]
    texts += [("-y", text) for text in given.parameters_yaml]
    texts += [("-b", base64.b64decode(text).decode()) for text in given.parameters_base64]
    for place, text in texts:
        theirs = yaml.compose(text, Loader=yaml.SafeLoader)
        ours = yaml.compose(text, Loader=Yaml12)
        if isinstance(theirs, yaml.MappingNode) and isinstance(ours, yaml.MappingNode):
            for (key, value), (_, own) in zip(theirs.value, ours.value, strict=True):
                written = " ".join(text[value.start_mark.index : value.end_mark.index].split())
                read = yaml.SafeLoader("").construct_document(value)
                yield _Value(place, key.value, written, read, partial(_read_node, own))


def _read_node(node: yaml.Node) -> Any:
    """Return the value of a part of a YAML text, as a profile has it."""
    return Yaml12("").construct_document(node)


def _content(name: str, cwd: str | None) -> str:
    """Return the content of a file of parameters.

    cwd: papermill's --cwd, if it was given. Then the kernel runs in another folder than papermill
        was called in, and nothing tells from here where a relative path begins.
    """
    file = Path(name)
    if not file.is_absolute() and cwd is not None:
        raise SettingsError(
            f"-f {name} (from papermill) cannot be checked, since --cwd {cwd} hides where it "
            "begins; allowed is an absolute path"
        )
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"-f {name} (from papermill) cannot be checked ({error}); allowed is the path of a "
            f"file that can be read from {Path.cwd()}"
        ) from None


def _number(text: str) -> str | int | float:
    """Return the number that papermill reads in a value after -p, or the text if it reads none.

    papermill also turns True, False and None into Python's values. True and False need no check,
    because a profile reads them alike. None is not checked: papermill reads it as null, a profile
    as a text.
    """
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _are_alike(theirs: Any, ours: Any) -> bool:
    """Return whether two readings mean the same. A text in `theirs` passes, since the settings
    themselves read texts.
    """
    if isinstance(theirs, str):
        return True
    if isinstance(ours, str) and not isinstance(theirs, bool):
        with suppress(ValueError):  # such as 1_000, which the settings read as the same
            return float(ours) == theirs
    if isinstance(theirs, list) and isinstance(ours, list):
        return all(map(_are_alike, theirs, ours))
    return type(theirs) is type(ours) and theirs == ours


def _written(value: Any) -> str:
    """Write a value as YAML 1.2 does."""
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n").removesuffix("\n...")
