"""Walks from one corruption of images to another, after CCC (Press et al. 2023).

A walk from A to B has the places k = 1..20. At place k, images are corrupted by A at severity
5 − k/4, and then by B at severity k/4. At place 20 only B is applied. Each place is a domain, whose
name is `A_to_B` and whose severity is k.

CCC differs in four ways. It changes one severity at a time; here the sum of both severities is 5.
It follows the path on which the mean accuracy of a ResNet-50 is nearest to a target; here the
difficulty varies. It goes on to a random corruption; here the order of the corruptions is that of
the standard stream or of an order seed. It has random images at each place; here each place has the
same images.
"""

WALK_STEPS = 20
"""The number of places of a walk. Neighbouring places are a quarter of a severity apart."""
TO = "_to_"
"""What separates the two corruptions in the name of a walk."""


def is_walk(name: str) -> bool:
    """Return whether `name` is the name of a walk's domains."""
    return TO in name


def walk_name(first: str, last: str) -> str:
    """Return the name of the domains of a walk from `first` to `last`."""
    return f"{first}{TO}{last}"


def ends_of(name: str) -> list[str]:
    """Return the two corruptions of a walk, in their order. For any other domain, return its name
    alone.
    """
    return name.split(TO)
