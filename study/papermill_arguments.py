"""Check that papermill's command line means what the same texts mean in a profile.

papermill reads values by YAML 1.1 or by Python. There 010 is 8 or 10, 1:30 is 90, and `no` is
false. The notebook sees only the result. So the texts are looked up in the command line of the
process that started the kernel.
"""

import argparse
import base64
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from study.settings import SettingsError
from study.yaml12 import parse_yaml


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise SettingsError if papermill reads a number or a truth value differently from a profile.

    arguments: the words of a command line. If it is not papermill's, nothing is checked.
    """
    names = {Path(word).name for word in arguments[:3]}
    if "papermill" not in names:
        return
    for place, name, text, theirs in _values(arguments):
        if isinstance(theirs, str):  # The settings themselves read texts.
            continue
        with suppress(ValueError):
            if _are_alike(theirs, parse_yaml(text)):
                continue
        raise SettingsError(
            f"{name} = {text} (from papermill's {place}): papermill reads it as {theirs!r}, and a "
            f"profile is read by YAML 1.2; allowed is {_written(theirs)}, if that is meant"
        )


def command_of_parent() -> list[str]:
    """Return the command line of the process that started this one. Without Linux's /proc return an
    empty list.
    """
    with suppress(OSError):
        content = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
        return content.decode(errors="replace").split("\0")[:-1]
    return []


def _values(arguments: Sequence[str]) -> Iterator[tuple[str, str, str, Any]]:
    """Yield option, name, text and papermill's reading of each parameter."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-p", "--parameters", nargs=2, action="append", default=[])
    parser.add_argument("-f", "--parameters_file", action="append", default=[])
    parser.add_argument("-y", "--parameters_yaml", action="append", default=[])
    parser.add_argument("-b", "--parameters_base64", action="append", default=[])
    try:
        given, _ = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError:  # which papermill itself refuses
        return
    for name, text in given.parameters:
        yield "-p", name, text, _number(text)
    files = [Path(name) for name in given.parameters_file]
    texts = [(f"-f {file}", file.read_text(encoding="utf-8")) for file in files if file.is_file()]
    texts += [("-y", text) for text in given.parameters_yaml]
    texts += [("-b", base64.b64decode(text).decode()) for text in given.parameters_base64]
    for place, text in texts:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                written = text[value.start_mark.index : value.end_mark.index]
                with suppress(yaml.YAMLError):  # an alias means nothing alone
                    yield place, key.value, written, yaml.safe_load(written)


def _number(text: str) -> str | int | float:
    """Return what papermill makes of a value after -p."""
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
