"""How long people stay logged in, how much the console looks at, and how many may watch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fencepost.layered_settings import From, LayeredSettings
from fencepost.settings import PostgresUrl


class ConsoleSettings(LayeredSettings):
    """docs/reference/console.md says what each means."""

    read_database_url: Annotated[
        PostgresUrl | None, From("CONSOLE_READ_DATABASE_URL", "console.read_database_url", secret=True)
    ] = None
    read_pool_max: Annotated[
        int, Field(ge=1, le=100), From("CONSOLE_READ_POOL_MAX", "console.read_pool_max")
    ] = 5
    statement_seconds: Annotated[
        float, Field(ge=0.1, le=60), From("CONSOLE_STATEMENT_SEC", "console.statement_sec")
    ] = 5.0
    session_hours: Annotated[
        float, Field(ge=0.1, le=720), From("CONSOLE_SESSION_HOURS", "console.session_hours")
    ] = 12.0
    idle_minutes: Annotated[
        float, Field(ge=1, le=43_200), From("CONSOLE_IDLE_MINUTES", "console.idle_minutes")
    ] = 120.0
    secure_cookies: Annotated[bool, From("CONSOLE_SECURE_COOKIES", "console.secure_cookies")] = False
    look_seconds: Annotated[float, Field(ge=0.2, le=60), From("CONSOLE_LOOK_SEC", "console.look_sec")] = 2.0
    streams_max: Annotated[
        int, Field(ge=1, le=100_000), From("CONSOLE_STREAMS_MAX", "console.streams_max")
    ] = 2000
    scan_max: Annotated[int, Field(ge=100, le=1_000_000), From("CONSOLE_SCAN_MAX", "console.scan_max")] = (
        10_000
    )
