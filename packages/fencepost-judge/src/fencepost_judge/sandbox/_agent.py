"""A resident box: one process that keeps its namespaces, and executes one run at a time."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any, cast

from fencepost_judge._protocol import LINE_BYTES_MAX, RunOutcome, parse
from fencepost_judge.sandbox._box_files import BoxFiles
from fencepost_judge.sandbox._box_process import MARGIN_SECONDS, see_off, start_box
from fencepost_judge.sandbox._run_spec import RunSpec, Site

START_SECONDS = 20.0
CEILING = 10
"""The box lets a starved program run for up to this many times its wall limit."""


class AgentFailed(Exception):
    """The agent did not start, died, or does not answer. `reason` has few values."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Agent:
    """Started once, used for many runs. After a failure it is closed, and another one is started."""

    def __init__(self, program: Path, site: Site) -> None:
        self._program = program
        self._site = site
        self._socket: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self.hello: dict[str, Any] = {}

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            self._process = await start_box(
                self._program,
                "agent",
                f"client={theirs.fileno()}",
                *self._site.words(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={},
                start_new_session=True,
            )
        self._socket = ours
        try:
            # A cancellation during the start is raised here: receiving a greeting that is already there would
            # not suspend.
            await asyncio.sleep(0)
            line = await self._answer(START_SECONDS)
        except asyncio.CancelledError:
            # Otherwise its greeting would be read as a run's answer.
            await self.close()
            raise
        try:
            self.hello = read_hello(line)
        except AgentFailed:
            await self.close()
            raise

    async def run(self, order: RunSpec, files: BoxFiles) -> RunOutcome:
        """Raises AgentFailed when the agent is at fault, ProtocolError when its answer is."""
        if self._socket is None:
            raise AgentFailed("closed", "The agent is not running.")
        try:
            socket.send_fds(self._socket, [order.packet()], files.all())
            files.hand_over()
        except OSError as error:
            await self.close()
            raise AgentFailed("lost", f"The agent does not accept requests: {error}.") from error
        try:
            line = await self._answer(order.limits.wall_ms / 1000 * CEILING + MARGIN_SECONDS)
        except asyncio.CancelledError:
            # Otherwise its answer would be read as the next run's.
            await self.close()
            raise
        return parse(line)

    async def _answer(self, seconds: float) -> bytes:
        assert self._socket is not None
        try:
            async with asyncio.timeout(seconds):
                line = await asyncio.get_running_loop().sock_recv(self._socket, LINE_BYTES_MAX + 1)
        except TimeoutError as error:
            await self.close()
            raise AgentFailed("silent", f"The agent has not answered after {seconds:g} s.") from error
        except OSError:
            # The agent died with an unread request; in other cases its end reads as an empty answer.
            line = b""
        if not line:
            await self.close()
            raise AgentFailed("lost", "The agent died.")
        return line

    async def close(self) -> None:
        """Closing the socket ends the agent, its run and its cgroups; an agent that hangs is killed."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()
        process, self._process = self._process, None
        if process is not None:
            await see_off(process)


def read_hello(line: bytes) -> dict[str, Any]:
    """The greeting of an agent that is ready."""
    try:
        read: Any = json.loads(line)
    except (ValueError, RecursionError):
        read = None
    hello = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
    if hello.get("ready") is not True:
        wrong = hello.get("error", "its greeting cannot be read")
        raise AgentFailed("not_ready", f"The agent cannot start: {wrong}.")
    return hello
