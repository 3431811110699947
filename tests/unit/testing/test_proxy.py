"""A client that the proxy has let in, and whose server does not answer yet."""

import asyncio
import socket
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fencepost.testing import Proxy
from fencepost.testing import _proxy as proxy_module


@contextmanager
def waiting_client(monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[Proxy, socket.socket]]:
    """Its server is never reached."""
    on_the_way = threading.Event()

    async def never(_target: object) -> None:
        on_the_way.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(proxy_module, "_connect", never)
    proxy = Proxy.for_postgres("postgresql:///x?host=/nowhere").start()
    folder = proxy.url.partition("host=")[2].replace("%2F", "/").partition("&")[0]
    with closing(socket.socket(socket.AF_UNIX)) as client:
        client.settimeout(60)
        client.connect(str(next(Path(folder).iterdir())))
        assert on_the_way.wait(60)
        yield proxy, client


def test_a_cut_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with waiting_client(monkeypatch) as (proxy, client):
        proxy.cut()

        assert client.recv(1) == b""
        proxy.stop()


def test_a_proxy_that_stops_leaves_no_connection_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with waiting_client(monkeypatch) as (proxy, client):
        proxy.stop()

        assert client.recv(1) == b""
