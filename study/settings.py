"""The parameters of a study, checked as a whole before any work starts.

A profile is a YAML file of flat names, such as `image_network_depth: 26`, which papermill can
inject as they are. modality_parameters.flat_name makes each name from the place of the value:
`image_network_depth` is `settings.image.network.depth`. The defaults are the values of the profile
`paper`, except those of device and image_training_precision. A profile lists its seeds, and the
other values that differ from the defaults.
"""

import difflib
import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationError, field_validator

from cascadetta_lib.data import DatasetName
from cascadetta_lib.data.base import Modality
from cascadetta_lib.registry import nearest
from study import ROOT
from study.exhibit_parameters import different
from study.modality_parameters import (
    NAMED_PARTS,
    SECTIONS,
    ImageSection,
    Section,
    SpeechSection,
    TextSection,
    flat_name,
    parameters_of,
)
from study.renamed_parameters import RENAMED
from study.yaml12 import parse_yaml

PROFILES = ROOT / "profiles"
RESERVED = (
    "checkpoints",
    "runs",
    "theorem",
    "variance",
    "data-at-hand",
    "store-format",
)
"""Names in the results folder that no profile may have."""
PLAIN = str | int | float | None
LARGEST = 10**12
"""The absolute value of every finite number must be smaller than this."""


def absolute(folder: str) -> Path:
    """Return `folder` as an absolute path; a relative one begins at the repository.

    Raises ValueError for a text that cannot be a path.
    """
    if "\0" in folder:
        raise ValueError("a path holds no NUL character")
    try:
        return ROOT / Path(folder).expanduser()
    except RuntimeError as error:  # ~somebody who has no home here
        raise ValueError(f"{folder!r}: {error}") from None


def _possible(folder: str) -> str:
    """Return `folder`. Raises ValueError for a text that cannot be a path."""
    absolute(folder)
    return folder


Folder = Annotated[str, AfterValidator(_possible)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class SettingsError(Exception):
    """Raised for a parameter that cannot be used. The message names the parameter, its value, what
    is allowed and where the value came from.
    """


class Settings(BaseModel, frozen=True, extra="forbid"):
    """All parameters of a study. Make one by `make_settings`, `load_profile` or `settings_from`."""

    profile: str = Field("paper", max_length=60, description="the label that every result carries")
    seed: Seed = Field(0, description="the seed of one job; a notebook works on one")
    seeds: Annotated[tuple[Seed, ...], AfterValidator(different)] = Field(
        (0, 1, 2), description="the seeds that run_all.sh runs, a job each"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: cuda where there is one"
    )
    data_folder: Folder = Field(
        "data",
        min_length=1,
        description="where archives are looked for, downloaded to and unpacked",
    )
    results_folder: Folder = Field(
        "results", min_length=1, description="where checkpoints, runs and executed notebooks go"
    )
    figures_folder: Folder = Field(
        "", description="where the report saves its files; empty: in the profile's results"
    )
    figures_notebooks: tuple[str, ...] = Field(
        (),
        description="notebooks whose executed pages are saved in the figures folder, too, for "
        "GitHub",
    )
    image: ImageSection = Field(default_factory=lambda: ImageSection.model_validate({}))
    text: TextSection = Field(default_factory=lambda: TextSection.model_validate({}))
    speech: SpeechSection = Field(default_factory=lambda: SpeechSection.model_validate({}))

    @field_validator("profile")
    @classmethod
    def _profile(cls, profile: str) -> str:
        if (
            not profile
            or set(profile) & set("/\\\0\n")
            or profile.startswith(".")
            or profile in RESERVED
        ):
            raise ValueError(
                "it is used as a folder's name: it must not be empty, contain /, \\ or a line "
                f"break, begin with a dot, or be one of {', '.join(RESERVED)}"
            )
        return profile

    @property
    def data_path(self) -> Path:
        """data_folder as an absolute path."""
        return absolute(self.data_folder)

    @property
    def results_path(self) -> Path:
        """results_folder as an absolute path."""
        return absolute(self.results_folder)

    @property
    def figures_path(self) -> Path:
        """figures_folder, or the one in the profile's results, as an absolute path."""
        return absolute(self.figures_folder or str(self.results_path / self.profile / "figures"))

    def section(self, modality: Modality) -> Section:
        """Return the parameters of one modality."""
        return getattr(self, modality)

    def datasets(self, modality: Modality) -> tuple[DatasetName, ...]:
        """Return the datasets of a modality, with absolute folders."""
        names = self.section(modality).dataset
        several = (names,) if isinstance(names, DatasetName) else names
        return tuple(
            replace(name, folder=str(absolute(name.folder))) if name.folder else name
            for name in several
        )

    def at_seed(self, seed: int) -> "Settings":
        """Return these settings with another seed.

        Raises SettingsError unless `seed` is a whole number from 0 to 2³² − 1, or can be read as
        one, such as "3" or 3.0.
        """
        return make_settings(flat(self) | {"seed": seed}, {"seed": "a variation of the study"})

    def vary(self, modality: Modality, changes: Mapping[str, Any]) -> "Settings":
        """Return these settings with `changes`. Their names are those of a profile without the
        modality: `batch_size` for image_batch_size.

        Raises SettingsError for a value that cannot be used.
        """
        values = {f"{modality}_{name}": value for name, value in changes.items()}
        return make_settings(flat(self) | values, dict.fromkeys(values, "a variation of the study"))


def _modality(name: str) -> str:
    """Return the modality that a flat name begins with; "" for a parameter of all modalities."""
    start, underscore, _ = name.partition("_")
    return start if underscore and start in SECTIONS else ""


COMMON = {name: field for name, field in Settings.model_fields.items() if name not in SECTIONS}
_FIELDS = {
    (modality, *place): field
    for modality in SECTIONS
    for place, field in parameters_of(modality).items()
}
PLACES: dict[str, tuple[str, ...]] = {flat_name(*place): place for place in _FIELDS}
"""The place in Settings of each flat name: ("image", "training", "learning_rate")."""
PARAMETERS = COMMON | {flat_name(*place): field for place, field in _FIELDS.items()}
"""Every parameter by its flat name; its description says what it means."""


def flat(settings: Settings) -> dict[str, Any]:
    """Return all parameters by flat name, in JSON's types. The inverse of `make_settings`."""
    nested = settings.model_dump(mode="json")
    values = {}
    for name in PARAMETERS:
        value = nested
        for step in PLACES.get(name, (name,)):
            value = value[step]
        values[name] = value
    return values


def make_settings(values: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> Settings:
    """Make settings from flat `values`.

    origins: for each name, where its value came from, for messages.

    Raises SettingsError with one message for the first name or value that cannot be used.
    """
    origins = dict.fromkeys(values, "the call") | dict(origins or {})
    nested: dict[str, Any] = {}
    for name, value in values.items():
        origin = origins[name]
        if name not in PARAMETERS:
            shown = repr(name) if name in RENAMED else reprlib.repr(name)
            raise SettingsError(
                f"{shown} (from {origin}) is no parameter; {instead_of(str(name)[:60])}"
            )
        value = _plain(value)
        _check_plain(name, value, origin)
        *groups, field = PLACES.get(name, (name,))
        group = nested
        for step in groups:
            group = group.setdefault(step, {})
        group[field] = value
    try:
        return Settings(**nested)
    except ValidationError as error:
        raise SettingsError(_message(error, origins)) from None


def _check_plain(name: str, value: Any, origin: str) -> None:
    """Raise SettingsError unless a parameter's value is a text, a number below LARGEST in size,
    null, or a list of these. True and false are allowed for parameters that take them.
    """
    allows_truth = PARAMETERS[name].annotation is bool
    for item in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(item, PLAIN) or (isinstance(item, bool) and not allows_truth):
            allowed = "true or false" if allows_truth else "a number, a text or a list of them"
            raise SettingsError(
                f"{name} = {reprlib.repr(value)} (from {origin}): allowed is {allowed}"
            )
        # Python refuses to print a number of thousands of digits.
        if isinstance(item, int) and item.bit_length() > 1000:
            raise SettingsError(
                f"{name} (from {origin}) has more than 300 digits; give a smaller number"
            )
        # A count or rate this large would fail, after hours or with an error of torch.
        if isinstance(item, int | float) and LARGEST <= abs(item) < math.inf:
            raise SettingsError(
                f"{name} = {item!r} (from {origin}): allowed is a number less than {LARGEST:,} in "
                "size"
            )


def _plain(value: Any) -> Any:
    """Convert NumPy integers to int and −0.0 to 0.0, also in a list.

    Keys of results hash numbers as text, so equal numbers must have equal text. NumPy floats stay
    as they are, because 0.1 in float32 is another number than 0.1.
    """
    if isinstance(value, list | tuple):
        return [_plain_number(item) for item in value]  # A list in a list is refused later.
    return _plain_number(value)


def _plain_number(value: Any) -> Any:
    if isinstance(value, Integral) and not isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value == 0:
        return 0.0
    return value


def instead_of(name: str) -> str:
    """Suggest what to write in place of an unknown name.

    If the name, or one that is nearly the same, was renamed, suggest the new name. Otherwise
    suggest the nearest names of the same modality.
    """
    modality = _modality(name)
    if name in RENAMED:
        told = f"its new name is {RENAMED[name]}"
        at_test_time = f"{modality}_online{name.removeprefix(modality)}"
        if at_test_time in PARAMETERS:
            told += f", and that of the same setting at test time is {at_test_time}"
        return told
    close = difflib.get_close_matches(name, RENAMED, n=1, cutoff=0.9)
    if close:
        return f"did you mean {RENAMED[close[0]]!r}?"
    return nearest(name, [other for other in PARAMETERS if modality in ("", _modality(other))])


def _message(error: ValidationError, origins: Mapping[str, str]) -> str:
    """Return the first fault of `error` in one sentence: the name, the value, where it came from,
    and what is allowed.
    """
    fault = error.errors()[0]
    reason = (
        fault["msg"]
        .removeprefix("Value error, ")
        .replace("a valid tuple", "a list, such as [a, b]")
    )
    place = [str(step) for step in fault["loc"]]
    name = _name_at(place)
    if name is None:
        return f"the parameters {_group_at(place)}_… do not go together: {reason}"
    if isinstance(fault["input"], str) and "expected" in fault.get("ctx", {}):
        allowed = str(fault["ctx"]["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
        reason = nearest(fault["input"][:60], allowed)
    origin = origins.get(name, "the defaults")
    return (
        f"{name} = {reprlib.repr(fault['input'])} (from {origin}): {reason} "
        f"({PARAMETERS[name].description})"
    )


def _name_at(place: Sequence[str]) -> str | None:
    """Return the flat name of the parameter that pydantic's location points into; None if it points
    at a whole section or part.
    """
    if place[0] not in SECTIONS:
        return place[0]
    names = {where: name for name, where in PLACES.items()}
    # ("image", "severity"), or ("image", "training", "learning_rate"); an index may follow.
    return names.get(tuple(place[:2])) or names.get(tuple(place[:3]))


def _group_at(place: Sequence[str]) -> str:
    """Return the common beginning of the flat names of a section, or of one of its parts."""
    modality, *part = place
    return "_".join([modality, *(name for name in part if name in NAMED_PARTS)])


def read_profile(profile: str) -> tuple[dict[str, Any], str]:
    """Read profiles/PROFILE.yaml, or a YAML file at the path `profile`. Return the file's values,
    with the key `profile` for its name, and its path.

    Raises SettingsError for a file that is missing or holds no names and values.
    """
    known = sorted(path.stem for path in PROFILES.glob("*.yaml"))
    path = PROFILES / f"{profile}.yaml" if profile in known else Path(profile)
    try:
        if not path.is_file():
            raise ValueError(f"no such profile or file; {nearest(profile[:60], known)}")
        values = parse_yaml(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict | None):
            raise ValueError("the file holds no names and values")
    except OSError as error:  # the reason without the path, which may be long
        raise SettingsError(f"profile {reprlib.repr(profile)}: {error.strerror or error}") from None
    except ValueError as error:
        raise SettingsError(f"profile {reprlib.repr(profile)}: {error}") from None
    return {"profile": path.stem} | (values or {}), str(path)


def load_profile(
    profile: str, overrides: Mapping[str, Any] | None = None, origin: str = "the call"
) -> Settings:
    """Return the settings of a profile, with `overrides`.

    profile: a name in profiles/, or the path of a YAML file. A parameter that the file does not set
        has its default.
    overrides: values by flat name, which take the place of the profile's.
    origin: where the overrides come from, for messages.

    Raises SettingsError for a file, a name or a value that cannot be used.
    """
    values, path = read_profile(profile)
    overrides = dict(overrides or {})
    return make_settings(
        values | overrides, dict.fromkeys(values, path) | dict.fromkeys(overrides, origin)
    )
