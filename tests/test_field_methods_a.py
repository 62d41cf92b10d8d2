"""EATA, ETA, SAR, RDumb, DeYO and RPL, each held to its equations worked out by hand."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from cascadetta_lib.data.base import Split
from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.methods import METHODS


class WithSource(METHODS["adabn"]):  # type: ignore[misc, valid-type]
    label, needs_source = "Needy", True


def test_source_is_of_the_held_out_examples_or_else_of_the_training_ones(dataset: ImageDataset) -> None:
    assert METHODS["adabn"].source_of(dataset) is None
    assert torch.equal(WithSource.source_of(dataset), dataset.prepare(dataset.held_out.x))
    nothing = Split(dataset.train.x[:0], dataset.train.y[:0])
    dataset.held_out = nothing
    assert torch.equal(WithSource.source_of(dataset), dataset.prepare(dataset.train.x))
    dataset.train = nothing
    with pytest.raises(ValueError, match="Needy needs images of the source, and blobs has none"):
        WithSource.source_of(dataset)


def test_of_a_long_source_the_first_two_thousand_are_taken() -> None:
    split = Split(torch.arange(2500), torch.zeros(2500))
    assert len(WithSource.source_of(SimpleNamespace(held_out=split, prepare=lambda x: x))) == 2000


def test_without_its_source_a_method_is_refused() -> None:
    for source in (None, torch.empty(0, 4)):
        with pytest.raises(ValueError, match="Needy needs examples that the model.*pass them as source="):
            WithSource(nn.BatchNorm1d(4), source=source)
    assert WithSource(nn.BatchNorm1d(4), source=torch.ones(2, 4)).source is not None
