"""Constants of a package: `{{name}}` and `{{name.variant}}` in its texts stand for values of problem.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from fencepost.errors import InvalidInput

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SEQUENCE = re.compile(r"\{\{([a-zA-Z_][a-zA-Z0-9_]*)(?:\.([a-zA-Z_][a-zA-Z0-9_]*))?\}\}")
VALUE = "value"


class Constants:
    """Replaces the defined sequences. Undefined ones stay as they are, as the format requires."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        self._values = {name: _variants(name, said) for name, said in described.items()}

    def fill(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            return self._values.get(found[1], {}).get(found[2] or VALUE, found[0])

        return _SEQUENCE.sub(value, text) if self._values else text

    def fill_bytes(self, content: bytes) -> bytes:
        """Content that is not text has no sequences."""
        if not self._values or b"{{" not in content:
            return content
        try:
            return self.fill(content.decode()).encode()
        except UnicodeDecodeError:
            return content


def _variants(name: str, said: Any) -> dict[str, str]:
    variants = cast("dict[str, Any]", said) if isinstance(said, dict) else {VALUE: said}
    if not _NAME.fullmatch(name) or VALUE not in variants:
        raise InvalidInput(
            f"problem.yaml: the constant {name[:40]!r} has no value, or no name of letters and digits.",
            field="constants",
        )
    for one in variants.values():
        if isinstance(one, bool) or not isinstance(one, int | float | str):
            raise InvalidInput(
                f"problem.yaml: the constant {name} must be a number or a text.", field="constants"
            )
    return {variant: str(one) for variant, one in variants.items()}
