"""A system with something in every list, made through the kernel's own functions."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.kernel.call import document

OWNER = "worker@test#1"


class Watchers:
    """Jobs in every state, leases, messages and refusals. What a text may hold is in `name`."""

    def __init__(self, database: Database, name: str = "mail") -> None:
        self.name = name
        # A colon in the name of a channel is a service's.
        self.channel = name.replace(":", "")
        self._database = database
        self.waiting = self._submit()
        self.running = self._claimed(self._submit())
        self.finished = self._claimed(self._submit())
        self._call(
            "select fencepost.job_finish(%s, 1, %s, 'ok', %s::jsonb)",
            self.finished,
            OWNER,
            document("x", {"r": name}),
        )
        self.dead = [self._buried(self._submit()) for _ in range(3)]
        self.cancelled = self._submit()
        self._call("select fencepost.job_cancel(%s, 'test', null)", self.cancelled)
        self._call("select * from fencepost.lease_acquire(%s, %s, '1 hour')", f"signer:{name}", OWNER)
        self.lease = f"signer:{name}"
        self.message = int(
            self._call(
                "select fencepost.outbox_put(%s, %s, %s::jsonb)",
                self.channel,
                name,
                document("x", {"p": name}),
            )
        )
        self._call(
            "select fencepost.outbox_put(%s, %s, %s::jsonb)", self.channel, name, document("x", {"p": name})
        )
        self._refused("select fencepost.job_finish(%s, 99, %s, 'ok', null)", self.running, "zombie")

    def park(self) -> int:
        """The head of the key waits for a person."""
        with self._database.connect() as connection:
            took = connection.execute(
                "select id, take from fencepost.outbox_take(%s, %s, '1 minute', 10)", (self.channel, OWNER)
            ).fetchone()
        assert took is not None
        self._call(
            "select fencepost.outbox_settle(%s, %s, %s, 'parked', %s)", took[0], took[1], OWNER, self.name
        )
        return int(took[0])

    def state_of(self, job_id: int) -> str:
        return str(self._call("select state from fencepost.jobs where job_id = %s", job_id))

    def _submit(self) -> int:
        return int(
            self._call(
                "select job_id from fencepost.job_submit(%s, %s, %s::jsonb, p_tries_max => 1)",
                self.name,
                self.name,
                document("payload", {"p": self.name}),
            )
        )

    def _claimed(self, job_id: int) -> int:
        self._call("select * from fencepost.job_claim(%s, %s)", job_id, OWNER)
        assert self.state_of(job_id) == "running"
        return job_id

    def _buried(self, job_id: int) -> int:
        self._claimed(job_id)
        self._call(
            "select * from fencepost.job_retry(%s, 1, %s, %s, '1 second')",
            job_id,
            OWNER,
            f"ValueError: {self.name}",
        )
        assert self.state_of(job_id) == "dead"
        return job_id

    def _call(self, query: LiteralString, *arguments: Any) -> Any:
        with self._database.connect() as connection:
            row = connection.execute(query, arguments).fetchone()
        return row[0] if row else None

    def _refused(self, query: LiteralString, *arguments: Any) -> None:
        with self._database.connect() as connection, pytest.raises(psycopg.Error) as refusal:
            connection.execute(query, arguments)
        assert (refusal.value.sqlstate or "").startswith("ZF0")
