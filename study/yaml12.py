"""YAML as version 1.2 reads it, from PyYAML, which follows 1.1."""

import re
from typing import Any

import yaml


class Yaml12(yaml.SafeLoader):
    """Plain values as YAML 1.2 reads them, where PyYAML follows 1.1: 1e-3 is a number, and `no`,
    `12:30` and 2026-01-31 are texts. 010, which is 8 there and 10 here, is refused."""

    yaml_implicit_resolvers = {}  # none of PyYAML's: those of 1.2 are added below

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
    """Writes texts so that both versions of YAML read them as texts: PyYAML leaves 1e5 without
    quotes, which is a number by 1.2."""

    yaml_implicit_resolvers = {
        first: [
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
            *Yaml12.yaml_implicit_resolvers.get(first, []),
        ]
        for first in yaml.SafeDumper.yaml_implicit_resolvers | Yaml12.yaml_implicit_resolvers
    }


def dump_yaml(values: Any) -> str:
    """Return plain values as a YAML text, from which `parse_yaml` reads them again."""
    return yaml.dump(values, Dumper=Yaml12Dumper, sort_keys=False)


def parse_yaml(text: str) -> Any:
    """Read a YAML text. ValueError where it is none, or where it says one name twice."""
    try:
        node = yaml.compose(text, Loader=Yaml12)
        names = [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} is named twice")
        return yaml.load(text, Loader=Yaml12)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"it is not YAML: {error}") from None
