"""Refuse networks that recompute a part in the backward pass, by torch.utils.checkpoint."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch.autograd.graph import disable_saved_tensors_hooks


@contextmanager
def refuse_recomputation(name: str) -> Iterator[None]:
    """Raise ValueError if a network that is called inside `with` would recompute a part later.

    `call_with` replaces parameters during a call and puts them back before the backward pass. A
    part that is recomputed in the backward pass would see the original parameters, and the gradient
    would mix two networks. Checkpointing with use_reentrant=True is not noticed.

    name: the function or method that needs the gradient. The message begins with it.
    """
    message = (
        f"{name}: the network computes a part again in the backward pass, by "
        "torch.utils.checkpoint or saved_tensors_hooks, and would do so with other parameters; "
        "take that out"
    )
    try:
        with disable_saved_tensors_hooks(message):
            yield
    except RuntimeError as error:
        if message not in str(error):
            raise
        raise ValueError(message) from None
