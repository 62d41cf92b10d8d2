"""A profile: every parameter of the study by one flat name, checked as a whole before any work starts.

Profiles are YAML files that papermill can inject as they are (`papermill … -f profiles/quick.yaml`): one name, one
value. A notebook turns its own parameters into `Settings` by `settings_from(globals())`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from cascadetta_lib.registry import nearest

ROOT = Path(__file__).resolve().parents[1]
"""Relative folders in a profile start here, wherever a notebook is opened from."""
PROFILES = ROOT / "profiles"


class SettingsError(Exception):
    """A parameter that cannot be used; the message names it, its value, what is allowed and where it came from."""


class Settings(BaseModel):
    """All parameters. The defaults are those of the profile `quick` (a test holds the two together)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: str = Field("quick", description="the label that every result carries")
    seed: int = Field(0, ge=0, description="the seed of one job; notebooks work on one")
    seeds: tuple[int, ...] = Field((0,), min_length=1, description="the seeds that run_all.sh runs, a job each")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="auto: cuda where there is one")
    data_folder: str = Field("data", description="where archives are looked for, downloaded to and unpacked")
    results_folder: str = Field("results", description="where checkpoints, runs and executed notebooks go")
    figures_folder: str = Field("results/quick/figures", description="where the report saves figures and tables")

    image_dataset: str | tuple[str, ...] = Field("digits", description="a name, or npz:FOLDER; a list makes a job each")
    image_train_size: int | None = Field(3000, ge=20, description="source images, drawn once; null: all")
    image_test_size: int | None = Field(48, ge=1, description="images of each target domain, the first; null: all")
    image_held_out_fraction: float = Field(0.1, gt=0, lt=1, description="share of the source images set aside")
    image_input_scaling: Literal["symmetric", "unit"] = Field("symmetric", description="(x/255 − 0.5)/0.5, or x/255")
    image_crop_and_flip: bool = Field(False, description="random crop (pad 4) and horizontal flip (the release)")
    image_randomisation: Literal["augmix_batch", "augmix_image"] = Field(
        "augmix_image", description="one AugMix mixture a batch (paper, Algorithm 1) or an image (release)"
    )

    image_augmix_severity: float = Field(
        3.0, ge=-10, le=10, description="of AugMix's operations: 3 is AugMix's own, −1 the release's"
    )

    image_architecture: Literal["auto", "resnet26", "resnet34"] = Field(
        "auto", description="auto: resnet26 up to 64×64 pixels of CIFAR kind, resnet34 for Tiny-ImageNet"
    )
    image_depth: int = Field(8, ge=8, description="depth of the small ResNet, 6n + 2")
    image_width: int = Field(8, ge=2, description="channels of its first stage; the paper's ResNet-26 has 16")
    image_block: Literal["conv_bn_relu", "pre_activation"] = Field(
        "pre_activation", description="residual block as the paper writes it, or as its release has it"
    )
    image_main_logits: Literal["plain", "relu"] = Field(
        "plain", description="z = θ_m(φ(x)) (paper), or max(z, 0) through the release's in-place ReLU"
    )

    image_epochs: int = Field(4, ge=1)
    image_training_batch_size: int = Field(50, ge=4, description="halved into meta-train and meta-test")
    image_learning_rate: float = Field(0.1, gt=0)
    image_schedule: Literal["linear", "steps"] = Field(
        "linear",
        description="linear decay to 0 (paper), or ×0.1 at 20/75 40/75 50/75 60/75 70/75 of the epochs (release)",
    )
    image_weight_decay: float = Field(0.0, ge=0)
    image_inner_learning_rate_ratio: float = Field(0.1, ge=0, description="α as a multiple of the learning rate")
    image_inner_parameters: Literal["all", "batchnorm_and_classifier"] = Field(
        "batchnorm_and_classifier", description="what Eq. 3 moves: all of ψ (paper), or BN and θ_m (release)"
    )
    image_outer_loss: Literal["paper", "release"] = Field(
        "release", description="CE + λ·ENT at ψ', or 0.1·(CE + λ·ENT) at ψ' plus CE at ψ on the other half"
    )
    image_entropy_weight: float = Field(0.1, ge=0, description="λ of Eq. 4")
    image_meta_gradient: Literal["exact", "difference"] = Field(
        "difference", description="the second-order term by double backward, or by a difference of gradients"
    )
    image_precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="of the convolutions and linear layers in training; bfloat16: autocast"
    )

    image_methods: tuple[str, ...] = Field(
        ("erm", "adabn", "tent", "tent_adam", "cotta", "ttt", "cascade", "cascade_plus"),
        min_length=1,
        description="test-time methods",
    )
    image_stream: Literal["instantaneous", "gradual"] | tuple[str, ...] = Field(
        "instantaneous", description="or a list of domains such as [fog, 'snow:3'] (name:severity)"
    )
    image_severity: int = Field(5, ge=1, le=5)
    image_batch_size: int | None = Field(32, ge=1, description="null: 32, and 64 for Tiny-ImageNet, as in the paper")
    image_online_learning_rate: float = Field(0.001, ge=0, description="of every method that adapts")
    image_online_diversity: float | None = Field(
        None, ge=0, description="weight of the entropy of the mean prediction at test time; null: each method's own"
    )
    image_drift_bound: float | None = Field(
        None,
        gt=0,
        description="how far the adapted parameters may go, as a share of their norm; null: each method's own",
    )
    image_statistics_memory: int | None = Field(
        None, ge=0, description="examples that BatchNorm remembers at test time; null: each method's own"
    )
    image_predict: Literal["after", "before"] = Field(
        "after", description="the recorded prediction: after the update (paper), or before it (Tent, CoTTA releases)"
    )
    image_last_batch: Literal["kept", "dropped"] = Field("kept", description="the last short batch of a domain")
    image_forward_transfer: Literal["paper", "release", "none"] = Field(
        "paper", description="F by Eq. 2, as the release computes it (final model less an unadapted one), or not at all"
    )
    image_accuracy_matrix: bool = Field(False, description="also record R(T_i | T_1:j) for every i and j")

    image_ablation_test_size: int | None = Field(16, ge=1, description="images of each domain in the ablations")
    image_gradual_test_size: int | None = Field(2, ge=1, description="images of each of the 135 gradual domains")
    image_batch_sizes: tuple[int, ...] = Field((32, 16), min_length=1, description="of the ablation by batch size")
    image_learning_rates: tuple[float, ...] = Field(
        (0.001, 0.01), min_length=1, description="online ones, of the ablation by learning rate × batch size"
    )
    image_learning_rate_batch_sizes: tuple[int, ...] = Field((16,), min_length=1, description="of the same ablation")
    image_orders: int = Field(1, ge=1, description="random orders of the stream, beside the standard one")

    image_trial_depth: int = Field(8, ge=8, description="of the networks on which 08_collapse tries objectives, 6n + 2")
    image_trial_train_size: int | None = Field(300, ge=20, description="source images of these; null: all")
    image_trial_epochs: int = Field(1, ge=1, description="epochs of these")
    image_trial_training_batch_size: int = Field(50, ge=4, description="batch of their pre-training")
    image_trial_schedule: Literal["linear", "steps"] = Field("linear", description="its schedule of the learning rate")
    image_choice_learning_rates: tuple[float, ...] = Field(
        (0.001, 0.01), min_length=1, description="online ones, of which 08_collapse chooses each method's on the source"
    )
    image_choice_size: int | None = Field(
        16, ge=1, description="held-out source images under each of the four corruptions that choose; null: all"
    )
    image_comparison_test_size: int | None = Field(
        16, ge=1, description="images of each domain in the comparison that follows; null: all"
    )

    text_dataset: str | tuple[str, ...] = Field("reviews", description="a name, or amazon:FOLDER; a list: a job each")
    text_train_size: int | None = Field(None, ge=20, description="source reviews, drawn once; null: all")
    text_test_size: int | None = Field(None, ge=1, description="reviews of each target domain; null: all")
    text_held_out_fraction: float = Field(0.1, gt=0, lt=1, description="share of the source reviews set aside")
    text_synthetic_shift: float = Field(
        0.5, ge=0, le=1, description="of the dataset reviews: the share of opinion words that are the domain's own"
    )
    text_features: Literal["auto", "msda", "counts"] = Field(
        "auto", description="mSDA of the n-gram counts, or the counts; auto: mSDA of raw text, count files as they are"
    )
    text_vocabulary_size: int = Field(1000, ge=10, description="most frequent unigrams and bigrams of the source")
    text_msda_layers: int = Field(1, ge=1)
    text_msda_probability: float = Field(0.5, gt=0, lt=1, description="with which mSDA drops a feature")
    text_msda_solver: Literal["cholesky", "conjugate_gradient"] = "cholesky"
    text_msda_output: Literal["last", "all"] = Field(
        "last", description="the last layer, or the input and all layers side by side"
    )
    text_eda_strength: float = Field(
        0.05, gt=0, le=1, description="α of EDA, the share of words changed; its reference for 500 to 2,000 texts"
    )
    text_eda_copies: int = Field(8, ge=1, description="augmented versions of a review; EDA's reference for 2,000 texts")

    text_hidden: tuple[int, ...] = Field(
        (64, 32), min_length=1, description="layers of φ: [1024, 512] (appendix) or [50, 50] (Sec. 5.2)"
    )

    text_iterations: int = Field(300, ge=1)
    text_training_batch_size: int = Field(32, ge=4, description="halved into meta-train and meta-test")
    text_optimizer: Literal["sgd", "adam"] = "adam"
    text_learning_rate: float = Field(0.001, gt=0)
    text_schedule: Literal["linear", "steps", "dann"] = Field("dann", description="dann: η/(1 + 10p)^0.75 (appendix)")
    text_weight_decay: float = Field(0.0, ge=0)
    text_inner_learning_rate_ratio: float = Field(1.0, ge=0, description="α as a multiple of the learning rate")
    text_inner_parameters: Literal["all", "batchnorm_and_classifier"] = "all"
    text_outer_loss: Literal["paper", "release"] = "paper"
    text_entropy_weight: float = Field(0.1, ge=0, description="λ of Eq. 4")
    text_meta_gradient: Literal["exact", "difference"] = "exact"

    text_methods: tuple[str, ...] = Field(
        (
            "erm",
            "adabn",
            "tent",
            "tent_adam",
            "cotta",
            "cascade",
            "cascade_fixed_classifier",
            "cascade_no_auxiliary",
            "cascade_plus",
        ),
        min_length=1,
        description="test-time methods",
    )
    text_stream: Literal["instantaneous"] | tuple[str, ...] = Field(
        "instantaneous", description="dvd, electronics, kitchen; or a list of your own, also with the source, books"
    )
    text_batch_size: int = Field(32, ge=2, description="one vector has no variance, which BatchNorm divides by")
    text_online_learning_rate: float = Field(0.001, ge=0, description="of every method that adapts")
    text_online_diversity: float | None = Field(
        None, ge=0, description="weight of the entropy of the mean prediction at test time; null: each method's own"
    )
    text_drift_bound: float | None = Field(
        None,
        gt=0,
        description="how far the adapted parameters may go, as a share of their norm; null: each method's own",
    )
    text_statistics_memory: int | None = Field(
        None, ge=0, description="examples that BatchNorm remembers at test time; null: each method's own"
    )
    text_predict: Literal["after", "before"] = "after"
    text_last_batch: Literal["kept", "dropped"] = "kept"
    text_forward_transfer: Literal["paper", "release", "none"] = "paper"
    text_accuracy_matrix: bool = False

    speech_dataset: str | tuple[str, ...] = Field(
        "synthetic_speech", description="a name, or speech_commands:FOLDER; a list makes a job each"
    )
    speech_train_size: int | None = Field(None, ge=20, description="source utterances, drawn once; null: all")
    speech_test_size: int | None = Field(None, ge=1, description="utterances of each target domain; null: all")
    speech_held_out_fraction: float = Field(
        0.1, gt=0, lt=1, description="share of the source utterances set aside, where the data brings no list for it"
    )
    speech_augmentation_probability: float = Field(0.5, ge=0, le=1, description="of each training augmentation")

    speech_epochs: int = Field(10, ge=1)
    speech_training_batch_size: int = Field(64, ge=4, description="halved into meta-train and meta-test")
    speech_optimizer: Literal["sgd", "adam"] = "sgd"
    speech_learning_rate: float = Field(0.1, gt=0)
    speech_final_learning_rate: float = Field(0.001, ge=0, description="at the end of the linear schedule")
    speech_schedule: Literal["linear", "steps", "dann"] = "linear"
    speech_weight_decay: float = Field(0.0, ge=0)
    speech_inner_learning_rate_ratio: float = Field(0.1, ge=0, description="α as a multiple of the learning rate")
    speech_inner_parameters: Literal["all", "batchnorm_and_classifier"] = "all"
    speech_outer_loss: Literal["paper", "release"] = "paper"
    speech_entropy_weight: float = Field(0.1, ge=0, description="λ of Eq. 4")
    speech_meta_gradient: Literal["exact", "difference"] = "difference"

    speech_methods: tuple[str, ...] = Field(
        (
            "erm",
            "adabn",
            "tent",
            "tent_adam",
            "cotta",
            "cascade",
            "cascade_fixed_classifier",
            "cascade_no_auxiliary",
            "cascade_plus",
        ),
        min_length=1,
        description="test-time methods",
    )
    speech_stream: Literal["instantaneous"] | tuple[str, ...] = Field(
        "instantaneous", description="amplitude, pitch, noise, stretch, shift; or a list of your own, also with clean"
    )
    speech_batch_size: int = Field(32, ge=1)
    speech_online_learning_rate: float = Field(0.001, ge=0, description="of every method that adapts")
    speech_online_diversity: float | None = Field(
        None, ge=0, description="weight of the entropy of the mean prediction at test time; null: each method's own"
    )
    speech_drift_bound: float | None = Field(
        None,
        gt=0,
        description="how far the adapted parameters may go, as a share of their norm; null: each method's own",
    )
    speech_statistics_memory: int | None = Field(
        None, ge=0, description="examples that BatchNorm remembers at test time; null: each method's own"
    )
    speech_predict: Literal["after", "before"] = "after"
    speech_last_batch: Literal["kept", "dropped"] = "kept"
    speech_forward_transfer: Literal["paper", "release", "none"] = "paper"
    speech_accuracy_matrix: bool = False

    @field_validator("image_depth", "image_trial_depth")
    @classmethod
    def _depth(cls, depth: int) -> int:
        if (depth - 2) % 6:
            raise ValueError("the depth is 6n + 2: 8, 14, 20, 26, 32, …")
        return depth

    @field_validator(
        "image_batch_sizes", "image_learning_rates", "image_learning_rate_batch_sizes", "image_choice_learning_rates"
    )
    @classmethod
    def _several(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if min(values) <= 0 or len(set(values)) < len(values):
            raise ValueError("they are different numbers above 0")
        return values

    @field_validator("text_hidden")
    @classmethod
    def _hidden(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if min(sizes) < 1:
            raise ValueError("a layer has at least 1 unit")
        return sizes

    @field_validator("image_methods", "text_methods", "speech_methods")
    @classmethod
    def _methods(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        from cascadetta_lib.methods import METHODS  # here, because it imports torch

        modality = _modality(info)
        for name in names:
            if modality not in METHODS[name].modalities:
                allowed = [other for other in METHODS if modality in METHODS[other].modalities]
                raise ValueError(f"{name} is not defined for {modality}; {nearest(name, allowed)}")
        if len(set(names)) < len(names):
            raise ValueError("a method is named twice")
        return names

    @field_validator("image_dataset", "text_dataset", "speech_dataset")
    @classmethod
    def _dataset(cls, names: str | tuple[str, ...], info: ValidationInfo) -> str | tuple[str, ...]:
        from cascadetta_lib.data import check_name

        several = (names,) if isinstance(names, str) else names
        if not several or len(set(several)) < len(several):
            raise ValueError("name one dataset, or several different ones")
        for name in several:
            check_name(name, _modality(info))
        return names

    @field_validator("seeds")
    @classmethod
    def _seeds(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if min(seeds) < 0 or len(set(seeds)) < len(seeds):
            raise ValueError("seeds are different whole numbers from 0 on")
        return seeds

    @field_validator("image_stream", "text_stream", "speech_stream")
    @classmethod
    def _stream(cls, stream: str | tuple[str, ...], info: ValidationInfo) -> str | tuple[str, ...]:
        from cascadetta_lib.streams import make_stream

        make_stream(stream, _modality(info), severity=5)
        return stream

    @property
    def data_path(self) -> Path:
        """data_folder as an absolute path; so for the next two."""
        return ROOT / Path(self.data_folder).expanduser()

    @property
    def results_path(self) -> Path:
        return ROOT / Path(self.results_folder).expanduser()

    @property
    def figures_path(self) -> Path:
        return ROOT / Path(self.figures_folder).expanduser()

    def datasets(self, modality: str) -> tuple[str, ...]:
        """The datasets of a modality by name; a relative folder in KIND:FOLDER starts at the repository."""
        names = getattr(self, f"{modality}_dataset")
        kinds = [name.partition(":") for name in ((names,) if isinstance(names, str) else names)]
        return tuple(f"{kind}:{ROOT / Path(folder).expanduser()}" if folder else kind for kind, _, folder in kinds)


def _modality(info: ValidationInfo) -> Any:
    """`image` of `image_stream`."""
    return str(info.field_name).partition("_")[0]


def _message(error: ValidationError, origins: Mapping[str, str]) -> str:
    """The first fault of `error` in one sentence: name, value, what is allowed, where it came from."""
    fault = error.errors()[0]
    name = str(fault["loc"][0])
    origin = origins.get(name, "the defaults")
    if fault["type"] == "extra_forbidden":
        return f"{name} (from {origin}) is no parameter; {nearest(name, Settings.model_fields)}"
    field = Settings.model_fields[name]
    about = f" ({field.description})" if field.description else ""
    reason = fault["msg"].removeprefix("Value error, ")
    if isinstance(fault["input"], str) and "expected" in fault.get("ctx", {}):
        allowed = str(fault["ctx"]["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
        reason = nearest(fault["input"], allowed)
    return f"{name} = {fault['input']!r} (from {origin}): {reason}{about}"


def make_settings(values: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> Settings:
    """Settings from flat `values`; `origins` says for each name where its value came from.

    Raises SettingsError with one message for the first value that cannot be used.
    """
    try:
        return Settings(**values)
    except ValidationError as error:
        raise SettingsError(_message(error, origins or {})) from None


def settings_from(variables: Mapping[str, Any]) -> Settings:
    """Settings from a notebook's own variables: `settings_from(globals())` after its parameters cell."""
    values = {name: variables[name] for name in Settings.model_fields if name in variables}
    return make_settings(values, dict.fromkeys(values, "the notebook's parameters"))


def load_profile(profile: str, overrides: Mapping[str, str] | None = None) -> Settings:
    """The profile of that name in profiles/, or a YAML file at that path, with `overrides` NAME=VALUE (YAML values).

    A name that a file of your own does not set has the value of `quick`. Raises SettingsError.
    """
    known = sorted(path.stem for path in PROFILES.glob("*.yaml"))
    path = PROFILES / f"{profile}.yaml" if profile in known else Path(profile)
    if not path.is_file():
        raise SettingsError(f"--profile {profile}: no such profile or file; {nearest(profile, known)}")
    try:
        values = yaml.safe_load(path.read_text()) or {}
        changes = {name: yaml.safe_load(text) for name, text in (overrides or {}).items()}
    except yaml.YAMLError as error:
        raise SettingsError(f"--profile {profile} or --set is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise SettingsError(f"--profile {profile}: the file holds no names and values")
    origins = dict.fromkeys(values, str(path)) | dict.fromkeys(changes, "--set")
    return make_settings({"profile": path.stem} | values | changes, origins)
