"""The process that parses a package's YAML: it limits itself, reads texts from its input, and prints values.

It is called with CPU_SECONDS and MEMORY_BYTES, reads `{"name": "text"}` from its input, and prints
`{"documents": {...}}` or `{"refused": name, "why": ...}`. The loader refuses texts that could cost more than
their length; if a costly text gets past it, only this process dies.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping
from datetime import date
from typing import Any, cast

from fencepost.strict_yaml import YamlError, load_yaml


def main() -> None:
    bound(int(sys.argv[1]), int(sys.argv[2]))
    texts: dict[str, str] = json.load(sys.stdin)
    json.dump(parsed(texts), sys.stdout)


def bound(cpu_seconds: int, memory_bytes: int) -> None:
    """Sets the limits before the first byte is read. Output goes to a pipe, so no file may grow."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def parsed(texts: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            found[name] = as_json(load_yaml(text))
        except YamlError as error:
            return {"refused": name, "why": str(error)}
    return {"documents": found}


def as_json(value: Any) -> Any:
    """Keys and dates become text: their reader decides what they mean."""
    if isinstance(value, dict):
        return {_word(key): as_json(one) for key, one in cast("dict[object, object]", value).items()}
    if isinstance(value, list):
        return [as_json(one) for one in cast("list[object]", value)]
    return value.isoformat() if isinstance(value, date) else value


def _word(key: object) -> str:
    return key.isoformat() if isinstance(key, date) else str(key)


if __name__ == "__main__":
    main()
