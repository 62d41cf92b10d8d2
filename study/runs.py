"""Give runs on request: load a run from the store, or evaluate a method on a stream now."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.data.streams import MIXED
from cascadetta_lib.evaluation.batch_variance import LayerErrors, batch_variance
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.methods.refusals import values_per_channel
from cascadetta_lib.methods.source import source_examples
from cascadetta_lib.training.pretrain import new_network
from study.checkpoints import Context, load_or_train
from study.make_run import build_method, make_run
from study.modality_parameters import Section
from study.networks_from_files import find_network
from study.requests import (
    VarianceRequest,
    batch_size,
    checkpoint_request,
    content_of_run,
    content_of_variance,
    run_request,
)
from study.shipped_networks import present_objectives
from study.store import Made, Run, load_run


def load_or_run(context: Context, method: str, objective: str | None = None) -> Run:
    """Return the run of a method on the stream. If the store has none, make it.

    A stored run with F, or with the agreement with the source, also answers a request without it.
    Raises ValueError if there are too few data, also for a stored run.
    """
    request = run_request(context.settings, context.modality, method, objective, context.brought)
    dataset = context.dataset
    content = content_of_run(request, dataset.fingerprint, dataset.domain_source)
    for other in request.covering:
        if context.store.path("runs", other, content).is_dir():
            request = other
            break
    check_data(context)

    def make(folder: Path) -> Made:
        checkpoint = load_or_train(context, request.checkpoint.objective)
        began = time.perf_counter()
        result, costs = make_run(request, content.code, checkpoint.model, dataset)
        result.batches.to_csv(folder / "batches.csv", index=False)
        result.accuracies.to_csv(folder / "accuracies.csv", index=False)
        made_by = context.provenance(time.perf_counter() - began)
        return Made(replace(made_by, network=checkpoint.origin, cost=costs, code=content.code))

    entry = context.store.make_once("runs", request, content, make)
    data = (content.fingerprint, content.domain_source)
    context.store.remember_data(request.checkpoint, data)
    return load_run(entry)


def load_or_measure_batch_variance(context: Context, run: Run) -> list[LayerErrors]:
    """Return how far a batch's variance is from that of all examples, at each BatchNorm layer of a
    run's network (evaluation.batch_variance). If the store does not have this, measure it.

    Raises ValueError if the network or the data of the run are not the context's, or if the domains
    of the run have too few examples for two batches.
    """
    _check_same(context, run)
    request = VarianceRequest.of(run.request)
    dataset = context.dataset
    content = content_of_variance(request, dataset.fingerprint, dataset.domain_source)

    def make(folder: Path) -> Made:
        checkpoint = load_or_train(context, request.checkpoint.objective)
        began = time.perf_counter()
        layers = batch_variance(checkpoint.model, dataset, request.stream, request.batch_size)
        made_by = context.provenance(time.perf_counter() - began, code=content.code)
        return Made(made_by, {"layers": layers})

    entry = context.store.make_once("variance", request, content, make)
    layers: list[LayerErrors] = entry.values["layers"]
    return layers


def _check_same(context: Context, run: Run) -> None:
    """Raise ValueError unless a run is on the network and the data of the context.

    `load_or_measure_batch_variance` measures on the network and the data of the context, but stores
    the result under the request of the run.
    """
    of_run = run.request.checkpoint
    of_study = checkpoint_request(
        context.settings, context.modality, of_run.objective, context.brought
    )
    difference = _difference(of_run.model_dump(), of_study.model_dump())
    difference = difference or _difference(
        {"test_size": run.request.test_size}, {"test_size": context.section.data.test_size}
    )
    if difference:
        raise ValueError(f"{difference}: use a study with the run's settings")


def _difference(of_run: Mapping[str, Any], of_study: Mapping[str, Any]) -> str:
    """Return the first value in which a run differs from a study, as text; empty if none does."""
    for name, value in of_run.items():
        if value != of_study[name]:
            return f"the run has {name} = {value!r}, and the study {of_study[name]!r}"
    return ""


def objectives_of(section: Section) -> list[str]:
    """Return the pre-trainings that the methods start from, then those that the profile names."""
    of_methods = [METHODS[name].objective_on(section.modality) for name in section.methods]
    return list(dict.fromkeys([*of_methods, *section.objectives]))


def check_all(context: Context) -> None:
    """Raise ValueError for what would fail later: a network that is missing or does not fit, a
    method that cannot use its network, or too few data. No network is trained and no run is made.
    """
    single = _batch_of_one(context)
    for name in context.section.methods:
        request = run_request(context.settings, context.modality, name, None, context.brought)
        asked = request.checkpoint
        if asked.network:  # The network is trained later. A new one is enough for the check.
            model: nn.Module = new_network(
                context.dataset, asked.network, asked.objective, asked.seed
            ).to(context.device)
        else:
            model = load_or_train(context, asked.objective).model
        source = source_examples(METHODS[name], context.dataset, most=2)
        method = build_method(request, model, context.dataset, source)
        if single:
            _check_single(context, method, single)
    weights = context.section.weights
    if not weights.trained_here and not context.brought:
        seed = context.settings.seed
        for objective in dict.fromkeys(
            [*objectives_of(context.section), *present_objectives(weights, seed)]
        ):
            find_network(weights, objective, seed, context.dataset)
    check_data(context)


def check_data(context: Context) -> None:
    """Raise ValueError if the dataset does not fit the settings.

    It does not fit if the stream has a walk and the corrupted images come from a -C archive, which
    has no walks. If the settings train networks, it also does not fit in three cases: there are
    fewer examples to train on than a batch takes, a class has no example to train on, or only one
    text is held out.
    """
    dataset = context.dataset
    if isinstance(dataset, ImageDataset):
        for domain in context.section.domains:
            dataset.require_no_walk(domain.name)
    prefix = f"{context.modality}_"
    size = context.section.training.training_batch_size
    count = len(dataset.train.y)
    if context.trains and count < size:
        raise ValueError(
            f"{prefix}training_batch_size = {size}, but there are {count} source examples to train "
            "on"
        )
    lacking = sorted(set(range(dataset.classes)) - set(dataset.train.y.tolist()))
    if context.trains and lacking:
        name = dataset.class_names[lacking[0]]
        raise ValueError(
            f"{dataset.name}: no source example of class {name} is left to train on; choose "
            f"another {prefix}train_size or {prefix}held_out_fraction, or add examples of the class"
        )
    if context.trains and context.modality == "text" and len(dataset.held_out.y) == 1:
        raise ValueError(
            "the held-out set has one text, which has no variance for BatchNorm; choose another "
            f"{prefix}held_out_fraction"
        )


class LastBatchOfOne(NamedTuple):
    """A domain, or the mixed stream, whose last batch is a single example.

    name: the domain, or "the mixed stream".
    examples: how many examples it has.
    """

    name: str
    examples: int


def _batch_of_one(context: Context) -> LastBatchOfOne | None:
    """Return the first domain whose last batch is a single example; None if there is none."""
    domains = context.section.domains
    counts = {domain: context.dataset.examples_in(*domain) for domain in domains}
    sizes = [LastBatchOfOne(domain.name, counts[domain]) for domain in domains]
    if context.section.protocol["order"] in MIXED:
        sizes = [LastBatchOfOne("the mixed stream", sum(counts[domain] for domain in domains))]
    size = batch_size(context.settings, context.modality)
    return next((single for single in sizes if (single.examples - 1) % size == 0), None)


def _check_single(context: Context, method: Method, single: LastBatchOfOne) -> None:
    """Raise ValueError if a method cannot predict a single example, for instance because this
    example gives a BatchNorm layer only one value per channel, which has no variance.
    """
    dataset = context.dataset
    examples = dataset.test if isinstance(dataset, ImageDataset) else dataset.plain_held_out
    if not len(examples.y):  # as in a folder with target domains alone
        examples = dataset.domain(*context.section.domains[0])
    x = dataset.prepare(examples.x[:1])
    prefix = f"{context.modality}_"
    try:
        with values_per_channel(method.label, 1):
            method.predict(x)
    except ValueError as error:
        raise ValueError(
            f"{single.name} with {single.examples} examples ends in a batch of one; choose another "
            f"{prefix}batch_size or {prefix}test_size ({error})"
        ) from None
