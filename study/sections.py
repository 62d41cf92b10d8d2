"""The parameters of one modality: of its data, its network, its training, and its runs.

The defaults are those of the profile `paper`. `flat_name` makes the name of a field in a profile.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import torch
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)
from torch.overrides import TorchFunctionMode

from cascadetta_lib.data import OPTIONS, VOCABULARIES, DatasetName
from cascadetta_lib.data.base import Modality, Options
from cascadetta_lib.data.images import ImageOptions
from cascadetta_lib.data.reviews import TextOptions
from cascadetta_lib.data.streams import (
    ORDERS,
    RECURRING,
    RESET_EACH,
    Domain,
    Vocabulary,
    make_stream,
    shuffle_domains,
)
from cascadetta_lib.data.utterances import SpeechOptions
from cascadetta_lib.evaluation.alarm import OnAlarm
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.base import OptimizerName
from cascadetta_lib.models import (
    ImageNetwork,
    Network,
    SpeechNetwork,
    TextNetwork,
    build_network,
)
from cascadetta_lib.registry import nearest
from cascadetta_lib.training.objectives import OBJECTIVES, Training
from study import ROOT
from study.exhibit_parameters import ImageExhibitParameters, StepExhibitParameters, different
from study.weights_name import WeightsName

Part = TypeVar("Part", bound=BaseModel)


NETWORKS: dict[Modality, type[BaseModel]] = {
    "image": ImageNetwork,
    "text": TextNetwork,
    "speech": SpeechNetwork,
}


MOST_PARAMETERS = 500_000_000
"""Of a network that is trained here: 2 GB. The paper's largest, a ResNet-34, has 21 million."""


class _Undrawn(TorchFunctionMode):
    """Leave weights on the device meta undrawn: to draw what has no values there, PyTorch imports
    its compiler, which takes longer than all other imports together.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.Tensor.normal_:
            return args[0]
        return function(*args, **(kwargs or {}))


@cache
def _parameters_of(network: BaseModel) -> int:
    """The parameters of a network of two classes, counted without making them."""
    assert isinstance(network, Network)
    with torch.device("meta"), _Undrawn():
        built = build_network(network, classes=2, inputs=1, seed=0)
    return sum(parameter.numel() for parameter in built.parameters())


class Protocol(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """How a method is run and measured on a stream."""

    online_learning_rate: float = Field(
        0.001, ge=0, description="learning rate of every method that adapts"
    )
    online_diversity: float | None = Field(
        None,
        ge=0,
        description="weight of the entropy of the mean prediction at test time; null: each "
        "method's own",
    )
    statistics_memory: int | None = Field(
        None,
        ge=0,
        description="examples BatchNorm remembers, or that a source prior adds; null: each "
        "method's own",
    )
    online_optimizer: OptimizerName | None = Field(
        None,
        description="sgd (Nesterov momentum 0.9) or adam for every method that adapts; null: each "
        "method's own",
    )
    predict: Literal["after", "before"] = Field(
        "after",
        description="the recorded prediction: after the update (paper), or before it (Tent, CoTTA "
        "releases)",
    )
    forward_transfer: bool = Field(
        True, description="also measure what the forward transfer F needs"
    )
    order_seed: int | None = Field(
        None,
        ge=0,
        description="draws the order of the domains and of the examples, the same for all methods "
        "and seeds; null: as stored",
    )
    on_alarm: OnAlarm | None = Field(
        None,
        description="what is done where few classes are predicted: reset goes back to the source, "
        "stop learns nothing more; null: nothing",
    )


class Section(Protocol):
    """What the three modalities share: the data, the source of the networks, the methods and the
    stream.
    """

    modality: ClassVar[Modality]
    defaults: ClassVar[Mapping[str, Any]]
    """The study's own defaults for this modality. They replace those of the class a field comes
    from.
    """

    dataset: DatasetName | tuple[DatasetName, ...] = Field(
        description="a name, or KIND:FOLDER; a list makes a job of each"
    )
    weights: WeightsName = Field(
        WeightsName("train"),
        description="where networks come from: train, shipped, a FOLDER, release:FILE, "
        "robustbench:FILE or efficientnet_lite0:FILE",
    )
    objectives: tuple[str, ...] = Field(
        (), description="pre-trainings that 01_pretrain makes beside the methods' own"
    )
    methods: Annotated[tuple[str, ...], AfterValidator(different)] = Field(
        description="test-time methods"
    )
    stream: str | tuple[str, ...] = Field(
        "instantaneous",
        description="a name of docs/streams.md, such as instantaneous, or a list such as "
        "[fog, 'snow:3']",
    )
    recurring_visits: int = Field(
        20, ge=2, le=1000, description="how often each domain comes on the recurring stream"
    )
    dirichlet_delta: float = Field(
        0.1,
        gt=0,
        le=1000,
        description="δ of a stream with correlated labels: the smaller, the longer the runs of one "
        "label",
    )
    batch_size: int | None = Field(
        None, ge=1, description="test batch; null: the paper's, 32, Tiny-ImageNet 64"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {**cls.defaults, **values}

    @field_validator("dataset")
    @classmethod
    def _dataset(
        cls, names: DatasetName | tuple[DatasetName, ...]
    ) -> DatasetName | tuple[DatasetName, ...]:
        several = (names,) if isinstance(names, DatasetName) else different(names)
        for name in several:
            name.check(cls.modality)
        called: dict[str, DatasetName] = {}
        for name in several:
            # Files are named by its letters and digits, on disks that may ignore the case.
            file = re.sub(r"\W+", "-", name.title).strip("-").lower()
            if file in called:
                raise ValueError(
                    f"two of them have one name, {file}, by which tables and files would call "
                    f"both: rename one folder of {called[file]} and {name}"
                )
            called[file] = name
        _vocabulary(several, cls.modality)
        return names

    @field_serializer("dataset")
    def _dataset_as_text(self, names: DatasetName | tuple[DatasetName, ...]) -> str | list[str]:
        return str(names) if isinstance(names, DatasetName) else [*map(str, names)]

    @field_validator("methods")
    @classmethod
    def _methods(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        allowed = [name for name in METHODS if cls.modality in METHODS[name].modalities]
        labels: dict[str, str] = {}
        for name in names:
            if name not in allowed:
                raise ValueError(
                    f"{name} is no method for {cls.modality}; {nearest(name, allowed)}"
                )
            label = METHODS[name].label
            if label in labels:
                raise ValueError(
                    f"the methods {labels[label]} and {name} have the same label {label!r}, by "
                    "which tables would average both as if they were seeds of one: give one of "
                    "them another label"
                )
            labels[label] = name
        return names

    @field_validator("objectives")
    @classmethod
    def _objectives(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        allowed = [
            name for name in OBJECTIVES if cls.modality == "image" or not OBJECTIVES[name].parallel
        ]
        if unknown := [name for name in names if name not in allowed]:
            raise ValueError(
                f"{unknown[0]} is no pre-training for {cls.modality}; "
                f"{nearest(unknown[0], allowed)}"
            )
        return names

    @field_validator("stream")
    @classmethod
    def _stream(cls, stream: str | tuple[str, ...], info: ValidationInfo) -> str | tuple[str, ...]:
        make_stream(stream, _vocabulary(info.data.get("dataset", ()), cls.modality))
        return stream

    @model_validator(mode="after")
    def _size(self) -> Self:
        network = self.part(NETWORKS[self.modality])
        count = _parameters_of(network)
        if count > MOST_PARAMETERS:
            asked = network.model_dump(exclude_defaults=True)
            values = " and ".join(f"network_{name} = {value}" for name, value in asked.items())
            raise ValueError(
                f"{values} make a network of {count:,} parameters; allowed are {MOST_PARAMETERS:,}"
            )
        return self

    @property
    def protocol(self) -> dict[str, Any]:
        """How a method is run: the fields of a RunRequest by name."""
        order = ORDERS.get(self.stream) if isinstance(self.stream, str) else None
        delta = self.dirichlet_delta if order in ("correlated", "mixed_correlated") else None
        return self.part(Protocol).model_dump() | {
            "order": order,
            "dirichlet_delta": delta,
            "reset_each": self.stream == RESET_EACH,
        }

    @property
    def domains(self) -> list[Domain]:
        """The domains of the stream, in order."""
        severity = getattr(self, "severity", 1)
        vocabulary = _vocabulary(self.dataset, self.modality)
        once = make_stream(self.stream, vocabulary, severity, visits=1)
        # Every round of a recurring stream has one order.
        visits = self.recurring_visits if self.stream == RECURRING else 1
        return shuffle_domains(once, self.order_seed) * visits

    @property
    def training(self) -> Training:
        """How networks are trained."""
        return self.part(Training)

    @property
    def network(self) -> BaseModel:
        """Which network is trained."""
        return self.part(NETWORKS[self.modality])

    @property
    def data(self) -> Options:
        """How the data are cut, augmented and scaled."""
        return self.part(OPTIONS[self.modality])

    @property
    def online(self) -> Protocol:
        """How a method is run and measured."""
        return self.part(Protocol)

    def part(self, kind: type[Part]) -> Part:
        """Return the part `kind`, such as Training or ImageNetwork, with the values of its fields
        here.
        """
        return kind(**{name: getattr(self, name) for name in kind.model_fields})


def _vocabulary(datasets: DatasetName | tuple[DatasetName, ...], modality: Modality) -> Vocabulary:
    """The domains that a stream over some datasets may name. ValueError where they differ."""
    names = (datasets,) if isinstance(datasets, DatasetName) else datasets
    if not names:
        return VOCABULARIES[modality]
    found = []
    for name in names:
        folder = None if name.folder is None else str(ROOT / Path(name.folder).expanduser())
        found.append(DatasetName(name.kind, folder).vocabulary)
    for name, vocabulary in zip(names, found, strict=True):
        if vocabulary != found[0]:
            raise ValueError(
                f"{name} has other domains than {names[0]}: a dataset with target domains of its "
                "own needs a run of its own"
            )
    return found[0]


class ImageSection(ImageExhibitParameters, ImageOptions, ImageNetwork, Training, Section):
    """Images. The training is the reading of the paper that the authors' release has
    (profiles/literal.yaml says where they differ), because the literal one is not expected to reach
    the paper's own ERM and AdaBN rows."""

    modality = "image"
    defaults = {
        "dataset": ("cifar10", "cifar100", "tiny_imagenet"),
        "methods": ("erm", "adabn", "tent", "tent_adam", "cotta", "ttt", "cascade", "cascade_plus"),
        "block": "pre_activation",
    }

    severity: int = Field(
        5, ge=1, le=5, description="of the corruptions, where the stream does not say it"
    )


WITHOUT_IMAGES = (
    *("erm", "adabn", "tent", "tent_adam", "cotta", "cascade"),
    *("cascade_fixed_classifier", "cascade_no_auxiliary", "cascade_plus"),
)


class TextSection(StepExhibitParameters, TextOptions, TextNetwork, Training, Section):
    """Reviews, as in the paper's appendix, with DANN's schedule of the learning rate, which it
    names.

    The paper does not say α, λ and the size of the training batch.
    """

    modality = "text"
    defaults = {
        "dataset": "amazon",
        "methods": WITHOUT_IMAGES,
        "epochs": None,
        "iterations": 1000,
        "training_batch_size": 32,
        "optimizer": "adam",
        "learning_rate": 0.0001,
        "schedule": "dann",
        # This makes α the online learning rate at the beginning of the schedule.
        "inner_learning_rate_ratio": 10.0,
        "inner_parameters": "all",
        "outer_loss": "paper",
    }

    batch_size: int | None = Field(
        None,
        ge=2,
        description="test batch, null: the paper's 32; one vector has no variance for BatchNorm",
    )


class SpeechSection(StepExhibitParameters, SpeechOptions, SpeechNetwork, Training, Section):
    """Words, as in the paper's appendix, with Nesterov momentum, as for images.

    The paper does not say α, λ, the size of the training batch, or whether SGD has momentum.
    """

    modality = "speech"
    defaults = {
        "dataset": "speech_commands",
        "methods": WITHOUT_IMAGES,
        "epochs": 50,
        "training_batch_size": 64,
        "schedule": "linear",
        "final_learning_rate": 0.001,
        "inner_parameters": "all",
        "outer_loss": "paper",
        "ablation_learning_rates": (0.0001, 0.001, 0.01),
    }


def flat_name(modality: Modality, field: str) -> str:
    """Return the name of a field of a section in profiles and notebooks.

    It is made from the modality, the part that the field belongs to, and the field, without saying
    a word twice: `image_training_learning_rate`, `image_network_depth`,
    `image_online_learning_rate`. Fields of the data and of the study as a whole name no part:
    `image_severity`.
    """
    for part, kind in (("training", Training), ("network", NETWORKS[modality])):
        if field in kind.model_fields:
            return f"{modality}_{part}_{field.removeprefix(f'{part}_')}"
    return f"{modality}_{field}"


SECTIONS: dict[Modality, type[Section]] = {
    "image": ImageSection,
    "text": TextSection,
    "speech": SpeechSection,
}
