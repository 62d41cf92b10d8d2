"""Call a module with other tensors in place of some of its parameters."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


def call_with(module: nn.Module, values: Mapping[Any, Tensor], *inputs: Any) -> Any:
    """Return module(*inputs), computed with `values[parameter]` in place of each parameter that is
    a key of `values`.

    A parameter is replaced wherever it is used. Afterwards the module has its own parameters again.
    torch.func.functional_call alone would leave replacements behind if weights are tied or a module
    stands at two places (pytorch#164759). Of a DataParallel the module inside is called.
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
