"""Begin a notebook: check its parameters, and show what it studies.

    study = notebook.begin(globals(), exhibits=["main_image"])

Declare the exhibits in this call, because the scheduler and the tests read them there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from IPython.display import Markdown, display

from cascadetta_lib.data.base import Modality
from study import other_clone
from study.exhibits import EXHIBITS
from study.exhibits.kit import style
from study.notebook_parameters import settings_from
from study.papermill_arguments import check_arguments, command_of_parent
from study.settings import Settings, SettingsError
from study.study import Study


def begin(
    variables: Mapping[str, Any], exhibits: Sequence[str] = (), modality: Modality = "image"
) -> Study:
    """Make the study of a notebook from the notebook's variables, and show what it works on.

    variables: `globals()` of the notebook, after its parameters cell.
    exhibits: the exhibits that the notebook makes, written as a list of names. `exhibits.run`
        refuses any other.

    Raises SettingsError for a parameter that cannot be used, ValueError for an unknown exhibit, and
    DataMissing. Each is raised before any work starts.
    """
    study = Study(check(variables), modality)
    for name in exhibits:
        EXHIBITS[name]
    study.exhibits = tuple(exhibits)
    display(Markdown(about(study)))
    return study


def check(variables: Mapping[str, Any]) -> Settings:
    """Check the parameters of a notebook, and return its settings. A notebook that works on no
    single dataset, such as the report, calls `check` in place of `begin`.

    Raises SettingsError for a parameter that cannot be used, and if the notebook and this code are
    in different clones of the repository.
    """
    told = other_clone()
    if told:
        raise SettingsError(told)
    check_arguments(command_of_parent())
    style.set_style()
    return settings_from(variables)


def about(study: Study) -> str:
    """Describe a study as Markdown: profile, seed, data, numbers of examples, batch size and
    device.
    """
    dataset = study.dataset
    counts = (
        f"{len(dataset.train.y):,} {dataset.unit} to train on, {len(dataset.held_out.y):,} held out"
    )
    if not len(dataset.train.y):
        counts = f"no {dataset.unit} to train on"
    return (
        f"Profile `{study.settings.profile}`, seed {study.settings.seed}. "
        f"**{dataset.name}**: {dataset.source}; target domains: {dataset.domain_source}. "
        f"{counts}, {dataset.classes} classes. "
        f"Batches of {study.batch_size} on {study.device}."
    )
