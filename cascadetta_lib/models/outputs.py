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

    Raises TypeError for anything else, and ValueError for logits of another shape, also for those
    of a single class, whose entropy is always 0.
    """
    if isinstance(result, Outputs):
        outputs = result
    else:
        logits = getattr(result, "logits", result)
        if isinstance(logits, (tuple, list)) and logits:
            logits = logits[0]
        if not isinstance(logits, Tensor):
            raise TypeError(
                f"the model returned {type(result).__name__}; it must return logits (B, C), a "
                "tuple that begins with them, or an object with the attribute logits"
            )
        outputs = Outputs(logits, None)
    shape = tuple(outputs.main.shape)
    if len(shape) != 2 or shape[1] < 2:
        raise ValueError(
            f"the model returned logits of shape {shape}; allowed is (B, C) with C ≥ 2 classes (in "
            "place of a single logit s per example, return 0 and s)"
        )
    return outputs
