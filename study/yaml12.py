"""Read and write YAML 1.2 with PyYAML, which follows YAML 1.1."""

import re
from typing import Any

import yaml


class Yaml12(yaml.SafeLoader):
    """Load plain values as YAML 1.2 reads them. 1e-3 is a number, and `no`, `12:30` and 2026-01-31
    are texts, unlike in YAML 1.1. 010 is refused, because it is 8 in YAML 1.1 and 10 in YAML 1.2. A
    name that a mapping has twice is refused.
    """

    yaml_implicit_resolvers = {}  # none of PyYAML's; those of YAML 1.2 are added below

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        is_mapping = isinstance(node, yaml.MappingNode)
        names = [key.value for key, _ in node.value] if is_mapping else []
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} is named twice")
        return super().construct_mapping(node, deep)

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        digits = node.value.lstrip("+-")
        if len(digits) > 1 and digits.startswith("0") and digits.isdigit():
            raise ValueError(f"{node.value}: allowed is a whole number without a zero in front")
        return int(node.value, 0)


for _tag, _first, _pattern in (
    ("null", "~nN", r"~|null|Null|NULL|"),
    ("bool", "tTfF", r"true|True|TRUE|false|False|FALSE"),
    ("int", "-+0123456789", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    ("float", "-+.0123456789", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"),
    ("float", "-+.", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
):
    _whole = re.compile(f"^(?:{_pattern})$")
    Yaml12.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _whole, [*_first, ""])
Yaml12.add_constructor("tag:yaml.org,2002:int", Yaml12.construct_integer)


class Yaml12Dumper(yaml.SafeDumper):
    """Write texts so that YAML 1.1 and 1.2 both read them as texts. PyYAML alone writes the text
    1e5 without quotes, which is a number in YAML 1.2.
    """

    yaml_implicit_resolvers = {
        first: [
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
            *Yaml12.yaml_implicit_resolvers.get(first, []),
        ]
        for first in yaml.SafeDumper.yaml_implicit_resolvers | Yaml12.yaml_implicit_resolvers
    }


def dump_yaml(values: Any) -> str:
    """Return plain values as a YAML text. `parse_yaml` turns it back into the values."""
    return yaml.dump(values, Dumper=Yaml12Dumper, sort_keys=False)


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text.

    Raises ValueError if the text is not YAML, if a mapping has one name twice, or if a whole number
    has a zero in front.
    """
    try:
        return yaml.load(text, Loader=Yaml12)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"it is not YAML: {error}") from None
    except (AttributeError, LookupError, TypeError):  # PyYAML's, for texts such as `!!bool maybe`
        raise ValueError("it is not YAML: a tag such as !!bool does not fit its value") from None
