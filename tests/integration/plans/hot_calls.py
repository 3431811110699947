"""The functions of the hot paths, each called as its runtime calls it, on the rows of population.sql.

The ids lie in the middle of the table and beside each other, as those of one batch do.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

BATCH = 100

Arguments = tuple[Any, ...]
Statement = tuple[LiteralString, Arguments]


def _nothing(_: int) -> list[Statement]:
    return []


@dataclass(frozen=True)
class HotCall:
    """One call. `arguments`, and what the transaction did `before`, are made for a size of the tables."""

    name: str
    sql: LiteralString
    arguments: Callable[[int], Arguments]
    before: Callable[[int], Sequence[Statement]] = _nothing

    def __str__(self) -> str:
        return self.name


def _plain(*arguments: Any) -> Callable[[int], Arguments]:
    return lambda _: arguments


def _ids(first: int, digits: str) -> list[int]:
    """A batch of ids from `first` on that end in one of these digits."""
    wanted = [identity for identity in range(first, first + 20 * BATCH) if str(identity)[-1] in digits]
    return wanted[:BATCH]


def _pending(size: int) -> list[int]:
    return _ids(size // 2, "1359")[: min(BATCH, size // 8)]


def _dispatched(size: int) -> list[int]:
    return _ids(size // 2, "2468")[: min(BATCH, size // 8)]


def _running(size: int) -> list[int]:
    return _ids(size + size // 2, "123456789")


def _sending(size: int) -> list[int]:
    return list(range(size // 20 * 10 + 8, size // 20 * 10 + 408, 10))


def _time_ordered_key(number: int) -> str:
    """A UUIDv7 of this hour."""
    hour = int(time.time()) // 3600 * 3600
    millis = f"{hour * 1000:012x}"
    return f"{millis[:8]}-{millis[8:]}-7000-8000-{number:012x}"


def _ones(ids: Sequence[int]) -> list[int]:
    return [1] * len(ids)


def _finish(size: int) -> Arguments:
    return _running(size), _ones(_running(size)), "owner"


def _one_running(size: int) -> Arguments:
    return (_running(size)[0],)


def _one_dead(size: int) -> Arguments:
    return (2 * size + 50,)


MARKERS = (
    HotCall("claim", "select * from fencepost.claim('scope-1', 'new', 'digest')", _plain()),
    HotCall(
        "claim of a known key",
        "select * from fencepost.claim(%s, %s, 'digest')",
        lambda size: (f"scope-{size // 2 % 3}", f"key-{size // 2}"),
    ),
    HotCall(
        "claim_many",
        "select * from fencepost.claim_many('scope-1', %s::text[])",
        lambda size: ([f"key-{size // 2 + i}" for i in range(BATCH)],),
    ),
    HotCall(
        "claim_ordered",
        "select * from fencepost.claim_ordered('scope', %s)",
        lambda _: (_time_ordered_key(0),),
    ),
    HotCall(
        "remember",
        "select * from fencepost.remember('scope-1', 'new', '{}')",
        _plain(),
        lambda _: [("select fencepost.claim('scope-1', 'new')", ())],
    ),
    HotCall(
        "remember_ordered",
        "select * from fencepost.remember_ordered('scope', %s, '{}')",
        lambda _: (_time_ordered_key(1),),
        lambda _: [("select fencepost.claim_ordered('scope', %s)", (_time_ordered_key(1),))],
    ),
    HotCall("marker_clean", "select * from fencepost.marker_clean('1 hour', %s)", _plain(BATCH)),
)

OUTBOX = (
    HotCall("outbox_put", "select * from fencepost.outbox_put('mail', null, '{}')", _plain()),
    HotCall(
        "outbox_put with a key",
        "select * from fencepost.outbox_put('mail', %s, '{}')",
        lambda size: (f"key-{size // 100}",),
    ),
    HotCall(
        "outbox_put_many",
        "select * from fencepost.outbox_put_many('mail', %s::text[], %s::jsonb[])",
        lambda size: ([f"key-{size // 100 + i // 5}" for i in range(BATCH)], ["{}"] * BATCH),
    ),
    HotCall("outbox_hold", "select * from fencepost.outbox_hold('mail', %s)", _plain(BATCH)),
    HotCall(
        "outbox_take", "select * from fencepost.outbox_take('mail', 'owner', '1 minute', %s)", _plain(BATCH)
    ),
    HotCall(
        "outbox_take of unknown ones",
        "select * from fencepost.outbox_take('mail', 'owner', '1 minute', %s, true)",
        _plain(BATCH),
    ),
    HotCall(
        "outbox_renew",
        "select * from fencepost.outbox_renew(%s::bigint[], %s::bigint[], 'owner', '1 minute')",
        lambda size: (_sending(size), _ones(_sending(size))),
    ),
    HotCall(
        "outbox_settle",
        "select * from fencepost.outbox_settle(%s, 1, 'owner', 'sent')",
        lambda size: (_sending(size)[0],),
    ),
    HotCall(
        "outbox_settle of a keyed message",
        "select * from fencepost.outbox_settle(%s, 1, null, 'sent')",
        lambda size: (size // 2 // 50 * 50 + 6,),
    ),
    HotCall(
        "outbox_settle_many",
        "select * from fencepost.outbox_settle_many(%s::bigint[], %s::bigint[], 'owner', %s::text[])",
        lambda size: (_sending(size), _ones(_sending(size)), ["sent"] * len(_sending(size))),
    ),
    HotCall(
        "outbox_settle_many of failures",
        "select * from fencepost.outbox_settle_many(%s::bigint[], %s::bigint[], 'owner', %s::text[])",
        lambda size: (_sending(size), _ones(_sending(size)), ["failed"] * len(_sending(size))),
    ),
    HotCall("outbox_expire", "select * from fencepost.outbox_expire('mail', 'queued', %s)", _plain(BATCH)),
    HotCall("outbox_prune", "select * from fencepost.outbox_prune('5 days', %s)", _plain(BATCH)),
)

JOBS = (
    HotCall("job_submit", "select * from fencepost.job_submit('hot', 'kind', '{}')", _plain()),
    HotCall(
        "job_submit of a unique job that lives",
        "select * from fencepost.job_submit('hot', 'kind', '{}', p_unique_key => %s)",
        lambda size: (f"unique-{size // 2}",),
    ),
    HotCall(
        "job_submit_many",
        "select * from fencepost.job_submit_many('hot', 'kind', %s::jsonb[], p_unique_keys => %s::text[])",
        lambda size: (["{}"] * BATCH, [f"unique-{size - BATCH // 2 + i}" for i in range(BATCH)]),
    ),
    HotCall("job_dispatch", "select * from fencepost.job_dispatch('hot', 1, %s)", _plain(BATCH)),
    HotCall(
        "job_dispatched",
        "select * from fencepost.job_dispatched(%s::bigint[], %s::text[], 'life')",
        lambda size: (_pending(size), ["1-1"] * len(_pending(size))),
    ),
    HotCall(
        "job_dispatch_failed",
        "select * from fencepost.job_dispatch_failed(%s::bigint[], 'no answer', '1 second')",
        lambda size: (_pending(size),),
    ),
    HotCall(
        "job_recall",
        "select * from fencepost.job_recall(%s::bigint[], %s::text[])",
        lambda size: (_dispatched(size), [f"1700000000000-{i}" for i in _dispatched(size)]),
    ),
    HotCall("job_claim", "select * from fencepost.job_claim(%s, 'owner')", lambda size: (_pending(size)[0],)),
    HotCall(
        "job_claim_many",
        "select * from fencepost.job_claim_many(%s::bigint[], 'owner')",
        lambda size: (_pending(size),),
    ),
    HotCall(
        "job_claim_many with concurrency keys",
        "select * from fencepost.job_claim_many(%s::bigint[], 'owner')",
        lambda size: (_ids(size // 2, "7")[:20],),
    ),
    HotCall(
        "job_claim_many of running and finished jobs",
        "select * from fencepost.job_claim_many(%s::bigint[], 'other')",
        lambda size: ([*_running(size)[:20], *range(2 * size + 1, 2 * size + 20)],),
    ),
    HotCall("job_claim_next", "select * from fencepost.job_claim_next('hot', 1, 'owner', %s)", _plain(BATCH)),
    HotCall(
        "job_claim_next of dispatched jobs",
        "select * from fencepost.job_claim_next('queue-10', 1, 'owner', 20, null, true)",
        _plain(),
    ),
    HotCall(
        "job_renew", "select * from fencepost.job_renew(%s, 1, 'owner')", lambda size: (_running(size)[0],)
    ),
    HotCall(
        "job_renew_many",
        "select * from fencepost.job_renew_many(%s::bigint[], %s::bigint[], %s)",
        _finish,
    ),
    HotCall(
        "job_fence", "select * from fencepost.job_fence(%s, 1, 'owner')", lambda size: (_running(size)[0],)
    ),
    HotCall(
        "job_finish", "select * from fencepost.job_finish(%s, 1, 'owner')", lambda size: (_running(size)[0],)
    ),
    HotCall(
        "job_finish_many",
        "select * from fencepost.job_finish_many(%s::bigint[], %s::bigint[], %s)",
        _finish,
    ),
    HotCall(
        "job_finish_many of strangers",
        "select * from fencepost.job_finish_many(%s::bigint[], %s::bigint[], 'other')",
        lambda size: _finish(size)[:2],
    ),
    HotCall(
        "job_leave_many",
        "select * from fencepost.job_leave_many(%s::bigint[], %s::bigint[], %s, %s::text[])",
        lambda size: (*_finish(size), [("release", "retry", "bury")[i % 3] for i in range(BATCH)]),
    ),
    HotCall("job_reclaim", "select * from fencepost.job_reclaim(%s)", _plain(BATCH)),
    HotCall("job_blocked", "select * from fencepost.job_blocked(%s)", _plain(BATCH)),
    HotCall("job_prune", "select * from fencepost.job_prune('5 days', %s)", _plain(BATCH)),
)

LEASES = (
    HotCall("lease_acquire", "select * from fencepost.lease_acquire('new', 'owner', '1 minute')", _plain()),
    HotCall(
        "lease_acquire by takeover",
        "select * from fencepost.lease_acquire(%s, 'other', '1 minute')",
        lambda size: (f"lease-{size // 2 // 3 * 3}",),
    ),
    HotCall(
        "lease_renew",
        "select * from fencepost.lease_renew(%s, 'owner', 1, '1 minute')",
        lambda size: (f"lease-{size // 2 // 3 * 3 + 1}",),
    ),
    HotCall(
        "lease_renew_many",
        "select * from fencepost.lease_renew_many(%s::text[], 'owner', %s::bigint[], '1 minute')",
        lambda size: ([f"lease-{size // 2 + i}" for i in range(BATCH)], [1] * BATCH),
    ),
    HotCall(
        "lease_acquire_many",
        "select * from fencepost.lease_acquire_many(%s::text[], 'owner', '1 minute')",
        lambda size: ([f"lease-{size // 2 + i}" for i in range(BATCH)],),
    ),
    HotCall(
        "lease_fence",
        "select * from fencepost.lease_fence(%s, 1)",
        lambda size: (f"lease-{size // 2 // 3 * 3 + 1}",),
    ),
)

CHECKPOINTS = (
    HotCall("checkpoint_begin", "select * from fencepost.checkpoint_begin('lease-1', 1)", _plain()),
    HotCall(
        "checkpoint_store",
        "select * from fencepost.checkpoint_store('lease-1', 1, %s, %s::jsonb, '{}', '')",
        lambda size: (size + 1, '{"offset": 1}'),
        lambda _: [("select fencepost.checkpoint_begin('lease-1', 1)", ())],
    ),
    HotCall(
        "checkpoint_commit",
        "select * from fencepost.checkpoint_commit('lease-1', 1, %s)",
        lambda size: (size,),
    ),
    HotCall(
        "checkpoint_abort",
        "select * from fencepost.checkpoint_abort('lease-1', 1, %s)",
        lambda size: (size + 1,),
        lambda _: [("select fencepost.checkpoint_begin('lease-1', 1)", ())],
    ),
    HotCall("checkpoint_restore", "select * from fencepost.checkpoint_restore('lease-1', 1)", _plain()),
)

FEATURES = (
    HotCall(
        "job_claim_many of a limited queue",
        "select * from fencepost.job_claim_many(%s::bigint[], 'owner')",
        lambda size: (list(range(20, size, 50))[:20],),
    ),
    HotCall(
        "job_dispatch of a limited queue", "select * from fencepost.job_dispatch('queue-20', 1, 10)", _plain()
    ),
    HotCall("job_next_due", "select * from fencepost.job_next_due('hot')", _plain()),
    HotCall(
        "job_driven",
        "select * from fencepost.job_driven('hot', 1, '1 minute', '2000-01-01', %s, %s)",
        lambda size: (size // 2, BATCH),
    ),
    HotCall("job_outcome", "select * from fencepost.job_outcome(%s)", lambda size: (2 * size + 7,)),
    HotCall("batch_make", "select * from fencepost.batch_make(%s::bigint[])", lambda size: (_pending(size),)),
    HotCall("batch_prune", "select * from fencepost.batch_prune('5 days', 1)", _plain()),
    HotCall("schedule_next", "select * from fencepost.schedule_next(%s)", _plain(BATCH)),
    HotCall("schedule_prune", "select * from fencepost.schedule_prune('5 days', %s)", _plain(BATCH)),
    HotCall("rate_prune", "select * from fencepost.rate_prune(%s)", _plain(BATCH)),
)

PEOPLE = (
    HotCall("job_progress", "select * from fencepost.job_progress(%s, 1, 'owner', '{}')", _one_running),
    HotCall("job_release", "select * from fencepost.job_release(%s, 1, 'owner')", _one_running),
    HotCall("job_retry", "select * from fencepost.job_retry(%s, 1, 'owner', 'why', '1 s')", _one_running),
    HotCall("job_bury", "select * from fencepost.job_bury(%s, 1, 'owner', 'why')", _one_running),
    HotCall("job_reclaim_one", "select * from fencepost.job_reclaim_one(%s)", lambda size: (size + 1,)),
    HotCall("job_cancel", "select * from fencepost.job_cancel(%s, 'person')", lambda size: (size // 2 + 1,)),
    HotCall("job_hurry", "select * from fencepost.job_hurry(%s, 'person')", lambda size: (size // 2 + 1,)),
    HotCall("job_replay", "select * from fencepost.job_replay(%s, 'person')", _one_dead),
    HotCall("job_discard", "select * from fencepost.job_discard(%s, 'person')", _one_dead),
    HotCall(
        "dead_settle", "select * from fencepost.dead_settle(array[%s::bigint], 'replay', 'person')", _one_dead
    ),
    HotCall(
        "outbox_resolve",
        "select * from fencepost.outbox_resolve(%s, 'unknown', 'sent', 'person', 'seen')",
        lambda size: (size // 20 * 10 + 9,),
    ),
    HotCall(
        "lease_release",
        "select * from fencepost.lease_release(%s, 'owner', 1)",
        lambda size: (f"lease-{size // 2 // 3 * 3 + 1}",),
    ),
)

HISTORY = (
    HotCall("explain a job", "select * from fencepost.explain(%s)", lambda size: (str(size // 10),)),
    HotCall(
        "explain a message", "select * from fencepost.explain(%s)", lambda size: (f"outbox:{size // 2}",)
    ),
    HotCall(
        "explain a lease", "select * from fencepost.explain(%s)", lambda size: (f"lease:lease-{size // 2}",)
    ),
    HotCall(
        "explain a request",
        "select * from fencepost.explain(%s)",
        lambda size: (f"request:scope-{size // 2 % 3}/key-{size // 2}",),
    ),
    HotCall(
        "refusal_record",
        "select * from fencepost.refusal_record('stale_attempt', 'job', '7', 'owner', '{}', '{}')",
        _plain(),
    ),
    HotCall("refusal_counts", "select * from fencepost.refusal_counts()", _plain()),
    HotCall("history_prune", "select * from fencepost.history_prune('5 days', %s)", _plain(BATCH)),
)

HOT_CALLS = MARKERS + OUTBOX + JOBS + LEASES + CHECKPOINTS + FEATURES + PEOPLE + HISTORY

# Every other function, and why its plan needs no guard.
NOT_HOT = {
    "a function of the clock, or of few rows": (
        "clock queue_bound queue_count queue_pause queue_rate queue_resume rate_declare result_prune "
        "schedule_declare schedule_fire schedule_pause schedule_resume schedule_retire sleep_on wake_up"
    ),
    "a person asks for a page or a count, which costs what there is to see": "dead_count dead_ids job_page",
    "it ends somebody who blocks: rare, and by one key": "job_evict lease_evict",
    "it writes one row and reads none": "stream_poison",
    "it empties a slot whole": "marker_ring_clean",
    "it walks what it is to keep, once a minute": "job_prune_excess",
    "it goes through the history of one resource, which it is there to shorten": "checkpoint_prune",
}
