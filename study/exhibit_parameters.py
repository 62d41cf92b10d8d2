"""Parameters that only some exhibits use: on how many images, at which batch sizes and at which
rates the exhibits run.

They are in no key. An exhibit makes ordinary parameters of its runs from them, such as `test_size`.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field


def different(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `values`. Raises ValueError unless there is at least one and no two are equal."""
    if not values or len(set(values)) < len(values):
        raise ValueError("allowed is one value, or several different ones")
    return values


Rates = Annotated[tuple[Annotated[float, Field(gt=0)], ...], AfterValidator(different)]
Sizes = Annotated[tuple[Annotated[int, Field(ge=1)], ...], AfterValidator(different)]
Orders = Annotated[tuple[Annotated[int, Field(ge=0)] | None, ...], AfterValidator(different)]
RATES = (0.0001, 0.0003, 0.001, 0.003, 0.01)


class StepExhibitParameters(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What the exhibits on text and speech ask for besides the main study."""

    ablation_learning_rates: Rates = Field(
        (0.0001, 0.001, 0.01, 0.1),
        description="online learning rates, tried with each method's own optimizer and with Adam",
    )


class ImageExhibitParameters(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What the exhibits on images ask for besides the main study."""

    ablation_test_size: int | None = Field(
        None, ge=1, description="images of each domain in the ablations; null: all"
    )
    gradual_test_size: int | None = Field(
        None,
        ge=1,
        description="images of each domain on the gradual streams, on the walk and, in the exhibit "
        "`rate_selection`, on the recurring stream; null: all",
    )
    long_test_size: int | None = Field(
        None, ge=1, description="images of each domain on the long stream; null: all"
    )
    long_order_seeds: Orders = Field(
        (None,),
        description="order seeds of the long stream in the exhibits `step_size`, `orders` and "
        "`tent_row`, one run for each; null: the profile's own order",
    )
    ablation_batch_sizes: Sizes = Field(
        (128, 64, 32, 16, 8, 4, 2, 1), description="batch sizes of the ablation by batch size"
    )
    ablation_learning_rates: Rates = Field(
        RATES, description="online learning rates of the ablation by learning rate and batch size"
    )
    ablation_rate_batch_sizes: Sizes = Field(
        (128, 32, 8), description="batch sizes of the ablation by learning rate"
    )
    trial_train_size: int | None = Field(
        None, ge=20, description="source images of 07_collapse's trials; null: all"
    )
    trial_epochs: int = Field(
        75, ge=1, description="epochs of the networks that 07_collapse trains to try conditions"
    )
    choice_learning_rates: Rates = Field(
        RATES, description="online learning rates that 07_collapse and 09_field choose from"
    )
    choice_size: int | None = Field(
        None,
        ge=1,
        description="held-out source images under each of the four corruptions by which learning "
        "rates are chosen; null: all",
    )
    comparison_batch_sizes: Sizes = Field(
        (200, 16, 4, 1), description="batch sizes of the comparison in 09_field"
    )
    comparison_test_size: int | None = Field(
        None, ge=1, description="images of each domain in 07_collapse and 09_field; null: all"
    )

    @property
    def chooses_rates(self) -> bool:
        """Whether there are several learning rates to choose from."""
        return len(self.choice_learning_rates) > 1
