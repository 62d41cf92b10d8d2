"""Studies: from the data to checkpoints and runs, through the store."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import same, write_npz
from torch import nn

from cascadetta_lib.data.base import Modality
from cascadetta_lib.evaluation.evaluator import Evaluation, Evaluator
from cascadetta_lib.evaluation.metrics import average_accuracy, forward_transfer
from cascadetta_lib.methods import METHODS
from cascadetta_lib.models import Cascade
from cascadetta_lib.training.pretrain import pretrain
from cascadetta_lib.training.settings import Training
from cascadetta_lib.training.theorem import check_theorem
from study import checkpoints as checkpoints_module
from study import make_run
from study.exhibits.kit.origin_of_network import doubt_about_held_out
from study.exhibits.kit.points import Point
from study.exhibits.kit.stored_runs import Runs
from study.modality_parameters import RunProtocol
from study.published_networks import NetworkError
from study.settings import Settings, SettingsError, load_profile
from study.study import Study
from study.tools.pack_networks import pack

SMALL: dict[str, Any] = {
    "image_train_size": 60,
    "image_test_size": 20,
    "image_held_out_fraction": 0.3,
    "image_training_batch_size": 20,
    "image_training_epochs": 2,
    "image_network_width": 2,
    "image_methods": ["erm", "cascade"],
    "image_stream": ["fog", "snow:2"],
    "image_batch_size": 8,
    "text_training_iterations": 20,
    "text_network_hidden": [8],
    "text_vocabulary_size": 100,
    "text_test_size": 40,
    "speech_training_epochs": 1,
    "speech_train_size": 120,
    "speech_test_size": 40,
    "speech_stream": ["clean", "noise"],
}


def settings_in(folder: Path, **changes: Any) -> Settings:
    return load_profile(
        "quick",
        SMALL | {"results_folder": str(folder), "data_folder": str(folder / "data")} | changes,
    )


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(settings_in(tmp_path))


def test_a_run_is_made_once_and_carries_its_provenance(study: Study) -> None:
    first = study.run("cascade")
    provenance = first.provenance
    assert provenance.profile == "quick" and "digits" in provenance.data_source
    assert "generated" in provenance.domain_source and provenance.official_data is False
    assert provenance.fingerprint == study.dataset.fingerprint and provenance.seconds > 0
    assert provenance.network is not None and provenance.network.origin == "trained here"
    assert provenance.unit == "images"
    assert first.request == study.request("cascade")

    again = Study(study.settings).run("cascade")
    assert again.provenance == provenance, "it was not made again"
    pd.testing.assert_frame_equal(first.batches, again.batches)
    (stored,) = study.store.runs()
    assert stored.request == first.request
    assert study.store.history(stored) is not None


def test_a_run_with_transfer_serves_a_request_without(study: Study) -> None:
    without = study.varied(forward_transfer=False).run("cascade")
    made = study.run("cascade")
    columns = ["step", "position", "errors", "count"]
    pd.testing.assert_frame_equal(made.batches[columns], without.batches[columns])
    assert average_accuracy(made.accuracies) == average_accuracy(without.accuracies)
    assert (
        forward_transfer(made.accuracies) is not None
        and forward_transfer(without.accuracies) is None
    )

    served = study.varied(forward_transfer=False).run("cascade")
    assert (served.request, served.provenance) == (made.request, made.provenance)
    point = Point("cascade", None, {"forward_transfer": False})
    assert Runs.of_settings(study.settings).frame([point])["run"].item().request == made.request


def test_a_run_with_the_agreement_serves_a_request_without(study: Study) -> None:
    plain = study.varied(forward_transfer=False)
    without = plain.run("cascade")
    asked = plain.varied(source_agreement=True)
    made = asked.run("cascade")
    assert "source_agreement" in made.batches and "source_agreement" not in without.batches
    assert made.batches["errors"].tolist() == without.batches["errors"].tolist()
    assert plain.run("cascade").provenance == made.provenance
    runs = Runs.of_settings(study.settings)
    point = Point("cascade", None, {"forward_transfer": False})
    assert runs.frame([point])["run"].item().request == made.request
    both = Point("cascade", None, {"forward_transfer": True, "source_agreement": True})
    assert runs.frame([both])["run"].item().request == made.request, "for want of one with F"
    (told,) = runs.missing([both], [0])
    assert "(stored, but without F or the agreement with the source: 1)" in told


def test_the_cost_of_a_step_is_that_of_the_run_it_stands_beside(study: Study) -> None:
    """It is counted once for the runs of one network whose steps are alike, and anew for others."""
    plain = study.bring(own_network(10), "mine").varied(forward_transfer=False)
    wide = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(7200, 10))
    runs = {
        "once": plain.run("tent"),
        "at another severity": plain.varied(stream=["fog:1"]).run("tent"),
        "with Adam": plain.varied(online_optimizer="adam").run("tent"),
        "before": plain.varied(predict="before").run("tent"),
        "not adapted": plain.run("adabn"),
        "of another network": study.bring(wide, "mine").varied(forward_transfer=False).run("tent"),
    }
    costs = {name: run.provenance.cost for name, run in runs.items()}
    assert costs["at another severity"] == costs["once"] == {"work": 3, "memory": ANY}
    assert costs["with Adam"]["memory"] > costs["once"]["memory"]
    assert costs["before"]["work"] == 2 and costs["not adapted"]["work"] == 1
    assert costs["of another network"]["memory"] != costs["once"]["memory"]


@pytest.mark.parametrize("modality", ["text", "speech"])
def test_text_and_speech_run_through_the_same_store(tmp_path: Path, modality: Modality) -> None:
    study = Study(settings_in(tmp_path), modality)
    domains, unit = {"text": (3, "reviews"), "speech": (2, "utterances")}[modality]
    for method in ("erm", "cotta", "eata", "cascade"):
        run = study.run(method)
        assert run.batches["count"].tolist() == [32, 8] * domains and run.provenance.unit == unit
    assert run.batches["entropy_auxiliary"].notna().all()
    assert len(list(study.store.runs())) == 4


@pytest.mark.parametrize("modality", ["image", "text", "speech"])
def test_mixed_and_correlated_streams_of_every_modality(tmp_path: Path, modality: Modality) -> None:
    study = Study(settings_in(tmp_path, image_test_size=12), modality)
    domains, per_domain = {"image": (15, 12), "text": (3, 40), "speech": (5, 40)}[modality]
    runs = {
        stream: study.varied(stream=stream).run("cascade")
        for stream in ("mixed", "correlated", "instantaneous", "mixed_correlated", "reset_each")
    }
    for run in runs.values():
        assert run.batches.groupby("step")["count"].sum().tolist() == [per_domain] * domains
        assert len(run.accuracies.query("kind == 'stream' and after == @domains")) == domains
    assert set(runs["mixed"].accuracies["kind"]) == {"stream"}, "F is not defined"
    assert "alone" in set(runs["correlated"].accuracies["kind"])
    sizes = runs["mixed"].batches.groupby("position")["count"].sum()
    assert (sizes.iloc[:-1] == study.batch_size).all() and sizes.sum() == domains * per_domain
    assert len({tuple(run.batches["entropy_main"]) for run in runs.values()}) == len(runs)
    again = study.varied(stream="recurring", recurring_visits=2, forward_transfer=False)
    twice = again.run("cascade")
    assert twice.batches.groupby("step")["count"].sum().tolist() == [per_domain] * 2 * domains
    runs["recurring"] = twice
    assert {run.request for run in study.store.runs()} == {run.request for run in runs.values()}


def test_what_a_mixed_stream_cannot_be_asked_for_is_refused(tmp_path: Path) -> None:
    # Three domains of 43 reviews: 129 are four batches of 32 and a single review, each domain alone
    # ends in 11.
    text = Study(settings_in(tmp_path, text_test_size=43, text_stream="mixed"), "text")
    with pytest.raises(
        ValueError, match="the mixed stream with 129 examples ends in a batch of one"
    ):
        text.check()
    text.varied(stream="correlated").check()


CHANGES: list[dict[str, Any]] = [
    {"seed": 1},
    {"image_stream": "correlated", "image_dirichlet_delta": 1.0},
]
CHANGES += [
    {f"image_{name}": value}
    for name, value in (
        ("training_epochs", 3),
        ("train_size", 59),
        ("test_size", 19),
        ("training_learning_rate", 0.2),
        ("network_block", "conv_bn_relu"),
        ("batch_size", 4),
        ("order_seed", 0),
        ("predict", "before"),
        ("crop_and_flip", True),
        ("weights", "shipped"),
        ("online_optimizer", "sgd"),
        ("online_optimizer", "adam"),
        ("online_learning_rate", 0.01),
        ("training_entropy_weight", 0.2),
        ("stream", ["fog"]),
        ("stream", "instantaneous"),
        ("stream", "mixed"),
        ("stream", "correlated"),
        ("stream", "mixed_correlated"),
        ("stream", "gradual_correlated"),
        ("stream", "recurring"),
        ("stream", "reset_each"),
        ("stream", "walk"),
        ("on_alarm", "reset"),
        ("on_alarm", "stop"),
        ("source_agreement", True),
        ("severity", 4),
        ("dataset", "npz:/some/pets"),
        ("dataset", "npz:/other/pets"),
    )
]


def test_each_part_of_the_settings_makes_another_request_and_key_and_needs_no_data(
    tmp_path: Path,
) -> None:
    base = Study(settings_in(tmp_path)).request("cascade")
    requests = [base, base.checkpoint, Study(settings_in(tmp_path)).request("adabn")]
    requests += [Study(settings_in(tmp_path, **change)).request("cascade") for change in CHANGES]
    assert len({request.key("fingerprint", "source") for request in requests}) == 3 + len(CHANGES)
    # The label of the profile, the device and the methods beside it are no part of it: the same
    # work is shared.
    same = Study(
        settings_in(tmp_path, profile="mine", device="cpu", image_methods=["cascade"], seeds=[1, 2])
    )
    assert (
        same.request("cascade") == base and same.at_seed(1).request("cascade").checkpoint.seed == 1
    )


def test_a_walk_in_one_step_is_the_instantaneous_stream_from_its_second_domain_on(
    tmp_path: Path,
) -> None:
    study = Study(settings_in(tmp_path, image_test_size=12, image_walk_steps=1))
    walk = study.varied(stream="walk").run("erm")
    once = study.varied(stream="instantaneous", severity=5).run("erm")
    columns = ["errors", "entropy_main"]
    found, expected = (run.batches[["step", *columns]] for run in (walk, once))
    last = found["step"] == found["step"].max()
    turned = pd.concat([found[last], found[~last]])[columns]
    assert turned.to_numpy().tolist() == expected[columns].to_numpy().tolist()


def test_an_order_seed_moves_domains_and_images_alike_for_every_method(tmp_path: Path) -> None:
    small = {"image_stream": "instantaneous", "image_test_size": 12}
    study = Study(settings_in(tmp_path, image_order_seed=1, **small))
    other = study.varied(order_seed=2)
    assert sorted(study.stream) == sorted(other.stream) and study.stream != other.stream
    runs = [at.run(name) for at in (study, study.at_seed(1)) for name in ("adabn", "cascade")]
    for run in runs:
        domains = run.batches.drop_duplicates("step")["domain"].tolist()
        assert domains == [domain.name for domain in study.stream]
        assert run.batches.groupby("step")["count"].sum().tolist() == [12] * 15
    assert Study(settings_in(tmp_path, **small)).stream != study.stream


def test_every_setting_of_the_protocol_reaches_the_method_and_the_evaluator(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {
        "online_learning_rate": 0.02,
        "online_diversity": 0.5,
        "statistics_memory": 7,
        "online_optimizer": "adam",
    }
    told |= {
        "predict": "before",
        "forward_transfer": False,
        "order_seed": 9,
        "on_alarm": "stop",
        "source_agreement": True,
    }  # all of them, and none as by default
    assert told == {
        name: told[name]
        for name, field in RunProtocol.model_fields.items()
        if told[name] != field.default
    }
    seen: dict[str, Any] = {}

    class RecordedTent(METHODS["tent"]):  # type: ignore[misc]
        def __init__(self, model: nn.Module, **options: Any) -> None:
            seen.update(options)
            super().__init__(model, **options)

    class RecordedEvaluator(Evaluator):
        def run(self, *, transfer: bool = True) -> Evaluation:
            seen["evaluator"] = (
                self.stream,
                self.batch_size,
                self.order,
                self.dirichlet_delta,
                self.seed,
                self.order_seed,
                self.on_alarm,
                self.source_agreement,
                transfer,
            )
            return super().run(transfer=transfer)

    # On so short a stream the numbers do not show every setting.
    monkeypatch.setattr(make_run, "Evaluator", RecordedEvaluator)
    plain = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
    own = {"batch_size": 5, "stream": "correlated", "dirichlet_delta": 2.5, "test_size": 10}
    with METHODS.replaced("tent", RecordedTent):
        study.bring(plain, "mine").varied(**told, **own).at_seed(4).run("tent")
    stream, *how = seen.pop("evaluator")
    assert len(stream) == 15 and how == [5, "correlated", 2.5, 4, 9, "stop", True, False]
    expected = {
        "learning_rate": 0.02,
        "diversity": 0.5,
        "memory": 7,
        "optimizer": "adam",
        "predict": "before",
    }
    assert {name: seen[name] for name in expected} == expected and seen["seed"] == 4
    assert seen["value_range"] == study.dataset.value_range


def test_null_is_the_papers_batch_size_and_ttt_has_its_own_recipe(tmp_path: Path) -> None:
    for name, size in (("digits", 32), ("tiny_imagenet", 64)):
        asked = Study(settings_in(tmp_path, image_dataset=name, image_batch_size=None)).request(
            "ttt"
        )
        assert asked.checkpoint.training is not None
        assert asked.batch_size == size and asked.checkpoint.training.schedule == "ttt_steps"


def test_a_killed_training_goes_on_in_the_store(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The state is saved every 20 s, and the process is killed just before the end.
    monkeypatch.setattr(checkpoints_module, "pretrain", partial(pretrain, save_seconds=0))

    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patched:
        patched.setattr(checkpoints_module, "save_model", killed)
        study.checkpoint("meta")
    (part,) = study.store.folder.glob("checkpoints/*.part")
    state = torch.load(part / ".training.pt", weights_only=True)
    state["history"] = [row | {"code_revision": "earlier"} for row in state["history"]]
    torch.save(state, part / ".training.pt")
    found = study.checkpoint("meta")
    assert found.history is not None and len(found.history) == 2 and not part.exists()
    assert found.provenance is not None
    assert found.provenance.code_revision == "earlier", (
        "that of the code which trained it, not of the last session"
    )
    assert not list(study.store.folder.glob("checkpoints/*/.training.pt"))


def test_the_stored_network_is_the_trained_one(study: Study) -> None:
    stored = study.checkpoint("meta")
    asked = stored.request
    assert asked.network and asked.training
    trained, _ = pretrain(study.dataset, asked.network, "meta", asked.training, asked.seed)
    assert same(trained.state_dict(), stored.model.state_dict())


def test_a_variation_is_a_run_of_its_own_and_checked(study: Study) -> None:
    smaller = study.varied(batch_size=4)
    assert smaller.dataset is study.dataset and smaller.batch_size == 4
    assert smaller.request("cascade") != study.request("cascade")
    assert study.request("cascade", "multi_task").checkpoint.objective == "multi_task"
    assert study.varied(test_size=10).dataset is not study.dataset
    with pytest.raises(
        SettingsError, match=r"image_batch_size = 0 \(from a variation of the study\)"
    ):
        study.varied(batch_size=0)


def packed(study: Study, folder: Path, **card: Any) -> Study:
    """The study with its trained network as a folder of somebody else's, whose card says something
    else.
    """
    trained = study.checkpoint("meta")
    request = trained.request
    assert trained.history is not None
    told = {
        "network": request.network,
        "objective": "meta",
        "training": request.training,
        "seed": 0,
    }
    told |= {"options": request.options, "provenance": {}} | card
    pack(folder, trained.model, trained.history, study.dataset, **told)
    return study.varied(weights=str(folder))


def test_theorem_1_is_checked_with_what_a_brought_network_was_trained_by(
    study: Study, tmp_path: Path
) -> None:
    training = Training(epochs=1, entropy_weight=0.7)
    brought = packed(study, tmp_path / "nets", training=training)
    model = brought.checkpoint("meta").model
    assert isinstance(model, Cascade)
    expected = check_theorem(model, brought.dataset, training, seed=0)
    assert brought.theorem("meta") == pytest.approx(expected)
    with pytest.raises(ValueError, match="cannot be checked on mine:"):
        study.bring(study.checkpoint("meta").model, "mine").theorem("meta")


def test_theorem_1_is_checked_once_for_a_network(study: Study) -> None:
    run = study.run("cascade")
    assert study.store.theorem(run) is None
    found = study.theorem("meta")
    [entry] = (study.store.folder / "theorem").glob("[0-9a-f]*")
    made = entry.stat().st_mtime_ns
    assert study.theorem("meta") == study.store.theorem(run) == found
    assert entry.stat().st_mtime_ns == made, "it was not made again"


# ---------------------------------------------------------------- networks that are not trained her


def own_network(classes: int) -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3 * 32 * 32, classes))


class Masking(nn.Module):
    """Masks the last class."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return torch.cat([z[:, :-1], torch.full_like(z[:, -1:], -torch.inf)], 1)


def test_a_network_of_other_classes_or_inputs_is_refused_before_it_runs(study: Study) -> None:
    reason = r"mine:\w+ returns logits of shape \(2, 3\) for 2 examples; digits has 10 classes"
    with pytest.raises(NetworkError, match=reason):
        study.bring(own_network(3), "mine").run("tent")
    with pytest.raises(
        NetworkError, match=r"mine:\w+ cannot take inputs of shape \(2, 3, 32, 32\): .*3072"
    ):
        study.bring(nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 10)), "mine").run("erm")
    odd = Cascade(nn.Flatten(), nn.Linear(3 * 32 * 32, 10), nn.Linear(10, 4))
    with pytest.raises(NetworkError, match=r"auxiliary logits of shape \(2, 4\), and logits of"):
        study.bring(odd, "mine").run("erm")
    flat = Cascade(nn.Flatten(), nn.Linear(3 * 32 * 32, 10), nn.Sequential(nn.Flatten(0)))
    with pytest.raises(NetworkError, match=r"auxiliary logits of shape \(20,\), and logits of"):
        study.bring(flat, "mine").run("erm")
    with pytest.raises(NetworkError, match=r"mine:\w+: .*logits of shape \(2, 1\); allowed is"):
        study.bring(own_network(1), "mine").run("tent")
    assert not list(study.store.folder.glob("runs/*/entry.json"))


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
def test_a_network_that_cannot_be_copied_is_refused_as_it_is_brought(study: Study) -> None:
    head = nn.utils.weight_norm(nn.Linear(3 * 32 * 32, 10))
    network = nn.Sequential(nn.Flatten(), head)
    for normalization in (None, "imagenet"):
        with pytest.raises(NetworkError, match="mine: Sequential cannot be copied .*METHODS"):
            study.bring(network, "mine", normalization)


def test_a_last_batch_of_one_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """Where a network ends at one pixel, a BatchNorm has no statistics of a single image."""
    changes = {"image_test_size": 9, "image_methods": ["erm", "adabn"]}
    one_pixel = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(4), nn.Flatten()
    )
    one_pixel.append(nn.Linear(4, 10))
    study = Study(settings_in(tmp_path, **changes)).bring(one_pixel, "mine")
    told = (
        r"fog with 9 examples ends in a batch of one; choose another image_batch_size .* \(AdaBN: "
    )
    with pytest.raises(ValueError, match=told):
        study.check()
    with pytest.raises(ValueError, match="the mixed stream with 165 examples ends in a batch of"):
        study.varied(stream="mixed", test_size=11, batch_size=4).check()
    with pytest.raises(ValueError, match="fog with 9 examples ends in a batch of one"):
        study.varied(batch_size=1).check()
    for fits in ({"methods": ["erm"]}, {"test_size": 10}, {"batch_size": 9}):
        study.varied(**fits).check()
    Study(settings_in(tmp_path, **changes)).bring(own_network(10), "mine").check()
    assert not list(tmp_path.glob("data/generated/*/snow-*")), "no domain is made for it"


def test_a_network_of_no_numbers_is_refused_before_it_runs(study: Study) -> None:
    nan = own_network(10)
    nn.init.constant_(nan.get_parameter("2.bias"), torch.nan)
    with pytest.raises(NetworkError, match=r"mine:\w+ returns logits that are not finite"):
        study.bring(nan, "mine").check()
    theta_m = nn.Sequential(own_network(10), Masking())
    masked = Cascade(nn.Identity(), theta_m, nn.Linear(10, 10))
    with pytest.raises(NetworkError, match=r"mine:\w+ returns auxiliary logits that are not"):
        study.bring(masked, "mine").check()


def test_a_module_of_ones_own_is_a_network_of_the_study(study: Study) -> None:
    torch.manual_seed(0)
    own = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
    )
    own(torch.zeros(2, 3, 32, 32))
    weights = {name: value.clone() for name, value in own.state_dict().items()}
    brought = study.bring(own, "mine")
    run = brought.run("tent")
    checkpoint = run.request.checkpoint
    assert (
        checkpoint.weights.startswith("mine:")
        and checkpoint.network is None
        and checkpoint.training is None
    )
    network = run.provenance.network
    assert not list((study.store.folder / "checkpoints").glob("*")), "nothing was trained"
    assert network is not None and network.sha256 is not None
    assert network.sha256.startswith(checkpoint.weights.partition(":")[2])
    assert all(torch.equal(value, weights[name]) for name, value in own.state_dict().items()), (
        "it is left as it was"
    )
    assert brought.varied(batch_size=4).request("tent").checkpoint == checkpoint
    with torch.no_grad():
        own[0].weight += 1
    assert study.bring(own, "mine").request("tent").key() != run.request.key()


def test_networks_from_a_folder_are_named_by_their_weights(study: Study, tmp_path: Path) -> None:
    other = packed(study, tmp_path / "weights").varied(training_epochs=9)
    run = other.run("cascade")
    assert (
        run.request.checkpoint.weights.startswith("folder:")
        and run.request.checkpoint.training is None
    )
    for each in (study, Study(settings_in(tmp_path / "from nothing"))):  # same seed, same numbers
        again = each.run("cascade").batches.drop(columns="seconds")
        pd.testing.assert_frame_equal(run.batches.drop(columns="seconds"), again)
    assert other.store.history(run) is None and doubt_about_held_out(run) == ""
    card = (
        tmp_path / "weights" / "meta-0.json"
    )  # The same weights behind another ReLU are another network.
    card.write_text(card.read_text().replace('"main_logits": "plain"', '"main_logits": "relu"'))
    assert other.request("cascade").checkpoint.weights not in (
        run.request.checkpoint.weights,
        "train",
    )
    card.write_text(card.read_text().replace('"main_logits": "relu"', '"main_logits": "plain"'))
    other_split = other.varied(held_out_fraction=0.5).run("adabn")
    assert doubt_about_held_out(other_split).startswith(
        "the network may know the held-out source images"
    )
    with pytest.raises(ValueError, match="erm-0"):
        other.check()
    with pytest.raises(ValueError, match="input_scaling = 'symmetric', not 'unit'"):
        other.varied(methods=["cascade"], input_scaling="unit").check()


# ---------------------------------------------------------------- what is refused before the traini


def test_a_method_that_needs_the_source_is_refused_where_there_is_none(tmp_path: Path) -> None:
    sample = tmp_path / "sample.npz"
    np.savez(sample, x=np.full((992, 32, 32, 3), 100, np.uint8), y=np.arange(992) % 10)
    changes = {
        "image_dataset": f"cifar10_sample:{sample}",
        "image_methods": ["eata"],
        "image_test_size": 992,
    }
    study = Study(settings_in(tmp_path, **changes)).bring(own_network(10), "mine")
    for ask in (study.check, lambda: study.run("eata")):
        with pytest.raises(
            ValueError,
            match="EATA needs images of the source, and cifar10_sample:sample.* has none",
        ):
            ask()


def test_two_folders_of_one_name_are_two_datasets_and_changed_data_is_another_run(
    tmp_path: Path,
) -> None:
    here, there = (f"npz:{write_npz(tmp_path / place / 'pets')}" for place in ("here", "there"))
    small: dict[str, Any] = {
        "image_train_size": None,
        "image_held_out_fraction": 0.1,
        "image_test_size": 8,
        "image_stream": ["fog"],
    }
    first, second = (
        Study(settings_in(tmp_path, image_dataset=name, **small)).run("erm")
        for name in (here, there)
    )
    assert first.request.checkpoint.dataset != second.request.checkpoint.dataset
    write_npz(tmp_path / "here" / "pets", train={"y": np.arange(40)[::-1] % 10})
    changed = Study(settings_in(tmp_path, image_dataset=here, **small)).run("erm")
    assert changed.request == first.request
    assert changed.provenance.fingerprint != first.provenance.fingerprint
    assert len(list(Study(settings_in(tmp_path)).store.runs())) == 3


@pytest.mark.parametrize(("variables", "threads"), [({}, "1"), ({"OMP_NUM_THREADS": "2"}, "2")])
def test_the_number_of_threads_is_chosen_wherever_the_library_is_imported(
    variables: dict[str, str], threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code = "import cascadetta_lib, torch; print(torch.get_num_threads())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == threads
