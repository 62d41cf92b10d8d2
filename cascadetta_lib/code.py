"""Hash the code that makes a number, so that a stored result of one state of the code is never
taken for the result of another.

The hash of a file is over its syntax tree. A comment, a docstring or a line break does not change
it; any other change of the code does. Code without a file, such as that of a notebook's cells, is
hashed by its bytecode (`class_hash`).
"""

import ast
import dis
import functools
import hashlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cascadetta_lib.public import PUBLIC

PACKAGE = __name__.partition(".")[0]
DATA_FILES = (".yaml", ".json", ".csv")
"""The endings of data files that belong to a package's code, such as tables of parameters. They lie
beside its modules.
"""
MAKES_NO_NUMBER = ("allowed", "code", "data.fetch", "progress", "public", "registry")
"""Modules of this package that change no number: they look up, check, download or report.
`code_hash` leaves them out.
"""
IN_EVERY_HASH = ("numerics",)
"""Modules of this package that change numbers without being imported by the code that makes them.
Every `code_hash` includes them.

The package's `__init__` is not among them. It changes numbers only by setting the number of
threads, and the provenance of a result names that number. `__init__` is in a hash only if hashed
code imports the package itself, as `import cascadetta_lib` does.
"""


def code_hash(modules: Iterable[str]) -> str:
    """Hash the code of `modules` and of every module that they import, directly or indirectly.

    Imported modules are hashed if they are of this package or of the user's own. The standard
    library and installed packages are not hashed. A module without a file, such as that of a
    notebook's cells, adds nothing; see `class_hash`. Returns 16 hexadecimal digits.
    """
    return _hash_files(tuple(sorted(files_of(modules))))


def files_of(modules: Iterable[str]) -> set[Path]:
    """Return the files that `code_hash` hashes for `modules`.

    These are the files of `modules`, of the modules in IN_EVERY_HASH, and of all imports that count
    (`_counts`). With the `__init__.py` of a package, the files in its folder whose ending is in
    DATA_FILES are added.
    """
    waiting = [*modules, *(f"{PACKAGE}.{name}" for name in IN_EVERY_HASH)]
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
        package = name if path.stem == "__init__" else name.rpartition(".")[0]
        waiting += _imports_of(path, package, *state_of(path))
    return files


def state_of(path: Path) -> tuple[int, int, int]:
    """Return the size and the times of a file, to notice a later change."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


@cache
def _imports_of(path: Path, package: str, *state: int) -> tuple[str, ...]:
    """Return the names of the modules that a file of `package` imports, wherever in the file the
    import stands. Modules that do not count (`_counts`) are left out.

    For `from package import name` the module is `package.name` if that is a module, else `package`.
    For a name in PUBLIC it is the module behind the name.

    A file that is not valid Python, for example while it is being edited, imports nothing.

    state: `state_of(path)`. It is a part of the cache's key, so a file that has changed is read
    again.
    """
    tree = _syntax_tree(path.read_bytes())
    if tree is None:
        return ()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            source = _absolute(node, package)
            for alias in node.names:
                name = f"{source}.{alias.name}"
                if source == PACKAGE and alias.name in PUBLIC:
                    name = PUBLIC[alias.name][0]
                inside = _counts(source) and _file_of(name)
                found.append(name if inside else source)
    return tuple(name for name in found if _counts(name))


def _syntax_tree(content: bytes) -> ast.Module | None:
    """Return the syntax tree of a Python file, or None if the file is not valid Python."""
    with suppress(SyntaxError, ValueError):  # ValueError: it holds a null character
        return ast.parse(content)
    return None


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """Return the absolute name of the module in `from module import …`, which may begin with dots,
    in a file of `package`.
    """
    if not node.level:
        return node.module or ""
    base = package.split(".")
    parts = base[: len(base) - node.level + 1]
    return ".".join(parts + ([node.module] if node.module else []))


def _counts(name: str) -> bool:
    """Return whether the code of a module goes into hashes.

    Modules of this package and the user's own files do. The standard library, `__main__`, and what
    an installer put into site-packages or dist-packages do not.
    """
    top = name.partition(".")[0]
    if top == PACKAGE:
        return True
    if not top or top in sys.stdlib_module_names or top == "__main__":
        return False
    path = _file_of(top)
    return path is not None and not {"site-packages", "dist-packages"} & set(path.parts)


def class_hash(kind: type) -> str:
    """Hash a class that has no file, with everything that it uses in its own module: functions,
    classes and values.

    The same code gives the same hash in another process, unless the class uses a set whose members
    have an address in memory in their `repr`, such as functions. Comments and the docstrings of
    functions and of the module's own classes are not hashed. Base classes and the metaclass are
    hashed as if the class used them. Of the objects that the class uses, these are hashed by their
    contents: plain values, tuples, lists, dictionaries, arrays, tensors, nn.Modules, functions
    under functools' partial, cache, cached_property and singledispatch, bound methods, and
    instances of the module's own classes. A set is hashed by the `repr` of its members. Of a class
    or function of another module, the name is hashed. Of any other object, the name of its class is
    hashed, and the object's `repr` if this contains no address in memory. If a class or function
    whose name is hashed comes from a file of the user's own, that file is hashed, too, with its
    imports.
    """
    digest = hashlib.sha256()
    _add_object(digest, kind, kind.__module__, {})
    return digest.hexdigest()[:16]


def value_hash(value: object, module: str) -> str:
    """Hash a value as `class_hash` hashes the values that a class uses.

    module: the module whose functions and classes are hashed by their own code.
    """
    digest = hashlib.sha256()
    _add_object(digest, value, module, {})
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


def module_hash(name: str) -> str:
    """Hash the file of one module, without its imports. Returns 64 hexadecimal digits."""
    path = _file_of(name)
    assert path is not None, f"{name} has no file"
    return file_hash(path)


def file_hash(path: Path) -> str:
    """Hash one file: a Python file by its syntax tree without docstrings, any other file by its
    bytes.
    """
    return _hash_file(path, *state_of(path))


def _hash_files(paths: tuple[Path, ...]) -> str:
    hashes = [file_hash(path) for path in paths]
    return hashlib.sha256(" ".join(sorted(hashes)).encode()).hexdigest()[:16]


@cache
def _hash_file(path: Path, *state: int) -> str:
    """Hash one file. `state` is a part of the cache's key, so a file that has changed is read
    again.
    """
    content = path.read_bytes()
    if path.suffix == ".py":
        tree = _syntax_tree(content)
        if tree is not None:  # If the file is not valid Python, its bytes are hashed.
            content = "\n".join(_lines(tree)).encode()
    return hashlib.sha256(content).hexdigest()


def _lines(node: ast.AST) -> Iterator[str]:
    """Yield a syntax tree as text.

    Empty fields are left out, so the text is the same in every version of Python. Docstrings,
    positions and the context of a name are left out too.
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
    """Return whether a statement is nothing but a string, such as a docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _add_object(digest: Any, value: object, module: str, seen: dict[int, object]) -> None:
    """Add an object to the digest, with everything that it uses in `module`.

    module: the name of a module without a file. seen: the objects added so far, by id.
    """
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, property):
        for part in (value.fget, value.fset, value.fdel):
            _add_object(digest, part, module, seen)
        return
    if isinstance(value, (bool, int, float, str, bytes, type(None))) or _is_plain_tuple(value):
        digest.update(f"{value!r};".encode())
        return
    if id(value) in seen:
        digest.update(f"{getattr(value, '__qualname__', type(value).__qualname__)};".encode())
        return
    if parts := _parts_of(value, module):
        seen[id(value)] = value  # kept alive, or another object could get its id
        digest.update(f"{type(value).__qualname__}[".encode())
        for held in parts:
            _add_object(digest, held, module, seen)
        digest.update(b"]")
        return
    if getattr(value, "__module__", None) != module:
        digest.update(f"{getattr(value, '__qualname__', type(value).__qualname__)};".encode())
        if not isinstance(value, type | types.ModuleType):
            text = repr(value)
            if " at 0x" not in text:  # An address in memory differs between processes.
                digest.update(f"{text};".encode())
        source = value.__name__ if isinstance(value, types.ModuleType) else module_of(value)
        if source.partition(".")[0] != PACKAGE and _counts(source):
            digest.update(code_hash([source]).encode())
        return
    seen[id(value)] = value  # kept alive, or another object could get its id
    if isinstance(value, type):
        digest.update(f"class {value.__qualname__} ".encode())
        for kind in (type(value), *value.__bases__):
            _add_object(digest, kind, module, seen)
        for name, member in sorted(vars(value).items()):
            is_code = isinstance(member, types.FunctionType | staticmethod | classmethod)
            if is_code or not name.startswith("__"):
                digest.update(f"{name}=".encode())
                _add_object(digest, member, module, seen)
    if isinstance(value, types.FunctionType):
        _add_code(digest, value.__code__)
        defaults = (value.__defaults__, value.__kwdefaults__)
        if _is_plain_tuple(value.__defaults__ or ()) and not value.__kwdefaults__:
            digest.update(repr(defaults).encode())
        else:  # The repr of an array may have gaps; a function's holds an address.
            _add_object(digest, defaults, module, seen)
        for name in sorted(_names_in(value.__code__)):
            if name in value.__globals__:
                digest.update(f"{name}=".encode())
                _add_object(digest, value.__globals__[name], module, seen)
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # The name has no value yet.
                if id(cell.cell_contents) not in seen:
                    _add_object(digest, cell.cell_contents, module, seen)


def _is_plain_tuple(value: object) -> bool:
    """Return whether an object is a tuple that holds only plain values and other such tuples."""
    plain = (bool, int, float, str, bytes, type(None))
    return isinstance(value, tuple) and all(
        isinstance(part, plain) or _is_plain_tuple(part) for part in value
    )


def module_of(value: object) -> str:
    """Return the name of the module that defines a class or a function. For any other object, the
    module is the one that defines its class.
    """
    return getattr(value, "__module__", None) or type(value).__module__


OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))
"""The attributes that PyTorch itself gives each module, such as `training`."""


def own_attributes(module: torch.nn.Module) -> dict[str, Any]:
    """Return the attributes of a module, except those that every module has. Its parameters,
    buffers and submodules are not among them.
    """
    return {name: value for name, value in vars(module).items() if name not in OF_EVERY_MODULE}


def _parts_of(value: object, module: str) -> Sequence[object]:
    """Return the contents of an object that is hashed by its contents, else an empty list."""
    if isinstance(value, torch.Tensor) and value.layout != torch.strided:
        entries = value.detach().to_sparse().coalesce()
        return [str(value.layout), str(tuple(value.shape)), entries.indices(), entries.values()]
    if isinstance(value, torch.Tensor):
        held = value.detach().cpu().reshape(-1).contiguous().view(torch.uint8)
        return [str(value.dtype), str(tuple(value.shape)), held.numpy().tobytes()]
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return [str(value.shape), value.tolist()]
    if isinstance(value, np.ndarray | np.generic):
        return [str(value.dtype), str(value.shape), value.tobytes()]
    if isinstance(value, dict):
        return [part for pair in value.items() for part in pair] or ["empty"]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value)) or ["empty"]
    if isinstance(value, list | tuple):
        return list(value) or ["empty"]
    if isinstance(value, functools.partial | functools.partialmethod):
        return [value.func, value.args, value.keywords]
    if isinstance(value, functools.cached_property):
        return [value.func]
    if isinstance(value, functools.singledispatchmethod):
        return [value.func, dict(value.dispatcher.registry)]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if not isinstance(value, types.FunctionType | type) and hasattr(value, "__wrapped__"):
        return [value.__wrapped__]  # such as a function under functools.cache
    if isinstance(value, torch.nn.Module):
        options = [own_attributes(part) for part in value.modules()]
        kinds = [type(part) for part in value.modules()]
        return [repr(value), kinds, options, dict(value.state_dict())]
    if not isinstance(value, type) and type(value).__module__ == module:
        return [type(value), _slots_of(value) | getattr(value, "__dict__", {})]
    return []


def _slots_of(value: object) -> dict[str, object]:
    """Return the attributes that an object keeps in `__slots__` instead of its `__dict__`."""
    found: dict[str, object] = {}
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found


def _add_code(digest: Any, code: types.CodeType) -> None:
    """Add what a function takes and does to the digest.

    Its instructions are added with the values that they use. No instruction uses a function's
    docstring, so the docstring is not added.
    """
    takes_more = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)  # *args, **kwargs
    taken = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, takes_more)
    digest.update(repr((taken, code.co_varnames, code.co_freevars)).encode())
    digest.update(code.co_exceptiontable)
    for instruction in dis.get_instructions(code):
        used = instruction.argval
        digest.update(f"{instruction.opname} ".encode())
        if isinstance(used, types.CodeType):
            _add_code(digest, used)
        elif isinstance(used, frozenset):  # Its order differs between processes.
            digest.update(f"{sorted(map(repr, used))};".encode())
        else:
            digest.update(f"{used!r};".encode())


def _names_in(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names
