"""Refuse networks that compute a part again in the backward pass, by torch.utils.checkpoint."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch.autograd.graph import disable_saved_tensors_hooks


@contextmanager
def refuse_recomputation(name: str) -> Iterator[None]:
    """Raise ValueError if a network called inside `with` would compute a part again later.

    `call_with` puts other tensors in the place of the parameters, and takes them out before the
    backward pass. A part that is computed again there would see the original parameters, and the
    gradient would mix two networks.

    name: the function or method that needs the gradient; the message begins with it.
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
