"""Controls for a notebook that is open in JupyterLab, to change settings and run again.

`notebook_controls.controls(study)` makes them.
"""

import os
from typing import Any

import ipywidgets
import pandas as pd
from IPython.display import Markdown, display

from cascadetta_lib.methods import METHODS
from study.exhibit_parameters import RATES
from study.exhibits.kit.numbers import number
from study.exhibits.kit.points import Point
from study.exhibits.kit.stored_runs import Runs
from study.modality_parameters import ImageSection
from study.study import Study

SIZES = (8, 16, 32, 64, 128)


def compare(study: Study, method: str, changes: dict[str, Any]) -> pd.DataFrame:
    """Run a method and AdaBN with other settings. Return a table of E and A (%), a row per method.

    changes: as for `Study.varied`. A run that is stored with the same settings is read.

    Raises SettingsError for a value that cannot be used.
    """
    varied = study.varied(forward_transfer=False, **changes)
    names = dict.fromkeys(["adabn", method])
    for name in names:
        varied.run(name)
    frame = Runs(varied).frame([Point(name) for name in names], [varied.settings.seed])
    table = frame.set_index("label")[["E", "A"]].map(lambda value: number(value, 1))
    return table.rename_axis(None)


def controls(study: Study) -> Any:
    """Return controls for the method, the learning rate, the batch size and, for images, the
    severity. A button runs `compare`. Outside JupyterLab return a sentence instead.

    Each control begins at the study's own value, and offers others.
    """
    if "JPY_SESSION_NAME" not in os.environ:  # Nobody is there to press the button.
        return Markdown("*In JupyterLab, controls stand here.*")
    section = study.section
    adapting = [name for name in section.methods if METHODS[name].adapts]
    fields: dict[str, Any] = {
        "method": ipywidgets.Dropdown(
            options=[(METHODS[name].label, name) for name in adapting or section.methods]
        ),
        "online_learning_rate": ipywidgets.Dropdown(
            options=sorted({*RATES, section.online.online_learning_rate}),
            value=section.online.online_learning_rate,
            description="rate",
        ),
        "batch_size": ipywidgets.Dropdown(
            options=sorted({*SIZES, study.batch_size}), value=study.batch_size, description="batch"
        ),
    }
    has_severities = len(study.dataset_name.vocabulary.severities) > 1
    if isinstance(section, ImageSection) and has_severities:
        fields["severity"] = ipywidgets.IntSlider(section.severity, 1, 5)

    def show(method: str, **changes: Any) -> None:
        display(compare(study, method, changes))

    return ipywidgets.interactive(show, {"manual": True, "manual_name": "run"}, **fields)
