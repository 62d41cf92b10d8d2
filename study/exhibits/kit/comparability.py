"""Whether the numbers of a run compare with the paper's."""

from collections.abc import Sequence

from cascadetta_lib.data import DATASETS
from cascadetta_lib.data.cifar10_sample import FINGERPRINT
from study.store import Run

BANNER = (
    "Not the paper's data. These numbers show that the machinery runs; nothing here compares with "
    "the paper, so no row of the paper and no verdict stands beside them."
)
"""What stands above an exhibit on data that stand in for the paper's."""


def stand_in(run: Run) -> bool:
    """Return whether a run's data stand in for the paper's: data that come with a package or are
    made up (`data.Entry.real` is False), or data of the user's own (`data.Entry.own`).

    If so, the run's numbers must not stand beside the paper's.
    """
    dataset = DATASETS[run.request.checkpoint.dataset_kind]
    return not dataset.real or dataset.own


def beside_the_paper(run: Run) -> bool:
    """Return whether the paper's numbers may stand beside a run's.

    They may not if the data stand in for the paper's (see `stand_in`). Nor may they if a published
    network ran on a `cifar10_sample` that does not hold the official images.
    """
    asked = run.request.checkpoint
    is_sample = asked.dataset_kind == "cifar10_sample"
    other_sample = is_sample and run.provenance.fingerprint != FINGERPRINT
    return not stand_in(run) and not (other_sample and asked.published)


def trained_on_other_data(run: Run) -> bool:
    """Return whether a run's network has a card that names other data than the run's."""
    known = run.provenance.card.get("data_fingerprint")
    return known is not None and known != run.provenance.fingerprint


def warning(runs: Sequence[Run]) -> str:
    """Warn if the numbers of some of these runs compare with the paper's only roughly, or not at
    all. Empty if all runs are on the paper's data as published, with all test examples and on
    networks that learned from these data.
    """
    if any(map(stand_in, runs)):
        return "**Not the paper's data: these numbers do not compare with the paper's.**"
    others = {run.provenance.card["data"] for run in runs if trained_on_other_data(run)}
    if others:
        return (
            f"**The networks were trained on other data: {', '.join(sorted(others))}. Compare "
            "differences between methods with the paper's, but not these errors.**"
        )
    if all(run.provenance.official_data and run.request.test_size is None for run in runs):
        return ""
    return "Not the paper's data as published: compare these errors with the paper's only roughly."
