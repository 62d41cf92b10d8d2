"""Calls of a module with other tensors in the place of some of its parameters."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


def call_with(module: nn.Module, values: Mapping[Any, Tensor], *inputs: Any) -> Any:
    """Return what `module` gives with `values[parameter]` in the place of each such parameter.

    A parameter is replaced wherever it is used, and the module is left as it was. With a module
    that stands at two places, or with tied weights, torch.func.functional_call alone would leave
    the replacement behind (pytorch#164759).
    """
    if isinstance(module, nn.DataParallel):
        module = module.module
    replaced: dict[str, Tensor] = {}
    for prefix, child in module.named_modules():
        own = child.named_parameters(prefix, recurse=False, remove_duplicate=False)
        for name, parameter in own:
            if parameter in values:
                replaced[name] = values[parameter]
    return functional_call(module, replaced, inputs, tie_weights=False)
