"""A zip that arrives in parts, on the disk: it is never whole in memory."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager
from pathlib import Path


@asynccontextmanager
async def stored_zip(parts: AsyncIterable[bytes]) -> AsyncGenerator[Path]:
    """The file while the block is open."""
    with tempfile.NamedTemporaryFile(prefix="fencepost-import-", suffix=".zip") as file:
        async for part in parts:
            await asyncio.to_thread(file.write, part)
        file.flush()
        yield Path(file.name)
