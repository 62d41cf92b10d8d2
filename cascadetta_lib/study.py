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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch
from filelock import FileLock
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import load_file, save_file

from cascadetta_lib.data import ImageOptions, load_dataset
from cascadetta_lib.data.corruptions import CORRUPTIONS, HELD_OUT_CORRUPTIONS
from cascadetta_lib.data.image import ImageDataset
from cascadetta_lib.evaluate import Evaluation, Evaluator
from cascadetta_lib.methods import METHODS
from cascadetta_lib.models import Architecture, Cascade, ModelConfig, Parallel
from cascadetta_lib.pretrain import TrainingConfig, build_model, pretrain
from cascadetta_lib.settings import Settings, SettingsError
from cascadetta_lib.streams import Domain, make_stream

STORE_FORMAT = 1
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
    """What a checkpoint learns from. `fingerprint` stands for the pixels, so a moved folder stays the same data."""

    dataset: str
    fingerprint: str
    train_size: int | None
    held_out_fraction: float
    input_scaling: str
    crop_and_flip: bool
    randomisation: str


class CheckpointConfig(Config):
    source: SourceConfig
    model: ModelConfig
    objective: str
    training: TrainingConfig
    seed: int


class RunConfig(Config):
    checkpoint: CheckpointConfig
    method: str
    online_learning_rate: float
    stream: tuple[Domain, ...]
    domain_source: str
    test_size: int | None
    batch_size: int
    predict: Literal["after", "before"]
    last_batch: Literal["kept", "dropped"]
    matrix: bool
    unadapted: bool


@dataclass(frozen=True)
class Checkpoint:
    """A pre-trained network with its training history (a row an epoch) and provenance."""

    config: CheckpointConfig
    model: Cascade | Parallel
    history: pd.DataFrame
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

    def path(self, kind: Literal["checkpoints", "runs"], config: Config) -> Path:
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

    def history(self, config: CheckpointConfig) -> pd.DataFrame | None:
        """A row an epoch of a stored checkpoint's training, None without the checkpoint. Reads no weights."""
        path = self.path("checkpoints", config) / "history.csv"
        return pd.read_csv(path) if path.exists() else None


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


def source_values(settings: Settings) -> dict[str, Any]:
    """What the profile says of SourceConfig."""
    return {
        "train_size": settings.image_train_size,
        "held_out_fraction": settings.image_held_out_fraction,
        "input_scaling": settings.image_input_scaling,
        "crop_and_flip": settings.image_crop_and_flip,
        "randomisation": settings.image_randomisation,
    }


def model_values(settings: Settings) -> dict[str, Any]:
    """What the profile says of ModelConfig, whatever the dataset."""
    return {
        "depth": settings.image_depth,
        "width": settings.image_width,
        "block": settings.image_block,
        "main_logits": settings.image_main_logits,
    }


def training_config(settings: Settings) -> TrainingConfig:
    """What the profile says of the training."""
    return TrainingConfig(
        epochs=settings.image_epochs,
        batch_size=settings.image_training_batch_size,
        learning_rate=settings.image_learning_rate,
        schedule=settings.image_schedule,
        weight_decay=settings.image_weight_decay,
        inner_learning_rate_ratio=settings.image_inner_learning_rate_ratio,
        inner_parameters=settings.image_inner_parameters,
        outer_loss=settings.image_outer_loss,
        entropy_weight=settings.image_entropy_weight,
        meta_gradient=settings.image_meta_gradient,
    )


def run_values(settings: Settings) -> dict[str, Any]:
    """What the profile says of RunConfig, whatever the dataset and the method."""
    return {
        "online_learning_rate": settings.image_online_learning_rate,
        "test_size": settings.image_test_size,
        "predict": settings.image_predict,
        "last_batch": settings.image_last_batch,
        "matrix": settings.image_accuracy_matrix,
        "unadapted": settings.image_forward_transfer == "release",
    }


def belongs(run: Run, settings: Settings, dataset: str) -> bool:
    """Whether `run` is one that the profile asks for on `dataset`, at any seed. Needs no data, only the run's files."""
    kind, _, folder = dataset.partition(":")
    name = f"{kind}:{Path(folder).expanduser().resolve().name}" if folder else kind
    config, checkpoint = run.config, run.config.checkpoint
    stream = make_stream(settings.image_stream, CORRUPTIONS, settings.image_severity, HELD_OUT_CORRUPTIONS)
    return (
        checkpoint.source.dataset == name
        and config.method in settings.image_methods
        and checkpoint.source.model_dump(exclude={"dataset", "fingerprint"}) == source_values(settings)
        and checkpoint.model.model_dump(exclude={"architecture", "classes"}) == model_values(settings)
        and settings.image_architecture in ("auto", checkpoint.model.architecture)
        and checkpoint.training == training_config(settings)
        and config.model_dump(include=set(run_values(settings))) == run_values(settings)
        and list(config.stream) == stream
        and settings.image_batch_size in (None, config.batch_size)
    )


class Study:
    """One dataset under one profile: what to ask for checkpoints and runs.

    Raises SettingsError unless `settings.image_dataset` is a single dataset, and DataMissing where its data is absent.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.device = choose_device(settings.device)
        self.store = Store(settings.results_path)
        if len(settings.image_datasets) != 1:
            raise SettingsError(
                f"image_dataset = {settings.image_dataset!r}: a notebook works on one dataset; "
                f"add -p image_dataset {settings.image_datasets[0]}"
            )
        self.dataset_name = settings.image_datasets[0]

    @cached_property
    def dataset(self) -> ImageDataset:
        settings = self.settings
        options = ImageOptions(
            folder=str(settings.data_path),
            device=self.device,
            test_size=settings.image_test_size,
            **source_values(settings),
        )
        dataset = load_dataset(self.dataset_name, options)
        assert isinstance(dataset, ImageDataset)
        return dataset

    @property
    def architecture(self) -> Architecture:
        chosen = self.settings.image_architecture
        return self.dataset.architecture if chosen == "auto" else chosen

    @property
    def batch_size(self) -> int:
        return self.settings.image_batch_size or self.dataset.batch_size

    @cached_property
    def stream(self) -> list[Domain]:
        return make_stream(self.settings.image_stream, CORRUPTIONS, self.settings.image_severity, HELD_OUT_CORRUPTIONS)

    def checkpoint_config(self, objective: str) -> CheckpointConfig:
        return CheckpointConfig(
            source=SourceConfig(
                dataset=self.dataset.name, fingerprint=self.dataset.fingerprint, **source_values(self.settings)
            ),
            model=ModelConfig(
                architecture=self.architecture, classes=self.dataset.classes, **model_values(self.settings)
            ),
            objective=objective,
            training=training_config(self.settings),
            seed=self.settings.seed,
        )

    def run_config(self, method: str) -> RunConfig:
        return RunConfig(
            checkpoint=self.checkpoint_config(METHODS[method].objective),
            method=method,
            stream=tuple(self.stream),
            domain_source=self.dataset.domain_source,
            batch_size=self.batch_size,
            **run_values(self.settings),
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
            state_file.unlink()

        self.store.make_once(path, make)
        model = build_model(config.model, objective, config.seed)
        model.load_state_dict(load_file(path / "weights.safetensors"))
        description = json.loads((path / "checkpoint.json").read_text(encoding="utf-8"))
        return Checkpoint(
            config, model.to(self.device).eval(), pd.read_csv(path / "history.csv"), description["provenance"]
        )

    def run(self, method: str) -> Run:
        """What `method` does on the profile's stream at its seed, evaluated now if the store has no such run."""
        config = self.run_config(method)
        path = self.store.path("runs", config)

        def make(folder: Path) -> None:
            model = self.checkpoint(config.checkpoint.objective).model
            started = time.perf_counter()
            adapter = METHODS[method](
                model,
                learning_rate=config.online_learning_rate,
                predict=config.predict,
                value_range=self.dataset.value_range,
                seed=config.checkpoint.seed,
            )
            evaluator = Evaluator(adapter, self.dataset, config.stream, config.batch_size, config.last_batch)
            result: Evaluation = evaluator.run(matrix=config.matrix, unadapted=config.unadapted)
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
