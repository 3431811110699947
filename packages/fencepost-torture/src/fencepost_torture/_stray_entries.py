"""Entries of a stream that name no job, written by a foreign client.

Redis keeps nothing across a restart, and a wipe removes everything. So an entry is owed only during the Redis
incarnation in which it was written: in a later one it cannot be known whether a worker read it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, LiteralString

from redis.exceptions import RedisError

from fencepost.redis_streams._keys import beside
from fencepost.redis_streams.connection import connect_sync
from fencepost.testing import Breach
from fencepost_torture._effects import LOST
from fencepost_torture._system_environment import SystemEnvironment

REPLY_SECONDS = 2.0
NO_LIFE = ""
MISSING, INVALID = "missing_field", "invalid_field"

FOUND: LiteralString = """
    select distinct subject from fencepost.event
    where noun = 'stream' and event = 'poison' and subject = any(%s)
"""
RECORDS: LiteralString = """
    select subject, detail ->> 'reason', detail -> 'fields' from fencepost.event
    where noun = 'stream' and event = 'poison' order by event_id
"""

Record = tuple[str, str, Mapping[str, str]]
"""Its stream and id, why it cannot be read, and its content."""


@dataclass
class StrayEntries:
    """The stray entries of one stream, as their writer knows them."""

    stream: str
    found: int = 0
    """How many were seen to be recorded."""
    _written: dict[str, tuple[str, Record]] = field(default_factory=dict[str, tuple[str, Record]])
    """By key: the Redis incarnation in which it was written, and what the record of it must say."""
    _doubtful: set[str] = field(default_factory=set[str])
    """Keys of entries whose write got no reply."""
    _open: dict[str, str] = field(default_factory=dict[str, str])
    """Ids of entries not yet seen to be recorded, and the incarnation in which each was written."""

    @property
    def _mark(self) -> str:
        return beside(self.stream, "mark")

    def write(self, env: SystemEnvironment, key: str, reason: str) -> None:
        fields = _fields(key, reason)
        try:
            life, entry_id = self._add(env, fields)
        except RedisError:
            self._doubtful.add(key)
            return
        subject = f"{self.stream}#{entry_id}"
        self._written[key] = life, (subject, reason, fields)
        self._open[subject] = life

    def owed(self, env: SystemEnvironment) -> int:
        """How many are still to be recorded. 0 while Redis does not answer: it may have lost them."""
        if not self._open:
            return 0
        for (subject,) in env.rows(FOUND, (list(self._open),)):
            del self._open[subject]
            self.found += 1
        life = self._life(env)
        if life == NO_LIFE:
            return 0
        self._open = {subject: own for subject, own in self._open.items() if own == life}
        return len(self._open)

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        """A record is made before the entry is acknowledged, so an entry may have two, and never none."""
        life = self._life(env)
        recorded: set[str] = set()
        for subject, reason, fields in env.rows(RECORDS):
            key = str(fields.get("payload_ref"))
            recorded.add(key)
            if key in self._written:
                expected = self._written[key][1]
                if (subject, reason, fields) != expected:
                    yield Breach("as it was found", key, f"is recorded as {subject}, {reason}, {fields}")
            elif key not in self._doubtful:
                yield Breach("unrequested", key, f"{subject} is recorded, and was never written")
        for key, (own, _) in self._written.items():
            if own == life and key not in recorded:
                yield Breach(LOST, key, "cannot be read, and was not recorded")

    def _add(self, env: SystemEnvironment, fields: Mapping[str, str]) -> tuple[str, str]:
        # In one transaction, so that the entry belongs to the incarnation that answers.
        server, _, mark, entry_id = self._transact(
            env,
            lambda pipe: (
                pipe.info("server")
                .set(self._mark, secrets.token_hex(8), nx=True)
                .get(self._mark)
                .xadd(self.stream, fields)
            ),
        )
        return f"{server['run_id']} {mark}", entry_id

    def _life(self, env: SystemEnvironment) -> str:
        """The Redis incarnation. A new server is a new one, and so is a wiped one: a wipe removes the
        mark."""
        try:
            server, mark = self._transact(env, lambda pipe: pipe.info("server").get(self._mark))
        except RedisError:
            return NO_LIFE
        return f"{server['run_id']} {mark}"

    def _transact(self, env: SystemEnvironment, fill: Callable[[Any], object]) -> Any:
        client: Any = connect_sync(env.redis_url, reply_seconds=REPLY_SECONDS)
        with closing(client):
            pipe = client.pipeline(transaction=True)
            fill(pipe)
            return pipe.execute()


def _fields(key: str, reason: str) -> Mapping[str, str]:
    if reason == MISSING:
        return {"payload_ref": key}
    return {"job_id": "seven", "enqueue_ts": "0", "payload_ref": key, "priority": "1"}
