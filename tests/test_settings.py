"""Settings: the profiles, the sections, and what is refused before any work starts."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import LONGEST_MESSAGE

from cascadetta_lib.data import OPTIONS
from cascadetta_lib.models import ImageNetwork
from cascadetta_lib.training.objectives import Training
from study.settings import (
    PARAMETERS,
    PROFILES,
    RENAMED,
    SettingsError,
    flat,
    load_profile,
    make_settings,
    parse_yaml,
    renamed_table,
    settings_from,
)

each_profile = pytest.mark.parametrize(
    "profile", sorted(path.stem for path in PROFILES.glob("*.yaml"))
)


@each_profile
def test_a_profile_has_its_own_label_and_lists_only_what_differs_from_the_defaults(
    profile: str,
) -> None:
    listed = yaml.safe_load((PROFILES / f"{profile}.yaml").read_text())
    defaults = flat(make_settings({}))
    settings = load_profile(profile)
    assert settings.profile == profile
    assert [
        name for name in listed if name != "profile" and flat(settings)[name] == defaults[name]
    ] == []
    assert {name for name in PARAMETERS if flat(settings)[name] != defaults[name]} <= {
        *listed,
        "profile",
    }


def test_paper_is_the_defaults_and_literal_differs_in_the_training_of_images_alone() -> None:
    paper = load_profile("paper")
    literal = load_profile("literal")
    assert paper == make_settings({"device": "cuda", "image_training_precision": "bfloat16"})
    assert (literal.text, literal.speech) == (paper.text, paper.speech)
    assert literal.image.learning_rate == 0.001 and literal.image.outer_loss == "paper"
    assert literal.image.training_batch_size == 32 and not literal.image.crop_and_flip


@each_profile
def test_flat_names_and_sections_are_the_same_values(profile: str) -> None:
    settings = load_profile(profile)
    assert make_settings(flat(settings)) == settings
    assert set(flat(settings)) == set(PARAMETERS)
    assert all(field.description for field in PARAMETERS.values()), "every parameter is explained"
    assert settings.image.part(Training).epochs == settings.image.epochs
    assert settings.text.part(OPTIONS["text"]).train_size == settings.text.train_size
    assert settings.image.part(ImageNetwork).depth == flat(settings)["image_network_depth"]


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("image_epoch", 3, ["image_epoch", "--set", "did you mean 'image_training_epochs'"]),
        ("sed", 3, ["'sed'", "did you mean 'seed'"]),
        (7, 3, ["7 (from --set) is no parameter"]),
        ("image_training_epochs", "many", ["image_training_epochs = 'many'", "--set", "integer"]),
        ("image_training_epochs", 0, ["image_training_epochs = 0", "greater than or equal to 1"]),
        ("image_training_epochs", True, ["image_training_epochs = True", "a number"]),
        ("image_crop_and_flip", "perhaps", ["image_crop_and_flip = 'perhaps'"]),
        ("image_training_epochs", {"a": 1}, ["image_training_epochs = {'a': 1}", "a list"]),
        ("image_training_iterations", 10, ["image_…", "one of the two"]),
        ("image_network_depth", 27, ["image_network_depth = 27", "6n + 2"]),
        ("image_network_depth", 6_000_000_002, ["image_network_depth", "less than"]),
        *(
            ("image_network_width", width, [f"image_network_width = {width}"])
            for width in (1, 10**9)
        ),
        ("image_training_schedule", "cosine", ["image_training_schedule = 'cosine'", "ttt_steps"]),
        ("image_training_batch_size", 3, ["image_training_batch_size = 3"]),
        ("image_train_size", 1, ["image_train_size = 1"]),
        ("image_test_size", 0, ["image_test_size = 0"]),
        ("speech_held_out_fraction", 1.0, ["speech_held_out_fraction = 1.0", "less than 1"]),
        ("text_held_out_fraction", float("nan"), ["text_held_out_fraction = nan", "finite"]),
        (
            "image_training_learning_rate",
            float("inf"),
            ["image_training_learning_rate = inf", "finite"],
        ),
        ("image_ablation_learning_rates", [float("nan")], ["image_ablation_learning_rates = nan"]),
        ("image_online_learning_rate", float("inf"), ["finite"]),
        ("image_ablation_batch_sizes", [8, 8], ["different"]),
        ("image_ablation_batch_sizes", [0], ["image_ablation_batch_sizes = 0"]),
        ("image_severity", 6, ["image_severity = 6"]),
        ("image_methods", ["tnet"], ["tnet", "did you mean 'tent'"]),
        ("image_methods", ["erm", "erm"], ["different"]),
        (
            "image_methods",
            "erm",
            [
                "image_methods = 'erm' (from --set): Input should be a list, such as [a, b] "
                "(test-time methods)"
            ],
        ),
        ("text_objectives", ["ttt"], ["ttt is no pre-training for text; allowed are", "meta"]),
        ("image_methods", [], ["image_methods"]),
        ("image_dataset", "cifar11", ["cifar11", "did you mean 'cifar10'"]),
        ("image_dataset", "npz", ["npz:FOLDER"]),
        ("image_dataset", [], ["image_dataset = []"]),
        *(
            ("image_dataset", f"npz:{folder}", ["cannot be a folder"])
            for folder in ("~nosuchuser/pets", "a\0b")
        ),
        ("image_stream", ["foog"], ["foog", "did you mean 'fog'"]),
        ("image_stream", [], ["empty"]),
        ("image_predict", "afterwards", ["image_predict = 'afterwards'", "did you mean 'after'"]),
        ("seeds", [1, 1], ["different"]),
        ("seeds", [-1], ["greater than or equal to 0"]),
        ("seed", 2**64, ["less than"]),
        ("profile", "a/b", ["profile = 'a/b'", "folder"]),
        ("profile", "runs", ["runs", "taken"]),
        ("results_folder", "~nosuchuser/x", ["results_folder"]),
        ("results_folder", "a\0b", ["NUL"]),
        ("text_dataset", "cifar10", ["no text dataset", "amazon"]),
        ("text_methods", ["ttt"], ["ttt is no method for text", "'tent'"]),
        ("text_batch_size", 1, ["no variance"]),
        ("text_stream", ["dvds"], ["did you mean 'dvd'"]),
        ("text_stream", ["dvd:2"], ["only the corruptions of images have a severity"]),
        *(("text_network_hidden", hidden, ["text_network_hidden"]) for hidden in ([], [8, 0])),
        ("speech_stream", "gradual", ["speech_stream = 'gradual'"]),
        (
            "text_stream",
            "correlatd",
            ["instantaneous, mixed, correlated", "did you mean 'correlated'"],
        ),
        ("image_dirichlet_delta", 0, ["image_dirichlet_delta = 0", "greater than 0"]),
        ("image_order_seed", -1, ["image_order_seed = -1", "greater than or equal to 0"]),
        ("speech_dataset", "synthetic_speech:folder", ["allowed is synthetic_speech"]),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed_and_where_it_came_from(
    name: Any, value: Any, parts: list[str]
) -> None:
    with pytest.raises(SettingsError) as error:
        load_profile("quick", {name: value})
    message = str(error.value)
    assert all(part in message for part in parts), message
    assert len(message) <= LONGEST_MESSAGE and "\n" not in message


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
    assert (mine.profile, mine.image.epochs, mine.image.learning_rate) == ("mine", 7, 0.01)
    assert mine.image.width == make_settings({}).image.width
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
    assert (image.epochs, image.test_size) == (2, None), "null counts where a parameter can be null"
    assert settings_from({}) == load_profile("quick")


WRONG_NAMES = [
    "image_epoch",
    "text_epochz",
    "sed",
    "profil",
    "result_folder",
    "imag_epochs",
    "Image_epochs",
    "txt_hidden",
    "severity",  # as `Study.varied` takes it
    "methods",
    "sevrity",
    "batch",
    "_seed",
]


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_a_misspelled_name_in_a_notebook_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}.*is no parameter; .*did you mean"):
        settings_from({"profile": "quick", name: 9})


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


@pytest.mark.parametrize("text", ["010", "seed: 010", "[00]", "-07"])
def test_a_number_that_the_versions_of_yaml_read_differently_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="allowed is a whole number without a zero in front"):
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
    image = load_profile("quick", {"image_training_epochs": 7, "image_network_depth": 14}).image
    assert (image.training.epochs, image.network.model_dump()["depth"]) == (7, 14)
    assert image.data.test_size == image.test_size
    assert image.online.online_learning_rate == image.online_learning_rate


@pytest.mark.parametrize("old", sorted(RENAMED))
def test_an_old_name_is_refused_with_the_new_one(old: str) -> None:
    assert RENAMED[old] in PARAMETERS and old not in PARAMETERS
    with pytest.raises(SettingsError, match=f"'{old}' .* it is called {RENAMED[old]} now"):
        make_settings({old: 1})
    with pytest.raises(SettingsError, match=f"{old} .* it is called {RENAMED[old]} now"):
        settings_from({old: 1})


def test_the_page_of_renamed_parameters_is_that_of_the_code() -> None:
    page = Path(__file__).parents[1] / "docs" / "settings-renamed.md"
    assert page.read_text(encoding="utf-8") == renamed_table()
