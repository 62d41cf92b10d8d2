"""Keys, the store and provenance."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from cascadetta_lib import pretrain as training
from cascadetta_lib import study as module
from cascadetta_lib.settings import Settings, SettingsError, load_profile
from cascadetta_lib.study import Store, Study, belongs

SMALL = {
    "image_train_size": 60,
    "image_test_size": 20,
    "image_held_out_fraction": 0.3,
    "image_training_batch_size": 20,
    "image_epochs": 2,
    "image_width": 2,
    "image_methods": ("erm", "cascade"),
    "image_stream": ("fog", "snow:2"),
    "image_batch_size": 8,
}


def settings_in(folder: Path, **changes: object) -> Settings:
    return Settings(**(SMALL | {"results_folder": str(folder), "data_folder": str(folder / "data")} | changes))  # type: ignore[arg-type]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(settings_in(tmp_path))


def test_a_run_is_made_once_and_carries_its_provenance(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    first = study.run("cascade")
    provenance = first.provenance
    assert provenance["profile"] == "quick" and "digits" in provenance["data_source"]
    assert "generated" in provenance["domain_source"] and provenance["official_data"] is False
    assert provenance["packages"]["torch"] and provenance["device"] and provenance["seconds"] > 0
    assert provenance["code_revision"]

    monkeypatch.setattr(module, "Evaluator", lambda *a, **k: pytest.fail("evaluated again"))
    monkeypatch.setattr(module, "pretrain", lambda *a, **k: pytest.fail("trained again"))
    again = Study(study.settings).run("cascade")
    pd.testing.assert_frame_equal(first.batches, again.batches)


def test_each_part_of_the_configuration_makes_another_key(tmp_path: Path) -> None:
    base = Study(settings_in(tmp_path)).run_config("cascade")
    changes: dict[str, object] = {
        "seed": 1,
        "image_epochs": 3,
        "image_train_size": 59,
        "image_test_size": 19,
        "image_learning_rate": 0.2,
        "image_block": "conv_bn_relu",
        "image_severity": 4,
        "image_batch_size": 4,
        "image_predict": "before",
        "image_last_batch": "dropped",
        "image_online_learning_rate": 0.01,
        "image_crop_and_flip": True,
        "image_randomisation": "augmix_batch",
        "image_entropy_weight": 0.2,
    }
    keys = {base.key, Study(settings_in(tmp_path)).run_config("adabn").key}
    for name, value in changes.items():
        keys.add(Study(settings_in(tmp_path, **{name: value})).run_config("cascade").key)
    assert len(keys) == 2 + len(changes)
    # The label of the profile and the device are no part of it: the same work is shared.
    assert Study(settings_in(tmp_path, profile="mine", device="cpu")).run_config("cascade").key == base.key


def test_a_killed_maker_leaves_nothing_that_counts(tmp_path: Path) -> None:
    store, path = Store(tmp_path), tmp_path / "runs" / "abc"

    def killed(folder: Path) -> None:
        (folder / "run.json").write_text("{}")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.make_once(path, killed)
    assert not path.exists()
    store.make_once(path, lambda folder: (folder / "whole").touch())
    assert (path / "whole").exists()
    assert sorted(p.name for p in path.parent.iterdir()) == ["abc"]


def test_a_killed_training_goes_on_in_the_store(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.save_file
    monkeypatch.setattr(training, "SAVE_SECONDS", 0)
    monkeypatch.setattr(module, "save_file", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        study.checkpoint("meta")
    monkeypatch.setattr(module, "save_file", real)
    (part,) = study.store.folder.glob("checkpoints/*.part")
    assert (part / "training.safetensors").exists()
    seconds = study.checkpoint("meta").history["seconds"]
    assert len(seconds) == 2 and not part.exists()


def test_same_seed_same_numbers_from_nothing(tmp_path: Path) -> None:
    first, second = (Study(settings_in(tmp_path / name)).run("cascade") for name in "ab")
    pd.testing.assert_frame_equal(first.batches.drop(columns="seconds"), second.batches.drop(columns="seconds"))


def test_the_loaded_network_is_the_trained_one(study: Study) -> None:
    made, loaded = study.checkpoint("meta"), Study(study.settings).checkpoint("meta")
    for name, value in made.model.state_dict().items():
        assert torch.equal(value, loaded.model.state_dict()[name])
    assert made.config.key == loaded.config.key


def test_runs_of_other_settings_do_not_belong(study: Study, tmp_path: Path) -> None:
    run = study.run("erm")
    (stored,) = list(study.store.runs())
    assert stored.config == run.config
    assert belongs(run, study.settings, "image", "digits")
    assert belongs(run, settings_in(tmp_path, seed=7), "image", "digits"), "any seed is picked up"
    assert not belongs(run, study.settings, "image", "cifar10")
    for change in (
        {"image_epochs": 9},
        {"image_stream": ("fog",)},
        {"image_methods": ("cascade",)},
        {"image_batch_size": 9},
    ):
        assert not belongs(run, settings_in(tmp_path, **change), "image", "digits"), change


SMALL_TEXT = {
    "text_iterations": 20,
    "text_hidden": (8,),
    "text_vocabulary_size": 100,
    "text_test_size": 40,
    "text_methods": ("erm", "adabn", "cotta", "cascade", "cascade_no_auxiliary"),
}


def test_text_runs_through_the_same_store(tmp_path: Path) -> None:
    study = Study(settings_in(tmp_path, **SMALL_TEXT), "text")
    run = study.run("cascade")
    assert run.batches["count"].tolist() == [32, 8] * 3 and run.provenance["unit"] == "reviews"
    assert set(run.batches["domain"]) == {"dvd", "electronics", "kitchen"}
    assert run.config.checkpoint.training.iterations == 20 and run.config.checkpoint.model.hidden == (8,)  # type: ignore[union-attr]
    assert run.batches["entropy_auxiliary"].notna().all()
    assert study.run("cotta").config.key != run.config.key
    assert belongs(run, study.settings, "text", "reviews") and not belongs(run, study.settings, "image", "digits")
    changes: list[dict[str, object]] = [{"text_iterations": 21}, {"text_hidden": (9,)}, {"text_features": "counts"}]
    for change in [*changes, {"text_stream": ("dvd",)}]:
        assert not belongs(run, settings_in(tmp_path, **(SMALL_TEXT | change)), "text", "reviews"), change


def test_speech_runs_through_the_same_store(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, speech_epochs=1, speech_test_size=40, speech_stream=("clean", "noise"))
    study = Study(settings, "speech")
    runs = [study.run(method) for method in ("erm", "cotta", "cascade")]
    for run in runs:
        assert run.batches["count"].tolist() == [32, 8] * 2 and run.provenance["unit"] == "utterances"
        assert belongs(run, settings, "speech", "synthetic_speech")
    assert "synthetic" in runs[0].provenance["data_source"]


def test_a_batch_of_one_vector_is_refused_before_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "pretrain", lambda *a, **k: pytest.fail("trained"))
    study = Study(settings_in(tmp_path, **(SMALL_TEXT | {"text_test_size": 33})), "text")
    with pytest.raises(ValueError, match="dvd with 33 examples ends in a batch of one.*text_batch_size"):
        study.run("cascade")


def test_a_variation_is_a_run_of_its_own_and_checked(study: Study) -> None:
    smaller = study.varied(batch_size=4)
    assert smaller.dataset is study.dataset and smaller.batch_size == 4
    assert smaller.run_config("cascade").key != study.run_config("cascade").key
    assert study.run_config("cascade", "multi_task").checkpoint.objective == "multi_task"
    assert study.varied(test_size=10).dataset is not study.dataset
    with pytest.raises(SettingsError, match="image_batch_size = 0"):
        study.varied(batch_size=0)


def test_theorem_1_is_checked_once_for_a_checkpoint(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "check_theorem", lambda *arguments: {"error_as_printed": 0.25})
    assert study.store.theorem(study.checkpoint_config("meta")) is None
    assert study.theorem("meta") == {"error_as_printed": 0.25}
    monkeypatch.setattr(module, "check_theorem", lambda *arguments: pytest.fail("checked again"))
    assert study.theorem("meta") == study.store.theorem(study.checkpoint_config("meta")) == {"error_as_printed": 0.25}


def test_a_moved_npz_folder_is_the_same_data(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    arrays = {"x": generator.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8), "y": np.arange(40) % 4}
    keys = []
    for place in ("here", "there"):
        folder = tmp_path / place / "pets"
        folder.mkdir(parents=True)
        for split in ("train", "test"):
            np.savez(folder / f"{split}.npz", **arrays)
        keys.append(Study(settings_in(tmp_path, image_dataset=f"npz:{folder}")).run_config("erm").key)
    arrays["x"][0, 0, 0, 0] ^= 1
    np.savez(folder / "train.npz", **arrays)
    keys.append(Study(settings_in(tmp_path, image_dataset=f"npz:{folder}")).run_config("erm").key)
    assert keys[0] == keys[1] != keys[2]


def test_several_datasets_need_a_choice(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="-p image_dataset digits"):
        Study(settings_in(tmp_path, image_dataset=("digits", "cifar10")))


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize("profile", ["quick", "laptop", "paper"])
def test_the_profiles_are_whole(profile: str) -> None:
    settings = load_profile(profile)
    assert settings.profile == profile
    named = set((module.Path(module.__file__).parents[1] / "profiles" / f"{profile}.yaml").read_text().split())
    assert {f"{name}:" for name in Settings.model_fields} <= named


def test_quick_is_the_defaults() -> None:
    assert load_profile("quick") == Settings()


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("image_epoch", "3", ["image_epoch", "--set", "did you mean 'image_epochs'"]),
        ("image_epochs", "many", ["image_epochs = 'many'", "--set", "integer"]),
        ("image_epochs", "0", ["image_epochs = 0", "greater than or equal to 1"]),
        ("image_depth", "27", ["image_depth = 27", "6n + 2"]),
        ("image_methods", "[tnet]", ["tnet", "did you mean 'tent'"]),
        ("image_dataset", "cifar11", ["cifar11", "did you mean 'cifar10'"]),
        ("image_dataset", "npz", ["npz:FOLDER"]),
        ("image_stream", "[foog]", ["foog", "did you mean 'fog'"]),
        ("image_predict", "afterwards", ["image_predict = 'afterwards'", "did you mean 'after'"]),
        ("seeds", "[]", ["seeds = []"]),
        ("seeds", "[1, 1]", ["seeds = [1, 1]", "different"]),
        ("seeds", "[-1]", ["from 0 on"]),
        ("image_dataset", "[]", ["image_dataset = []"]),
        ("image_stream", "[]", ["empty"]),
        ("image_methods", "[erm, erm]", ["twice"]),
        ("text_dataset", "cifar10", ["no text dataset", "amazon"]),
        ("text_methods", "[ttt]", ["ttt is not defined for text", "'tent'"]),
        ("text_stream", "[dvds]", ["did you mean 'dvd'"]),
        ("text_stream", "['dvd:2']", ["only the corruptions of images have a severity"]),
        ("text_hidden", "[0]", ["at least 1 unit"]),
        ("speech_stream", "gradual", ["speech_stream = 'gradual'"]),
        ("speech_dataset", "'synthetic_speech:folder'", ["allowed is synthetic_speech"]),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed_and_where_it_came_from(
    name: str, value: str, parts: list[str]
) -> None:
    with pytest.raises(SettingsError) as error:
        load_profile("quick", {name: value})
    for part in parts:
        assert part in str(error.value)


def test_an_unknown_profile_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="did you mean 'laptop'"):
        load_profile("latop")
    (tmp_path / "mine.yaml").write_text("image_epochs: 7\n")
    mine = load_profile(str(tmp_path / "mine.yaml"))
    assert (mine.profile, mine.image_epochs, mine.image_width) == ("mine", 7, Settings().image_width)
