"""Does this Python satisfy pyproject.toml? `python workflow/environment.py [EXTRA]` prints what it lacks and exits 1.

Only the standard library and `packaging`, because any Python on the machine may be asked.
"""

from __future__ import annotations  # so that an old Python gets as far as saying that it is old

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def lacking(extra: str | None = None) -> list[str]:
    """The requirements of the project, with those of `extra`, that this Python does not satisfy."""
    if sys.version_info < (3, 11):  # noqa: UP036, any Python may run this
        return ["python>=3.11"]
    import tomllib

    try:
        from packaging.requirements import Requirement
    except ImportError:
        return ["packaging"]

    def satisfied(text: str) -> bool:
        requirement = Requirement(text)
        try:
            return requirement.specifier.contains(version(requirement.name), prereleases=True)
        except PackageNotFoundError:
            return False

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])
    return [text for text in texts if not satisfied(text)]


if __name__ == "__main__":
    missing = lacking(*sys.argv[1:])
    print(", ".join(missing))
    sys.exit(bool(missing))
