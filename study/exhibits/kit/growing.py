"""A table that grows in a notebook while its runs are being made."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pandas as pd
from IPython import get_ipython
from IPython.display import HTML, DisplayHandle

from study.exhibits.kit.rendering import table_html

MakeTable = Callable[[], pd.DataFrame | None]


@contextmanager
def table_that_grows() -> Iterator[Callable[[MakeTable], None]]:
    """Yield a function that displays a table in place of the table that it displayed before.

    The function takes a callable that makes the table. If the callable returns None, the display
    stays as it is. At the end the table is removed, because the exhibit itself follows. No table is
    made where nobody watches: outside a notebook, and in a notebook that run_all.sh executes.
    """
    place = DisplayHandle()
    shown: list[pd.DataFrame] = []

    def show(make: MakeTable) -> None:
        if get_ipython() is None or os.environ.get("CASCADETTA_HEADLESS") == "1":
            return
        table = make()
        if table is not None:
            put = place.update if shown else place.display
            put(HTML(table_html(table)))
            shown.append(table)

    try:
        yield show
    finally:
        if shown:
            place.update(HTML(""))
