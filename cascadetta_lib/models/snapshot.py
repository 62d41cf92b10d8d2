"""Copy the state of a module, to restore it later."""

import copy
from typing import Any

from torch import Tensor, nn

OF_EVERY_MODULE = frozenset(vars(nn.Module()))
"""The attributes that PyTorch itself gives each module, such as `training`."""


class Snapshot:
    """A copy of a module's state. `restore` writes it back into the same tensors.

    The state is the state_dict, the buffers that it leaves out, and what submodules keep as plain
    attributes: tensors and numbers, such as the running statistics of SpeechBrain's
    InputNormalization (findings/reset-keeps-the-input-normalisation.sh). Lists, dictionaries and
    objects in attributes are not copied.

    values: copies of the entries of the state_dict, by name.
    """

    def __init__(self, module: nn.Module) -> None:
        self.values = {name: _copied(value) for name, value in module.state_dict().items()}
        # Buffers that state_dict leaves out.
        self._not_stored = {
            name: value.clone() for name, value in module.named_buffers() if name not in self.values
        }
        self._attributes = {
            path: {name: _copied(value) for name, value in _plain_attributes(part).items()}
            for path, part in module.named_modules()
            if part is not module
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
        for path, attributes in self._attributes.items():
            part = module.get_submodule(path)
            for name, value in attributes.items():
                setattr(part, name, _copied(value))


def _plain_attributes(part: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module that are tensors, numbers or None, without its parameters
    and buffers. PyTorch's own modules keep no state in such attributes.
    """
    if type(part).__module__.startswith("torch."):
        return {}
    return {
        name: value
        for name, value in vars(part).items()
        if name not in OF_EVERY_MODULE and isinstance(value, Tensor | int | float | None)
    }


def _copied(value: Any) -> Any:
    """Copy an entry of a state_dict or an attribute: a tensor, or another object."""
    return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)
