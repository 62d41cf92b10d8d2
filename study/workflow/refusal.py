"""Why a run does not start or ends badly, and the exit codes. Only the standard library."""

import difflib
from collections.abc import Collection

DONE = 0
FAILED = 1
BAD_ARGUMENTS = 2
DATA_MISSING = 3
NOTEBOOK_FAILED = 4
STOPPED = 130


class Refusal(Exception):
    """Raised where a run cannot start or did not end well, with the message and the exit code."""

    def __init__(self, message: str, code: int = BAD_ARGUMENTS) -> None:
        super().__init__(message)
        self.code = code


def allowed_instead(value: str, allowed: Collection[str]) -> str:
    """Say what is allowed, and which of it `value` may have meant.

    The library's `registry.nearest` does the same for longer lists; importing the library takes a
    second, which a misspelled argument does not have to wait for.
    """
    told = f"allowed are {', '.join(sorted(allowed))}"
    close = difflib.get_close_matches(value.lower(), allowed, n=1, cutoff=0.5)
    return f"{told}; did you mean {close[0]!r}?" if close else told
