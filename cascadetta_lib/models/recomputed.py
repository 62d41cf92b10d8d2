"""Networks that compute a part again in the backward pass, as torch.utils.checkpoint lets them."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch.autograd.graph import disable_saved_tensors_hooks


@contextmanager
def refuse_recomputation(name: str) -> Iterator[None]:
    """Raise ValueError where a network inside `with` would compute a part again later.

    Under `call_with` other tensors stand in the place of the parameters, and they are gone by the
    backward pass: the gradient would be that of two networks at once.

    name: who needs the gradient.
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
