"""`fencepost lost`: what others still know of work that the database has lost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, LiteralString

from fencepost import server_addresses
from fencepost.cli.database_reader import Reader, reading
from fencepost.cli.terminal import JsonOption, answer, answer_json, progress
from fencepost.settings import Settings

BATCH = 1000
SHOWN_MAX = 1000
REDIS_SECONDS = 10.0
RAISED: LiteralString = """
    select at, token, detail from fencepost.events
    where noun = 'kernel' and subject = 'lineage' and event = 'epoch_raised' order by event_id desc limit 1
"""
# What a client asked for, and the database refused because it does not have it, or not so any more.
REFUSED: LiteralString = """
    select at, reason, noun, subject, actor, attempted::text, seen::text from fencepost.refusals
    where at >= %s and kind <> 'conflict' order by refusal_id limit %s
"""
QUEUES: LiteralString = "select queue from fencepost.queue_status"
UNKNOWN_JOBS: LiteralString = """
    select id from unnest(%s::bigint[]) id where not exists (select from fencepost.jobs j where j.job_id = id)
"""
UNKNOWN_REQUESTS: LiteralString = """
    select asked.scope, asked.key from unnest(%s::text[], %s::text[]) asked (scope, key)
    where not exists (
      select from fencepost.idempotency_keys k where k.scope = asked.scope and k.key = asked.key)
"""


@dataclass(frozen=True, slots=True)
class Lost:
    """One thing that a client or a server knows of and the database does not."""

    known_by: str
    what: str
    detail: str


def lost(json_output: JsonOption = False) -> None:
    """List what others still know of work that the database has lost.

    \b
    After a failover that lost commits, or a restore: what clients were refused since the epoch was raised,
    with the tokens and attempts that they still held; jobs whose entries are in Redis and which the database
    does not have; and requests whose answers are in Redis, and whose keys the database has forgotten. Changes
    nothing. Run it soon: workers remove entries of jobs that do not exist, and answers expire.

    \b
    Brokers and chains know more: compare the list of orders at your broker since the lost time, and confirm
    the next nonce of each signer (`fencepost nonces recover`).
    """
    settings = Settings.load()
    addresses = server_addresses.of_this_directory(settings)
    with progress("Asking"), reading(addresses.viewer_url, seconds=settings.connect_seconds) as connection:
        raised = connection.execute(RAISED).fetchone()
        found = [*_known_by_clients(connection, raised), *_known_by_redis(connection, addresses.redis_url)]
    epoch = (
        None if raised is None else {"at": raised[0].isoformat(), "epoch": raised[1], "evidence": raised[2]}
    )
    if json_output:
        answer_json({"raised": epoch, "lost": [asdict(one) for one in found]})
        return
    if raised is None:
        answer("The epoch was never raised: no client has shown that commits were lost.")
    else:
        answer(f"The epoch was raised to {raised[1]} at {raised[0]:%Y-%m-%d %H:%M:%S} UTC: {raised[2]}")
    for one in found:
        answer(f"  {one.known_by}: {one.what}: {one.detail}")
    answer(f"{len(found)} things are known to others." if found else "Nothing else is known to others.")


def _known_by_clients(connection: Reader, raised: Sequence[Any] | None) -> Iterator[Lost]:
    if raised is None:
        return
    for at, reason, noun, subject, actor, attempted, seen in connection.execute(
        REFUSED, (raised[0], SHOWN_MAX)
    ).fetchall():
        yield Lost(f"client {actor}", f"{noun} {subject}", f"{reason} at {at:%H:%M:%S}, {attempted}, {seen}")


def _known_by_redis(connection: Reader, redis_url: str | None) -> Iterator[Lost]:
    if redis_url is None:
        return
    from fencepost.redis_streams.connection import connect_sync  # noqa: PLC0415 - Needs an extra.

    client: Any = connect_sync(redis_url, reply_seconds=REDIS_SECONDS)
    with closing(client):
        yield from _jobs(connection, client)
        yield from _requests(connection, client)


def _jobs(connection: Reader, client: Any) -> Iterator[Lost]:
    from fencepost.jobs.settings import JobSettings  # noqa: PLC0415 - Needs an extra, as Redis does.
    from fencepost.redis_streams.stream_names import DEFAULT_QUEUE, PRIORITIES, stream_of  # noqa: PLC0415

    key = JobSettings.load().stream_key
    for queue in {DEFAULT_QUEUE, *(queue for (queue,) in connection.execute(QUEUES).fetchall())}:
        for priority in range(len(PRIORITIES)):
            stream = stream_of(key, queue, priority)
            for entries in _batches(_entries(client, stream)):
                jobs = {int(fields["job_id"]): fields for fields in entries}
                for (job_id,) in connection.execute(UNKNOWN_JOBS, (list(jobs),)).fetchall():
                    yield Lost("Redis", f"job {job_id}", f"queue {queue}, {json.dumps(jobs[job_id])}")


def _entries(client: Any, stream: str) -> Iterator[dict[str, str]]:
    after = "-"
    while found := client.xrange(stream, min=after, count=BATCH):
        for _, fields in found:
            if str(fields.get("job_id", "")).isdecimal():
                yield fields
        after = f"({found[-1][0]}"


def _requests(connection: Reader, client: Any) -> Iterator[Lost]:
    from fencepost.redis_streams._keys import RESPONSES  # noqa: PLC0415
    from fencepost.redis_streams.response_cache import kept_response  # noqa: PLC0415

    for names in _batches(client.scan_iter(RESPONSES, count=BATCH)):
        documents = [document for name in names if (document := kept_response(client.get(name))) is not None]
        scopes, keys = [one["scope"] for one in documents], [one["key"] for one in documents]
        unknown = set(connection.execute(UNKNOWN_REQUESTS, (scopes, keys)).fetchall())
        for one in documents:
            if (one["scope"], one["key"]) in unknown:
                yield Lost("Redis", f"request {one['scope']}/{one['key']}", f"was answered {one['body']}")


def _batches(values: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(values)
    while batch := list(islice(iterator, BATCH)):
        yield batch
