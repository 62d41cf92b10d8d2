"""The parameters of one modality: of its data, its network, its training, and its runs.

The value at `settings.image.training.learning_rate` is named `image_training_learning_rate` in a
profile. `flat_name` makes this name. The defaults are the values of the profile `paper`, except
that of image_training_precision.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

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
from pydantic.fields import FieldInfo
from torch.overrides import TorchFunctionMode

from cascadetta_lib.data import VOCABULARIES, DatasetName
from cascadetta_lib.data.base import Modality, Options
from cascadetta_lib.data.images import ImageOptions
from cascadetta_lib.data.reviews import TextOptions
from cascadetta_lib.data.streams import (
    ORDERS,
    RECURRING,
    RESET_EACH,
    WALK,
    Domain,
    Vocabulary,
    make_stream,
    shuffle_domains,
    shuffle_standard,
)
from cascadetta_lib.data.utterances import SpeechOptions
from cascadetta_lib.data.walks import WALK_STEPS
from cascadetta_lib.evaluation.alarm import OnAlarm
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.optimizers import OptimizerName
from cascadetta_lib.models import (
    ImageNetwork,
    Network,
    SpeechNetwork,
    TextNetwork,
    build_network,
)
from cascadetta_lib.registry import nearest
from cascadetta_lib.training.objectives import OBJECTIVES
from cascadetta_lib.training.settings import Training
from study import ROOT
from study.exhibit_parameters import ImageExhibitParameters, StepExhibitParameters, different
from study.weights_name import WeightsName

PARTS = ("data", "network", "training", "online", "exhibits")
"""The fields of a section that are groups of parameters."""
NAMED_PARTS = ("network", "training")
"""The parts whose names are in the names of their parameters (`flat_name`)."""
SAID_ONCE = ("folder", "device")
"""The fields of `data` that are one parameter for all modalities."""
MOST_PARAMETERS = 500_000_000
"""The limit for the network that the parameters `network_…` describe: 2 GB. The limit also holds if
`weights` names another network. The paper's largest network, a ResNet-34, has 21 million
parameters.
"""


class _Undrawn(TorchFunctionMode):
    """Do not draw weights on the device `meta`, where tensors have no values. To draw them PyTorch
    would import its compiler, which takes longer than all other imports together.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.Tensor.normal_:
            return args[0]
        return function(*args, **(kwargs or {}))


@cache
def _parameter_count(network: Network) -> int:
    """Count the parameters of a network of two classes, without making them."""
    with torch.device("meta"), _Undrawn():
        built = build_network(network, classes=2, inputs=1, seed=0)
    return sum(parameter.numel() for parameter in built.parameters())


class RunProtocol(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
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
        description="how many earlier examples BatchNorm remembers; for a source prior, how many "
        "examples the source's statistics count as; null: each method's own",
    )
    online_optimizer: OptimizerName | None = Field(
        None,
        description="sgd (Nesterov momentum 0.9) or adam for every method that adapts, without "
        "weight decay; null: each method's own",
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
        description="what is done if the alarm rings, because few classes are predicted: reset "
        "goes back to the source, stop learns nothing more; null: nothing",
    )
    source_agreement: bool = Field(
        False,
        description="also record on how many examples of a batch a method predicts what the source "
        "model does; one more forward pass per batch",
    )


class Section(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What the three modalities share: the data, the source of the networks, the methods and the
    stream.

    data: how the data are cut, augmented and scaled.
    network: which network is trained.
    training: how the network is trained.
    online: how a method is run and measured.
    exhibits: on how many images, at which rates and at which batch sizes some exhibits run.
    """

    modality: ClassVar[Modality]
    defaults: ClassVar[Mapping[str, Any]]
    """The study's own defaults for this modality. For a part, these are only the values that differ
    from the defaults of the part's class.
    """

    dataset: DatasetName | tuple[DatasetName, ...] = Field(
        description="a name, or KIND:FOLDER; in a list, each dataset has a job of its own"
    )
    weights: WeightsName = Field(
        WeightsName("train"),
        description="where networks come from: train, shipped, a FOLDER, release:FILE, "
        "robustbench:FILE or efficientnet_lite0:FILE",
    )
    objectives: tuple[str, ...] = Field(
        (),
        description="pre-trainings that 01_pretrain makes besides those of the profile's methods",
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
        None,
        ge=1,
        description="size of the test batches; null: the dataset's own, 64 for tiny_imagenet and "
        "imagenet_sample, otherwise 32",
    )
    data: Options
    network: Network
    training: Training
    online: RunProtocol
    exhibits: StepExhibitParameters | ImageExhibitParameters

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Put the modality's own defaults in the place of values that are not given."""
        filled = {**dict.fromkeys(PARTS, {}), **cls.defaults, **values}
        for part in PARTS:
            if isinstance(filled[part], dict):
                filled[part] = {**cls.defaults.get(part, {}), **filled[part]}
        return filled

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
            # Files are named by the title's letters and digits. A disk may ignore the case.
            file = re.sub(r"\W+", "-", name.title).strip("-").lower()
            if file in called:
                raise ValueError(
                    f"{called[file]} and {name} would both be called {file} in tables and files: "
                    "rename one of the folders"
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
                    f"the methods {labels[label]} and {name} have the same label {label!r}, so "
                    "tables would average them as one method: give one of them another label"
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
        count = _parameter_count(self.network)
        if count > MOST_PARAMETERS:
            asked = self.network.model_dump(exclude_defaults=True)
            values = " and ".join(f"network_{name} = {value}" for name, value in asked.items())
            raise ValueError(
                f"{values} make a network of {count:,} parameters; at most {MOST_PARAMETERS:,} are "
                "allowed"
            )
        return self

    @property
    def protocol(self) -> dict[str, Any]:
        """How a method is run: fields of a RunRequest, by name."""
        order = ORDERS.get(self.stream) if isinstance(self.stream, str) else None
        delta = self.dirichlet_delta if order in ("correlated", "mixed_correlated") else None
        return self.online.model_dump() | {
            "order": order,
            "dirichlet_delta": delta,
            "reset_each": self.stream == RESET_EACH,
        }

    @property
    def domains(self) -> list[Domain]:
        """The domains of the stream, in order."""
        severity = getattr(self, "severity", 1)
        vocabulary = _vocabulary(self.dataset, self.modality)
        if self.stream == WALK:
            steps = getattr(self, "walk_steps", WALK_STEPS)
            shuffled = shuffle_standard(vocabulary, self.online.order_seed)
            return make_stream(WALK, shuffled, walk_steps=steps)
        once = make_stream(self.stream, vocabulary, severity, visits=1)
        # All rounds of a recurring stream have the same order.
        visits = self.recurring_visits if self.stream == RECURRING else 1
        return shuffle_domains(once, self.online.order_seed) * visits


def _vocabulary(datasets: DatasetName | tuple[DatasetName, ...], modality: Modality) -> Vocabulary:
    """Return the domains that a stream over `datasets` may name. Raises ValueError if the datasets
    have different domains.
    """
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


class ImageSection(Section):
    """The parameters for images.

    Where the authors' release differs from the paper's text, the training follows the release
    (profiles/literal.yaml lists the differences). The literal reading is not expected to reach the
    paper's own rows of ERM and AdaBN.
    """

    modality = "image"
    defaults = {
        "dataset": ("cifar10", "cifar100", "tiny_imagenet"),
        "methods": ("erm", "adabn", "tent", "tent_adam", "cotta", "ttt", "cascade", "cascade_plus"),
        "network": {"block": "pre_activation"},
    }

    data: ImageOptions
    network: ImageNetwork
    exhibits: ImageExhibitParameters

    severity: int = Field(
        5, ge=1, le=5, description="severity of the corruptions, if the stream gives none"
    )
    walk_steps: Literal[1, 2, 4, 5, 10, 20] = Field(
        20,
        description="steps of the walk from one corruption to the next; with 20, each step is a "
        "quarter of a severity, as in CCC",
    )


WITHOUT_IMAGES = (
    *("erm", "adabn", "tent", "tent_adam", "cotta", "cascade"),
    *("cascade_fixed_classifier", "cascade_no_auxiliary", "cascade_plus"),
)


class TextSection(Section):
    """The parameters for reviews, as in the paper's appendix. The schedule of the learning rate is
    DANN's, which the appendix names.

    The paper does not give α, λ or the size of the training batch.
    """

    modality = "text"
    defaults = {
        "dataset": "amazon",
        "methods": WITHOUT_IMAGES,
        "training": {
            "epochs": None,
            "iterations": 1000,
            "training_batch_size": 32,
            "optimizer": "adam",
            "learning_rate": 0.0001,
            "schedule": "dann",
            # With this ratio α equals the online learning rate at the beginning of the schedule.
            "inner_learning_rate_ratio": 10.0,
            "inner_parameters": "all",
            "outer_loss": "paper",
        },
    }

    data: TextOptions
    network: TextNetwork
    exhibits: StepExhibitParameters

    batch_size: int | None = Field(
        None,
        ge=2,
        description="size of the test batches, at least 2, because one vector has no variance for "
        "BatchNorm; null: the paper's 32",
    )


class SpeechSection(Section):
    """The parameters for spoken words, as in the paper's appendix.

    The paper does not give α, λ or the size of the training batch, and does not say whether SGD has
    momentum. Nesterov momentum is used, as for images.
    """

    modality = "speech"
    defaults = {
        "dataset": "speech_commands",
        "methods": WITHOUT_IMAGES,
        "training": {
            "epochs": 50,
            "training_batch_size": 64,
            "schedule": "linear",
            "final_learning_rate": 0.001,
            "inner_parameters": "all",
            "outer_loss": "paper",
        },
        "exhibits": {"ablation_learning_rates": (0.0001, 0.001, 0.01)},
    }

    data: SpeechOptions
    network: SpeechNetwork
    exhibits: StepExhibitParameters


SECTIONS: dict[Modality, type[Section]] = {
    "image": ImageSection,
    "text": TextSection,
    "speech": SpeechSection,
}


def flat_name(modality: str, *place: str) -> str:
    """Return the name of a parameter in profiles and notebooks, from its place in a section.

    The name has the modality and the field, such as `image_severity` or `image_test_size`. If the
    part is the network or the training, its name stands between them: `image_network_depth`,
    `image_training_learning_rate`. A field that already begins with the name of its part
    keeps this name once: `training_batch_size` of the part `training` is
    `image_training_batch_size`.

    place: a field, or a part and its field.
    """
    *part, field = place
    if part and part[0] in NAMED_PARTS:
        field = f"{part[0]}_{field.removeprefix(f'{part[0]}_')}"
    return f"{modality}_{field}"


def parameters_of(modality: Modality) -> dict[tuple[str, ...], FieldInfo]:
    """Return every parameter of a section by its place: a field, or a part and its field."""
    fields = SECTIONS[modality].model_fields
    found: dict[tuple[str, ...], FieldInfo] = {
        (name,): field for name, field in fields.items() if name not in PARTS
    }
    for part in PARTS:
        kind = fields[part].annotation
        assert isinstance(kind, type) and issubclass(kind, BaseModel)
        for name, field in kind.model_fields.items():
            if name not in SAID_ONCE:
                found[(part, name)] = field
    return found
