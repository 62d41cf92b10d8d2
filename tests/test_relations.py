"""What a method keeps when its input or its network changes in a way that says nothing: the order
of the examples in a batch, the names of the classes, a constant on all logits, each example twice,
precision.

A row is a relation, tried on every method for which it holds by its equations.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from conftest import seeded
from test_methods_on_networks import CASCADES, REMEMBER, batch, build, make
from torch import Tensor, nn

from cascadetta_lib.methods import METHODS

pytestmark = pytest.mark.usefixtures("small_updates")
SIZES = (8, 5, 9)
KEEP_ORDER = {"rotta", "petta", "note"}
"""Methods that take examples into a memory one by one."""
DRAW = {"cotta", "memo", "deyo", "roid", "cmf"}
"""Methods whose random augmentations or cuts go by the place in the batch."""
BY_PLACE = torch.randperm(9, generator=seeded(4))
BY_CLASS = torch.tensor([2, 0, 3, 1])


class Case(NamedTuple):
    """A network and its batches."""

    model: nn.Module
    batches: list[Tensor]


def plain(name: str) -> Case:
    return Case(build("plain", name), [batch("plain", count, count) for count in SIZES])


def logits(name: str, case: Case) -> list[Tensor]:
    """What a method predicts of each batch, one after the other."""
    dtype = case.batches[0].dtype
    method = make(name, case.model, "float64" if dtype == torch.float64 else "plain")
    return [method(x).double() for x in case.batches]


def order_of(size: int) -> Tensor:
    return BY_PLACE[BY_PLACE < size]


def classifier(model: nn.Module, name: str) -> nn.Linear:
    found = model.get_submodule("main_classifier" if name in CASCADES else "1")
    assert isinstance(found, nn.Linear)
    return found


def in_another_order(name: str, case: Case) -> Case:
    return Case(case.model, [x[order_of(len(x))] for x in case.batches])


@torch.no_grad()
def with_other_class_names(name: str, case: Case) -> Case:
    head = classifier(case.model, name)
    head.weight.copy_(head.weight[BY_CLASS])
    head.bias.copy_(head.bias[BY_CLASS])
    theta_a = getattr(case.model, "auxiliary_classifier", None)
    if theta_a is not None:
        theta_a.weight.copy_(theta_a.weight[:, BY_CLASS])
    return case


@torch.no_grad()
def with_a_constant(name: str, case: Case) -> Case:
    classifier(case.model, name).bias.add_(2.5)
    return case


def in_double_precision(name: str, case: Case) -> Case:
    return Case(case.model.double(), [x.double() for x in case.batches])


def twice(name: str, case: Case) -> Case:
    return Case(case.model, [torch.cat([x, x]) for x in case.batches])


class Relation(NamedTuple):
    """change: what changes. expected: what then comes of the logits of a batch. without: methods
    for which it does not hold.
    """

    change: Callable[[str, Case], Case]
    expected: Callable[[Tensor], Tensor]
    without: set[str]


RELATIONS = {
    "order of the examples": Relation(
        in_another_order, lambda z: z[order_of(len(z))], KEEP_ORDER | DRAW
    ),
    "names of the classes": Relation(with_other_class_names, lambda z: z[:, BY_CLASS], set()),
    "a constant on all logits": Relation(
        with_a_constant, lambda z: z + 2.5, {"t3a", "lame"} | CASCADES - {"cascade_no_auxiliary"}
    ),
    "each batch twice": Relation(
        twice,
        lambda z: torch.cat([z, z]),
        KEEP_ORDER | DRAW | REMEMBER | {"tema", "lame", "t3a"},
    ),
    "float64": Relation(in_double_precision, lambda z: z, set()),
}


CELLS = [
    (relation, name)
    for relation in RELATIONS
    for name in METHODS
    if name != "ttt" and name not in RELATIONS[relation].without
]


@pytest.mark.parametrize(("relation", "name"), CELLS)
def test_what_says_nothing_changes_nothing(relation: str, name: str) -> None:
    change, expected, _ = RELATIONS[relation]
    before = [expected(z) for z in logits(name, plain(name))]
    after = logits(name, change(name, plain(name)))
    for one, other in zip(before, after, strict=True):
        shown = one.softmax(1), other.softmax(1)
        if relation == "a constant on all logits":
            shown = one, other
        assert torch.allclose(*shown, atol=2e-3), (one - other).abs().max()
