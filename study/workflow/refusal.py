"""The exit codes of run_all.sh, and the exception for a run that does not start or ends badly.

This module imports only the standard library.
"""

import difflib
from collections.abc import Collection

DONE = 0
FAILED = 1
BAD_ARGUMENTS = 2
DATA_MISSING = 3
NOTEBOOK_FAILED = 4
STOPPED = 130


class Refusal(Exception):
    """Raised if a run cannot start or does not end well. It has a message and an exit code."""

    def __init__(self, message: str, code: int = BAD_ARGUMENTS) -> None:
        super().__init__(message)
        self.code = code


def allowed_instead(value: str, allowed: Collection[str]) -> str:
    """Return a text that lists the allowed values, and names the one that `value` may have meant.

    The library's `registry.nearest` does the same for longer lists, but importing the library takes
    a second.
    """
    told = f"allowed are {', '.join(sorted(allowed))}"
    close = difflib.get_close_matches(value.lower(), allowed, n=1, cutoff=0.5)
    return f"{told}; did you mean {close[0]!r}?" if close else told
