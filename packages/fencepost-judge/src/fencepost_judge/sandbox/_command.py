"""A box for one run: the same program as a command. Slower to start, but it keeps no state that could
break."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from fencepost.logs import get_logger
from fencepost_judge.sandbox._agent import CEILING
from fencepost_judge.sandbox._box_files import BoxFiles
from fencepost_judge.sandbox._box_process import MARGIN_SECONDS, see_off, start_box
from fencepost_judge.sandbox._run_spec import RunSpec, Site

_log = get_logger(__name__)
BLOCK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of the command's own output is kept; all of it is read."""

    stdout_bytes: int = 262_144
    stderr_bytes: int = 1_048_576


@dataclass(frozen=True, slots=True)
class Said:
    """The command's output, cut to its bounds."""

    stdout: bytes
    stderr: bytes
    truncated: tuple[str, ...]


async def run_once(program: Path, site: Site, order: RunSpec, files: BoxFiles, bounds: Bounds) -> Said:
    """What the command said; its answer is one line of the protocol."""
    words = [f"fd{number}={descriptor}" for number, descriptor in enumerate(files.all())]
    process: asyncio.subprocess.Process | None = None
    watched, held = os.pipe()
    try:
        process = await start_box(
            program,
            "run",
            f"parent_pipe={watched}",
            *words,
            *site.words(),
            *order.words(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=[watched, *files.all()],
            env={},
            start_new_session=True,
        )
        files.hand_over()
        os.close(watched)
        watched = -1
        said = await _listen(process, bounds, order.limits.wall_ms / 1000 * CEILING + MARGIN_SECONDS)
    finally:
        # Closing this pipe ends the run, also when this task is cancelled. Then the process is waited for:
        # the caller may close its loop immediately, and nothing would be left to reap it.
        os.close(held)
        if watched >= 0:
            os.close(watched)
        if process is not None and process.returncode is None:
            await see_off(process)
    return said


async def _listen(process: asyncio.subprocess.Process, bounds: Bounds, seconds: float) -> Said:
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(seconds):
            (stdout, more), (stderr, more_errors) = await asyncio.gather(
                drain(process.stdout, bounds.stdout_bytes), drain(process.stderr, bounds.stderr_bytes)
            )
            await process.wait()
    except TimeoutError:
        process.kill()
        _log.warning("sandbox_silent", error=f"the box had not answered after {seconds:g} s")
        return Said(b"", b"", ())
    cut = [name for name, was_cut in (("stdout", more), ("stderr", more_errors)) if was_cut]
    return Said(stdout, stderr, tuple(cut))


async def drain(stream: asyncio.StreamReader, bytes_max: int) -> tuple[bytes, bool]:
    """Read to the end and keep the beginning: the writer must not block, however much it writes."""
    kept = bytearray()
    total = 0
    while block := await stream.read(BLOCK_BYTES):
        total += len(block)
        kept += block[: max(0, bytes_max - len(kept))]
    return bytes(kept), total > bytes_max
