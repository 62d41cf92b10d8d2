"""Tables from names to entries, one per kind of thing that a profile can name, such as methods and
datasets.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Entry = TypeVar("Entry")


def nearest(value: object, allowed: Iterable[str]) -> str:
    """Return the end of an error message: which names are allowed, and which of them `value` may
    have meant.

    If more than 25 names are allowed, only the five nearest are listed.
    """
    allowed = list(allowed)
    meant = str(value).lower()
    close = difflib.get_close_matches(meant, allowed, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    if len(allowed) > 25:
        some = difflib.get_close_matches(meant, allowed, n=5, cutoff=0)
        return f"{len(allowed)} are allowed, such as {', '.join(some)}{hint}"
    return f"allowed are {', '.join(allowed)}{hint}"


class Registry(Iterable[str], Generic[Entry]):
    """A table from names to entries. Iterating yields the names in alphabetical order.

    Looking up an unknown name raises ValueError. If `package` is given, all modules in it are
    imported before the first look-up, so a new entry needs only a file there.
    """

    def __init__(self, kind: str, package: str | None = None) -> None:
        self.kind = kind
        self.package = package
        self._entries: dict[str, Entry] = {}

    def add(self, name: str) -> Callable[[Entry], Entry]:
        """Return a decorator that adds an entry under `name`. Raises ValueError if another entry
        has that name.
        """

        def register(entry: Entry) -> Entry:
            known = self._entries.get(name)
            # A notebook's cell that runs again adds an entry with the same repr.
            if known is not None and repr(known) != repr(entry):
                raise ValueError(f"another {self.kind} is already named {name!r}")
            self._entries[name] = entry
            return entry

        return register

    @contextmanager
    def replaced(self, name: str, entry: Entry) -> Iterator[None]:
        """Make `name` stand for `entry` inside `with`, and restore the table afterwards."""
        before = dict(self._loaded())
        self._entries[name] = entry
        try:
            yield
        finally:
            self._entries.clear()
            self._entries.update(before)

    def _loaded(self) -> dict[str, Entry]:
        if self.package is not None:
            package = importlib.import_module(self.package)
            for module in pkgutil.walk_packages(package.__path__, f"{self.package}."):
                importlib.import_module(module.name)
            self.package = None
        return self._entries

    def __getitem__(self, name: str) -> Entry:
        known = self._loaded()
        if not isinstance(name, str) or name not in known:
            raise ValueError(f"no {self.kind} is named {name!r}; {nearest(name, known)}")
        return known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._loaded()))
