"""What a network returns: main and auxiliary logits."""

from typing import Any, NamedTuple

from torch import Tensor


class Outputs(NamedTuple):
    """Main logits z (B, C), and auxiliary logits a: (B, C), or None without θ_a."""

    main: Tensor
    auxiliary: Tensor | None

    def detached(self) -> "Outputs":
        """Return the same logits without a gradient."""
        auxiliary = None if self.auxiliary is None else self.auxiliary.detach()
        return Outputs(self.main.detach(), auxiliary)


def as_outputs(result: Any) -> Outputs:
    """Convert a model's result to Outputs. It may be logits (B, C), a tuple that begins with them,
    or an object whose attribute `logits` is one of the two.

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
