"""Print the requirements in pyproject.toml that this Python lacks. Exit with 1 if there are any.

    python study/workflow/missing_packages.py [EXTRA]

This script must run in any Python on the machine, so it uses only the standard library and
`packaging`.
"""

from __future__ import annotations  # lets an old Python reach the check of its version

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def lacking(extra: str | None = None) -> list[str]:
    """Return the requirements of the project, and those of `extra`, that this Python does not
    satisfy.
    """
    if sys.version_info < (3, 11, 4):
        return ["Python 3.11.4"]
    try:
        # Imported here, because this Python may lack both.
        import tomllib

        from packaging.requirements import Requirement
    except ImportError:
        return ["packaging"]

    def satisfied(requirement: Requirement) -> bool:
        try:
            return requirement.specifier.contains(version(requirement.name), prereleases=True)
        except PackageNotFoundError:
            return False

    project = tomllib.loads(
        (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    texts = project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])
    return [text for text in texts if not satisfied(Requirement(text))]


if __name__ == "__main__":
    missing = lacking(*sys.argv[1:])
    print(", ".join(missing))
    sys.exit(bool(missing))
