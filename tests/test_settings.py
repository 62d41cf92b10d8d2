"""Settings: the profiles, the sections, and what is refused before any work starts."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from study.notebook_parameters import settings_from
from study.renamed_parameters import RENAMED, renamed_table
from study.settings import (
    PARAMETERS,
    PROFILES,
    SettingsError,
    flat,
    load_profile,
    make_settings,
)
from study.study import Study
from study.yaml12 import parse_yaml

each_profile = pytest.mark.parametrize(
    "profile", sorted(path.stem for path in PROFILES.glob("*.yaml"))
)


@each_profile
def test_a_profile_says_its_label_and_its_seeds_and_else_only_what_differs_from_the_defaults(
    profile: str,
) -> None:
    listed = yaml.safe_load((PROFILES / f"{profile}.yaml").read_text())
    defaults = flat(make_settings({}))
    settings = load_profile(profile)
    assert settings.profile == profile and "seeds" in listed
    differs = {name for name in PARAMETERS if flat(settings)[name] != defaults[name]}
    assert {*listed} | {"profile"} == differs | {"profile", "seeds"}


def test_paper_is_the_defaults_and_literal_differs_in_the_training_of_images_alone() -> None:
    paper = load_profile("paper")
    literal = load_profile("literal")
    assert paper == make_settings({"device": "cuda", "image_training_precision": "bfloat16"})
    assert (literal.text, literal.speech) == (paper.text, paper.speech)
    training = literal.image.training
    assert (training.learning_rate, training.training_batch_size) == (0.001, 32)
    assert training.outer_loss == "paper" and not literal.image.data.crop_and_flip


@each_profile
def test_flat_names_and_sections_are_the_same_values(profile: str) -> None:
    settings = load_profile(profile)
    assert make_settings(flat(settings)) == settings
    assert set(flat(settings)) == set(PARAMETERS)
    assert all(field.description for field in PARAMETERS.values()), "every parameter is explained"


def test_a_value_that_a_caller_gave_comes_from_the_call() -> None:
    with pytest.raises(SettingsError, match=r"image_severity = 9 \(from the call\)"):
        make_settings({"image_severity": 9})
    with pytest.raises(
        SettingsError, match=r"'epochs' \(from the call\) is no parameter; .*image_training_epochs"
    ):
        make_settings({"epochs": 9})


def test_a_file_of_ones_own_lists_what_differs_from_the_papers_values(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "image_training_epochs: 7\nimage_training_learning_rate: 1e-2\n"
    )
    mine = load_profile(str(tmp_path / "mine.yaml"))
    assert (mine.profile, mine.image.training.epochs, mine.image.training.learning_rate) == (
        "mine",
        7,
        0.01,
    )
    assert mine.image.network.width == make_settings({}).image.network.width
    assert settings_from({"profile": str(tmp_path / "mine.yaml")}) == mine, (
        "a notebook can name one"
    )
    (tmp_path / "profile.yaml").write_text("profile: mine\n")
    assert load_profile(str(tmp_path / "profile.yaml")).profile == "mine", (
        "the file's own label, as in write_plan's"
    )
    with pytest.raises(SettingsError, match="did you mean 'laptop'"):
        load_profile("latop")


# ---------------------------------------------------------------- a notebook's own variables


def test_a_notebook_takes_from_its_profile_what_its_cell_leaves_open() -> None:
    cell: dict[str, Any] = {
        "profile": "laptop",
        "seed": 2,
        "image_dataset": None,
        "image_severity": 3,
    }
    settings = settings_from(cell)
    assert settings == load_profile("laptop", {"seed": 2, "image_severity": 3})
    injected = cell | {
        "image_test_size": None,
        "image_training_epochs": 2,
        "study": object(),
        "_i1": "",
        "__name__": "__main__",
        "Out": {1: "x"},
    }
    image = settings_from(injected).image
    assert (image.training.epochs, image.data.test_size) == (2, None), (
        "null counts where a parameter can be null"
    )
    assert settings_from({}) == load_profile("quick")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("lr", 0.1, "is no parameter; .*are allowed"),
        ("method", ["tent"], "is no parameter"),
        ("anything", None, "is no parameter"),
        ("image", {"severity": 3}, "write image_severity"),
        ("image", {}, "is no parameter"),
        ("results_folder", "", "at least 1 character"),
    ],
)
def test_nothing_that_is_no_parameter_is_taken_for_nothing(
    name: str, value: Any, told: str
) -> None:
    with pytest.raises(SettingsError, match=f"{name}.*{told}"):
        settings_from({"profile": "quick", name: value})


def test_whole_numbers_of_numpy_are_numbers() -> None:
    given: dict[str, Any] = {"profile": "quick", "seed": np.int64(3)}
    given["image_ablation_batch_sizes"] = list(np.arange(8, 25, 8))
    found = settings_from(given)
    assert found.seed == 3 and type(found.seed) is int
    assert flat(found)["image_ablation_batch_sizes"] == [8, 16, 24]
    with pytest.raises(SettingsError, match="0.1.* allowed is a number"):
        settings_from({"profile": "quick", "image_online_learning_rate": np.float32(0.1)})


def test_an_old_name_that_two_have_now_names_both() -> None:
    with pytest.raises(
        SettingsError,
        match=r"its new name is image_training_learning_rate, and that of the same setting at test "
        r"time is image_online_learning_rate",
    ):
        make_settings({"image_learning_rate": 0.1})


def test_minus_zero_is_zero_as_in_the_keys_of_results() -> None:
    for zero in (0.0, -0.0, 0, np.int64(0)):
        found = make_settings({"image_online_learning_rate": zero})
        assert (
            found.model_dump_json()
            == make_settings({"image_online_learning_rate": 0.0}).model_dump_json()
        )


OWN_CELLS = {
    "a, b = 1, 2": ("a", "b"),
    "a = b = 1": ("a", "b"),
    "a = [1]\na[0] = 2": ("a",),
    "match x:\n    case [a, *b]:\n        pass": ("a", "b"),
    "match x:\n    case {'c': str() as a, **b}:\n        pass": ("a", "b"),
    "x = {[]: 1}": (),
}
"""Cells that papermill does not write, and the names to which they give a value."""


def test_what_a_notebook_computes_itself_is_its_own() -> None:
    """Also when its first cell is run again after all others. papermill's cells give plain values
    to names and do nothing else."""
    imports = "from x import TABLE, LIST as OTHER"
    ran = [
        "",
        "seed = 3",
        imports,
        "k, name = len('ab'), 'x'",
        "for index in range(2):\n    pass",
        "?",
        "%",
    ]
    variables = {"profile": "quick", "seed": 3, "k": 2, "name": "x", "index": 1, "In": ran}
    variables |= {"TABLE": {}, "OTHER": []}
    assert settings_from(variables).seed == 3
    for cell, names in OWN_CELLS.items():
        own = variables | dict.fromkeys(names, 1) | {"In": [*ran, cell]}
        assert settings_from(own).seed == 3, cell
    with pytest.raises(SettingsError, match="lr .* is no parameter"):
        settings_from(variables | {"lr": 0.1, "In": [*ran, "# Parameters\nlr = 0.1"]})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("[1e-4, -1.5E+3, .5]", [0.0001, -1500.0, 0.5]),
        ("0", 0),
        ("0x1f", 31),
        ("no", "no"),
        ("12:30", "12:30"),
        ("2026-01-31", "2026-01-31"),
        ("{a: , b: ~, c: true}", {"a": None, "b": None, "c": True}),
    ],
)
def test_yaml_is_read_by_its_version_1_2(text: str, value: Any) -> None:
    assert parse_yaml(text) == value
    assert type(parse_yaml(text)) is type(value)


@pytest.mark.parametrize("text", ["a: {b: 1, b: 2}", "[{b: 1, b: 2}]", "b: 1\nb: 2"])
def test_a_name_twice_in_one_mapping_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="b is named twice"):
        parse_yaml(text)
    assert parse_yaml("{b: 1, a: {b: 2}}") == {"b": 1, "a": {"b": 2}}


@pytest.mark.parametrize("text", ["010", "seed: 010", "[00]", "-07"])
def test_a_number_that_the_versions_of_yaml_read_differently_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="allowed is a whole number without a zero in front"):
        parse_yaml(text)


@pytest.mark.parametrize("text", ["x: !!bool maybe", "!!timestamp maybe", "!!float ''"])
def test_a_tag_that_does_not_fit_its_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not YAML: a tag such as !!bool does not fit its value"):
        parse_yaml(text)


def test_after_a_mistake_in_one_file_all_others_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "package_with_a_mistake"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from cascadetta_lib.registry import Registry\nALL = Registry('x', __name__)\n"
    )
    for name in ("a", "c"):
        (folder / f"{name}.py").write_text(
            f"from package_with_a_mistake import ALL\nALL.add({name!r})(0)\n"
        )
    (folder / "b.py").write_text("a mistake")
    monkeypatch.syspath_prepend(tmp_path)
    everything = importlib.import_module(folder.name).ALL
    with pytest.raises(SyntaxError):
        everything["a"]
    (folder / "b.py").write_text("")
    importlib.invalidate_caches()
    assert list(everything) == ["a", "c"]


def test_training_and_test_time_are_told_apart_by_name() -> None:
    rates = {name for name in PARAMETERS if name.endswith("learning_rate")}
    assert {"image_training_learning_rate", "image_online_learning_rate"} <= rates
    assert all("_training_" in name or "_online_" in name for name in rates)
    for name in PARAMETERS:
        assert f"{name}s" not in PARAMETERS or name == "seed", "names that differ by an s"


def test_nested_values_are_those_of_the_flat_names() -> None:
    values = {
        "image_training_epochs": 7,
        "image_network_depth": 14,
        "image_test_size": 50,
        "image_online_learning_rate": 0.02,
        "image_choice_size": 60,
        "image_severity": 2,
    }
    image = load_profile("quick", values).image
    assert (image.training.epochs, image.network.depth, image.data.test_size) == (7, 14, 50)
    assert (image.online.online_learning_rate, image.exhibits.choice_size) == (0.02, 60)
    assert image.severity == 2


@pytest.mark.parametrize("old", sorted(RENAMED))
def test_an_old_name_is_refused_with_the_new_one(old: str) -> None:
    assert RENAMED[old] in PARAMETERS and old not in PARAMETERS
    with pytest.raises(SettingsError, match=f"'{old}' .* its new name is {RENAMED[old]}"):
        make_settings({old: 1})
    with pytest.raises(SettingsError, match=f"{old} .* its new name is {RENAMED[old]}"):
        settings_from({old: 1})


def test_the_page_of_renamed_parameters_is_that_of_the_code() -> None:
    page = Path(__file__).parents[1] / "docs" / "settings-renamed.md"
    assert page.read_text(encoding="utf-8") == renamed_table()


@pytest.mark.parametrize("seed", [-1, 0.5, "x"])
def test_a_study_at_a_seed_that_there_is_not_is_refused(seed: Any) -> None:
    study = Study(load_profile("quick"))
    assert study.at_seed(2).settings == load_profile("quick", {"seed": 2})
    with pytest.raises(SettingsError, match=f"seed = {seed!r} .from a variation of the study."):
        study.at_seed(seed)
