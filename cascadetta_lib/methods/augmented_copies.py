"""The base class of methods that learn from augmented copies of a batch."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from cascadetta_lib.allowed import require_choice
from cascadetta_lib.augment.image import cotta_copies
from cascadetta_lib.data.base import Copies
from cascadetta_lib.methods.base import Method
from cascadetta_lib.methods.value_range import ValueRange


class WithCopies(Method):
    """A method that takes the options `copies` and `value_range`.

    copies: what makes the augmented copies. "image": the method's own augmentation of RGB images.
        For other data: a function `copies(x, count, generator)` that yields `count` copies of x.
        For recordings, Dataset.augmented_copies is such a function. None: no copies.
    value_range: the values of black and white in images x. None: (−1, 1). Copies are clipped to
        these values. A warning is given if the first batch has values outside this range, or if
        the option is None and the first batch has no negative value.

    Class attribute: `image_copies` is the augmentation of images; by default it is CoTTA's.
    """

    image_copies: ClassVar[Callable[..., Iterator[Tensor]]] = staticmethod(cotta_copies)

    def __init__(
        self,
        model: nn.Module,
        *,
        copies: Copies | Literal["image"] | None = "image",
        value_range: tuple[float, float] | None = None,
        **options: Any,
    ) -> None:
        if copies is not None and not callable(copies):
            require_choice(f"{self.label}: copies", copies, ["image"])
        self.copies = copies
        self.value_range = ValueRange(self.label, value_range)
        super().__init__(model, **options)

    def configure_model(self) -> None:
        """Raise ValueError if images are to be augmented, and the network has convolutions but no
        convolution with three input channels.
        """
        channels = [
            child.in_channels for child in self.model.modules() if isinstance(child, nn.Conv2d)
        ]
        if self.copies == "image" and channels and 3 not in channels:
            name = type(self.model).__name__
            raise ValueError(
                f"{self.label} augments RGB images, but {name} takes none; pass copies=None or a "
                "function"
            )
        super().configure_model()

    def copies_of(self, x: Tensor) -> Copies | None:
        """Return the function that makes augmented copies of a batch like x; None if there are no
        copies.

        Raises ValueError if the function needs RGB images, and the shape of x is not (B, 3, H, W).
        """
        if self.copies != "image":
            return self.copies
        if x.ndim != 4 or x.shape[1] != 3:
            shape = tuple(x.shape)
            raise ValueError(
                f"{self.label} augments RGB images, not {shape}; pass copies=None or a function"
            )
        self.value_range.check(x)
        return partial(self.image_copies, value_range=self.value_range.ends)
