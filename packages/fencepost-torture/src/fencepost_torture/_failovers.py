"""Faults of a cluster: its primary is lost in several ways, and another node takes over."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import LiteralString

import psycopg

from fencepost_torture._system_environment import SystemEnvironment
from fencepost_torture.cluster import Cluster, Node

WHOLE_SECONDS = 60.0
CLAIM_SECONDS_MAX = 30.0
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

    def inject(self, kind: str, nth: int) -> None:
        """Raises TimeoutError if the cluster was not whole enough to hit it. `repair` it in any case."""
        cluster = self._cluster
        primary = cluster.wait_for_primary()
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
            case "standby-kill":
                cluster.synchronous_standby().kill()
                return
            case _:
                self._cut(primary, nth)
                return
        cluster.wait_for_primary(other_than=primary)
        # The old primary goes on where it stood, and takes writes until Patroni has seen the time.
        primary.thaw()
        self._watch_first_claim()

    def repair(self) -> None:
        """Every node runs and is reached by all. May be repeated."""
        for node in self._cluster.nodes:
            node.host.heal()
            node.thaw()
            node.start()
        self._cluster.wait_until_whole(WHOLE_SECONDS)

    def _cut(self, primary: Node, nth: int) -> None:
        """Cut the primary off: from etcd, so that it gives up and another takes over; from its standbys; or
        from every client."""
        others = [node.host.address for node in self._cluster.nodes if node is not primary]
        ends = ([self._cluster.etcd.host.address], others, [self._cluster.gateway])[nth % 3]
        primary.host.cut_off(ends)
        if nth % 3 == 0:
            self._cluster.wait_for_primary(other_than=primary)
            self._watch_first_claim()

    def _watch_first_claim(self) -> None:
        """Wait for the first claim that any system makes on the new primary."""
        began = time.monotonic()
        with ExitStack() as open_connections:
            # Not those of the run: they may still be connected to the lost primary.
            urls = [env.admin_url for env in self._envs]
            readers = [open_connections.enter_context(psycopg.connect(url, autocommit=True)) for url in urls]
            [(promoted,)] = readers[0].execute("select fencepost.clock()").fetchall()
            while time.monotonic() - began < CLAIM_SECONDS_MAX and not any(
                reader.execute(CLAIMED, (promoted, promoted)).fetchone() == (True,) for reader in readers
            ):
                time.sleep(0.02)
        self.first_claims.append(time.monotonic() - began)
