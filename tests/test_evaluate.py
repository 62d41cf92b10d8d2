"""The evaluator and the metrics, against plain loops written once more."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import make_blobs
from test_methods import made_up
from torch import Tensor, nn

from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.data.streams import Domain, draw_order, shuffle_examples
from cascadetta_lib.evaluation.alarm import LEAST, Alarm, moving_agreement, rings
from cascadetta_lib.evaluation.evaluator import Evaluator, Stretch
from cascadetta_lib.evaluation.metrics import (
    average_accuracy,
    forward_transfer,
    mean_online_error,
    online_errors,
)
from cascadetta_lib.evaluation.source_agreement import SourceAgreement
from cascadetta_lib.losses import entropy
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.models import (
    Cascade,
    ImageNetwork,
    Outputs,
    build_network,
    normalization_parameters,
)
from cascadetta_lib.models.remembered_statistics import remember
from cascadetta_lib.models.snapshot import keep_state
from cascadetta_lib.training.objectives import OBJECTIVES

pytestmark = pytest.mark.usefixtures("small_updates")
STREAM = [Domain("fog", 5), Domain("contrast", 3), Domain("fog", 1)]
BATCH = 8  # the domains have 22 images, so the last batch is short


def make(name: str, **options: Any) -> Method:
    """The method on a fresh network, which is less sure than that of the methods' tests and can
    take many updates.
    """
    defaults = {"learning_rate": 0.05, "source": made_up("image")}
    return METHODS[name](network_for(name), **(defaults | options))


def network_for(name: str) -> nn.Module:
    kind = OBJECTIVES[METHODS[name].objective]
    facts: dict[str, Any] = {
        "classes": 4,
        "parallel": kind.parallel,
        "auxiliary": kind.auxiliary,
        "seed": 0,
    }
    return build_network(ImageNetwork(depth=8, width=4), **facts)


def make_balanced(name: str, x: Tensor) -> Method:
    """The method on a network that names all classes in x where BatchNorm takes its statistics."""
    network = network_for(name)
    classifier = network.main_classifier
    last = [each for each in classifier.modules() if isinstance(each, nn.Linear)][-1]
    with torch.no_grad():
        last.bias -= METHODS["adabn"](network_for(name)).predict(x).main.mean(0)
    return METHODS[name](network, learning_rate=0.5)


def evaluate(name: str, dataset: ImageDataset, **options: Any) -> Any:
    return Evaluator(make(name), dataset, STREAM, BATCH).run(**options)


def adapt_by_hand(method: Method, dataset: ImageDataset, domain: Domain) -> float:
    """Adapt to a domain, return the online error."""
    x, y = dataset.domain(*domain)
    logits = torch.cat([method(dataset.prepare(part)) for part in x.split(BATCH)])
    return int((logits.argmax(1) != y).sum()) / len(y)


def accuracy_by_hand(method: Method, dataset: ImageDataset, domain: Domain) -> float:
    x, y = dataset.domain(*domain)
    right = 0
    with keep_state(method):
        for part, labels in zip(x.split(BATCH), y.split(BATCH), strict=True):
            right += int((method.predict(dataset.prepare(part)).main.argmax(1) == labels).sum())
            remember(method)
    return right / len(y)


def test_metrics_against_a_brute_force_recomputation_for_every_method(tmp_path: Path) -> None:
    """The stream meets a domain twice, as the gradual one does: alone, that one is adapted to only
    once. A domain is a batch of 8 and one of 4.
    """
    dataset = make_blobs(tmp_path, test_size=12)
    stream = [*STREAM, STREAM[1]]
    for name in METHODS:
        evaluated = make(name)
        resets = []
        reset = evaluated.reset
        evaluated.reset = lambda: (resets.append(1), reset())[1]  # type: ignore[method-assign]  # noqa: B023
        result = Evaluator(evaluated, dataset, stream, BATCH).run()
        # Before the stream, the source, two domains alone, after it all.
        assert len(resets) == (5 if evaluated.adapts else 2)
        method = make(name)
        errors = []
        reached = []
        for domain in stream:
            errors.append(adapt_by_hand(method, dataset, domain))
            reached.append(accuracy_by_hand(method, dataset, domain))
        final = [accuracy_by_hand(method, dataset, domain) for domain in stream]
        assert online_errors(result.batches).tolist() == pytest.approx(errors)
        assert mean_online_error(result.batches) == pytest.approx(sum(errors) / 4)
        assert average_accuracy(result.accuracies) == pytest.approx(sum(final) / 4)
        if not method.adapts:
            assert (
                set(result.accuracies["kind"]) == {"stream"}
                and forward_transfer(result.accuracies) is None
            )
            continue
        unadapted = {}
        adapted = {}
        for domain in set(stream[1:]):
            fresh = make(name)
            unadapted[domain] = accuracy_by_hand(fresh, dataset, domain)
            fresh = make(name)
            adapt_by_hand(fresh, dataset, domain)
            adapted[domain] = accuracy_by_hand(fresh, dataset, domain)
        source = [unadapted[domain] for domain in stream[1:]]
        alone = [adapted[domain] for domain in stream[1:]]
        assert forward_transfer(result.accuracies) == pytest.approx(
            (sum(reached[1:]) - sum(alone)) / 3
        )
        assert forward_transfer(result.accuracies, "final") == pytest.approx(
            (sum(final[1:]) - sum(alone)) / 3
        )
        assert forward_transfer(result.accuracies, "unadapted") == pytest.approx(
            (sum(final[1:]) - sum(source)) / 3
        )


@pytest.mark.parametrize("name", ["adabn", "cascade", "ttt"])
def test_batchnorm_is_in_the_same_mode_for_e_a_and_f(name: str, dataset: ImageDataset) -> None:
    """With learning rate 0 all three are those of a network in training mode, written down without
    a method.
    """
    result = Evaluator(make(name, learning_rate=0.0), dataset, STREAM, BATCH).run()
    model = make(name).model.train()
    right = []
    for domain in STREAM:
        x, y = dataset.domain(*domain)
        logits = torch.cat([model(dataset.prepare(part)).main for part in x.split(BATCH)])
        right.append((logits.argmax(1) == y).float().mean().item())
    assert online_errors(result.batches).tolist() == pytest.approx(
        [1 - accuracy for accuracy in right]
    )
    assert set(result.accuracies["kind"]) == (
        {"stream"} if name == "adabn" else {"stream", "source", "alone"}
    )
    for row in result.accuracies.itertuples():
        assert row.accuracy == pytest.approx(right[row.step])


def test_what_forward_transfer_needs_is_measured_only_where_it_is_asked_for(
    dataset: ImageDataset,
) -> None:
    whole, untransferred = (
        evaluate("cascade", dataset, transfer=asked).accuracies for asked in (True, False)
    )
    assert set(untransferred["kind"]) == {"stream"} and forward_transfer(untransferred) is None
    stream = whole[whole["kind"] == "stream"].reset_index(drop=True)
    last = stream[stream["after"] == len(STREAM)].reset_index(drop=True)
    pd.testing.assert_frame_equal(last, untransferred)
    assert stream.groupby("step")["after"].agg(list).to_dict() == {0: [1, 3], 1: [2, 3], 2: [3]}


def test_records_tell_entropies(dataset: ImageDataset) -> None:
    about_a = ["entropy_auxiliary", "entropy_of_mean_auxiliary", "agreement"]
    cascade = evaluate("cascade", dataset).batches
    erm = evaluate("erm", dataset).batches
    assert cascade[about_a].notna().all().all() and cascade["agreement"].between(0, 1).all()
    assert (cascade["entropy_of_mean_auxiliary"] >= cascade["entropy_auxiliary"] - 1e-6).all(), (
        "entropy is concave"
    )
    assert (
        erm[about_a].isna().all().all()
        and (erm["entropy_main"] > 0).all()
        and (erm["seconds"] > 0).all()
    )


def test_records_tell_how_far_the_parameters_have_moved(dataset: ImageDataset) -> None:
    """By hand: θ_m is all that the cascade moves beside scales and shifts."""
    method = make("cascade")
    norms = normalization_parameters(method.model)
    rest = list(method.model.main_classifier.parameters())
    before = [each.detach().clone() for each in [*norms, *rest]]
    domain = STREAM[0]
    x = dataset.prepare(dataset.domain(*domain).x[:BATCH])
    method.step(x)
    moved = [(now - then).square().sum() for now, then in zip([*norms, *rest], before, strict=True)]
    first = Evaluator(make("cascade"), dataset, STREAM, BATCH).run(transfer=False).batches.iloc[0]
    assert first["moved_normalization"] == pytest.approx(sum(moved[: len(norms)]).sqrt().item())
    assert first["moved_others"] == pytest.approx(sum(moved[len(norms) :]).sqrt().item())
    assert min(first["moved_normalization"], first["moved_others"]) > 0


@pytest.mark.parametrize("name", ["erm", "adabn"])
def test_what_does_not_adapt_does_not_move(name: str, dataset: ImageDataset) -> None:
    moved = evaluate(name, dataset).batches[["moved_normalization", "moved_others"]]
    assert (moved == 0).all().all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_prediction_that_is_not_finite_is_an_error(bad: float, dataset: ImageDataset) -> None:
    class Broken(METHODS["adabn"]):  # type: ignore[misc, valid-type]
        calls = 0

        def predict(self, x: Tensor) -> Outputs:
            self.calls += 1
            z, a = super().predict(x)
            z[0, 0] = bad if self.calls == 5 else z[0, 0]
            return Outputs(z, a)

    with pytest.raises(ValueError, match="AdaBN: .* not finite on contrast:3, batch 2 of 3"):
        Evaluator(Broken(make("adabn").model), dataset, STREAM, BATCH).run()


def assert_by_hand(
    result: Any, name: str, dataset: ImageDataset, batches: list[list[tuple[int, int]]]
) -> None:
    """E and A, of batches given as (place of the domain in the stream, place of the example in the
    domain).
    """
    method = make(name)
    found = []
    held = [dataset.domain(*domain) for domain in STREAM]
    for step in (method, lambda x: method.predict(x).main):
        wrong = {place: [] for place in range(len(STREAM))}
        for batch in batches:
            predicted = step(
                dataset.prepare(torch.stack([held[domain].x[example] for domain, example in batch]))
            )
            for (domain, example), label in zip(batch, predicted.argmax(1).tolist(), strict=True):
                wrong[domain].append(label != held[domain].y[example].item())
        found.append(sum(sum(each) / len(each) for each in wrong.values()) / len(STREAM))
    assert [
        mean_online_error(result.batches),
        1 - average_accuracy(result.accuracies),
    ] == pytest.approx(found)


@pytest.mark.parametrize("name", ["erm", "adabn", "cascade"])
def test_a_mixed_stream_by_hand(name: str, dataset: ImageDataset) -> None:
    result = Evaluator(make(name), dataset, STREAM, BATCH, order="mixed", seed=3).run()
    order = np.random.default_rng(3).permutation(66)
    batches = [
        [divmod(place, 22) for place in order[start : start + BATCH].tolist()]
        for start in range(0, 66, BATCH)
    ]
    assert_by_hand(result, name, dataset, batches)
    assert result.batches.groupby("position")["count"].sum().tolist() == [8] * 8 + [2]
    assert result.batches.groupby("step")["count"].sum().tolist() == [22, 22, 22]
    rows = sorted(
        [8 * number, domain] for number, batch in enumerate(batches) for domain in dict(batch)
    )
    assert result.batches[["position", "step"]].to_numpy().tolist() == rows
    assert list(online_errors(result.batches).index) == [
        (0, "fog", 5),
        (1, "contrast", 3),
        (2, "fog", 1),
    ]
    # Seconds of a domain sum to its share of those of the whole stream.
    mean = result.batches.groupby("position")["seconds"].sum()
    assert mean.to_numpy() == pytest.approx(mean[0]) and mean[0] > 0
    assert result.accuracies[["step", "kind", "after"]].to_numpy().tolist() == [
        [s, "stream", 3] for s in range(3)
    ]
    assert forward_transfer(result.accuracies) is None, "no domain comes after another"


@pytest.mark.parametrize("name", ["erm", "adabn", "tent"])
def test_an_order_seed_gives_all_methods_and_domains_one_order(
    name: str, dataset: ImageDataset
) -> None:
    order = shuffle_examples(len(dataset.domain(*STREAM[0]).y), 3)
    batches = [
        [(place, example) for example in order[start : start + BATCH]]
        for place in range(len(STREAM))
        for start in range(0, len(order), BATCH)
    ]
    runs = [
        Evaluator(make(name), dataset, STREAM, BATCH, seed=seed, order_seed=order_seed).run()
        for seed, order_seed in ((0, 3), (1, 3), (0, None))
    ]
    assert_by_hand(runs[0], name, dataset, batches)
    first, same, stored = (each.batches.drop(columns="seconds") for each in runs)
    pd.testing.assert_frame_equal(same, first, check_exact=True)
    assert not stored.equals(first)


def test_a_correlated_stream_by_hand(dataset: ImageDataset) -> None:
    """With δ near 0 a domain is its four labels in runs; its accuracy is measured in the same
    order.
    """
    how: dict[str, Any] = {"order": "correlated", "dirichlet_delta": 1e-9}
    runs = [
        Evaluator(make("adabn"), dataset, STREAM, BATCH, **how, seed=seed).run()
        for seed in (3, 3, 4)
    ]
    generator = np.random.default_rng(3)
    batches = []
    for place, domain in enumerate(STREAM):
        labels = dataset.domain(*domain).y.numpy()
        order = draw_order("correlated", labels, 1e-9, generator)
        assert (np.diff(labels[order]) != 0).sum() == 3
        batches += [
            [(place, example) for example in order[start : start + BATCH]]
            for start in range(0, 22, BATCH)
        ]
    assert_by_hand(runs[0], "adabn", dataset, batches)
    first, same, other = (each.batches.drop(columns="seconds") for each in runs)
    assert first["count"].tolist() == [8, 8, 6] * 3 and first["position"].tolist() == [0, 8, 16] * 3
    pd.testing.assert_frame_equal(same, first, check_exact=True)
    assert not other.equals(same)
    adapted = Evaluator(
        make("tent"), dataset, STREAM, BATCH, order="correlated", dirichlet_delta=0.1
    ).run()
    assert forward_transfer(adapted.accuracies) is not None


@pytest.mark.parametrize("name", ["adabn", "tent", "rotta", "t3a"])
def test_with_a_reset_at_each_domain_each_is_as_if_it_were_the_first(
    name: str, dataset: ImageDataset
) -> None:
    result = Evaluator(make(name), dataset, STREAM, BATCH, reset_each=True).run()
    for step, domain in enumerate(STREAM):
        alone = Evaluator(make(name), dataset, [domain], BATCH).run()
        columns = ["count", "errors", "entropy_main", "moved_normalization"]
        found = result.batches[result.batches["step"] == step]
        assert found[columns].to_numpy().tolist() == alone.batches[columns].to_numpy().tolist()
        accuracies = result.accuracies[result.accuracies["step"] == step]
        assert accuracies["accuracy"].tolist() == alone.accuracies["accuracy"].tolist()
    assert set(result.accuracies["kind"]) == {"stream"}
    assert forward_transfer(result.accuracies) is None


def test_a_mixed_stream_with_correlated_labels_by_hand(dataset: ImageDataset) -> None:
    how: dict[str, Any] = {"order": "mixed_correlated", "dirichlet_delta": 1e-9, "seed": 3}
    result = Evaluator(make("adabn"), dataset, STREAM, BATCH, **how).run()
    labels = torch.cat([dataset.domain(*domain).y for domain in STREAM]).numpy()
    order = draw_order("mixed_correlated", labels, 1e-9, np.random.default_rng(3))
    batches = [
        [divmod(place, 22) for place in order[start : start + BATCH].tolist()]
        for start in range(0, 66, BATCH)
    ]
    assert_by_hand(result, "adabn", dataset, batches)
    assert (np.diff(labels[order]) != 0).sum() == 3, "four labels, a run each"
    assert forward_transfer(result.accuracies) is None


def test_what_a_method_without_weights_remembers_counts_at_the_end(dataset: ImageDataset) -> None:
    """T3A's supports after the stream are others than at its first domain."""
    method = make("t3a")
    result = Evaluator(method, dataset, STREAM, BATCH).run()
    for domain in STREAM:
        for x in dataset.prepare(dataset.domain(*domain).x).split(BATCH):
            method(x)
    for domain, found in zip(STREAM, result.accuracies["accuracy"], strict=True):
        x, y = dataset.domain(*domain)
        predicted = method.predict(dataset.prepare(x)).main.argmax(1)
        assert found == pytest.approx((predicted == y).float().mean().item())


def test_the_level_of_the_alarm_by_hand(dataset: ImageDataset) -> None:
    """The entropy of the mean prediction of about the last 256 examples, over that of a uniform
    one."""
    result = Evaluator(make("tent"), dataset, STREAM, BATCH).run()
    method = make("tent")
    mean = np.full(4, 0.25)
    levels = []
    classes = []
    for domain in STREAM:
        for x in dataset.prepare(dataset.domain(*domain).x).split(BATCH):
            p = method(x).double().softmax(1).numpy()
            mean = mean + len(x) / 256 * (p.mean(0) - mean)
            levels.append(-(mean * np.log(mean)).sum() / np.log(4))
            classes.append(len(set(p.argmax(1))))
    assert result.batches["alarm_level"].to_numpy() == pytest.approx(levels, abs=1e-5)
    assert result.batches["classes_predicted"].tolist() == classes


def test_one_class_alone_rings_and_all_classes_do_not() -> None:
    one = torch.tensor([[9.0, 0.0, 0.0, 0.0]] * 64)
    alarm = Alarm()
    levels = [alarm(one).item() for _ in range(40)]
    assert levels[0] > LEAST and levels[-1] < 0.1 and levels == sorted(levels, reverse=True)
    alarm.reset()
    assert alarm(one).item() == levels[0], "from the beginning again"
    every = Alarm()
    assert all(every(torch.eye(4) * 9).item() > 0.99 for _ in range(40))
    masked = torch.tensor([[1.0, 2.0, -torch.inf, -torch.inf]])
    assert 0 < Alarm()(masked).item() < 1


@pytest.mark.parametrize("answer", ["reset", "stop"])
def test_what_an_alarm_does_after_the_batch_at_which_it_rings(
    answer: Any, dataset: ImageDataset
) -> None:
    """Here once, since the network predicts hardly more than one class."""
    stream = STREAM * 8
    result = Evaluator(tent_of_one_class(), dataset, stream, BATCH, on_alarm=answer).run(
        transfer=False
    )
    method = tent_of_one_class()
    alarm = Alarm()
    entropies: list[float] = []
    rung: list[int] = []
    for domain in stream:
        for x in dataset.prepare(dataset.domain(*domain).x).split(BATCH):
            z = method.predict(x).main if answer == "stop" and rung else method(x)
            entropies.append(entropy(z).mean().item())
            if rings(alarm(z)):
                rung.append(len(entropies))
                if answer == "reset":
                    method.reset()
                    alarm.reset()
    assert result.batches["entropy_main"].tolist() == pytest.approx(entropies, abs=1e-6)
    moved = result.batches["moved_normalization"]
    assert 1 < rung[0] < len(moved) - 1
    assert (moved[rung[0] - 1 :].nunique() == 1) == (answer == "stop")
    assert (moved[rung[0]] < moved[rung[0] - 1]) == (answer == "reset")


def test_a_reset_at_each_domain_ends_what_an_alarm_has_stopped(dataset: ImageDataset) -> None:
    """Both domains hold the same images, so the same happens in each."""
    evaluator = Evaluator(
        tent_of_one_class(), dataset, STREAM[:1] * 2, 2, on_alarm="stop", reset_each=True
    )
    batches = evaluator.run(transfer=False).batches
    domains = [domain for _, domain in batches.groupby("step")]
    for column in ("moved_normalization", "alarm_level"):
        assert domains[0][column].tolist() == domains[1][column].tolist()
    assert domains[0]["moved_normalization"].max() > 0


@pytest.mark.parametrize("name", ["erm", "adabn", "tent", "tema", "source_prior"])
def test_agreement_with_the_source_by_hand(name: str, dataset: ImageDataset) -> None:
    """The source model is a fresh one of the method, which only predicts."""
    first = dataset.prepare(dataset.domain(*STREAM[0]).x)
    evaluated = make_balanced(name, first)
    result = Evaluator(evaluated, dataset, STREAM, BATCH, source_agreement=True).run(transfer=False)
    method = make_balanced(name, first)
    expected = []
    for domain in STREAM:
        for x in dataset.prepare(dataset.domain(*domain).x).split(BATCH):
            source = make_balanced(name, first).predict(x).main
            expected.append((method(x).argmax(1) == source.argmax(1)).double().mean().item())
    assert result.batches["source_agreement"].tolist() == expected
    assert (min(expected) == 1) == (name in ("erm", "adabn", "source_prior"))


def test_a_method_that_names_one_class_agrees_with_the_source_by_chance() -> None:
    network = nn.Linear(4, 4)
    with torch.no_grad():
        network.weight.copy_(torch.eye(4))
        network.bias.zero_()
    method = METHODS["erm"](network)
    agrees = SourceAgreement(method)
    x = torch.eye(4).repeat(8, 1)
    assert agrees(x, method(x)).all()
    with torch.no_grad():
        network.bias[2] = 9.0
    assert agrees(x, method(x)).float().mean() == 1 / 4
    assert network.bias.tolist() == [0, 0, 9, 0], "the method's weights are back"


@pytest.mark.parametrize("name", ["tent", "tema", "rotta", "note", "roid", "cotta", "t3a"])
def test_asking_for_the_agreement_changes_no_other_number(name: str, dataset: ImageDataset) -> None:
    options: dict[str, Any] = {"order": "mixed", "seed": 2}
    without = Evaluator(make(name), dataset, STREAM, BATCH, **options).run()
    asked = Evaluator(make(name), dataset, STREAM, BATCH, source_agreement=True, **options).run()
    extra = asked.batches.pop("source_agreement")
    assert extra.between(0, 1).all() and (extra * asked.batches["count"]).mod(1).max() < 1e-9
    pd.testing.assert_frame_equal(
        asked.batches.drop(columns="seconds"), without.batches.drop(columns="seconds")
    )
    pd.testing.assert_frame_equal(asked.accuracies, without.accuracies)


def test_the_mean_agreement_of_about_256_examples() -> None:
    assert moving_agreement([0.5, 0.0], [64, 256]) == [0.875, 0.0]
    assert moving_agreement([0.5], [1000]) == [0.5]


def tent_of_one_class() -> Method:
    """Tent on a network that prefers the first class."""
    model = build_network(ImageNetwork(depth=8, width=4), classes=4, seed=0)
    last = [child for child in model.main_classifier.modules() if isinstance(child, nn.Linear)][-1]
    with torch.no_grad():
        last.bias[0] += 4
    return METHODS["tent"](model, learning_rate=0.05)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size = 0; allowed is a whole number from 1 on"),
        ({"stream": []}, r"stream = \[\]; allowed is at least one domain"),
        ({"batch_size": 2.5}, "batch_size = 2.5; allowed is a whole number"),
        ({"order": "mixt"}, "order = 'mixt'; .*did you mean 'mixed'"),
        ({"order": "correlated"}, "dirichlet_delta = None; allowed is"),
        ({"seed": -1}, "seed = -1; allowed is a whole number from 0 on"),
        ({"order_seed": 0.5}, "order_seed = 0.5; allowed is a whole number"),
        ({"on_alarm": "rest"}, "on_alarm = 'rest'; .*did you mean 'reset'"),
    ],
)
def test_an_option_that_cannot_be_is_refused(
    options: dict[str, Any], words: str, dataset: ImageDataset
) -> None:
    with pytest.raises(ValueError, match=words):
        Evaluator(make("adabn"), dataset, **({"stream": STREAM, "batch_size": BATCH} | options))


def test_a_definition_of_f_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="definition = 'finale'; .*did you mean 'final'"):
        forward_transfer(pd.DataFrame(), "finale")  # type: ignore[arg-type]


def test_forward_transfer_by_hand() -> None:
    stream = [(0, 1, 0.5), (1, 2, 0.6), (2, 3, 0.9), (0, 3, 0.7), (1, 3, 0.8)]
    rows = [(step, "stream", after, accuracy) for step, after, accuracy in stream]
    rows += [
        (1, "alone", 0, 0.5),
        (2, "alone", 0, 0.7),
        (1, "source", 0, 0.2),
        (2, "source", 0, 0.3),
    ]
    accuracies = pd.DataFrame(rows, columns=["step", "kind", "after", "accuracy"])
    assert average_accuracy(accuracies) == pytest.approx(0.8)
    assert forward_transfer(accuracies) == pytest.approx((0.1 + 0.2) / 2)
    assert forward_transfer(accuracies, "final") == pytest.approx((0.3 + 0.2) / 2)
    assert forward_transfer(accuracies, "unadapted") == pytest.approx((0.6 + 0.6) / 2)
    unmeasured = accuracies[accuracies["kind"] == "stream"]
    first_alone = accuracies[accuracies["step"] == 0]
    for definition in ("paper", "final", "unadapted"):
        assert (
            forward_transfer(unmeasured, definition) is None
            and forward_transfer(first_alone, definition) is None
        )


def test_what_never_changes_is_asked_once(dataset: ImageDataset) -> None:
    """The accuracies of AdaBN are those of its online predictions; a memory, which changes, is
    measured.
    """
    asked: list[Domain] = []

    class Watched(Evaluator):
        def measure(self, stretch: Stretch) -> dict[int, float]:
            asked.extend(stretch)
            return {0: 0.5}

    result = Watched(make("adabn"), dataset, STREAM, BATCH).run()
    assert not asked
    assert 1 - result.accuracies["accuracy"][0] == pytest.approx(
        online_errors(result.batches).iloc[0]
    )
    Watched(make("adabn", memory=8), dataset, STREAM, BATCH).run()
    assert asked == STREAM


class OnePixel(nn.Module):
    """Ends at one pixel, as a ResNet-18 does on 32×32 pixels, and masks a class."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(8), nn.Flatten()
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        z = self.head(self.layers(x))
        return torch.cat([z[:, :3], torch.full_like(z[:, 3:], -torch.inf)], 1)


def test_a_last_batch_of_one_is_refused_before_the_stream(dataset: ImageDataset) -> None:
    """There are 22 images: 21 and 1, or 11 and 11."""
    method = METHODS["adabn"](OnePixel())
    predicted = []
    predict = method.predict
    method.predict = lambda x: (predicted.append(len(x)), predict(x))[1]  # type: ignore[method-assign]
    with pytest.raises(
        ValueError, match="AdaBN: with a batch of 1 a BatchNorm sees 1 value per channel"
    ):
        Evaluator(method, dataset, STREAM, 21).run()
    assert predicted == [1]
    assert Evaluator(method, dataset, STREAM, 11).run().batches["count"].eq(11).all()


def test_masked_classes_are_finite_enough(dataset: ImageDataset) -> None:
    for name in ("erm", "tent"):
        batches = Evaluator(METHODS[name](OnePixel()), dataset, STREAM, 11).run().batches
        assert batches["entropy_main"].between(0, np.log(3)).all(), name


def test_auxiliary_logits_that_are_too_large_are_not_blamed_on_a_mask(
    dataset: ImageDataset,
) -> None:
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    theta_a = nn.Linear(4, 4)
    nn.init.constant_(theta_a.weight, 1e38)
    nn.init.constant_(network[2].bias, 1e30)
    cascade = Cascade(nn.Identity(), network, theta_a)
    with pytest.raises(ValueError, match="auxiliary logits not finite .*; check its weights"):
        Evaluator(METHODS["erm"](cascade), dataset, STREAM, 11).run()


def test_logits_that_theta_a_cannot_read_are_an_error(dataset: ImageDataset) -> None:
    """θ_a makes NaN of a z of −∞, also where only its records would be wrong."""
    network = OnePixel()
    cascade = Cascade(network, nn.Identity(), nn.Linear(4, 4))
    for name in ("erm", "tent", "cascade_same_weights"):
        with pytest.raises(ValueError, match="auxiliary logits not finite on fog:5, batch 1 of 2"):
            Evaluator(METHODS[name](cascade), dataset, STREAM, 11).run()


def test_a_network_without_finite_logits_is_not_told_to_learn_more_slowly(
    dataset: ImageDataset,
) -> None:
    network = OnePixel()
    network.head.weight.data.fill_(torch.nan)
    told = {
        "erm": "logits not finite on .*; the network's own",
        "tent": "the network gave NaN or infinity; check the batch and the network's logits",
    }
    for name, words in told.items():
        with pytest.raises(ValueError, match=words):
            Evaluator(METHODS[name](network), dataset, STREAM, 11).run()


class Counting(nn.Module):
    """Normalises by running statistics in plain attributes and in a buffer that it replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(1))
        self.mean = torch.zeros(1)
        self.batches = 0

    def forward(self, x: Tensor) -> Tensor:
        self.batches += 1
        self.mean = self.mean + (x.mean() - self.mean) / self.batches
        self.scale = 0.9 * self.scale + 0.1 * x.std()
        return (x - self.mean) / self.scale


@pytest.mark.parametrize("name", ["tent", "cotta"])  # CoTTA predicts by a teacher
@pytest.mark.parametrize("measured", [{"transfer": True}, {"source_agreement": True}])
def test_errors_are_the_same_whatever_is_measured_beside_them(
    tmp_path: Path, measured: dict[str, bool], name: str
) -> None:
    """Of a network whose forward pass changes plain attributes and buffers, too."""
    dataset = make_blobs(tmp_path, test_size=12)

    def batches(transfer: bool = False, **options: Any) -> pd.DataFrame:
        model = nn.Sequential(Counting(), network_for("tent"))
        method = METHODS[name](model, learning_rate=0.05)
        evaluator = Evaluator(method, dataset, STREAM, BATCH, **options)
        return evaluator.run(transfer=transfer).batches

    compared = ["errors", "entropy_main"]
    assert batches(**measured)[compared].equals(batches()[compared])


def test_the_source_of_eata_is_the_network_before_it_sees_source_examples() -> None:
    model = nn.Sequential(Counting(), network_for("tent"))
    method = METHODS["eata"](model, source=made_up("image"))
    assert model[0].batches == 0
    method.reset()
    assert model[0].batches == 0 and model[0].mean.item() == 0
