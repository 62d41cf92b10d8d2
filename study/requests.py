"""Requests for results, and the keys under which results are stored. Nothing here reads data.

A key is a hash of the whole request and of the *content*. The content consists of a hash of the
data and a hash of the code. For a result on target domains it also says in words what made the
domains.

The code is that of the modules that make the result, each with everything that it imports from the
library (`code_hash`). For a run these are the modules of the method, of the evaluator and the cost,
of the dataset's loader, and of the modality's data (DATA_MODULES). The hash of `make_run` is added,
and the hash of the code that makes the network: of the training, or of `published_networks` for a
network from a file. A new method's file changes no other key.

So a stored result is found only while the same request, data and code would make it again.
"""

import hashlib
import json
import operator
from itertools import product
from typing import ClassVar, NamedTuple

from pydantic import BaseModel

from cascadetta_lib.code import code_hash, module_hash
from cascadetta_lib.data import DatasetName, code_of_loader
from cascadetta_lib.data.base import NOT_TRAINED_ON, Modality
from cascadetta_lib.data.streams import Domain, Order
from cascadetta_lib.methods import METHODS, code_of
from cascadetta_lib.models import Network
from cascadetta_lib.training.objectives import training_for
from cascadetta_lib.training.settings import KnownTraining
from study import LOADING_MODULES, RUN_MODULE, STORE_FORMAT
from study.brought_networks import Brought
from study.modality_parameters import RunProtocol
from study.networks_from_files import network_origin
from study.settings import Settings, SettingsError
from study.weights_name import PUBLISHED

DATA_MODULES: dict[Modality, str] = {
    "image": "cascadetta_lib.data.images",
    "text": "cascadetta_lib.data.reviews",
    "speech": "cascadetta_lib.data.utterances",
}
"""For each modality, the module that prepares its examples and gives its target domains."""
TRAINING_MODULES = ("cascadetta_lib.training.pretrain",)
FROM_FILES = ("shipped", "folder", *PUBLISHED)
"""The kinds of weights that are in a file. Code of LOADING_MODULES puts them into a network."""
MEASURING_MODULES = ("cascadetta_lib.evaluation.evaluator", "cascadetta_lib.evaluation.cost")
MEASURED_BESIDE = ("forward_transfer", "source_agreement")
"""The parameters of a run that ask for extra measurements; E and A do not depend on them."""
THEOREM_MODULES = ("cascadetta_lib.training.theorem",)
VARIANCE_MODULES = ("cascadetta_lib.evaluation.batch_variance",)


class Request(BaseModel, frozen=True, extra="forbid"):
    """A request that has a key. Equal requests have the same key on every machine.

    later: the fields that were added after the first entries of this format. A field in `later`
        that has its default is left out of the key, so older keys stay valid.
    """

    later: ClassVar[tuple[str, ...]] = ()

    def key(self, *content: str) -> str:
        """Return the key of the entry that answers this request: 16 hexadecimal digits.

        content: what identifies the data and the code. `content_of_run` returns it for a run, and
            the other functions `content_of_…` return it for other results.
        """
        fields = type(self).model_fields
        unasked = {name for name in self.later if getattr(self, name) == fields[name].default}
        asked = self.model_dump(mode="json", exclude=unasked)
        text = json.dumps([asked, content, STORE_FORMAT], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        return hash(self.key())


class CheckpointRequest(Request):
    """A request for a network.

    weights: `train` for a network that is trained here. For any other network: where it comes from,
        and a hash of it ("shipped:1a2b3c4d5e6f").
    options: the options of the dataset that change what is learned.
    network, training: None unless the network is trained here.
    """

    modality: Modality
    dataset: str
    options: dict[str, int | float | str | bool | None]
    objective: str
    weights: str
    network: Network | None
    training: KnownTraining | None
    seed: int

    @property
    def dataset_kind(self) -> str:
        """The dataset's name without a folder, such as `npz`."""
        return DatasetName.parse(self.dataset).kind

    @property
    def weights_kind(self) -> str:
        """Where the network comes from, without the hash, such as `shipped`."""
        return self.weights.partition(":")[0]

    @property
    def published(self) -> bool:
        """Whether others trained the network, on their own images."""
        return self.weights_kind in PUBLISHED


class RunRequest(RunProtocol, Request):
    """A request for a run: a method on a stream, from a network, under the profile's protocol.

    order: see streams.Order.
    dirichlet_delta: δ of a correlated stream.
    reset_each: whether the method begins each domain from the source.
    """

    later = ("reset_each", "on_alarm", "source_agreement")

    checkpoint: CheckpointRequest
    method: str
    stream: tuple[Domain, ...]
    batch_size: int
    test_size: int | None
    order: Order | None = None
    dirichlet_delta: float | None = None
    reset_each: bool = False

    @property
    def fullest(self) -> "RunRequest":
        """This request with all measurements besides E and A. Requests that differ only in these
        measurements have the same `fullest`.
        """
        return self.model_copy(update=dict.fromkeys(MEASURED_BESIDE, True))

    @property
    def covering(self) -> "list[RunRequest]":
        """The requests whose runs answer this request. Beside E and A they measure the same as this
        request, or more. Those that measure most come first.
        """
        measured = product((True, False), repeat=len(MEASURED_BESIDE))
        updates = [dict(zip(MEASURED_BESIDE, each, strict=True)) for each in measured]
        others = [self.model_copy(update=update) for update in updates]
        return [other for other in others if other.covers(self)]

    @property
    def measured_beside(self) -> list[bool]:
        """For each name of MEASURED_BESIDE, whether this request asks for it."""
        return [getattr(self, name) for name in MEASURED_BESIDE]

    def covers(self, other: "RunRequest") -> bool:
        """Return whether this request measures all that `other` measures besides E and A."""
        return all(map(operator.ge, self.measured_beside, other.measured_beside))


class VarianceRequest(Request):
    """A request to measure how far a batch's variance is from that of all examples, at each
    BatchNorm layer of a network (evaluation.batch_variance).

    stream: the domains on which this is measured, sorted, since their order does not matter.
    """

    checkpoint: CheckpointRequest
    stream: tuple[Domain, ...]
    batch_size: int
    test_size: int | None

    @classmethod
    def of(cls, asked: RunRequest) -> "VarianceRequest":
        """Return the request for the network, the domains and the batch size of a run."""
        return cls(
            checkpoint=asked.checkpoint,
            stream=tuple(sorted(set(asked.stream))),
            batch_size=asked.batch_size,
            test_size=asked.test_size,
        )


def single_dataset(settings: Settings, modality: Modality) -> DatasetName:
    """Return the name of the dataset. Raises SettingsError if the settings name several."""
    names = settings.datasets(modality)
    if len(names) != 1:
        raise SettingsError(
            f"{modality}_dataset = {[*map(str, names)]!r}: one is needed here, such as {names[0]}"
        )
    return names[0]


def checkpoint_request(
    settings: Settings,
    modality: Modality,
    objective: str,
    brought: Brought | None = None,
) -> CheckpointRequest:
    """Return the request for the network of a pre-training, or for `brought` in its place.

    objective: the name of the pre-training, such as `meta`.

    Raises SettingsError if the settings name several datasets, and NetworkError if there is no such
    network.
    """
    section = settings.section(modality)
    network = None
    training = None
    if brought:
        origin = brought.origin
    elif not section.weights.trained_here:
        origin = network_origin(section.weights, objective, settings.seed)
    else:
        origin = "train"
        network = section.network
        asked = training_for(objective, section.training)
        training = KnownTraining.model_validate(asked)
    return CheckpointRequest(
        modality=modality,
        dataset=single_dataset(settings, modality).key,
        options=section.data.model_dump(exclude=NOT_TRAINED_ON),
        objective=objective,
        weights=origin,
        network=network,
        training=training,
        seed=settings.seed,
    )


def run_request(
    settings: Settings,
    modality: Modality,
    method: str,
    objective: str | None = None,
    brought: Brought | None = None,
) -> RunRequest:
    """Return the request for a run.

    objective: the pre-training to start from. None: the method's own.
    """
    section = settings.section(modality)
    objective = objective or METHODS[method].objective_on(modality)
    return RunRequest(
        **section.protocol,
        checkpoint=checkpoint_request(settings, modality, objective, brought),
        method=method,
        stream=tuple(section.domains),
        batch_size=batch_size(settings, modality),
        test_size=section.data.test_size,
    )


def batch_size(settings: Settings, modality: Modality) -> int:
    """Return the size of the test batches: the profile's, or the paper's for the dataset."""
    asked = settings.section(modality).batch_size
    return asked or single_dataset(settings, modality).entry.batch_size


def code_of_training(modality: Modality) -> str:
    """Hash the code that trains a network: the code of the training and of the modality's data,
    with all that they import, such as the models.
    """
    return code_hash([*TRAINING_MODULES, DATA_MODULES[modality]])


def code_of_network(request: CheckpointRequest) -> str:
    """Hash the code that makes a network: the code that trains it, or that loads it from a file.

    Return an empty text for a network that the user brought (Study.bring), because `weights` of the
    request already holds a hash of the network's code.
    """
    if request.weights == "train":
        return code_of_training(request.modality)
    return code_hash(LOADING_MODULES) if request.weights_kind in FROM_FILES else ""


def code_of_theorem(request: CheckpointRequest) -> str:
    """Hash the code that makes a network and checks Theorem 1 on it."""
    checked = code_hash([*THEOREM_MODULES, DATA_MODULES[request.modality]])
    return _hash(checked, code_of_network(request))


def code_of_variance(request: CheckpointRequest) -> str:
    """Hash the code that makes a network and measures a batch's variance in it."""
    measured = code_hash([*VARIANCE_MODULES, DATA_MODULES[request.modality]])
    return _hash(measured, _code_of_loader(request), code_of_network(request))


def code_of_run(request: RunRequest) -> str:
    """Hash the code that makes a run: the code of the method, of the evaluator and the cost, of the
    dataset's loader and the modality's data, and of the network (`code_of_network`), each with its
    imports. Of `make_run`, which gives the method and the evaluator their options, only the file
    itself is hashed.
    """
    checkpoint = request.checkpoint
    measured = code_hash([*MEASURING_MODULES, DATA_MODULES[checkpoint.modality]])
    method = code_of(request.method)
    of_runs = module_hash(RUN_MODULE)
    loader = _code_of_loader(checkpoint)
    return _hash(method, measured, loader, of_runs, code_of_network(checkpoint))


def _code_of_loader(request: CheckpointRequest) -> str:
    """Hash the code of the dataset's loader.

    The key of a run needs this hash, because the loader also reads or makes the target domains,
    which the fingerprint of the examples does not cover. The key of a network that is trained here
    does not need it, because a training uses no target domain.
    """
    return code_of_loader(DatasetName.parse(request.dataset).kind)


def _hash(*parts: str) -> str:
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


class Content(NamedTuple):
    """The content in the key of a result on target domains.

    fingerprint: the hash of all examples.
    domain_source: what made the target domains, in words.
    code: the hash of the code.
    """

    fingerprint: str
    domain_source: str
    code: str


def content_of_checkpoint(
    request: CheckpointRequest, fingerprint: str, code: str | None = None
) -> tuple[str, str]:
    """Return the content in the key of a network that is trained here: hashes of data and code.

    code: the hash of the code that trained it. None: today's code.
    """
    return fingerprint, code_of_training(request.modality) if code is None else code


def content_of_theorem(request: CheckpointRequest, fingerprint: str) -> tuple[str, str]:
    """Return the content in the key of a check of Theorem 1: hashes of data and code."""
    return fingerprint, code_of_theorem(request)


def content_of_run(request: RunRequest, fingerprint: str, domain_source: str) -> Content:
    """Return the content in the key of a run."""
    return Content(fingerprint, domain_source, code_of_run(request))


def content_of_variance(request: VarianceRequest, fingerprint: str, domain_source: str) -> Content:
    """Return the content in the key of what a VarianceRequest asks for."""
    return Content(fingerprint, domain_source, code_of_variance(request.checkpoint))
