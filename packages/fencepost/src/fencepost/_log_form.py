"""How a process that has configured its log writes it; without loading structlog, which does the writing."""

from __future__ import annotations

import logging

JSON_HANDLER = "fencepost-json"
"""The name of the root logger's handler that writes JSON."""


def writes_json() -> bool:
    return any(handler.name == JSON_HANDLER for handler in logging.getLogger().handlers)
