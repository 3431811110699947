"""Callers of the nonce functions, and the clock of their database."""

from tests.integration.kernel.conftest import admin, app, clock, connect, kept_sessions

__all__ = ["admin", "app", "clock", "connect", "kept_sessions"]
