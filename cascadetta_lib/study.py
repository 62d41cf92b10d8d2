"""Configurations, keys and the store: dataset → checkpoint → run.

A checkpoint is (dataset, objective, seed) → weights; a run is (checkpoint, method, stream, batch size, …) → records.
Each is kept in a folder named by a key of its whole configuration, written whole or not at all, with its provenance.
Asking for one that is there loads it, asking for one that is not makes it, under a lock, so that notebooks, headless
runs and a cluster share the same results.
"""

import hashlib
import json
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
import torch
from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors.torch import load_file, save_file

from cascadetta_lib.data import OPTIONS, SERVING, Options, load_dataset, paper_batch_size
from cascadetta_lib.data.base import Dataset, Modality
from cascadetta_lib.data.image import ImageDataset
from cascadetta_lib.data.text import TextDataset
from cascadetta_lib.evaluate import Evaluation, Evaluator, Transfer
from cascadetta_lib.methods import METHODS
from cascadetta_lib.models import Cascade, LeNetConfig, MLPConfig, ModelConfig, Parallel, ResNetConfig
from cascadetta_lib.pretrain import TrainingConfig, build_model, pretrain
from cascadetta_lib.settings import Settings, SettingsError, make_settings
from cascadetta_lib.streams import Domain, make_stream
from cascadetta_lib.theorem import check_theorem

STORE_FORMAT = 3
"""Part of every key. Raise it when a change of the code makes stored results wrong."""
CODE = ("cascadetta_lib", "notebooks", "profiles", "workflow")
PACKAGES = ("torch", "torchvision", "numpy", "pandas", "cascadetta")


class Config(BaseModel):
    """A configuration that has a key. Immutable; two equal ones have the same key on every machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def key(self) -> str:
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True) + str(STORE_FORMAT)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class SourceConfig(Config):
    """What a checkpoint learns from. `fingerprint` stands for the data itself, so a moved folder stays the same data;
    options: those of data.Options for the modality that change what is learned."""

    modality: Modality
    dataset: str
    fingerprint: str
    options: dict[str, int | float | str | bool | None]


class CheckpointConfig(Config):
    source: SourceConfig
    model: Annotated[ModelConfig, Field(discriminator="architecture")]
    objective: str
    training: TrainingConfig
    seed: int


class RunConfig(Config):
    checkpoint: CheckpointConfig
    method: str
    online_learning_rate: float
    online_diversity: float | None
    drift_bound: float | None
    statistics_memory: int | None
    stream: tuple[Domain, ...]
    domain_source: str
    test_size: int | None
    batch_size: int
    predict: Literal["after", "before"]
    last_batch: Literal["kept", "dropped"]
    accuracy_matrix: bool
    forward_transfer: Transfer


@dataclass(frozen=True)
class Trained:
    """A pre-training: its configuration and its history, a row an epoch (see pretrain.pretrain)."""

    config: CheckpointConfig
    history: pd.DataFrame


@dataclass(frozen=True)
class Checkpoint(Trained):
    """A pre-trained network, where it came from and its provenance."""

    model: Cascade | Parallel
    provenance: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What one method did on one stream; the tables are described in evaluate.Evaluation."""

    config: RunConfig
    batches: pd.DataFrame
    accuracies: pd.DataFrame
    provenance: dict[str, Any]

    @property
    def seed(self) -> int:
        """The seed of the pre-training and of the method's random draws."""
        return self.config.checkpoint.seed


@lru_cache(maxsize=1)
def code_revision() -> str:
    """The commit of the code, `-dirty` where code differs from it or is new, `unknown` outside a git checkout."""
    root = Path(__file__).resolve().parents[1]
    git = ["git", "-C", str(root)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run(
            [*git, "status", "--porcelain", "--", *CODE], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip() + ("-dirty" if status.stdout.strip() else "")


def device_name(device: str) -> str:
    """The device in words, for provenance."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    if device == "mps":
        return f"{platform.machine()} GPU through Metal"
    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {threads} thread{'s' if threads > 1 else ''}"


def peak_gpu_memory(device: str) -> float | None:
    """Most GPU memory that this process has held at once, GB; None on a CPU."""
    return round(torch.cuda.max_memory_allocated() / 2**30, 2) if device.startswith("cuda") else None


def choose_device(name: str) -> str:
    """`auto` is CUDA where there is one. Raises ValueError for a device that is not there."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if (name == "cuda" and not torch.cuda.is_available()) or (name == "mps" and not torch.backends.mps.is_available()):
        raise ValueError(f"device = {name!r}: this machine has no such device; allowed are auto and cpu")
    return name


class Store:
    """The folder of checkpoints and runs. Reading needs nothing but the files."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, kind: Literal["checkpoints", "runs", "theorem"], config: Config) -> Path:
        return self.folder / kind / config.key

    def make_once(self, path: Path, make: Callable[[Path], None]) -> None:
        """Fill the folder `path` by `make(temporary folder)` unless it is there; whole or not at all."""
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        # One maker at a time; whoever waited finds the folder there.
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                part = path.with_suffix(".part")
                part.mkdir(exist_ok=True)
                make(part)
                part.replace(path)
        path.with_suffix(".lock").unlink(missing_ok=True)

    def runs(self) -> Iterator[Run]:
        """Every whole run in the store that this version made or could have made, in the order of their keys."""
        for path in sorted((self.folder / "runs").glob("*/run.json")):
            try:
                run = load_run(path.parent)
            except ValidationError:
                continue  # an earlier version's, with other parameters
            # The key holds STORE_FORMAT: a run under another one is no longer right.
            if run.config.key == path.parent.name:
                yield run

    def theorem(self, config: CheckpointConfig) -> dict[str, float] | None:
        """What theorem.check_theorem found of a checkpoint, None where it was not checked."""
        path = self.path("theorem", config) / "theorem.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))["found"]) if path.exists() else None

    def trained(self, config: CheckpointConfig) -> "Trained | None":
        """The training of a stored checkpoint, None without the checkpoint. Reads no weights."""
        path = self.path("checkpoints", config) / "history.csv"
        return Trained(config, pd.read_csv(path)) if path.exists() else None


def load_run(folder: Path) -> Run:
    """The run in `folder`, from its files alone."""
    description = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return Run(
        RunConfig.model_validate(description["config"]),
        pd.read_csv(folder / "batches.csv"),
        pd.read_csv(folder / "accuracies.csv"),
        description["provenance"],
    )


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def chosen(settings: Settings, modality: Modality, config: type[BaseModel]) -> dict[str, Any]:
    """What the profile says of the fields of `config`: its `image_depth` is the field depth for images."""
    names = [name for name in config.model_fields if f"{modality}_{name}" in Settings.model_fields]
    return {name: getattr(settings, f"{modality}_{name}") for name in names}


def source_options(settings: Settings, modality: Modality) -> dict[str, Any]:
    """What the profile says of SourceConfig.options."""
    values = chosen(settings, modality, OPTIONS[modality])
    return {name: value for name, value in values.items() if name not in SERVING}


def training_config(settings: Settings, modality: Modality) -> TrainingConfig:
    """What the profile says of the training."""
    return TrainingConfig(**chosen(settings, modality, TrainingConfig))


def run_values(settings: Settings, modality: Modality) -> dict[str, Any]:
    """What the profile says of RunConfig, whatever the dataset and the method."""
    values = chosen(settings, modality, RunConfig)
    return {name: value for name, value in values.items() if name not in ("stream", "batch_size")}


def vary(settings: Settings, modality: Modality, changes: Mapping[str, Any]) -> Settings:
    """The settings with `changes`, named without the modality's prefix, checked as those of a profile are."""
    values = {f"{modality}_{name}": value for name, value in changes.items()}
    return make_settings(settings.model_dump() | values, dict.fromkeys(values, "a variation of the study"))


def profile_stream(settings: Settings, modality: Modality) -> list[Domain]:
    """The stream of the profile."""
    return make_stream(getattr(settings, f"{modality}_stream"), modality, settings.image_severity)


@lru_cache
def dataset_name(dataset: str) -> str:
    """`npz:pets` for npz:/data/pets: the name that a dataset gives itself."""
    kind, _, folder = dataset.partition(":")
    return f"{kind}:{Path(folder).expanduser().resolve().name}" if folder else kind


def _is_network(model: ModelConfig, settings: Settings, modality: Modality) -> bool:
    """Whether the profile asks for that network, whatever the dataset."""
    values = chosen(settings, modality, type(model))
    architecture = values.pop("architecture", "auto")
    return model.model_dump(include=set(values)) == values and architecture in ("auto", model.architecture)


def belongs(run: Run, settings: Settings, modality: Modality, dataset: str, objective: str | None = None) -> bool:
    """Whether `run` is one that the profile asks for on `dataset`, at any seed. Needs no data, only the run's files.
    objective: of the pre-training; None is each method's own."""
    config, checkpoint = run.config, run.config.checkpoint
    batch_size = getattr(settings, f"{modality}_batch_size")
    return (  # what is quick to tell comes first: a report asks this of every run for every point of an ablation
        config.method in getattr(settings, f"{modality}_methods")
        and config.batch_size == (paper_batch_size(dataset) if batch_size is None else batch_size)
        and checkpoint.source.modality == modality
        and checkpoint.source.dataset == dataset_name(dataset)
        and checkpoint.objective == (objective or METHODS[config.method].objective_on(modality))
        and all(getattr(config, name) == value for name, value in run_values(settings, modality).items())
        and checkpoint.source.options == source_options(settings, modality)
        and checkpoint.training == training_config(settings, modality)
        and list(config.stream) == profile_stream(settings, modality)
        and _is_network(checkpoint.model, settings, modality)
    )


class Study:
    """One dataset of one modality under one profile: what to ask for checkpoints and runs.

    Raises SettingsError unless the settings name a single dataset, and DataMissing where its data is absent.
    """

    def __init__(self, settings: Settings, modality: Modality = "image") -> None:
        self.settings, self.modality = settings, modality
        self._datasets: dict[Options, Dataset] = {}
        self.device = choose_device(settings.device)
        self.store = Store(settings.results_path)
        datasets = settings.datasets(modality)
        if len(datasets) != 1:
            raise SettingsError(
                f"{modality}_dataset = {list(datasets)!r}: a notebook works on one dataset; "
                f"add -p {modality}_dataset {datasets[0]}"
            )
        self.dataset_name = datasets[0]

    @property
    def methods(self) -> tuple[str, ...]:
        """The profile's methods for this modality."""
        methods: tuple[str, ...] = getattr(self.settings, f"{self.modality}_methods")
        return methods

    def varied(self, **changes: Any) -> "Study":
        """The same study with other settings, without the modality's prefix: `study.varied(batch_size=16)`.

        Raises SettingsError for a value that cannot be used.
        """
        other = Study(vary(self.settings, self.modality, changes), self.modality)
        if other.dataset_name == self.dataset_name:
            other._datasets = self._datasets  # what one of them has loaded is there for all
        return other

    def at_seed(self, seed: int) -> "Study":
        """The same study at another seed."""
        other = Study(self.settings.model_copy(update={"seed": seed}), self.modality)
        other._datasets = self._datasets
        return other

    @property
    def dataset(self) -> Dataset:
        options = OPTIONS[self.modality](
            folder=str(self.settings.data_path),
            device=self.device,
            test_size=getattr(self.settings, f"{self.modality}_test_size"),
            **source_options(self.settings, self.modality),
        )
        if options not in self._datasets:
            self._datasets[options] = load_dataset(self.dataset_name, options)
        return self._datasets[options]

    @property
    def model_config(self) -> ModelConfig:
        """The network for this dataset."""
        dataset = self.dataset
        if isinstance(dataset, ImageDataset):
            values = chosen(self.settings, "image", ResNetConfig)
            if values["architecture"] == "auto":
                values["architecture"] = dataset.architecture
            return ResNetConfig(classes=dataset.classes, **values)
        if isinstance(dataset, TextDataset):
            values = chosen(self.settings, "text", MLPConfig) | {"inputs": dataset.input_features}
            return MLPConfig(classes=dataset.classes, **values)
        return LeNetConfig(classes=dataset.classes)

    @property
    def batch_size(self) -> int:
        size: int | None = getattr(self.settings, f"{self.modality}_batch_size")
        return paper_batch_size(self.dataset_name) if size is None else size

    @cached_property
    def stream(self) -> list[Domain]:
        return profile_stream(self.settings, self.modality)

    def check_batches(self) -> None:
        """ValueError where a batch of the stream, or the held-out set, would be a single vector: it has no variance."""
        if not isinstance(self.model_config, MLPConfig):
            return
        kept = getattr(self.settings, f"{self.modality}_last_batch") == "kept"
        sizes = {str(domain.name): len(self.dataset.domain(*domain).y) for domain in self.stream}
        single = [name for name, size in sizes.items() if kept and size % self.batch_size == 1]
        if single or len(self.dataset.held_out.y) == 1:
            place = f"{single[0]} with {sizes[single[0]]} examples" if single else "the held-out set"
            raise ValueError(
                f"{place} ends in a batch of one, of which this network's BatchNorm has no variance; another "
                f"{self.modality}_batch_size, {self.modality}_test_size or {self.modality}_held_out_fraction helps, "
                f"or {self.modality}_last_batch=dropped"
            )

    def checkpoint_config(self, objective: str) -> CheckpointConfig:
        return CheckpointConfig(
            source=SourceConfig(
                modality=self.modality,
                dataset=self.dataset.name,
                fingerprint=self.dataset.fingerprint,
                options=source_options(self.settings, self.modality),
            ),
            model=self.model_config,
            objective=objective,
            training=training_config(self.settings, self.modality),
            seed=self.settings.seed,
        )

    def run_config(self, method: str, objective: str | None = None) -> RunConfig:
        return RunConfig(
            checkpoint=self.checkpoint_config(objective or METHODS[method].objective_on(self.modality)),
            method=method,
            stream=tuple(self.stream),
            domain_source=self.dataset.domain_source,
            batch_size=self.batch_size,
            **run_values(self.settings, self.modality),
        )

    def provenance(self, seconds: float) -> dict[str, Any]:
        """What made a result, beside its configuration."""
        return {
            "profile": self.settings.profile,
            "code_revision": code_revision(),
            "data_source": self.dataset.source,
            "domain_source": self.dataset.domain_source,
            "official_data": self.dataset.official,
            "compare_with": self.dataset.compare_with,
            "class_names": list(self.dataset.class_names),
            "unit": self.dataset.unit,
            "device": device_name(self.device),
            "peak_gpu_memory_gb": peak_gpu_memory(self.device),
            "python": platform.python_version(),
            "packages": {name: _version(name) for name in PACKAGES},
            "seconds": round(seconds, 2),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def checkpoint(self, objective: str) -> Checkpoint:
        """The network pre-trained for `objective` at the profile's seed, trained now if the store has none."""
        config = self.checkpoint_config(objective)
        path = self.store.path("checkpoints", config)

        def make(folder: Path) -> None:
            state_file = folder / "training.safetensors"
            before = pd.Timestamp.now()
            model, history = pretrain(self.dataset, config.model, objective, config.training, config.seed, state_file)
            weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
            save_file(weights, folder / "weights.safetensors")
            history.to_csv(folder / "history.csv", index=False)
            # A resumed training counts the seconds of all its epochs, not only those since it was resumed.
            seconds = max(float(history["seconds"].sum()), (pd.Timestamp.now() - before).total_seconds())
            _write_json(
                folder / "checkpoint.json",
                {"config": config.model_dump(mode="json"), "provenance": self.provenance(seconds)},
            )
            state_file.unlink(missing_ok=True)

        self.store.make_once(path, make)
        model = build_model(config.model, objective, config.seed)
        model.load_state_dict(load_file(path / "weights.safetensors"))
        description = json.loads((path / "checkpoint.json").read_text(encoding="utf-8"))
        history = pd.read_csv(path / "history.csv")
        return Checkpoint(config, history, model.to(self.device).eval(), description["provenance"])

    def theorem(self, objective: str) -> dict[str, float]:
        """Theorem 1 on the network pre-trained for `objective` (see theorem.check_theorem), checked now if the store
        does not have it."""
        config = self.checkpoint_config(objective)

        def make(folder: Path) -> None:
            model, started = self.checkpoint(objective).model, time.perf_counter()
            assert isinstance(model, Cascade)
            found = check_theorem(model, self.dataset, config.training, config.seed)
            provenance = self.provenance(time.perf_counter() - started)
            described = {"config": config.model_dump(mode="json"), "provenance": provenance, "found": found}
            _write_json(folder / "theorem.json", described)

        self.store.make_once(self.store.path("theorem", config), make)
        found = self.store.theorem(config)
        assert found is not None
        return found

    def run(self, method: str, objective: str | None = None) -> Run:
        """What `method` does on the profile's stream at its seed, evaluated now if the store has no such run.
        objective: of the pre-training that it starts from; None is its own."""
        config = self.run_config(method, objective)
        self.check_batches()
        path = self.store.path("runs", config)

        def make(folder: Path) -> None:
            model = self.checkpoint(config.checkpoint.objective).model
            started = time.perf_counter()
            adapter = METHODS[method](
                model,
                learning_rate=config.online_learning_rate,
                predict=config.predict,
                diversity=config.online_diversity,
                drift_bound=config.drift_bound,
                memory=config.statistics_memory,
                copies=self.dataset.augmented_copies,
                **({"value_range": self.dataset.value_range} if isinstance(self.dataset, ImageDataset) else {}),
                seed=config.checkpoint.seed,
            )
            evaluator = Evaluator(adapter, self.dataset, config.stream, config.batch_size, config.last_batch)
            result: Evaluation = evaluator.run(matrix=config.accuracy_matrix, transfer=config.forward_transfer)
            result.batches.to_csv(folder / "batches.csv", index=False)
            result.accuracies.to_csv(folder / "accuracies.csv", index=False)
            seconds = time.perf_counter() - started
            _write_json(
                folder / "run.json", {"config": config.model_dump(mode="json"), "provenance": self.provenance(seconds)}
            )

        self.store.make_once(path, make)
        return load_run(path)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
