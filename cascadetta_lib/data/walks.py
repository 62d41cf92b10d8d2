"""Walks from one corruption of images to another, as in CCC (Press et al. 2023).

A walk from A to B has 20 places. At place k, images are corrupted by A at severity 5 − k/4, and
then by B at k/4; at place 20, by B alone at severity 5. The domains are named `A_to_B`, with k in
the place of the severity.

CCC differs: it changes one severity at a time, along the path on which the mean accuracy of a
ResNet-50 is nearest to a target, goes on to a random corruption, and has random images at each
place. Here the sum of both severities is 5 and the difficulty is not held; the order is that of the
standard stream or of an order seed, and each place has the same images.
"""

WALK_STEPS = 20
"""The places of a walk, each a quarter of a severity from the last."""
TO = "_to_"
"""What stands between the two corruptions in the name."""


def is_walk(name: str) -> bool:
    """Return whether the domain of this name is one of a walk."""
    return TO in name


def walk_name(first: str, last: str) -> str:
    """Return the name of the domains of a walk."""
    return f"{first}{TO}{last}"


def ends_of(name: str) -> list[str]:
    """Return the two corruptions of a walk in their order; of any other domain, its own name."""
    return name.split(TO)
