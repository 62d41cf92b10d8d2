"""Copy a network, or copy the state of a module to restore it later."""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cascadetta_lib.code import own_attributes


def copy_of(model: nn.Module, label: str, instead: str) -> nn.Module:
    """Return a copy of a network.

    label: who needs the copy, for the beginning of a message.
    instead: what can be done without a copy, for the end of a message.

    Raises ValueError if the network cannot be copied, for example because it uses
    torch.nn.utils.weight_norm.
    """
    try:
        return copy.deepcopy(model)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    # A foreign module may raise anything.
    except Exception as error:
        kind = type(model).__name__
        raise ValueError(
            f"{label}: {kind} cannot be copied ({type(error).__name__}); replace any "
            "torch.nn.utils.weight_norm by torch.nn.utils.parametrizations.weight_norm, or "
            f"{instead}"
        ) from error


class PlainAttributes:
    """A copy of the tensors, numbers and None that modules keep in plain attributes. A state_dict
    does not contain them. SpeechBrain's InputNormalization keeps its running statistics in this way
    (findings/reset-keeps-the-input-normalisation.sh).

    An attribute that shares memory with a parameter or a buffer is left out. So are PyTorch's own
    modules, which keep no state in attributes. Lists, dictionaries and objects are not copied.
    """

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        parts = list(parts)
        shared = {_place(tensor) for part in parts for tensor in _registered(part)}
        self._kept: list[tuple[nn.Module, str, Any, Tensor | None, int]] = []
        for part in parts:
            for name, value in _plain_attributes(part).items():
                if not isinstance(value, Tensor):
                    self._kept.append((part, name, value, None, 0))
                elif _place(value) not in shared:
                    if value.is_inference():
                        value = value.clone()  # so that it can be written to outside of inference
                    copied = value.detach().clone()
                    self._kept.append((part, name, value, copied, value._version))

    @torch.no_grad()
    def restore(self) -> None:
        """Put the same tensors back, with the values that they had."""
        for part, name, value, copied, version in self._kept:
            if copied is not None and value._version != version:
                value.copy_(copied)
            vars(part)[name] = value


class Snapshot:
    """A copy of a module's state. `restore` writes it back into the same tensors.

    The state is the state_dict, the buffers that it leaves out, and the plain attributes of
    submodules (`PlainAttributes`).

    values: copies of the entries of the state_dict, by name.
    """

    def __init__(self, module: nn.Module) -> None:
        self.values = {name: _copied(value) for name, value in module.state_dict().items()}
        # Buffers that state_dict leaves out.
        self._not_stored = {
            name: value.clone() for name, value in module.named_buffers() if name not in self.values
        }
        submodules = [part for part in module.modules() if part is not module]
        self._empty = [
            (part, name)
            for part in submodules
            for name, value in part._buffers.items()
            if value is None
        ]
        self._attributes = PlainAttributes(submodules)

    def restore(self, module: nn.Module) -> None:
        """Write the state back. A buffer that was None when the copy was made becomes None again.
        So does a buffer of `module` itself (not of its submodules) that was registered later.
        """
        for name in module._buffers.keys() - self.values.keys() - self._not_stored.keys():
            setattr(module, name, None)
        for part, name in self._empty:
            setattr(part, name, None)
        module.load_state_dict({name: _copied(value) for name, value in self.values.items()})
        for name, buffer in module.named_buffers():
            if name in self._not_stored:
                buffer.copy_(self._not_stored[name])
        self._attributes.restore()


@contextmanager
def keep_state(module: nn.Module) -> Iterator[None]:
    """Restore, at the end of `with`, what forward passes may change in a module: its buffers and
    plain attributes.
    """
    buffers = [
        (part, name, buffer, None if buffer is None else buffer.clone())
        for part in module.modules()
        for name, buffer in part._buffers.items()
    ]
    attributes = PlainAttributes(module.modules())
    try:
        yield
    finally:
        with torch.no_grad():
            for part, name, buffer, value in buffers:
                part._buffers[name] = buffer
                if buffer is not None and value is not None:
                    buffer.copy_(value)
        attributes.restore()


def _plain_attributes(part: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module that are tensors, numbers or None, without its parameters
    and buffers. The result is empty for PyTorch's own modules.
    """
    if type(part).__module__.startswith("torch."):
        return {}
    return {
        name: value
        for name, value in own_attributes(part).items()
        if isinstance(value, Tensor | int | float | None)
    }


def _registered(part: nn.Module) -> Iterator[Tensor]:
    """Yield the parameters and buffers of a module itself."""
    yield from part.parameters(recurse=False)
    yield from part.buffers(recurse=False)


def _place(tensor: Tensor) -> tuple[str, int]:
    """Return the device of a tensor's memory, and its address there. A sparse tensor has no single
    memory; the `id` of the tensor stands for the address.
    """
    if tensor.layout != torch.strided:
        return f"{tensor.device}, {tensor.layout}", id(tensor)
    return str(tensor.device), tensor.untyped_storage().data_ptr()


def _copied(value: Any) -> Any:
    """Copy an entry of a state_dict: a tensor, or what a module's get_extra_state returned."""
    return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)
