"""Streams, the evaluator and the metrics, against plain loops written once more."""

import copy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from cascadetta_lib.data import ImageOptions, TextOptions, load_dataset
from cascadetta_lib.data.image import ImageDataset
from cascadetta_lib.data.text import TextDataset
from cascadetta_lib.evaluate import (
    Evaluation,
    Evaluator,
    Transfer,
    average_accuracy,
    forward_transfer,
    mean_online_error,
    online_errors,
)
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.models import MLPConfig, Outputs, ResNetConfig, first_linear
from cascadetta_lib.pretrain import build_model
from cascadetta_lib.streams import Domain, gradual, instantaneous, make_stream

STREAM = [Domain("fog", 5), Domain("contrast", 3), Domain("fog", 1)]
BATCH = 8  # the domains have 22 images, so the last batch is short


@pytest.fixture
def reviews(tmp_path: Path) -> TextDataset:
    data = load_dataset("reviews", TextOptions(folder=str(tmp_path), train_size=60, test_size=20, vocabulary_size=40))
    assert isinstance(data, TextDataset)
    return data


def make(name: str) -> Method:
    return METHODS[name](
        build_model(ResNetConfig(depth=8, width=4, classes=4), METHODS[name].objective, seed=0), learning_rate=0.05
    )


def evaluate(name: str, dataset: ImageDataset, **options: Any) -> Evaluation:
    return Evaluator(make(name), dataset, STREAM, BATCH).run(**options)


def adapt_by_hand(method: Method, dataset: ImageDataset, domain: Domain) -> float:
    """Adapt to a domain, return the online error."""
    x, y = dataset.domain(*domain)
    wrong = 0
    for start in range(0, len(y), BATCH):
        logits = method(dataset.prepare(x[start : start + BATCH]))
        wrong += int((logits.argmax(1) != y[start : start + BATCH]).sum())
    return wrong / len(y)


def accuracy_by_hand(method: Method, dataset: ImageDataset, domain: Domain) -> float:
    x, y = dataset.domain(*domain)
    right = 0
    for start in range(0, len(y), BATCH):
        z = method.predict(dataset.prepare(x[start : start + BATCH])).main
        right += int((z.argmax(1) == y[start : start + BATCH]).sum())
    return right / len(y)


@pytest.mark.parametrize("name", list(METHODS))
def test_metrics_against_a_brute_force_recomputation(name: str, dataset: ImageDataset) -> None:
    """The stream meets a domain twice, as the gradual one does: alone, that one is adapted to only once."""
    stream = [*STREAM, STREAM[1]]
    evaluated, resets = make(name), []
    reset = evaluated.reset
    evaluated.reset = lambda: (resets.append(1), reset())[1]  # type: ignore[method-assign]
    result = Evaluator(evaluated, dataset, stream, BATCH).run()
    assert len(resets) == (4 if evaluated.adapts else 2)  # before, the two domains alone, after
    method = make(name)
    errors, reached = [], []
    for domain in stream:
        errors.append(adapt_by_hand(method, dataset, domain))
        reached.append(accuracy_by_hand(method, dataset, domain))
    final = [accuracy_by_hand(method, dataset, domain) for domain in stream]
    assert online_errors(result.batches).tolist() == pytest.approx(errors)
    assert mean_online_error(result.batches) == pytest.approx(sum(errors) / 4)
    assert average_accuracy(result.accuracies) == pytest.approx(sum(final) / 4)
    if not method.adapts:
        assert forward_transfer(result.accuracies) is None
        return
    alone = []
    for domain in stream[1:]:
        fresh = make(name)
        adapt_by_hand(fresh, dataset, domain)
        alone.append(accuracy_by_hand(fresh, dataset, domain))
    expected = sum(a - b for a, b in zip(reached[1:], alone, strict=True)) / 3
    assert forward_transfer(result.accuracies) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["adabn", "cascade", "ttt"])
def test_batchnorm_is_in_the_same_mode_for_e_a_and_f(name: str, dataset: ImageDataset) -> None:
    """With learning rate 0 all three are those of a network in training mode, written down without a method."""
    still = METHODS[name](
        build_model(ResNetConfig(depth=8, width=4, classes=4), METHODS[name].objective, seed=0), learning_rate=0.0
    )
    result = Evaluator(still, dataset, STREAM, BATCH).run(matrix=True)
    model = build_model(ResNetConfig(depth=8, width=4, classes=4), METHODS[name].objective, seed=0).train()
    right = []
    for domain in STREAM:
        x, y = dataset.domain(*domain)
        logits = torch.cat([model(dataset.prepare(part)).main for part in x.split(BATCH)])
        right.append((logits.argmax(1) == y).float().mean().item())
    assert online_errors(result.batches).tolist() == pytest.approx([1 - accuracy for accuracy in right])
    for row in result.accuracies.itertuples():
        assert row.accuracy == pytest.approx(right[row.step])


@pytest.mark.parametrize("name", [name for name in METHODS if "text" in METHODS[name].modalities])
def test_a_first_linear_layer_is_computed_once_and_changes_nothing(
    name: str, reviews: TextDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E, A and F on text are those of a method that knows nothing of it; CoTTA, which moves the layer, computes it
    each time."""
    stream = [Domain(domain, 1) for domain in reviews.domain_names]
    config = MLPConfig(inputs=reviews.input_features, hidden=(12, 6))

    def run() -> tuple[Evaluation, int, Method]:
        model = build_model(config, METHODS[name].objective_on("text"), seed=0)
        method = METHODS[name](model, learning_rate=0.05, copies=reviews.augmented_copies)
        layer, calls = first_linear(method.model), []
        assert layer is not None
        linear = nn.functional.linear
        with monkeypatch.context() as patch:
            counting = lambda x, w, b=None: (calls.append(1) if w is layer.weight else None, linear(x, w, b))[1]  # noqa: E731
            patch.setattr(nn.functional, "linear", counting)
            result = Evaluator(method, reviews, stream, BATCH).run(matrix=True)
        return result, len(calls), method

    once, calls, method = run()
    monkeypatch.setattr("cascadetta_lib.evaluate.first_linear", lambda model: None)
    each_time, more_calls, _ = run()
    pd.testing.assert_frame_equal(once.batches.drop(columns="seconds"), each_time.batches.drop(columns="seconds"))
    pd.testing.assert_frame_equal(once.accuracies, each_time.accuracies)
    sizes = [-(-len(reviews.domain(*domain).y) // BATCH) for domain in stream]
    # F begins with a reset, which writes to the weights.
    needed = sum(sizes) + (sum(sizes[1:]) if method.adapts else 0)
    assert calls == more_calls if name == "cotta" else calls == needed < more_calls
    assert type(first_linear(method.model)) is nn.Linear, "the layer is as it was"


class _Rude(METHODS["adabn"]):  # type: ignore[misc, valid-type]
    """Writes to its batch, to a hidden output, to a copy of the model, and in the end to the first layer itself."""

    def predict(self, x: Tensor) -> Outputs:
        other = copy.deepcopy(self.model)
        other.feature_extractor[0].weight.data.mul_(-1)
        outputs = Outputs(self.model(x).main + 0.5 * other(x).main, None)
        self.model.feature_extractor[0](x).zero_()
        outputs = Outputs(outputs.main + self.model(x).main, None)
        self.model.feature_extractor[0].weight.data.mul_(0.9)
        x.mul_(0.5)
        return outputs


def test_what_a_method_writes_to_is_computed_anew(reviews: TextDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, config = [Domain("dvd", 1), Domain("kitchen", 1)], MLPConfig(inputs=reviews.input_features, hidden=(12, 6))

    def run() -> Evaluation:
        return Evaluator(_Rude(build_model(config, "meta", seed=0)), reviews, stream, BATCH).run(matrix=True)

    once = run()
    monkeypatch.setattr("cascadetta_lib.evaluate.first_linear", lambda model: None)
    each_time = run()
    pd.testing.assert_frame_equal(once.batches.drop(columns="seconds"), each_time.batches.drop(columns="seconds"))


def test_erm_on_a_stream_is_plain_evaluation(dataset: ImageDataset) -> None:
    result = evaluate("erm", dataset)
    model = build_model(ResNetConfig(depth=8, width=4, classes=4), "erm", seed=0).eval()
    for domain, error in zip(STREAM, online_errors(result.batches), strict=True):
        x, y = dataset.domain(*domain)
        assert error == pytest.approx((model(dataset.prepare(x)).main.argmax(1) != y).float().mean().item())
    assert average_accuracy(result.accuracies) == pytest.approx(1 - mean_online_error(result.batches))


def test_the_last_short_batch_is_kept_or_dropped(dataset: ImageDataset) -> None:
    kept = Evaluator(make("adabn"), dataset, STREAM, BATCH).run()
    assert kept.batches.groupby("step")["count"].sum().tolist() == [22, 22, 22]
    assert kept.batches["count"].tolist() == [8, 8, 6] * 3
    assert kept.batches["position"].tolist() == [0, 8, 16] * 3
    dropped = Evaluator(make("adabn"), dataset, STREAM, BATCH, "dropped").run()
    assert dropped.batches["count"].tolist() == [8, 8] * 3
    with pytest.raises(ValueError, match="no whole batch of 30"):
        Evaluator(make("adabn"), dataset, STREAM, 30, "dropped").run()


@pytest.mark.parametrize("name", ["erm", "adabn", "cascade", "cotta"])
def test_the_matrix_agrees_with_what_is_measured_without_it(name: str, dataset: ImageDataset) -> None:
    plain, whole = evaluate(name, dataset), evaluate(name, dataset, matrix=True)
    table = whole.accuracies.pivot(index="step", columns="after", values="accuracy")
    assert [c for c in table.columns if c >= 0] == [1, 2, 3] and not table.loc[:, 1:].isna().any().any()
    merged = plain.accuracies.merge(whole.accuracies, on=["step", "after"], suffixes=("", "_matrix"))
    assert len(merged) == len(plain.accuracies)
    assert merged["accuracy"].tolist() == merged["accuracy_matrix"].tolist()
    # Without an update nothing depends on when it is measured.
    if not METHODS[name].adapts:
        assert (table.nunique(axis=1) == 1).all()


def test_same_seed_same_bits(dataset: ImageDataset) -> None:
    first, second = evaluate("cotta", dataset), evaluate("cotta", dataset)
    pd.testing.assert_frame_equal(first.batches.drop(columns="seconds"), second.batches.drop(columns="seconds"))
    pd.testing.assert_frame_equal(first.accuracies, second.accuracies)


def test_records_tell_entropies(dataset: ImageDataset) -> None:
    about_a = ["entropy_auxiliary", "entropy_of_mean_auxiliary", "agreement"]
    cascade, erm = evaluate("cascade", dataset).batches, evaluate("erm", dataset).batches
    assert cascade[about_a].notna().all().all() and cascade["agreement"].between(0, 1).all()
    assert (cascade["entropy_of_mean_auxiliary"] >= cascade["entropy_auxiliary"] - 1e-6).all(), "entropy is concave"
    assert erm[about_a].isna().all().all() and (erm["entropy_main"] > 0).all() and (erm["seconds"] > 0).all()


def test_forward_transfer_by_hand() -> None:
    rows = [(0, 1, 0.5), (1, 2, 0.6), (2, 3, 0.9), (0, 3, 0.7), (1, 3, 0.8), (1, -1, 0.5), (2, -1, 0.7)]
    accuracies = pd.DataFrame(rows, columns=["step", "after", "accuracy"])
    assert average_accuracy(accuracies) == pytest.approx(0.8)
    assert forward_transfer(accuracies) == pytest.approx((0.1 + 0.2) / 2)
    assert forward_transfer(accuracies, "none") is None
    unadapted = pd.DataFrame([(0, 0, 0.1), (1, 0, 0.2), (2, 0, 0.3)], columns=["step", "after", "accuracy"])
    # The final model's 0.8 and 0.9 less the unadapted 0.2 and 0.3.
    assert forward_transfer(pd.concat([accuracies, unadapted]), "release") == pytest.approx(0.6)


@pytest.mark.parametrize("transfer, extra", [("paper", {-1}), ("release", {0}), ("none", set())])
def test_only_what_f_needs_is_measured(transfer: Transfer, extra: set[int], dataset: ImageDataset) -> None:
    for name in ("tent", "adabn"):
        result = evaluate(name, dataset, transfer=transfer)
        adapts = METHODS[name].adapts
        assert set(result.accuracies["after"]) == {1, 2, 3} | (extra if adapts else set())
        assert (forward_transfer(result.accuracies, transfer) is None) == (not adapts or transfer == "none")


def test_streams() -> None:
    names = ("fog", "snow")
    assert instantaneous(names, 5) == [("fog", 5), ("snow", 5)]
    assert [d.severity for d in gradual(names)] == [1, 2, 3, 4, 5, 4, 3, 2, 1] * 2
    assert make_stream(["snow:2", "fog"], "image", 4) == [("snow", 2), ("fog", 4)]
    assert len(make_stream("gradual", "image", 5)) == 135
    for bad, message in (
        (["frog"], "did you mean 'fog'"),
        (["fog:6"], "severity"),
        ("gradul", "did you mean 'gradual'"),
    ):
        with pytest.raises(ValueError, match=message):
            make_stream(bad, "image", 5)
    assert make_stream("instantaneous", "text") == [("dvd", 1), ("electronics", 1), ("kitchen", 1)]
    assert make_stream(["clean", "noise"], "speech") == [("clean", 1), ("noise", 1)]


def test_the_real_images_run_end_to_end(real_cifar10: Path, tmp_path: Path) -> None:
    dataset = load_dataset(f"npz:{real_cifar10}", ImageOptions(folder=str(tmp_path), train_size=200, test_size=40))
    model = build_model(ResNetConfig(), "meta", seed=0)
    assert isinstance(dataset, ImageDataset)
    result = Evaluator(METHODS["cascade"](model), dataset, instantaneous(dataset.domain_names[:2], 5), 32).run()
    assert torch.tensor(result.batches["count"].tolist()).tolist() == [32, 8] * 2


def test_what_never_changes_is_asked_once(dataset: ImageDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """The accuracies of AdaBN are those of its online predictions; a memory, which changes, is measured."""
    asked: list[str] = []
    monkeypatch.setattr(Evaluator, "accuracy", lambda self, domain: asked.append("") or 0.5)
    result = evaluate("adabn", dataset)
    assert not asked and (1 - result.accuracies["accuracy"]).tolist()[:1] == online_errors(result.batches).tolist()[:1]
    model = build_model(ResNetConfig(depth=8, width=4, classes=4), "meta", seed=0)
    Evaluator(METHODS["adabn"](model, memory=8), dataset, STREAM, BATCH).run()
    assert len(asked) == 2 + len(STREAM)
