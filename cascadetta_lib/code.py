"""Hash the code that makes a number, so that a result is never taken for that of other code.

The hash is over the syntax tree of the source files: a comment, a docstring or a line break leaves
it as it is, and anything else changes it.
"""

import ast
import hashlib
import importlib.util
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from cascadetta_lib import PUBLIC

PACKAGE = __name__.partition(".")[0]
DATA_FILES = (".yaml", ".json", ".csv")
"""Files beside the modules of a package that belong to its code, such as tables of parameters."""
MAKES_NO_NUMBER = ("code", "data.fetch", "progress", "registry")
"""Modules of this package that look up, download or report, whose text is no part of a hash."""


def code_hash(modules: Iterable[str]) -> str:
    """Hash `modules` and every module of this package that they import, directly or indirectly.

    A module without a file, such as that of a notebook's cells, adds nothing: see `class_hash`.
    Returns 16 hexadecimal digits.
    """
    return _hash_files(tuple(sorted(files_of(modules))))


def files_of(modules: Iterable[str]) -> set[Path]:
    """Return the files of `modules`, of what they import within this package, and of its data."""
    waiting = list(modules)
    seen = {f"{PACKAGE}.{name}" for name in MAKES_NO_NUMBER}
    files = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        path = _file_of(name)
        if path is None:
            continue
        files.add(path)
        if path.stem == "__init__":
            files |= {file for file in path.parent.iterdir() if file.suffix in DATA_FILES}
        waiting += _imports_of(path, *_state_of(path))
    return files


def _state_of(path: Path) -> tuple[int, int, int]:
    """Return what tells a file that has changed since it was read by this process."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


@cache
def _imports_of(path: Path, *state: int) -> tuple[str, ...]:
    """Return the names of the modules of this package that a file imports, wherever in it.

    Of `from package import name` it is `package.name` where that is a module, else `package`.
    """
    found = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if node.module == PACKAGE and alias.name in PUBLIC:
                    name = PUBLIC[alias.name][0]
                inside = node.module.partition(".")[0] == PACKAGE and _file_of(name)
                found.append(name if inside else node.module)
    return tuple(name for name in found if name.partition(".")[0] == PACKAGE)


def class_hash(kind: type) -> str:
    """Hash a class that has no file, with the functions, classes and values of its module it uses.

    The same text gives the same hash in another process. A value that a cell computes counts by its
    `repr` if it is a plain number, text or tuple, else it does not count.
    """
    digest = hashlib.sha256()
    _add_object(digest, kind, kind.__module__, set())
    return digest.hexdigest()[:16]


def _file_of(name: str) -> Path | None:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None and module is None:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        file = spec.origin if spec else None
    if file is None or not file.endswith(".py"):
        return None
    return Path(file)


def file_hash(path: Path) -> str:
    """Hash one file: of Python its syntax tree without docstrings, of any other its bytes."""
    return _hash_file(path, *_state_of(path))


def _hash_files(paths: tuple[Path, ...]) -> str:
    hashes = [file_hash(path) for path in paths]
    return hashlib.sha256(" ".join(sorted(hashes)).encode()).hexdigest()[:16]


@cache
def _hash_file(path: Path, *state: int) -> str:
    """Hash one file; its state only says when to read it again."""
    content = path.read_bytes()
    if path.suffix == ".py":
        with suppress(SyntaxError):  # such as in a file that is being edited
            content = "\n".join(_lines(ast.parse(content))).encode()
    return hashlib.sha256(content).hexdigest()


def _lines(node: ast.AST) -> Iterator[str]:
    """Yield a syntax tree as text, the same in every version of Python: what is empty is left out.

    Docstrings, positions and the context of a name are left out too.
    """
    yield type(node).__name__
    for name, value in ast.iter_fields(node):
        if name in ("ctx", "kind", "type_comment") or value is None or value == []:
            continue
        children = value if isinstance(value, list) else [value]
        if name == "body" and isinstance(value, list):
            children = [child for child in value if not _is_text_alone(child)]
        yield f"{name}:"
        for child in children:
            if isinstance(child, ast.AST):
                yield from _lines(child)
            else:
                yield repr(child)
    yield "."


def _is_text_alone(node: ast.AST) -> bool:
    """Say whether a statement is a text and does nothing, as a docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _add_object(digest: Any, value: object, module: str, seen: set[int]) -> None:
    """Add a class, function or plain value of a module without a file, and what it uses there."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, property):
        for part in (value.fget, value.fset):
            _add_object(digest, part, module, seen)
        return
    if isinstance(value, (bool, int, float, str, bytes, tuple, type(None))):
        digest.update(f"{value!r};".encode())
        return
    if getattr(value, "__module__", None) != module or id(value) in seen:
        digest.update(f"{getattr(value, '__qualname__', type(value).__qualname__)};".encode())
        return
    seen.add(id(value))
    if isinstance(value, type):
        bases = [base.__qualname__ for base in value.__bases__]
        digest.update(f"class {value.__qualname__} {bases}".encode())
        for name, member in sorted(vars(value).items()):
            if not name.startswith("__") or isinstance(member, types.FunctionType):
                digest.update(f"{name}=".encode())
                _add_object(digest, member, module, seen)
    if isinstance(value, types.FunctionType):
        _add_code(digest, value.__code__)
        digest.update(repr((value.__defaults__, value.__kwdefaults__)).encode())
        for name in sorted(_names_in(value.__code__)):
            if name in value.__globals__:
                digest.update(f"{name}=".encode())
                _add_object(digest, value.__globals__[name], module, seen)


def _add_code(digest: Any, code: types.CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _add_code(digest, constant)
        else:
            digest.update(f"{constant!r};".encode())


def _names_in(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names
