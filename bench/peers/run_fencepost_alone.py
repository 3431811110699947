# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN201
# Its sibling modules are found by the script's directory, which the checkers do not know.
"""Fencepost without Redis: workers claim straight from PostgreSQL."""

from __future__ import annotations

from dataclasses import replace

from run_fencepost import Us
from runner import PeerTask, play


class Alone(Us):
    def work(self, order: PeerTask) -> None:
        super().work(replace(order, redis_url=""))

    def client(self, order: PeerTask):
        return super().client(replace(order, redis_url=""))


if __name__ == "__main__":
    play(Alone())
