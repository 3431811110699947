"""The names of all benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import cast

from bench.report import Report

# Each is a module of this package with `def run(*, quick: bool) -> Report`.
NAMES = (
    "kernel",
    "growth",
    "jobs",
    "workflows",
    "players",
    "orders",
    "console",
    "nonces",
    "flows",
    "judge",
    "install",
    "scale",
)


def benchmark(name: str) -> Callable[..., Report]:
    """The benchmark's run function. Imported only now: each benchmark has dependencies of its own."""
    return cast("Callable[..., Report]", import_module(f"bench.{name}").run)
