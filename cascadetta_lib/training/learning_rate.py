"""Schedules of the learning rate β in pre-training, with and without meta-learning."""

from cascadetta_lib.training.settings import Training

STEPS = {"steps": (20, 40, 50, 60, 70), "ttt_steps": (50, 65)}
"""The epochs, of 75, at which a schedule multiplies the learning rate by 0.1: `steps` as in the
paper's release, `ttt_steps` as in TTT's.
"""


def learning_rate_at(training: Training, share: float) -> float:
    """Return the learning rate β when `share` (0..1) of the training is done."""
    first = training.learning_rate
    if training.schedule == "linear":
        return first + share * (training.final_learning_rate - first)
    if training.schedule == "dann":
        return first / (1 + 10 * share) ** 0.75
    return first * 0.1 ** sum(share >= epoch / 75 for epoch in STEPS[training.schedule])
