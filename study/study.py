"""A study: one dataset of one modality under one profile, and what to ask of it: dataset →
checkpoint → run.

What is asked for is loaded from the store where it is there; else it is made now and kept.
"""

import copy
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

from cascadetta_lib.data import OPTIONS, entry, identity, load_dataset
from cascadetta_lib.data.base import NOT_TRAINED_ON, Dataset, Modality, Options
from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.evaluation.cost import batches_along, cost
from cascadetta_lib.evaluation.evaluator import Evaluator
from cascadetta_lib.methods import METHODS, Method, code_of
from cascadetta_lib.methods.source import source_examples
from cascadetta_lib.models import Cascade
from cascadetta_lib.training.objectives import KnownTraining, Training, training_for
from cascadetta_lib.training.pretrain import new_network, pretrain
from cascadetta_lib.training.theorem import check_theorem
from study import weights as networks
from study.provenance import choose_device, code_revision, provenance
from study.sections import NETWORKS
from study.settings import Settings, SettingsError
from study.store import CheckpointRequest, Run, RunRequest, Store, load_run


@dataclass(frozen=True)
class Checkpoint:
    """A network, in evaluation mode on the study's device. history: how it was trained, a row an
    epoch (see pretrain.pretrain), or None where that is not known."""

    request: CheckpointRequest
    model: nn.Module
    history: pd.DataFrame | None
    provenance: dict[str, Any]


class Study:
    """What to ask for checkpoints and runs. Data are read when they are first needed. Raises
    SettingsError unless the settings name a single dataset, and ValueError for a device that is not
    there."""

    def __init__(self, settings: Settings, modality: Modality = "image") -> None:
        self.settings, self.modality, self.section = settings, modality, settings.section(modality)
        datasets = settings.datasets(modality)
        if len(datasets) != 1:
            raise SettingsError(
                f"{modality}_dataset = {list(datasets)!r}: one is needed here, such as "
                f"{datasets[0]}"
            )
        self.dataset_name = datasets[0]
        self.methods, self.stream = self.section.methods, self.section.domains
        self.batch_size = self.section.batch_size or entry(self.dataset_name).batch_size
        self.device, self.store = choose_device(settings.device), Store(settings.results_path)
        self._loaded: dict[Options, Dataset] = {}
        self.brought: networks.Brought | None = None
        self.exhibits: tuple[str, ...] | None = None
        """Those that the notebook of this study declares; None: any may be made."""

    def _with(self, settings: Settings) -> "Study":
        """The study under other settings; what one of them has loaded is there for both."""
        other = Study(settings, self.modality)
        other.brought = self.brought
        other.exhibits = self.exhibits
        if other.dataset_name == self.dataset_name:
            other._loaded = self._loaded
        return other

    def varied(self, **changes: Any) -> "Study":
        """The same study with other settings, without the modality's prefix:
        `study.varied(batch_size=16)`. Raises SettingsError for a value that cannot be used."""
        return self._with(self.settings.vary(self.modality, changes))

    def at_seed(self, seed: int) -> "Study":
        """The same study at another seed."""
        return self._with(self.settings.model_copy(update={"seed": seed}))

    def bring(self, model: nn.Module, name: str) -> "Study":
        """The same study with `model` as its network, whatever the objective; `name` stands for it
        in tables.
        """
        other = self._with(self.settings)
        other.brought = networks.bring(copy.deepcopy(model), name)
        return other

    @property
    def dataset(self) -> Dataset:
        """The data, read at the first call. Raises DataMissing."""
        places = {"folder": str(self.settings.data_path), "device": self.device}
        options = self.section.part(OPTIONS[self.modality]).model_copy(update=places)
        if options not in self._loaded:
            self._loaded[options] = load_dataset(self.dataset_name, options)
        return self._loaded[options]

    def checkpoint_request(self, objective: str) -> CheckpointRequest:
        """What stands for the network of an objective at this seed. Needs no data."""
        weights, seed = self.section.weights, self.settings.seed
        if self.brought or weights != "train":
            weights = (
                self.brought.origin if self.brought else networks.origin(weights, objective, seed)
            )
        return CheckpointRequest(
            modality=self.modality,
            dataset=identity(self.dataset_name),
            options=self.section.part(OPTIONS[self.modality]).model_dump(exclude=NOT_TRAINED_ON),
            objective=objective,
            weights=weights,
            network=self.section.part(NETWORKS[self.modality]) if weights == "train" else None,
            training=KnownTraining.model_validate(
                training_for(objective, self.section.part(Training))
            )
            if weights == "train"
            else None,
            seed=seed,
        )

    def request(self, method: str, objective: str | None = None) -> RunRequest:
        """What stands for the run of a method at this seed. Needs no data. objective: None is the
        method's own.
        """
        return RunRequest(
            **self.section.protocol,
            checkpoint=self.checkpoint_request(
                objective or METHODS[method].objective_on(self.modality)
            ),
            method=method,
            stream=tuple(self.stream),
            batch_size=self.batch_size,
            test_size=self.section.part(Options).test_size,
        )

    @property
    def objectives(self) -> list[str]:
        """The pre-trainings that the profile's methods start from, and those that the profile names
        beside them.
        """
        own = [METHODS[name].objective_on(self.modality) for name in self.methods]
        return list(dict.fromkeys([*own, *self.section.objectives]))

    def check(self) -> None:
        """Read the data; ValueError for what could fail later: networks, methods that cannot use
        them, too few data.
        """
        for method in self.methods:
            asked = (request := self.request(method)).checkpoint
            if asked.network:  # It is trained here later.
                model: nn.Module = new_network(
                    self.dataset, asked.network, asked.objective, asked.seed
                ).to(self.device)
            else:
                model = self.checkpoint(asked.objective).model
            self._method(request, model, source_examples(METHODS[method], self.dataset, most=2))
        if (weights := self.section.weights) != "train" and not self.brought:
            for objective in dict.fromkeys(
                [*self.objectives, *networks.present(weights, self.settings.seed)]
            ):
                networks.find(weights, objective, self.settings.seed, self.dataset)
        self._check_data()

    def _check_data(self) -> None:
        dataset, prefix = self.dataset, f"{self.modality}_"
        size, count = self.section.part(Training).training_batch_size, len(dataset.train.y)
        trains = self.section.weights == "train" and not self.brought
        if trains and count < size:
            raise ValueError(
                f"{prefix}training_batch_size = {size}, but there are {count} source examples to "
                "train on"
            )
        if trains and len(dataset.train.y.unique()) < 2:
            raise ValueError(f"{self.dataset_name}: all source examples are of one class")
        if (
            self.modality == "text"
        ):  # a batch is a list of vectors, and a single one has no variance
            sizes = [(domain.name, len(dataset.domain(*domain).y)) for domain in self.stream]
            sizes = (
                [("the mixed stream", sum(n for _, n in sizes))]
                if self.section.stream == "mixed"
                else sizes
            )
            single = [
                f"{name} with {size} examples"
                for name, size in sizes
                if size % self.batch_size == 1
            ]
            if place := next(
                iter(single), "the held-out set" if trains and len(dataset.held_out.y) == 1 else ""
            ):
                helps = (
                    f"another {prefix}batch_size, {prefix}test_size or "
                    f"{prefix}held_out_fraction helps"
                )
                raise ValueError(
                    f"{place} ends in a batch of one, which has no variance for BatchNorm; {helps}"
                )

    def _provenance(self, seconds: float, **more: Any) -> dict[str, Any]:
        """What made a result, beside its request."""
        dataset, alike = self.dataset, ("fingerprint", "domain_source", "compare_with", "unit")
        return {
            "profile": self.settings.profile,
            "data_source": dataset.source,
            "official_data": dataset.official,
            "origin": dataset.origin,
            "class_names": list(dataset.class_names),
            **{name: getattr(dataset, name) for name in alike},
            **provenance(self.device, seconds),
            **more,
        }

    def checkpoint(self, objective: str) -> Checkpoint:
        """The network of `objective` at this seed, trained now if it is to be trained and the store
        has none.
        """
        request = self.checkpoint_request(objective)
        if request.weights != "train":
            brought = self.brought or networks.find(
                self.section.weights, objective, request.seed, self.dataset
            )
            model = networks.fitting(brought, self.dataset, self.stream[0])
            found = {"origin": brought.origin, "sha256": brought.sha256, "card": brought.card}
            return Checkpoint(request, model, brought.history, found)
        assert request.network and request.training
        network, training = request.network, request.training

        def make(folder: Path) -> dict[str, Any]:
            state_file = (
                folder / ".training.pt"
            )  # no part of the entry, so it can stay until that is whole
            model, history = pretrain(
                self.dataset,
                network,
                objective,
                training,
                request.seed,
                state_file,
                code_revision(),
            )
            save_model(model, str(folder / "weights.safetensors"))
            revisions = " then ".join(history.pop("code_revision").unique())
            history.to_csv(folder / "history.csv", index=False)
            # Of a training that was resumed, the seconds and revisions of all its epochs count.
            return {
                "provenance": self._provenance(
                    float(history["seconds"].sum()), code_revision=revisions
                )
            }

        entry = self.store.make_once("checkpoints", request, (self.dataset.fingerprint,), make)
        (entry.folder / ".training.pt").unlink(missing_ok=True)
        model = new_network(self.dataset, network, objective, request.seed)
        load_model(model, entry.folder / "weights.safetensors")
        history = pd.read_csv(entry.folder / "history.csv")
        return Checkpoint(
            request,
            model.to(self.device).eval(),
            history,
            entry.provenance | {"origin": "trained here"},
        )

    def theorem(self, objective: str) -> Mapping[str, Any]:
        """theorem.check_theorem of a network, kept in the store. ValueError where its training is
        not known.
        """
        request = self.checkpoint_request(objective)

        def make(folder: Path) -> dict[str, Any]:
            checkpoint, started = self.checkpoint(objective), time.perf_counter()
            known = request.training or (checkpoint.provenance.get("card") or {}).get("training")
            if not known or not isinstance(checkpoint.model, Cascade):
                raise ValueError(
                    "Theorem 1 needs a cascade and the α, β and λ of its training, not "
                    f"{request.weights}"
                )
            found = check_theorem(
                checkpoint.model,
                self.dataset,
                KnownTraining.model_validate(known),
                self.settings.seed,
            )
            return {"provenance": self._provenance(time.perf_counter() - started), "found": found}

        return self.store.make_once("theorem", request, (self.dataset.fingerprint,), make).found

    def _method(self, request: RunRequest, model: nn.Module, source: Tensor | None) -> Method:
        """The method of a run on `model`, which becomes its own; ValueError where the two do not go
        together.
        """
        return METHODS[request.method](
            model,
            learning_rate=request.online_learning_rate,
            predict=request.predict,
            diversity=request.online_diversity,
            memory=request.statistics_memory,
            optimizer=request.online_optimizer,
            copies=self.dataset.augmented_copies,
            source=source,
            **(
                {"value_range": self.dataset.value_range}
                if isinstance(self.dataset, ImageDataset)
                else {}
            ),
            seed=request.checkpoint.seed,
        )

    def run(self, method: str, objective: str | None = None) -> Run:
        """What `method` does on the stream at this seed, evaluated now if the store has no such
        run. One with F serves a request without. objective: see `request`. Raises ValueError for
        data that do not suffice."""
        request, dataset = self.request(method, objective), self.dataset
        data, code = (dataset.fingerprint, dataset.domain_source), code_of(method)
        if (self.store.folder / "runs" / request.with_transfer.key(*data)).is_dir():
            request = request.with_transfer
        self._check_data()

        def make(folder: Path) -> dict[str, Any]:
            checkpoint, began = self.checkpoint(request.checkpoint.objective), time.perf_counter()
            adapter = self._method(
                request, checkpoint.model, source_examples(METHODS[method], dataset)
            )
            batches = batches_along(request.stream, dataset, request.batch_size)
            costs = cost(adapter, batches)
            how = (
                request.order,
                request.dirichlet_delta,
                request.checkpoint.seed,
                request.order_seed,
            )
            evaluator = Evaluator(adapter, dataset, request.stream, request.batch_size, *how)
            result = evaluator.run(transfer=request.forward_transfer)
            result.batches.to_csv(folder / "batches.csv", index=False)
            result.accuracies.to_csv(folder / "accuracies.csv", index=False)
            told = ("origin", "sha256", "card", "code_revision")
            network = {name: value for name, value in checkpoint.provenance.items() if name in told}
            return {
                "provenance": self._provenance(
                    time.perf_counter() - began, network=network, cost=costs, code=code
                )
            }

        stored = self.store.make_once("runs", request, data, make)
        if stored.provenance.get("code", code) != code:
            warnings.warn(
                f"{stored.folder}: {method}'s code may be another now; remove it to run again",
                stacklevel=2,
            )
        return load_run(stored)
