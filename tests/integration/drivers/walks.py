"""A walk through every call of the kernel, with arguments that drivers like to get wrong.

Each walk runs in one transaction and checks what comes back, so that a value which a driver bends on its way
(a quoted comma in an array, a null among intervals, JSON encoded twice, bytes as text) is seen.
"""

import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from fencepost import Call, NotOwner
from fencepost.errors import REFUSALS
from fencepost.kernel import checkpoint, job, lease, marker, outbox, queue, refusal, stream, wake

T = TypeVar("T")

AWKWARD = "naïve 100 %s %(x)s $1 :x \"quoted\", {braced}, \\back\\slash, 'single', NULL, 日本"
DOCUMENT: dict[str, Any] = {"text": AWKWARD, "list": [1, -2.5, None, True, {"deep": []}], "big": 2**53}
AT_ONCE = 1e-6
"""Seconds: over when the next statement looks at the clock."""
LONG_AGO = datetime(2001, 2, 3, 4, 5, 6, 789_012, tzinfo=UTC)


class Ask(Protocol):
    """Makes a call in the present transaction."""

    def __call__(self, call: Call[T], /) -> T: ...


def is_moment(value: object) -> bool:
    return isinstance(value, datetime) and value.utcoffset() is not None


def walk_lease(ask: Ask) -> None:
    held = ask(lease.acquire(AWKWARD, "me", 60))
    assert (held.resource, held.owner, held.token) == (AWKWARD, "me", 1)
    assert is_moment(held.acquired_at)
    assert held.expires_at - held.acquired_at == timedelta(seconds=60)

    renewed = ask(lease.renew(held, 90.5))
    assert (renewed.token, renewed.acquired_at) == (held.token, held.acquired_at)
    assert renewed.expires_at - renewed.renewed_at == timedelta(seconds=90.5)
    ask(lease.fence(AWKWARD, held.token))

    several = ask(lease.acquire_many([AWKWARD, "b", "c,d"], "you", 60))
    assert {a.resource: a.refusal for a in several} == {AWKWARD: "not_owner", "b": None, "c,d": None}
    assert {a.resource: a.acquired for a in several} == {AWKWARD: False, "b": True, "c,d": True}
    renewals = ask(lease.renew_many([held], "me", 60))
    assert [(r.resource, r.token, r.refusal) for r in renewals] == [(AWKWARD, 1, None)]
    assert is_moment(renewals[0].expires_at)
    ask(lease.release(held))


def walk_marker(ask: Ask) -> None:
    claimed = ask(marker.claim("scope", AWKWARD, digest="sha256:0", response=DOCUMENT))
    assert (claimed.outcome, claimed.response) == ("claimed", DOCUMENT)
    again = ask(marker.claim("scope", AWKWARD, digest="sha256:0"))
    assert (again.outcome, again.response, again.claimed_at) == ("replay", DOCUMENT, claimed.claimed_at)
    assert is_moment(again.claimed_at)

    ask(marker.claim("scope", "without"))
    assert ask(marker.claim("scope", "without")).outcome == "duplicate"
    ask(marker.remember("scope", "without", [AWKWARD]))
    assert ask(marker.claim("scope", "without")).response == [AWKWARD]

    answers = ask(
        marker.claim_many("many", ["a,b", '"c"'], digests=["1", "2"], responses=[DOCUMENT, "a string"])
    )
    assert {a.key: (a.claim.outcome, a.claim.response) for a in answers} == {
        "a,b": ("claimed", DOCUMENT),
        '"c"': ("claimed", "a string"),
    }
    assert len(ask(marker.claim_many("many", ["d", "e"]))) == 2

    ordered = time_ordered_key()
    assert ask(marker.claim_ordered("scope", ordered)).claimed
    ask(marker.remember_ordered("scope", ordered, DOCUMENT))
    assert ask(marker.claim_ordered("scope", ordered)).response == DOCUMENT
    assert ask(marker.clean(AT_ONCE, 100)) == 6
    assert ask(marker.clean_ring()) == 0


def walk_outbox(ask: Ask) -> None:
    first = ask(outbox.put("mail", DOCUMENT, key=AWKWARD, headers={"to": AWKWARD}, not_before=LONG_AGO))
    second, third = ask(outbox.put_many("mail", [DOCUMENT, [1]], keys=[None, 'a"b,c']))
    assert first < second < third
    ask(outbox.put_many("other", [DOCUMENT]))

    held = {m.id: m for m in ask(outbox.hold("mail", 10))}
    assert (held[first].key, held[first].payload, held[first].headers) == (AWKWARD, DOCUMENT, {"to": AWKWARD})
    assert held[second].key is None
    ask(outbox.settle(outbox.Settlement(first, 0, "failed", error=AWKWARD, delay_seconds=AT_ONCE), None))

    taken = {m.id: m for m in ask(outbox.take("mail", "me", 60, 10))}
    assert taken[first].last_error == AWKWARD
    assert is_moment(taken[first].taken_until)
    renewals = ask(outbox.renew(list(taken.values()), "me", 60))
    assert {r.id: r.refusal for r in renewals} == dict.fromkeys(taken)
    answers = ask(
        outbox.settle_many(
            [
                outbox.Settlement(first, 1, "parked", error='needs, "a" person', delay_seconds=None),
                outbox.Settlement(second, 1, "sent", result=DOCUMENT),
                outbox.Settlement(third, 1, "queued", delay_seconds=AT_ONCE),
                outbox.Settlement(10**12, 1, "unknown", delay_seconds=1.5),
            ],
            "me",
        )
    )
    assert {a.id: a.refusal for a in answers} == {first: None, second: None, third: None, 10**12: "not_found"}

    ask(outbox.take("mail", "me", AT_ONCE, 10))
    assert ask(outbox.expire("mail", "unknown", 10)) == [third]
    assert [m.id for m in ask(outbox.take("mail", "me", 60, 10, unknown=True))] == [third]
    ask(outbox.resolve(first, "parked", "dead", "operator", AWKWARD, result=DOCUMENT))
    assert ask(outbox.prune(AT_ONCE, 10)) == 2


def walk_job(ask: Ask) -> None:
    assert ask(job.next_due("work")) is None
    one = ask(
        job.submit(
            "work",
            "kind",
            DOCUMENT,
            lane=2,
            run_at=LONG_AGO,
            tries_max=3,
            lease_seconds=1.5,
            unique_key=AWKWARD,
            concurrency_key="tenant,1",
            concurrency_limit=2,
            headers={"trace": AWKWARD},
        )
    )
    assert one.created
    several = ask(
        job.submit_many(
            "work",
            "kind",
            [DOCUMENT, "text", [None], {}],
            unique_keys=[AWKWARD, None, 'a"b', "NULL"],
            concurrency_keys=[None, "x{}", None, None],
            concurrency_limit=1,
            headers=[{}, {"trace": AWKWARD}, {}, {}],
        )
    )
    assert [s.created for s in several] == [False, True, True, True]
    assert several[0].job_id == one.job_id
    plain = [s.job_id for s in ask(job.submit_many("work", "kind", list(range(7)), lease_seconds=60))]
    assert is_moment(ask(job.next_due("work")))

    _walk_dispatch(ask, plain)
    running = ask(job.claim(one.job_id, "me"))
    assert (running.payload, running.headers, running.lease_seconds) == (DOCUMENT, {"trace": AWKWARD}, 1.5)
    assert is_moment(running.expires_at)
    _walk_running(ask, running)
    _walk_leaving(ask, [ask(job.claim(job_id, "me", lease_seconds=60)) for job_id in plain[:6]], plain[6])


def _walk_dispatch(ask: Ask, job_ids: list[int]) -> None:
    due = ask(job.dispatch("work", 1, 100))
    assert set(job_ids) <= {d.job_id for d in due}
    assert ask(job.dispatched(job_ids[:2], ["1-0", "1-1"], AWKWARD)) == 2
    driven = ask(job.driven("work", 1, age_seconds=0))
    assert [(d.job_id, d.entry_id, d.incarnation) for d in driven] == [
        (job_ids[0], "1-0", AWKWARD),
        (job_ids[1], "1-1", AWKWARD),
    ]
    assert [d.job_id for d in ask(job.driven("work", 1, age_seconds=0, after=driven[0]))] == [job_ids[1]]
    assert ask(job.recall(job_ids[:2], ["1-0", "another"])) == 1
    assert ask(job.dispatch_failed(job_ids[2:3], AWKWARD, AT_ONCE)) == 1


def _walk_running(ask: Ask, running: job.Running) -> None:
    renewed = ask(job.renew(running.job_id, running.attempt, "me"))
    assert (renewed.job_id, renewed.cancel_requested, renewed.refusal) == (running.job_id, False, None)
    many = ask(job.renew_many([running.job_id, 10**12], [running.attempt, 1], "me"))
    assert {r.job_id: r.refusal for r in many} == {running.job_id: None, 10**12: "not_found"}
    ask(job.progress(running.job_id, running.attempt, "me", DOCUMENT))
    ask(job.fence(running.job_id, running.attempt, "me"))
    ask(job.finish(job.Finish(running.job_id, running.attempt, "accepted", DOCUMENT), "me"))
    answers = ask(
        job.finish_many(
            [job.Finish(running.job_id, running.attempt), job.Finish(10**12, 1, "x", DOCUMENT)], "me"
        )
    )
    assert {a.job_id: a.refusal for a in answers} == {
        running.job_id: "already_finished",
        10**12: "not_found",
    }


def _walk_leaving(ask: Ask, running: list[job.Running], waiting: int) -> None:
    a, b, c, d, e, f = running
    assert ask(job.release(a.job_id, a.attempt, "me", delay_seconds=3600)) == "pending"
    assert ask(job.retry(b.job_id, b.attempt, "me", AWKWARD, 3600)) == "pending"
    assert ask(job.bury(c.job_id, c.attempt, "me", AWKWARD)) == "dead"
    left = ask(
        job.leave_many(
            [
                job.Leave(d.job_id, d.attempt, "retry", error='a "b", c', delay_seconds=3600),
                job.Leave(e.job_id, e.attempt, "bury", error=AWKWARD),
                job.Leave(f.job_id, f.attempt, "release"),
            ],
            "me",
        )
    )
    assert [x.state for x in left] == ["pending", "dead", "pending"]

    many = ask(job.claim_many([f.job_id, 10**12], "me", lease_seconds=AT_ONCE))
    assert {x.job_id: (x.outcome, x.refusal) for x in many} == {
        f.job_id: ("claimed", None),
        10**12: ("refused", "not_found"),
    }
    assert ask(job.blocked(10)) == []
    assert [(r.job_id, r.owner, r.state) for r in ask(job.reclaim(10))] == [(f.job_id, "me", "pending")]
    claimed = ask(job.claim_next("work", 1, "you", 100, lease_seconds=60, dispatched=True))
    assert {waiting, f.job_id} <= {x.job_id for x in claimed}
    assert all(x.running is None or x.running.payload is not None for x in claimed)

    assert ask(job.cancel(waiting, "operator", expected="running")) == "requested"
    ask(job.replay(c.job_id, "operator", expected="dead"))
    ask(job.discard(e.job_id, "operator"))
    assert ask(job.prune(AT_ONCE, 100, dead=True)) == 2


def walk_queue(ask: Ask) -> None:
    ask(queue.pause(AWKWARD, "operator"))
    ask(queue.resume(AWKWARD, "operator"))
    ask(queue.bound(AWKWARD, 10**10, "operator"))
    ask(queue.bound(AWKWARD, None, "operator"))
    ask(queue.count())
    assert [m.event for m in ask(refusal.explain(f"queue:{AWKWARD}"))][:2] == ["paused", "resumed"]


def walk_checkpoint(ask: Ask) -> None:
    token = ask(lease.acquire("flow", "me", 60)).token
    number = ask(checkpoint.begin("flow", token, handles=[DOCUMENT]))
    ask(
        checkpoint.store(
            "flow", token, number, expected=None, frontier=DOCUMENT, state=b"\x00\xff\\x", handles=[AWKWARD]
        )
    )
    ask(checkpoint.commit("flow", token, number))
    change = ask(checkpoint.begin("flow", token))
    ask(
        checkpoint.store("flow", token, change, expected=DOCUMENT, frontier={"0": 2}, state=None, whole=False)
    )
    lost = ask(checkpoint.begin("flow", token))

    first, second, third = ask(checkpoint.restore("flow", token))
    assert (first.frontier, first.state, first.handles) == (DOCUMENT, b"\x00\xff\\x", [AWKWARD])
    assert (first.durable, second.whole, second.state, third.durable) == (True, False, None, False)
    ask(checkpoint.abort("flow", token, lost))
    assert ask(checkpoint.prune("flow", token, 1)) == 0


def walk_refusal(ask: Ask) -> None:
    subject = f"refused {AWKWARD}"
    refused = NotOwner("no", noun="lease", subject=subject, attempted=DOCUMENT, seen={"owner": None})
    ask(refusal.record(refused, None))
    (moment,) = ask(refusal.explain(f"lease:{subject}"))
    assert (moment.event, moment.actor, moment.token) == ("refused:not_owner", None, None)
    assert moment.detail == {"attempted": DOCUMENT, "seen": {"owner": None}}
    assert is_moment(moment.at)
    counts = ask(refusal.counts())
    assert set(counts) == set(REFUSALS)
    assert ask(refusal.prune(AT_ONCE, 10)) > 0
    assert ask(refusal.explain(f"lease:{subject}")) == []


def walk_wake(ask: Ask) -> None:
    ask(wake.sleep_on(AWKWARD))
    ask(wake.wake_up(AWKWARD))


def walk_stream(ask: Ask) -> None:
    ask(stream.poison("stream", "1-0", "no job", {"field": AWKWARD, "with a NUL\0": "\0"}))


WALKS: Mapping[str, Callable[[Ask], None]] = {
    "lease": walk_lease,
    "marker": walk_marker,
    "outbox": walk_outbox,
    "job": walk_job,
    "queue": walk_queue,
    "checkpoint": walk_checkpoint,
    "refusal": walk_refusal,
    "wake": walk_wake,
    "stream": walk_stream,
}
"""By module of the kernel."""


def time_ordered_key() -> str:
    """A UUIDv7 of this moment."""
    millis = int(datetime.now(UTC).timestamp() * 1000)
    return str(uuid.UUID(int=(millis << 80) | (7 << 76) | (2 << 62) | uuid.uuid4().int & (2**62 - 1)))


class Recorder:
    """Makes calls and keeps them."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.calls: list[Call[Any]] = []

    def __call__(self, call: Call[T], /) -> T:
        self.calls.append(call)
        return self._ask(call)
