"""Show progress: a bar with the time left on a terminal and in JupyterLab, or a line per minute if
headless.
"""

import os
from collections.abc import Iterable
from typing import TypeVar

import tqdm
import tqdm.auto

Item = TypeVar("Item")
HEADLESS_INTERVAL = 60.0  # seconds between two lines


def progress(
    items: Iterable[Item], description: str, total: int, initial: int = 0
) -> Iterable[Item]:
    """Iterate over `items` and show how many are done.

    If CASCADETTA_HEADLESS is 1, as run_all.sh sets it, print plain lines in place of a bar.

    total: the number of items, including those done earlier. initial: how many were done earlier.
    """
    if os.environ.get("CASCADETTA_HEADLESS") != "1":
        return tqdm.auto.tqdm(items, description, total, initial=initial, leave=False)
    line = "{desc}: {n} of {total}, {remaining} left\n"
    rest = HEADLESS_INTERVAL
    return tqdm.tqdm(
        items,
        description,
        total,
        leave=True,
        initial=initial,
        mininterval=rest,
        delay=rest,
        bar_format=line,
    )
