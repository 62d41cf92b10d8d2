"""Refuse networks that recompute a part in the backward pass, by torch.utils.checkpoint."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.autograd.graph import disable_saved_tensors_hooks
from torch.utils.checkpoint import CheckpointFunction


@contextmanager
def refuse_recomputation(name: str) -> Iterator[None]:
    """Raise ValueError if a network that is called inside `with` would recompute a part later.

    `call_with` replaces parameters during a call and puts them back before the backward pass. A
    part that is recomputed in the backward pass would see the original parameters, and the gradient
    would mix two networks.

    name: the function or method that needs the gradient. The message begins with it.
    """
    message = (
        f"{name}: the network recomputes activations in the backward pass "
        "(torch.utils.checkpoint or saved_tensors_hooks), but by then its parameters are no longer "
        "those of the forward pass; remove the checkpointing or the hooks"
    )
    try:
        with disable_saved_tensors_hooks(message), _reentrant_checkpoints_raise(message):
            yield
    except RuntimeError as error:
        if message not in str(error):
            raise
        raise ValueError(message) from None


@contextmanager
def _reentrant_checkpoints_raise(message: str) -> Iterator[None]:
    """Raise ValueError if torch.utils.checkpoint is called with use_reentrant=True inside `with`.

    Such a call saves no tensors by hooks, so disable_saved_tensors_hooks does not notice it.
    """

    def refuse(*inputs: Any) -> None:
        raise ValueError(message)

    inherited = CheckpointFunction.apply
    CheckpointFunction.apply = refuse
    try:
        yield
    finally:
        CheckpointFunction.apply = inherited
