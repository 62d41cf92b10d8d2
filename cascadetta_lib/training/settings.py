"""The settings of a training: its length, its rates, and what the paper leaves open."""

from typing import Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

InnerParameters = Literal["all", "batchnorm_and_classifier"]
"""What the inner step moves: all of ψ; or θ_m and the normalisation layers of φ, which are
BatchNorm in the networks of this study.
"""
OuterLossName = Literal["paper", "release"]


class Training(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """The settings of a training, for a number of epochs or of iterations.

    SGD has Nesterov momentum 0.9 (appendix). The defaults are the release's settings for images. A
    literal reading of the paper is not expected to reach the paper's rows of ERM and AdaBN.
    """

    epochs: int | None = Field(
        75, ge=1, description="passes over the source; null where the iterations are counted"
    )
    iterations: int | None = Field(
        None, ge=1, description="batches in all; null where the epochs are counted"
    )
    training_batch_size: int = Field(
        200,
        ge=4,
        description="examples in a batch; meta-learning halves it into meta-train and meta-test",
    )
    optimizer: Literal["sgd", "adam"] = Field("sgd", description="sgd: with Nesterov momentum 0.9")
    learning_rate: float = Field(0.1, gt=0, description="β, at the start; TTT has its own, 0.1")
    schedule: Literal["linear", "steps", "ttt_steps", "dann"] = Field(
        "steps",
        description="linear decay to final_learning_rate (paper), ×0.1 at 20/75 40/75 50/75 60/75 "
        "70/75 of the training (release) or at 50/75 65/75 (TTT), or dann: β/(1 + 10p)^0.75, "
        "where p is the share of the training that is done (appendix); TTT has its own, ttt_steps",
    )
    final_learning_rate: float = Field(0.0, ge=0, description="at the end of the linear schedule")
    weight_decay: float = Field(0.0, ge=0, description="on all parameters; TTT has its own, 0.0005")
    inner_learning_rate_ratio: float = Field(
        0.1, ge=0, description="α as a multiple of the learning rate β"
    )
    inner_parameters: InnerParameters = Field(
        "batchnorm_and_classifier",
        description="what Eq. 3 moves: all of ψ (paper), or BN and θ_m (release)",
    )
    outer_loss: OuterLossName = Field(
        "release",
        description="paper: CE + λ·ENT at ψ'; release: 0.1·(CE + λ·ENT) at ψ' plus CE at ψ on the "
        "other half; meta_ttt always has the paper's",
    )
    entropy_weight: float = Field(
        0.1,
        ge=0,
        description="λ of Eq. 4; meta_ttt (1.0) and multi_task_light_entropy (0.01) have their own",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="of the convolutions and linear layers in training; bfloat16: autocast; "
        "meta-learning stays in float32",
    )

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.epochs is None) == (self.iterations is None):
            raise ValueError(
                f"epochs = {self.epochs}, iterations = {self.iterations}: exactly one of the two "
                "must be null (None)"
            )
        return self

    def iterations_for(self, batches: int) -> int:
        """Return the number of batches of the whole training. `batches` is the number per epoch."""
        if self.iterations is not None:
            return self.iterations
        assert self.epochs is not None, "one of the two is given"
        return self.epochs * batches


class KnownTraining(Training, frozen=True):
    """The training recorded with a network, and how its meta-gradient was computed.

    meta_gradient: `exact`; or `difference`, a difference of two gradients, which is no longer
    offered. The shipped networks used `difference`. A Training is accepted in place of a mapping
    and counts as `exact`.
    """

    meta_gradient: Literal["exact", "difference"] = "exact"

    @model_validator(mode="before")
    @classmethod
    def _from_training(cls, given: Any) -> Any:
        return given.model_dump() if isinstance(given, Training) else given
