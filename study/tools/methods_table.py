"""Write docs/methods.md: the methods, their options, and what each method needs.

    python -m study.tools.methods_table

All of it comes from the registry. What a method does is taken from its docstring. What it needs is
found by trying it on networks, each of which has more than the one before.
"""

import inspect
import re
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from cascadetta_lib.files import write_text_atomically
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.methods.augmented_copies import WithCopies
from cascadetta_lib.models import Cascade, ImageNetwork, build_network

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "methods.md"
PAPERS = DOCS / "templates" / "papers.txt"
"""The text that says which paper each method is from."""
CLASSES = 4
COMMON = ("learning_rate", "optimizer", "predict", "seed")
"""The options that every method takes."""
SIDE = 8


def _network(norm: nn.Module) -> nn.Module:
    """Make an image classifier, (B, 3, 8, 8) → (B, 4), with `norm` after its convolution."""
    layers = [nn.Conv2d(3, 4, 3, padding=1), norm, nn.Flatten(), nn.Linear(4 * SIDE**2, CLASSES)]
    return nn.Sequential(*layers)


def _cascade(theta_a: nn.Module | None) -> Cascade:
    phi = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Flatten())
    return Cascade(phi, nn.Linear(4 * SIDE**2, CLASSES), theta_a)


def networks() -> dict[str, nn.Module]:
    """Return the networks to try a method on, by what a method needs of them. Each has more than
    the one before.
    """
    return {
        "any network": _network(nn.Identity()),
        "a normalisation layer": _network(nn.GroupNorm(2, 4)),
        "BatchNorm": _network(nn.BatchNorm2d(4)),
        "a `Cascade`": _cascade(None),
        "a `Cascade` with θ_a": _cascade(nn.Linear(CLASSES, CLASSES)),
        "TTT's network": build_network(
            ImageNetwork(depth=8, width=2), classes=CLASSES, parallel=True, seed=0
        ),
    }


def works(method: type[Method], network: nn.Module, source: Tensor | None) -> bool:
    """Return whether the method predicts a batch of images with the network instead of raising
    ValueError.
    """
    side = SIDE if source is None else source.shape[-1]
    try:
        method(network, source=source)(2 * torch.rand(8, 3, side, side) - 1)
    except ValueError:
        return False
    return True


def needed_network(name: str) -> str:
    """Return in words the least that a network must have for a method. Raises ValueError if the
    method works on none of `networks`.
    """
    method = METHODS[name]
    source = torch.rand(4, 3, SIDE, SIDE) if method.needs_source else None
    for words, network in networks().items():
        if works(method, network, source):
            return words
    raise ValueError(f"{name} works on none of {', '.join(networks())}")


def sentence(name: str) -> str:
    """Return the first sentence of the docstring of a method's module, which names the paper. If
    the module has several methods, return the first sentence of the docstring of the method's
    class.
    """
    method = METHODS[name]
    several = sum(METHODS[other].__module__ == method.__module__ for other in METHODS) > 1
    text = method.__doc__ if several else sys.modules[method.__module__].__doc__
    words = " ".join((text or "").split())
    return re.split(r"(?<!Eq)(?<!al)\. ", words)[0].rstrip(".") + "."


def explained() -> dict[str, list[str]]:
    """Return, by option, the cells of its row in the table: name, default and meaning. They come
    from the first class that takes the option.
    """
    found: dict[str, list[str]] = {}
    for name in METHODS:
        for part in METHODS[name].__mro__:
            if not issubclass(part, Method) or "__init__" not in vars(part):
                continue
            for parameter in inspect.signature(part.__init__).parameters.values():
                option = parameter.name
                if parameter.kind is parameter.KEYWORD_ONLY and option not in found:
                    default = "–" if parameter.default is None else parameter.default
                    found[option] = [f"`{option}`", str(default), meaning(part, option)]
    return found


def meaning(part: type[Method], option: str) -> str:
    """Return what a class's docstring says of an option, from the line that begins with the
    option's name. Raises ValueError if there is no such line.
    """
    lines = re.search(rf"^{option}: (.+(?:\n {{4}}.+)*)", inspect.getdoc(part) or "", re.MULTILINE)
    if lines is None:
        raise ValueError(f"the docstring of {part.__name__} does not explain its option {option}")
    return " ".join(lines[1].split())


def row(name: str) -> str:
    """Return the line of the table for a method."""
    method = METHODS[name]
    needs = [needed_network(name)]
    if method.needs_source:
        needs.append("`source`")
    if issubclass(method, WithCopies):
        needs.append("`copies`, unless it takes RGB images")
    options = [f"`{option}`" for option in method.options() if option not in COMMON]
    cells = [
        f"`{name}`",
        method.label,
        sentence(name),
        "; ".join(needs),
        ", ".join(options) or "–",
        ", ".join(method.modalities),
    ]
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """Return docs/methods.md as a whole."""
    options = [f"| {' | '.join(cells)} |" for _, cells in sorted(explained().items())]
    common = ", ".join(f"`{option}`" for option in COMMON)
    rows = [row(name) for name in METHODS]
    return TEXT.format(
        rows="\n".join(rows),
        options="\n".join(options),
        common=common,
        papers=PAPERS.read_text(encoding="utf-8"),
    )


TEXT = """# Methods

Written from the registry by `python -m study.tools.methods_table`.

```python
import cascadetta_lib

adapted = cascadetta_lib.adapt(model, "tent")  # any nn.Module that returns logits
logits = adapted(x)  # adapts to the batch, then predicts it
adapted.reset()  # back to the source
```

A network that a method cannot work with raises ValueError, which names methods that work.

| name | label | what it does | needs | own options | modalities |
|---|---|---|---|---|---|
{rows}

## Options

Every method takes {common}.

A dash means the method's default.

| option | default | meaning |
|---|---|---|
{options}

{papers}"""


def main() -> None:
    """Write docs/methods.md."""
    write_text_atomically(PAGE, page())


if __name__ == "__main__":
    main()
