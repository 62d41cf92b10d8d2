"""The outputs of a network: main and auxiliary logits."""

from typing import Any, NamedTuple

from torch import Tensor


class Outputs(NamedTuple):
    """What a network returns for a batch.

    main: the main logits z, (B, C). auxiliary: the auxiliary logits a, (B, C), or None without θ_a.
    """

    main: Tensor
    auxiliary: Tensor | None

    def detached(self) -> "Outputs":
        """Return the same logits without a gradient."""
        auxiliary = None if self.auxiliary is None else self.auxiliary.detach()
        return Outputs(self.main.detach(), auxiliary)


def as_outputs(result: Any) -> Outputs:
    """Convert the result of any network to Outputs.

    result: Outputs; or logits (B, C); or a tuple or list that begins with logits; or an object
        whose attribute `logits` is such a tensor, tuple or list.

    Raises TypeError for anything else.
    """
    if isinstance(result, Outputs):
        return result
    logits = getattr(result, "logits", result)
    if isinstance(logits, (tuple, list)) and logits:
        logits = logits[0]
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"the model returned {type(result).__name__}; it must return logits (B, C), or a tuple "
            "that begins with them"
        )
    return Outputs(logits, None)
