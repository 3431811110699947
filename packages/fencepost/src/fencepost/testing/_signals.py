"""Waits for named events, in this process and in its child processes."""

import asyncio
import shutil
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from fencepost import signals
from fencepost._durations import Duration, seconds_of

NAME_BYTES_MAX = 512
_GOODBYE = b""


@dataclass(frozen=True)
class _Waiter:
    name: str
    count: int
    wake: Callable[[], object]


class Signals:
    """Receives announcements from the moment it is opened.

        with Signals() as signals:
            ...
            await signals.wait("worker.claimed", count=3, within=5)

    Counts run from the opening, so an announcement that came before the wait is not missed.
    """

    def __init__(self) -> None:
        self._heard: Counter[str] = Counter()
        self._waiters: list[_Waiter] = []
        self._lock = threading.Lock()
        self._signal_socket: SignalSocket | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(signals.listening(self.hear))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that a process needs for its announcements to be received here."""
        if self._signal_socket is None:
            self._signal_socket = self._open.enter_context(SignalSocket(self.hear))
        return {signals.VARIABLE: str(self._signal_socket.path)}

    def heard(self, name: str) -> int:
        """The number of announcements of `name` so far."""
        return self._heard[name]

    async def wait(self, name: str, *, count: int = 1, within: Duration = 30) -> None:
        """Return as soon as `name` was announced `count` times; TimeoutError lists what was announced
        instead."""
        seconds = seconds_of("within", within)
        loop = asyncio.get_running_loop()
        ripe = asyncio.Event()
        with self._waiting(_Waiter(name, count, lambda: loop.call_soon_threadsafe(ripe.set))):
            try:
                async with asyncio.timeout(seconds):
                    await ripe.wait()
            except TimeoutError:
                raise self._too_late(name, count, seconds) from None

    def expect(self, name: str, *, count: int = 1, within: Duration = 30) -> None:
        """`wait` for a test without an event loop."""
        seconds = seconds_of("within", within)
        ripe = threading.Event()
        with self._waiting(_Waiter(name, count, ripe.set)):
            if not ripe.wait(seconds):
                raise self._too_late(name, count, seconds)

    def hear(self, name: str) -> None:
        """Count a signal, and wake those that wait for it."""
        with self._lock:
            self._heard[name] += 1
            waiters = [waiter for waiter in self._waiters if self._is_ripe(waiter)]
        for waiter in waiters:
            waiter.wake()

    @contextmanager
    def _waiting(self, waiter: _Waiter) -> Generator[None, None, None]:
        with self._lock:
            self._waiters.append(waiter)
            ripe = self._is_ripe(waiter)
        try:
            if ripe:
                waiter.wake()
            yield
        finally:
            with self._lock:
                self._waiters.remove(waiter)

    def _is_ripe(self, waiter: _Waiter) -> bool:
        return self._heard[waiter.name] >= waiter.count

    def _too_late(self, name: str, count: int, seconds: float) -> TimeoutError:
        others = ", ".join(f"{heard} {times}" for heard, times in sorted(self._heard.items())) or "nothing"
        return TimeoutError(
            f"After {seconds:g} s {name} was announced {self._heard[name]} times of {count}. Heard: {others}."
        )


class SignalSocket:
    """A unix socket for the announcements of other processes, and the thread that reads them."""

    def __init__(self, deliver: Callable[[str], None]) -> None:
        self._deliver = deliver
        self._directory = Path(tempfile.mkdtemp(prefix="fencepost-signals-"))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._thread = threading.Thread(target=self._read, name="fencepost-signals", daemon=True)

    @property
    def path(self) -> Path:
        return self._directory / "signals"

    def __enter__(self) -> Self:
        self._socket.bind(str(self.path))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as goodbye:
            goodbye.sendto(_GOODBYE, str(self.path))
        self._thread.join()
        self._socket.close()
        shutil.rmtree(self._directory)

    def _read(self) -> None:
        while (letter := self._socket.recv(NAME_BYTES_MAX)) != _GOODBYE:
            self._deliver(letter.decode(errors="replace"))
