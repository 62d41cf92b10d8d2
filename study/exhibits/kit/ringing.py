"""Where along a run the alarm for collapse rings."""

import pandas as pd

from cascadetta_lib.evaluation.alarm import moving_agreement, rings
from study.store import Run


def has_alarm(run: Run) -> bool:
    """Return whether the level of the alarm was recorded. Earlier versions did not record it."""
    return "alarm_level" in run.batches


def has_source_agreement(run: Run) -> bool:
    """Return whether the agreement with the source was recorded. It is an option of a run."""
    return "source_agreement" in run.batches


def moving_source_agreement(run: Run) -> pd.Series:
    """Return the moving mean of the agreement with the source, after each batch of a run that
    recorded it.
    """
    batches = run.batches
    means = moving_agreement(batches["source_agreement"].tolist(), batches["count"].tolist())
    return pd.Series(means, batches.index)


def ringing(run: Run) -> pd.Series:
    """Return whether the alarm rings, for each batch of a run; False where its level was not
    recorded.
    """
    if not has_alarm(run):
        return pd.Series(False, run.batches.index)
    return rings(run.batches["alarm_level"])


def ringing_steps(run: Run) -> set[int]:
    """Return the domains in which the alarm rings, as places in the stream, counted from 0."""
    return {int(step) for step in run.batches["step"][ringing(run)]}
