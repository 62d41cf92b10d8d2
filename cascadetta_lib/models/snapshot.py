"""Copy the state of a module, to restore it later."""

import copy
from typing import Any

from torch import Tensor, nn


class Snapshot:
    """A copy of a module's state. `restore` writes it back into the same tensors.

    values: copies of the entries of its state_dict, by name.
    """

    def __init__(self, module: nn.Module) -> None:
        self.values = {name: _copied(value) for name, value in module.state_dict().items()}
        # Buffers that state_dict leaves out.
        self._not_stored = {
            name: value.clone() for name, value in module.named_buffers() if name not in self.values
        }

    def restore(self, module: nn.Module) -> None:
        """Write the state back. A buffer of `module` itself (not of its submodules) that was None
        when the copy was made becomes None again.
        """
        for name in module._buffers.keys() - self.values.keys() - self._not_stored.keys():
            setattr(module, name, None)
        module.load_state_dict({name: _copied(value) for name, value in self.values.items()})
        for name, buffer in module.named_buffers():
            if name in self._not_stored:
                buffer.copy_(self._not_stored[name])


def _copied(value: Any) -> Any:
    """Copy an entry of a state_dict: a tensor, or what a module's get_extra_state returned."""
    return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)
