"""Give networks on request: load one from the store or from files, take the one that was brought,
or train one now.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.torch import load_model, save_model
from torch import nn

from cascadetta_lib.data.base import Dataset, Modality
from cascadetta_lib.models import Cascade
from cascadetta_lib.training.pretrain import new_network, pretrain
from cascadetta_lib.training.settings import KnownTraining
from cascadetta_lib.training.theorem import check_theorem
from study.brought_networks import Brought, fitting
from study.clean_errors import check_normalization
from study.modality_parameters import Section
from study.networks_from_files import find_network
from study.provenance import NetworkOrigin, Provenance, code_revision, provenance
from study.requests import (
    CheckpointRequest,
    checkpoint_request,
    content_of_checkpoint,
    content_of_theorem,
)
from study.settings import Settings
from study.store import Made, Store


@dataclass(frozen=True)
class Context:
    """What is needed to answer requests: settings, data, device and store.

    brought: the network that the user brought (Study.bring). It takes the place of the settings'
        networks. None if the user brought none.
    """

    settings: Settings
    modality: Modality
    dataset: Dataset
    device: str
    store: Store
    brought: Brought | None

    @property
    def section(self) -> Section:
        """The settings of the modality."""
        return self.settings.section(self.modality)

    @property
    def trains(self) -> bool:
        """Whether networks are trained here."""
        return self.section.weights.trained_here and not self.brought

    def provenance(self, seconds: float, **more: Any) -> Provenance:
        """Return the provenance of a result that is made now.

        seconds: how long it took to make the result.
        more: further fields of Provenance, and values that replace those given here.
        """
        dataset = self.dataset
        facts: dict[str, Any] = {
            "profile": self.settings.profile,
            "data_source": dataset.source,
            "official_data": dataset.official,
            "origin": dataset.origin,
            "class_names": tuple(dataset.class_names),
            "fingerprint": dataset.fingerprint,
            "domain_source": dataset.domain_source,
            "compare_with": dataset.compare_with,
            "unit": dataset.unit,
        }
        return Provenance(**facts | provenance(self.device, seconds) | more)


@dataclass(frozen=True)
class Checkpoint:
    """A network, in evaluation mode on the study's device.

    history: how the network was trained, a row per epoch (see pretrain.pretrain); None if that is
        not known.
    provenance: what trained the network here; None if it was not trained here.
    """

    request: CheckpointRequest
    model: nn.Module
    history: pd.DataFrame | None
    origin: NetworkOrigin
    provenance: Provenance | None = None

    @property
    def classes(self) -> int:
        """The number of classes that the network predicts. Raises KeyError if neither its
        provenance nor its card says it.
        """
        if self.provenance:
            return len(self.provenance.class_names)
        return int((self.origin.card or {})["classes"])

    @property
    def training(self) -> KnownTraining | None:
        """How the network was trained, by the request or the card. None if neither says it."""
        known = self.request.training or (self.origin.card or {}).get("training")
        return KnownTraining.model_validate(known) if known else None


def load_or_train(context: Context, objective: str) -> Checkpoint:
    """Return the network of a pre-training, for the seed of the settings. If the settings train
    networks and the store has none, train it.

    objective: the name of the pre-training, such as `meta`.

    Raises NetworkError if the network of the settings, or the one that was brought, cannot be used.
    """
    request = checkpoint_request(context.settings, context.modality, objective, context.brought)
    if request.weights == "train":
        return _trained(context, request)
    found = context.brought or find_network(
        context.section.weights, objective, request.seed, context.dataset
    )
    model = fitting(found, context.dataset, context.section.domains[0])
    if context.brought:
        check_normalization(found, model, context.dataset)
    origin = NetworkOrigin(found.origin, found.sha256, found.card)
    return Checkpoint(request, model, found.history, origin)


def _trained(context: Context, request: CheckpointRequest) -> Checkpoint:
    """Return a network that is trained here: from the store, or trained now."""
    network = request.network
    training = request.training
    assert network and training
    dataset = context.dataset
    content = content_of_checkpoint(request, dataset.fingerprint)
    code = content[-1]

    def make(folder: Path) -> Made:
        # The state file is no part of the entry, so it can stay until the entry is whole.
        state_file = folder / ".training.pt"
        model, history = pretrain(
            dataset,
            network,
            request.objective,
            training,
            request.seed,
            state_file,
            code_revision(),
        )
        save_model(model, str(folder / "weights.safetensors"))
        # If the training was resumed, the seconds and revisions of all its epochs count.
        revisions = " then ".join(history.pop("code_revision").unique())
        history.to_csv(folder / "history.csv", index=False)
        seconds = float(history["seconds"].sum())
        return Made(context.provenance(seconds, code_revision=revisions, code=code))

    entry = context.store.make_once("checkpoints", request, content, make)
    (entry.folder / ".training.pt").unlink(missing_ok=True)
    model = new_network(dataset, network, request.objective, request.seed)
    load_model(model, entry.folder / "weights.safetensors")
    history = pd.read_csv(entry.folder / "history.csv")
    origin = NetworkOrigin("trained here", code_revision=entry.provenance.code_revision, code=code)
    return Checkpoint(request, model.to(context.device).eval(), history, origin, entry.provenance)


def check_theorem_of(context: Context, objective: str) -> Mapping[str, Any]:
    """Return the check of Theorem 1 on the network of a pre-training (theorem.check_theorem). If
    the store has none, make it.

    objective: the name of the pre-training.

    Raises ValueError if the network's training is not known, or if the network is not a Cascade.
    """
    request = checkpoint_request(context.settings, context.modality, objective, context.brought)
    content = content_of_theorem(request, context.dataset.fingerprint)
    code = content[-1]

    def make(folder: Path) -> Made:
        checkpoint = load_or_train(context, objective)
        began = time.perf_counter()
        training = checkpoint.training
        if training is None or not isinstance(checkpoint.model, Cascade):
            raise ValueError(
                f"Theorem 1 cannot be checked on {request.weights}: it needs a cascade whose α, β "
                "and λ in training are known"
            )
        found = check_theorem(checkpoint.model, context.dataset, training, context.settings.seed)
        return Made(context.provenance(time.perf_counter() - began, code=code), found)

    return context.store.make_once("theorem", request, content, make).values
