"""A study: one dataset of one modality under one profile. It gives networks and runs on request.

A request is answered from the store. If the result is not there, it is made and stored. `Study`
only puts the parts together: see requests, checkpoints and runs.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from cascadetta_lib.data import load_dataset
from cascadetta_lib.data.base import Dataset, Modality, Options
from cascadetta_lib.evaluation.batch_variance import LayerErrors
from cascadetta_lib.models import normalized
from cascadetta_lib.models.input_normalization import normalization_of
from study.brought_networks import Brought, bring, copied
from study.checkpoints import Checkpoint, Context, check_theorem_of, load_or_train
from study.provenance import choose_device
from study.published_networks import NetworkError
from study.requests import (
    CheckpointRequest,
    RunRequest,
    batch_size,
    checkpoint_request,
    run_request,
    single_dataset,
)
from study.runs import check_all, load_or_measure_batch_variance, load_or_run, objectives_of
from study.settings import Settings
from study.store import Run, Store


class Study:
    """Give networks and runs on request. Data are read when they are first needed.

    Raises SettingsError unless the settings name a single dataset, and ValueError for a device that
    this machine does not have.
    """

    def __init__(self, settings: Settings, modality: Modality = "image") -> None:
        self.settings = settings
        self.modality = modality
        self.section = settings.section(modality)
        self.dataset_name = single_dataset(settings, modality)
        self.methods = self.section.methods
        self.stream = self.section.domains
        self.batch_size = batch_size(settings, modality)
        self.device = choose_device(settings.device)
        self.store = Store(settings.results_path)
        self.brought: Brought | None = None
        self._loaded: dict[Options, Dataset] = {}
        self.exhibits: tuple[str, ...] | None = None
        """The exhibits that this study's notebook declares; None: any may be made."""

    @classmethod
    def without_device(cls, settings: Settings, modality: Modality = "image") -> "Study":
        """Return a study on the CPU, to read stored results without the device that made them."""
        return cls(settings.model_copy(update={"device": "cpu"}), modality)

    def _with(self, settings: Settings) -> "Study":
        """Return the study under other settings. If both studies have the same dataset, they share
        the data that are loaded.
        """
        other = type(self)(settings, self.modality)
        other.brought = self.brought
        other.exhibits = self.exhibits
        if other.dataset_name == self.dataset_name:
            other._loaded = self._loaded
        return other

    def varied(self, **changes: Any) -> "Study":
        """Return the same study with other settings, named as in a profile but without the
        modality: `study.varied(batch_size=16, training_epochs=5)`.

        Raises SettingsError for a value that cannot be used.
        """
        return self._with(self.settings.vary(self.modality, changes))

    def at_seed(self, seed: int) -> "Study":
        """Return the same study at another seed.

        Raises SettingsError unless `seed` is a whole number from 0 to 2³² − 1, or can be read as
        one, such as "3" or 3.0.
        """
        return self._with(self.settings.at_seed(seed))

    def bring(self, model: nn.Module, name: str, normalization: Any = None) -> "Study":
        """Return the same study with a copy of `model` as its network, in place of the networks of
        all pre-trainings.

        name: what tables call the network.
        normalization: the normalisation of images with which the network learned: a name such as
            "imagenet", a pair (mean, deviation), or a configuration of timm or torchvision
            (models.input_normalization.read_normalization). None: the network takes the images as
            the study scales them (`input_scaling`), from −1 to 1 by default. A network that
            `models.normalized` made needs None, and takes images from 0 to 1.

        Raises ValueError for any other `normalization`. On text and speech, and for a network that
        `models.normalized` made, raises ValueError for any `normalization` except None. Raises
        NetworkError for a network that cannot be copied, and for a name that cannot be used. On
        text and speech, raises NetworkError for a network that `models.normalized` made. A run
        raises NetworkError if the network's errors on clean images show that it learned with
        another normalisation.
        """
        own = normalization_of(model)
        if own is not None and self.modality != "image":
            raise NetworkError(
                f"{name} normalises images, since models.normalized made it, and the study is of "
                f"{self.modality}; bring a network for {self.modality}"
            )
        if normalization is None:
            # A network that `normalized` made takes images from 0 to 1.
            other = self._with(self.settings) if own is None else self.varied(input_scaling="unit")
            other.brought = bring(copied(model, name), name)
            return other
        if own is not None:
            raise ValueError(
                f"normalization = {normalization!r}: the network already normalises its images, by "
                f"the mean {own.mean} and the deviation {own.deviation}; pass None"
            )
        if self.modality != "image":
            raise ValueError(
                f"normalization = {normalization!r}: only images have one; pass None for "
                f"{self.modality}"
            )
        other = self.varied(input_scaling="unit")
        other.brought = bring(normalized(copied(model, name), normalization), name)
        return other

    @property
    def dataset(self) -> Dataset:
        """The data, read when they are first needed. Raises DataMissing if they are not there."""
        places = {"folder": str(self.settings.data_path), "device": self.device}
        options = self.section.data.model_copy(update=places)
        if options not in self._loaded:
            self._loaded[options] = load_dataset(self.dataset_name, options)
        return self._loaded[options]

    @property
    def context(self) -> Context:
        """What a request needs: settings, data, device, store and the brought network. Reads the
        data.
        """
        return Context(
            self.settings, self.modality, self.dataset, self.device, self.store, self.brought
        )

    @property
    def objectives(self) -> list[str]:
        """The pre-trainings that the profile's methods start from, then any others that the profile
        names in its parameter `objectives`.
        """
        return objectives_of(self.section)

    def checkpoint_request(self, objective: str) -> CheckpointRequest:
        """Return the request for the network of a pre-training (`objective`) at this seed. Needs no
        data.
        """
        return checkpoint_request(self.settings, self.modality, objective, self.brought)

    def request(self, method: str, objective: str | None = None) -> RunRequest:
        """Return the request for the run of a method at this seed. Needs no data.

        objective: the pre-training to start from; None: the method's own.
        """
        return run_request(self.settings, self.modality, method, objective, self.brought)

    def check(self) -> None:
        """Read the data. Raise ValueError for what would fail later: a network that is missing or
        does not fit, a method that cannot use its network, or too few data.
        """
        check_all(self.context)

    def checkpoint(self, objective: str) -> Checkpoint:
        """Return the network of a pre-training (`objective`, such as `meta`) at this seed. Train it
        if the settings train networks and the store has none.
        """
        return load_or_train(self.context, objective)

    def theorem(self, objective: str) -> Mapping[str, Any]:
        """Return the check of Theorem 1 on the network of a pre-training (theorem.check_theorem).

        objective: the name of the pre-training.

        Raises ValueError if the network's training is not known, or if the network is not a
        Cascade.
        """
        return check_theorem_of(self.context, objective)

    def run(self, method: str, objective: str | None = None) -> Run:
        """Return the run of a method on the stream at this seed. If the store has none, make it.

        objective: the pre-training to start from; None: the method's own.

        A stored run with F, or with the agreement with the source, also answers a request without
        it. Raises ValueError if there are too few data, also for a stored run.
        """
        return load_or_run(self.context, method, objective)

    def batch_variance(self, run: Run) -> list[LayerErrors]:
        """Return how far a batch's variance is from that of all examples, at each BatchNorm layer
        of a run's network.

        See evaluation.batch_variance. Raises ValueError if there are too few examples, or if the
        run is not of this study's network and data.
        """
        return load_or_measure_batch_variance(self.context, run)
