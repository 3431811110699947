"""Hosts for the nodes of a cluster: network namespaces with an address of their own, or loopback.

A namespace is linked to one bridge of this machine. Cutting a host off from another is a route to nowhere:
packets vanish, as with a cable that was pulled, and open connections stay open. It takes the right to
administer the network, which root has on a plain Linux machine and in few containers.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

CLONE_NEWNET = 0x40000000
PORTS = (5432, 8008)
PORTS_EACH = len(PORTS)


class Host(Protocol):
    """Where the processes of a node live."""

    @property
    def address(self) -> str: ...

    def port(self, number: int) -> int:
        """The host's first or second port."""
        ...

    def entered(self) -> AbstractContextManager[None]:
        """What this thread starts inside the block runs on the host."""
        ...

    def cut_off(self, others: Iterable[str]) -> None:
        """Exchange no packet with these addresses."""
        ...

    def heal(self) -> None: ...


@dataclass
class _LoopbackHost:
    address: str
    ports: tuple[int, ...]

    def port(self, number: int) -> int:
        return self.ports[number]

    def entered(self) -> AbstractContextManager[None]:
        return nullcontext()

    def cut_off(self, others: Iterable[str]) -> None:
        raise NotImplementedError("Hosts on loopback cannot be cut off from each other.")

    def heal(self) -> None:
        """Nothing was cut."""


class LoopbackHosts:
    """Every host is this machine, with ports of its own."""

    network = "127.0.0.1/32"
    gateway = "127.0.0.1"

    def __init__(self, count: int) -> None:
        with ExitStack() as held:
            probes = [held.enter_context(socket.socket()) for _ in range(count * PORTS_EACH)]
            for probe in probes:
                probe.bind(("127.0.0.1", 0))
            ports = [int(probe.getsockname()[1]) for probe in probes]
        self.hosts: list[Host] = [
            _LoopbackHost("127.0.0.1", tuple(ports[n * PORTS_EACH : (n + 1) * PORTS_EACH]))
            for n in range(count)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing stays."""


@dataclass
class _NamespaceHost:
    namespace: str
    address: str
    _cuts: set[str] = field(default_factory=set[str])

    def port(self, number: int) -> int:
        return PORTS[number]

    @contextmanager
    def entered(self) -> Generator[None]:
        """A namespace belongs to a thread, and its children inherit it."""
        ours = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _enter(Path("/run/netns") / self.namespace)
            try:
                yield
            finally:
                _enter(Path(f"/proc/self/fd/{ours}"))
        finally:
            os.close(ours)

    def cut_off(self, others: Iterable[str]) -> None:
        for other in others:
            _ip("-n", self.namespace, "route", "replace", "blackhole", f"{other}/32")
            self._cuts.add(other)

    def heal(self) -> None:
        for other in self._cuts:
            _ip("-n", self.namespace, "route", "del", "blackhole", f"{other}/32")
        self._cuts.clear()


class NamespaceHosts:
    """Hosts on a bridge of their own, removed at the end of the block."""

    def __init__(self, count: int) -> None:
        name = secrets.token_hex(3)
        # Documentation's block for benchmarks of networks (RFC 2544): in use nowhere.
        third = secrets.randbelow(256)
        self._bridge = f"fp{name}"
        self._prefix = f"198.18.{third}"
        self.network = f"{self._prefix}.0/24"
        self.gateway = f"{self._prefix}.1"
        self._namespaces = [f"fp{name}-{number}" for number in range(count)]
        self.hosts: list[Host] = [
            _NamespaceHost(namespace, f"{self._prefix}.{number + 10}")
            for number, namespace in enumerate(self._namespaces)
        ]
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.push(self._open.__exit__)
            self._make()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    def _make(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        self._open.callback(_ip, "link", "del", self._bridge)
        _ip("addr", "add", f"{self.gateway}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for number, namespace in enumerate(self._namespaces):
            outer, inner = f"{self._bridge}o{number}", f"{self._bridge}i{number}"
            _ip("netns", "add", namespace)
            self._open.callback(_ip, "netns", "del", namespace)
            _ip("link", "add", outer, "type", "veth", "peer", "name", inner)
            _ip("link", "set", inner, "netns", namespace)
            _ip("link", "set", outer, "master", self._bridge, "up")
            _ip("-n", namespace, "addr", "add", f"{self._prefix}.{number + 10}/24", "dev", inner)
            _ip("-n", namespace, "link", "set", inner, "up")
            _ip("-n", namespace, "link", "set", "lo", "up")


Hosts = LoopbackHosts | NamespaceHosts


@contextmanager
def hosts_of_this_machine(count: int, *, own: bool = True) -> Generator[Hosts]:
    """Namespaces where this process may make them and they are wanted, or else loopback."""
    with ExitStack() as stack:
        hosts: Hosts = stack.enter_context(LoopbackHosts(count))
        if own:
            with suppress(OSError, subprocess.CalledProcessError):
                hosts = stack.enter_context(NamespaceHosts(count))
        yield hosts


def _ip(*arguments: str) -> None:
    program = shutil.which("ip")
    if program is None or os.geteuid() != 0:
        raise OSError("Only root with iproute2 makes network namespaces.")
    subprocess.run([program, *arguments], check=True, capture_output=True)


def _enter(namespace: Path) -> None:
    descriptor = os.open(namespace, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns to {namespace}")
    finally:
        os.close(descriptor)
