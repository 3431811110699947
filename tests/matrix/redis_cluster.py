"""A Redis Cluster of three primaries, each with a replica: nodes can be killed, and slots moved."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from fencepost.embedded import ValkeyServer
from fencepost.embedded._deadline import Deadline
from tests.matrix.ports import free_port
from tests.tmp_dirs import server_directory

SLOTS = 16384
PRIMARIES = 3
SECONDS_MAX = 60
NODE_TIMEOUT_MS = 1000


class Member(ValkeyServer):
    """A node. It keeps its ports when it comes back, and so its part."""

    def __init__(self, directory: Path, *, ephemeral: bool = False) -> None:
        super().__init__(directory, ephemeral=ephemeral)
        self.port, self.bus = free_port(), free_port()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def node_id(self) -> str:
        return str(self.ask("CLUSTER", "MYID"))

    @property
    def is_primary(self) -> bool:
        try:
            return bool(self.ask("ROLE")[0] == "master")
        except RedisError:
            return False

    def ask(self, *command: Any) -> Any:
        connection: Any = Redis(host="127.0.0.1", port=self.port, decode_responses=True)
        with closing(connection) as client:
            return client.execute_command(*command)

    def knows(self) -> dict[str, str]:
        """What CLUSTER INFO says."""
        lines = str(self._raw("CLUSTER", "INFO")).split()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def sees(self) -> int:
        """The number of nodes that this one has met."""
        return len(
            [line for line in str(self._raw("CLUSTER", "NODES")).splitlines() if "handshake" not in line]
        )

    def _raw(self, *command: str) -> Any:
        # As it is sent: redis-py has parsers for both.
        connection: Any = Redis(host="127.0.0.1", port=self.port, decode_responses=True)
        with closing(connection) as client:
            client.response_callbacks.clear()
            return client.execute_command(*command)

    def _options(self) -> list[str]:
        own = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "cluster-enabled": "yes",
            "cluster-port": str(self.bus),
            "cluster-node-timeout": str(NODE_TIMEOUT_MS),
            "repl-diskless-sync-delay": "0",
        }
        return [*super()._options(), *(part for name, value in own.items() for part in (f"--{name}", value))]


@dataclass
class RedisCluster:
    """The nodes; each of the first three began as a primary, and the others as their replicas."""

    members: Sequence[Member] = field(default_factory=list[Member])

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{member.port}" for member in self.members)

    def primary_of(self, slot: int) -> Member:
        """The node that serves the slot now."""
        for member in self.members:
            if member.running:
                for first, last, (_, port, *_), *_ in member.ask("CLUSTER", "SLOTS") or ():
                    if first <= slot <= last:
                        return next(each for each in self.members if each.port == port)
        raise AssertionError(f"no node serves the slot {slot}")

    def replica_of(self, primary: Member) -> Member:
        """A replica that has all that its primary has."""

        def find() -> Member | None:
            lines = str(primary.ask("ROLE")[2])
            return next((each for each in self.members if f"'{each.port}'" in lines), None)

        Deadline(SECONDS_MAX, "the primary has a replica").wait(lambda: find() is not None)
        found = find()
        assert found is not None
        return found

    def kill_primary_of(self, slot: int) -> Member:
        """Kill the node that serves the slot, and wait until its replica serves it."""
        primary = self.primary_of(slot)
        replica = self.replica_of(primary)
        primary.kill()
        Deadline(SECONDS_MAX, "the replica is promoted").wait(lambda: replica.is_primary)
        self.wait_until_served()
        return primary

    def move(self, slot: int) -> Member:
        """Move one slot with its keys to another primary, key by key, as redis-cli does."""
        source = self.primary_of(slot)
        target = next(
            each for each in self.members if each is not source and each.running and each.is_primary
        )
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.node_id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.node_id)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
            source.ask("MIGRATE", *target.address, "", 0, 5000, "KEYS", *keys)
        for member in (target, source, *self.members):
            if member.running and member.is_primary:
                member.ask("CLUSTER", "SETSLOT", slot, "NODE", target.node_id)
        return target

    def wait_until_served(self) -> None:
        """Every node that runs says that all slots are served."""
        up = [member for member in self.members if member.running]
        Deadline(SECONDS_MAX, "the cluster serves every slot").wait(
            lambda: all(member.knows()["cluster_state"] == "ok" for member in up)
        )


@contextmanager
def redis_cluster() -> Generator[RedisCluster]:
    """Six nodes that serve every slot, each primary with a replica that has what it has."""
    with ExitStack() as stack:
        members = [
            stack.enter_context(Member(server_directory(), ephemeral=True)) for _ in range(2 * PRIMARIES)
        ]
        first, *others = members
        for member in others:
            first.ask("CLUSTER", "MEET", *member.address, member.bus)
        Deadline(SECONDS_MAX, "all nodes have met").wait(
            lambda: all(member.sees() == len(members) for member in members)
        )
        primaries, replicas = members[:PRIMARIES], members[PRIMARIES:]
        for number, primary in enumerate(primaries):
            begin, end = (SLOTS * each // PRIMARIES for each in (number, number + 1))
            primary.ask("CLUSTER", "ADDSLOTSRANGE", begin, end - 1)
        for primary, replica in zip(primaries, replicas, strict=True):
            replica.ask("CLUSTER", "REPLICATE", primary.node_id)
        cluster = RedisCluster(members)
        cluster.wait_until_served()
        for primary in primaries:
            cluster.replica_of(primary)
        yield cluster
