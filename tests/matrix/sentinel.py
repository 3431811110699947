"""A primary, its replica, and a Sentinel that promotes the one when the other is gone.

Three servers on loopback, because a Sentinel speaks to what it watches by TCP. Each also has its socket,
through which the test asks it things.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from redis.exceptions import ConnectionError as RedisConnectionError

from fencepost.embedded import ValkeyServer
from fencepost.embedded._deadline import Deadline
from fencepost.redis_streams.connection import connect_sync
from tests.matrix.ports import free_port
from tests.tmp_dirs import server_directory

SERVICE = "fencepost"
DOWN_AFTER_MS = 500
SECONDS_MAX = 60

SETTINGS = """\
port {port}
bind 127.0.0.1
unixsocket {socket}
unixsocketperm 700
dir {data}
sentinel monitor {service} 127.0.0.1 {primary} 1
sentinel down-after-milliseconds {service} {down_after_ms}
sentinel failover-timeout {service} 5000
"""


class Member(ValkeyServer):
    """A server of the group. It keeps its port when it comes back."""

    def __init__(self, directory: Path, *, replica_of: int | None = None, ephemeral: bool = False) -> None:
        super().__init__(directory, ephemeral=ephemeral)
        self.port = free_port()
        self._replica_of = replica_of

    @property
    def role(self) -> str:
        """`master` or `slave`, as the server calls itself; `unknown` while it changes."""
        try:
            return str(_ask(self.url, "ROLE")[0])
        except RedisConnectionError:
            # A Sentinel cuts every connection of a server whose role it changes, so that clients ask again.
            return "unknown"

    def _options(self) -> list[str]:
        # The last word of an option wins.
        own = ["--port", str(self.port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"]
        source = [] if self._replica_of is None else ["--replicaof", "127.0.0.1", str(self._replica_of)]
        return [*super()._options(), *own, *source]


class Sentinel(ValkeyServer):
    """One Sentinel, whose word alone is enough."""

    def __init__(self, directory: Path, primary: Member, *, ephemeral: bool = False) -> None:
        super().__init__(directory, ephemeral=ephemeral)
        self.port = free_port()
        self._primary = primary

    @property
    def url(self) -> str:
        """Not its own address: that of the primary which it watches."""
        return f"redis+sentinel://127.0.0.1:{self.port}/{SERVICE}/0"

    def knows_the_replica(self) -> bool:
        """Only one that is in step can be promoted."""
        return [_fields(one)["master-link-status"] for one in self._tell("REPLICAS")] == ["ok"]

    def fail_over(self) -> None:
        """Promote the replica though the primary lives, as for an upgrade."""
        assert self._tell("FAILOVER"), "the Sentinel sees no replica that it could promote"

    def _tell(self, command: str) -> Any:
        return _ask(super().url, f"SENTINEL {command}", SERVICE)

    def _options(self) -> list[str]:
        # It writes what it learns into this file, so it needs one of its own.
        settings = self._data / "sentinel.conf"
        settings.write_text(
            SETTINGS.format(
                port=self.port,
                socket=self._home.socket,
                data=self._data,
                service=SERVICE,
                primary=self._primary.port,
                down_after_ms=DOWN_AFTER_MS,
            )
        )
        return [str(settings), "--sentinel"]


@dataclass(frozen=True)
class Watched:
    """The group."""

    primary: Member
    replica: Member
    sentinel: Sentinel

    @property
    def url(self) -> str:
        return self.sentinel.url

    def await_promotion(self) -> None:
        Deadline(SECONDS_MAX, "the replica is promoted").wait(lambda: self.replica.role == "master")


@contextmanager
def watched() -> Generator[Watched]:
    """A group whose Sentinel is ready to promote the replica."""
    with ExitStack() as stack:
        primary = stack.enter_context(Member(server_directory(), ephemeral=True))
        replica = stack.enter_context(Member(server_directory(), replica_of=primary.port, ephemeral=True))
        sentinel = stack.enter_context(Sentinel(server_directory(), primary, ephemeral=True))
        Deadline(SECONDS_MAX, "the Sentinel knows the replica").wait(sentinel.knows_the_replica)
        yield Watched(primary, replica, sentinel)


def _ask(url: str, *command: str) -> Any:
    with connect_sync(url, reply_seconds=5) as client:
        return cast("Any", client).execute_command(*command)


def _fields(flat: Any) -> dict[str, str]:
    """RESP2 answers names and values in turn, redis-py may have paired them."""
    pairs: Any = flat.items() if hasattr(flat, "items") else zip(flat[::2], flat[1::2], strict=True)
    return {str(name): str(value) for name, value in pairs}
