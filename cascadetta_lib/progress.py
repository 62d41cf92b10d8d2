"""Bars with the time left on a terminal and in JupyterLab; a line now and then when headless."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm.auto import tqdm

Item = TypeVar("Item")
HEADLESS_INTERVAL = 60.0
"""Seconds between two lines of a headless run."""


def progress(items: Iterable[Item], description: str, total: int, initial: int = 0) -> Iterator[Item]:
    """Iterate over `items` and show how far it is; CASCADETTA_HEADLESS=1 (set by run_all.sh) means plain lines."""
    if os.environ.get("CASCADETTA_HEADLESS") != "1":
        yield from tqdm(items, desc=description, total=total, initial=initial, leave=False)
        return
    start = last = time.monotonic()
    for count, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last >= HEADLESS_INTERVAL:
            left = (now - start) / count * (total - initial - count)
            print(
                f"{description}: {initial + count} of {total}, about {left / 60:.0f} min left",
                file=sys.stderr,
                flush=True,
            )
            last = now
