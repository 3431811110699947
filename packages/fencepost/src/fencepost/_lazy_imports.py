"""Names of a package that are loaded on first use: a process that uses none of them starts sooner."""

import importlib
import sys
import typing
from collections.abc import Callable, Mapping

from fencepost._extras import missing_extra


def on_first_use(package: str, homes: Mapping[str, str]) -> Callable[[str], typing.Any]:
    """Returns the package's `__getattr__` (PEP 562), which is called once for each name not loaded yet."""

    def arrive(name: str) -> typing.Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(importlib.import_module(homes[name]), name)
        except ImportError as error:
            if needed := missing_extra(error):
                raise ImportError(f"{package}.{name}: {needed}", name=error.name) from error
            raise
        setattr(sys.modules[package], name, value)
        return value

    return arrive
