"""The base class of methods that need source examples, and the choice of these examples."""

from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

from cascadetta_lib.data.base import Dataset
from cascadetta_lib.methods.base import Method


class WithSource(Method):
    """A method that takes the option `source`.

    source: examples (N, …) of the data that the model was trained on, prepared for the network,
        without labels. Raises ValueError if there are none, or if this is no tensor of examples.
    """

    needs_source = True
    source: Tensor | None

    def __init__(self, model: nn.Module, *, source: Tensor | None = None, **options: Any) -> None:
        if not isinstance(source, Tensor) or not source.ndim or not len(source):
            raise ValueError(
                f"{self.label} needs examples that the model was trained on; pass them as source="
            )
        self.source = source
        super().__init__(model, **options)

    @contextmanager
    def reading_source(self, source: Tensor) -> Iterator[None]:
        """Turn a RuntimeError of the network into a ValueError about the source examples (N, …).

        An error about a lack of memory is raised as it is.
        """
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise ValueError(
                f"{self.label}: the network cannot take source examples of shape "
                f"{tuple(source.shape[1:])} ({first_sentence(error)})"
            ) from error


def first_sentence(error: Exception) -> str:
    """Return the first sentence of an error's message, shortened to 150 characters."""
    line = str(error).partition("\n")[0]
    return shorten(line.partition(". ")[0].rstrip("."), 150)


def source_examples(method: type[Method], dataset: Dataset, most: int = 2000) -> Tensor | None:
    """Return the first `most` held-out source examples of a dataset, prepared, as the option
    `source`.

    Return None if the method needs no source examples. Raises ValueError if the dataset has none.
    """
    if not method.needs_source:
        return None
    if not len(dataset.held_out.x):
        lack = f"{method.label} needs {dataset.unit} of the source, and {dataset.name} has none"
        raise ValueError(f"{lack}; use another dataset, or a method that needs none")
    return dataset.prepare(dataset.held_out.x[:most])
