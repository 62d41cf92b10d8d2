"""Make a run from its request: build the method and the evaluator, and give each its options.

The code of this file is part of the key of every run (requests.code_of_run). So only what shapes
the numbers of a run belongs here.
"""

from typing import Any

import torch
from torch import Tensor, nn

from cascadetta_lib.data.base import Dataset
from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.evaluation.cost import batches_along, cost
from cascadetta_lib.evaluation.evaluator import Evaluation, Evaluator
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.methods.source import source_examples
from study.requests import RunRequest

_COSTS: dict[tuple[str, torch.Size], dict[str, float]] = {}
"""The costs that `cost_of` has counted in this process. The key of an entry is a pair. Its first
part is the key of the run's request, after all that does not change the work of a step, such as the
stream and the learning rate, was set to a fixed value. Its second part is the shape of a batch.
"""


def make_run(
    request: RunRequest, code: str, model: nn.Module, dataset: Dataset
) -> tuple[Evaluation, dict[str, float]]:
    """Run a method on a stream. Return the evaluation, and the cost of the method (cost.cost).

    code: the hash of the code that makes the run.
    model: the network that the method starts from. The method changes this network itself.
    """
    source = source_examples(METHODS[request.method], dataset)
    adapter = build_method(request, model, dataset, source)
    costs = cost_of(request, code, adapter, dataset)
    evaluator = Evaluator(
        adapter,
        dataset,
        request.stream,
        batch_size=request.batch_size,
        order=request.order,
        dirichlet_delta=request.dirichlet_delta,
        seed=request.checkpoint.seed,
        order_seed=request.order_seed,
        reset_each=request.reset_each,
        on_alarm=request.on_alarm,
        source_agreement=request.source_agreement,
    )
    return evaluator.run(transfer=request.forward_transfer), costs


def build_method(
    request: RunRequest, model: nn.Module, dataset: Dataset, source: Tensor | None
) -> Method:
    """Return the method of a run on `model`. The method changes `model` itself.

    Raises ValueError if the method cannot work with the model.
    """
    options: dict[str, Any] = {}
    if isinstance(dataset, ImageDataset):
        options["value_range"] = dataset.value_range
    return METHODS[request.method](
        model,
        learning_rate=request.online_learning_rate,
        predict=request.predict,
        diversity=request.online_diversity,
        memory=request.statistics_memory,
        optimizer=request.online_optimizer,
        copies=dataset.augmented_copies,
        source=source,
        seed=request.checkpoint.seed,
        **options,
    )


def cost_of(request: RunRequest, code: str, method: Method, dataset: Dataset) -> dict[str, float]:
    """Return what a step of a run costs (evaluation.cost). Resets the method.

    Counting the work of a step takes longer than the step. So if all steps of a method are alike,
    one step is counted per process, for all runs that differ only in stream, severity, learning
    rate or measurements.

    code: the hash of the code that makes the run.
    """
    batches = batches_along(request.stream, dataset, request.batch_size)
    if not method.steps_alike:
        return cost(method, batches)
    of_any_stream = {"stream": (), "order": None, "dirichlet_delta": None, "order_seed": None}
    of_any_rate = {"online_learning_rate": 0.0}
    of_any_measure = {"forward_transfer": False, "source_agreement": False}
    step = request.model_copy(update=of_any_stream | of_any_rate | of_any_measure)
    counted = (step.key(code), batches[0].shape)
    if counted not in _COSTS:
        _COSTS[counted] = cost(method, batches)
    return _COSTS[counted]
