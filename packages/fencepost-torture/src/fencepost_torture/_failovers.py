"""Faults of a cluster: its primary is lost in several ways, and another node takes over."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import LiteralString

import psycopg

from fencepost_torture._system_environment import SystemEnvironment
from fencepost_torture.cluster import Cluster, Node

WHOLE_SECONDS = 60.0
CLAIM_SECONDS_MAX = 30.0
SEGMENTS_MAX = 100
CLAIMED: LiteralString = """
    select exists (select 1 from fencepost.lease where acquired_at > %s)
        or exists (select 1 from fencepost.job_running where claimed_at > %s)
"""


class Failovers:
    """Injects a fault into the cluster and waits for its consequence."""

    def __init__(self, cluster: Cluster, envs: Iterable[SystemEnvironment]) -> None:
        self._cluster = cluster
        self._envs = list(envs)
        self.first_claims: list[float] = []
        """Seconds from each promotion to the first claim or acquisition after it."""

    def inject(self, kind: str) -> None:
        """Raises TimeoutError if the cluster was not whole enough to hit it. `repair` it in any case."""
        cluster = self._cluster
        primary = cluster.wait_for_primary()
        # Without one, losing the primary would be an outage until it is back, and no failover.
        standby = cluster.synchronous_standby()
        match kind:
            case "primary-kill":
                primary.kill()
                cluster.expire_leader()
            case "primary-crash":
                primary.kill_postgres()
            case "primary-freeze":
                primary.freeze()
                cluster.expire_leader()
            case "switchover":
                cluster.switch_over()
            case "primary-cut":
                primary.host.cut_off([cluster.etcd.host.address])
                cluster.wait_until_demoted(primary)
                cluster.expire_leader()
            case "primary-full":
                self._use_up_the_log(primary)
            case "standby-kill":
                standby.kill()
                return
            case "standbys-cut":
                primary.host.cut_off(node.host.address for node in cluster.nodes if node is not primary)
                return
            case _:
                primary.host.cut_off([cluster.gateway])
                return
        promoted = cluster.wait_for_primary(other_than=primary)
        # The old primary goes on where it stood, and takes writes until Patroni has seen the time.
        primary.thaw()
        self._watch_first_claim(promoted)

    def repair(self, *, whole: bool = False) -> None:
        """Every node runs and is reached by all; the primary has a synchronous standby, so that the next
        failover can be survived. With `whole` all nodes follow it. May be repeated."""
        for node in self._cluster.nodes:
            node.host.heal()
            node.drain_disk()
            node.thaw()
            node.start()
        if whole:
            self._cluster.wait_until_whole(WHOLE_SECONDS)
        else:
            self._cluster.wait_for_primary(seconds=WHOLE_SECONDS)
            self._cluster.synchronous_standby()

    def _use_up_the_log(self, primary: Node) -> None:
        """Segments of the log that exist already have room: the first new one finds none, and PostgreSQL
        stops itself."""
        url = self._cluster.node_url(primary)
        with suppress(psycopg.OperationalError), psycopg.connect(url, autocommit=True) as connection:
            # A commit would wait for a standby.
            connection.execute("set synchronous_commit = local")
            for _ in range(SEGMENTS_MAX):
                # A checkpoint removes old segments, and so makes room again.
                primary.fill_disk()
                connection.execute("select pg_logical_emit_message(true, 'torture', 'full')")
                connection.execute("select pg_switch_wal()")

    def _watch_first_claim(self, promoted: Node) -> None:
        """Wait for the first claim that any system makes on the new primary. It is asked by its own address:
        the lost one may still answer."""
        began = time.monotonic()
        with ExitStack() as open_connections:
            urls = [self._cluster.node_url(promoted, env.database.name) for env in self._envs]
            readers = [open_connections.enter_context(psycopg.connect(url, autocommit=True)) for url in urls]
            [(since,)] = readers[0].execute("select fencepost.clock()").fetchall()
            while time.monotonic() - began < CLAIM_SECONDS_MAX and not any(
                reader.execute(CLAIMED, (since, since)).fetchone() == (True,) for reader in readers
            ):
                time.sleep(0.02)
        self.first_claims.append(time.monotonic() - began)
