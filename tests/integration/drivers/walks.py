"""A walk through every call of the kernel but those of jobs.

Each walk runs in one transaction and checks what comes back, so that a value which a driver bends on its way
(a quoted comma in an array, a null among intervals, JSON encoded twice, bytes as text) is seen.
"""

from dataclasses import replace
from datetime import timedelta

from fencepost import NotOwner
from fencepost.errors import REFUSALS
from fencepost.kernel import _checkpoint as checkpoint
from fencepost.kernel import _lineage as lineage
from fencepost.kernel import _notify as notify
from fencepost.kernel import _poison_entries as poison_entries
from fencepost.kernel import _refusal as refusal
from fencepost.kernel import idempotency, lease, outbox, queue
from tests.integration.drivers.walking import (
    AT_ONCE,
    AWKWARD,
    DOCUMENT,
    LONG_AGO,
    NOBODY,
    Ask,
    is_moment,
    time_ordered_key,
)


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
    releases = ask(lease.release_many([held, replace(held, resource="b")], "me"))
    assert {r.resource: r.refusal for r in releases} == {AWKWARD: None, "b": "not_owner"}
    held = ask(lease.acquire(AWKWARD, "me", 60))
    ask(lease.release(held))


def walk_idempotency(ask: Ask) -> None:
    claimed = ask(idempotency.claim("scope", AWKWARD, digest="sha256:0", response=DOCUMENT))
    assert (claimed.outcome, claimed.response) == ("claimed", DOCUMENT)
    again = ask(idempotency.claim("scope", AWKWARD, digest="sha256:0"))
    assert (again.outcome, again.response, again.claimed_at) == ("replay", DOCUMENT, claimed.claimed_at)
    assert is_moment(again.claimed_at)

    ask(idempotency.claim("scope", "without"))
    assert ask(idempotency.claim("scope", "without")).outcome == "duplicate"
    ask(idempotency.remember("scope", "without", [AWKWARD]))
    assert ask(idempotency.claim("scope", "without")).response == [AWKWARD]

    answers = ask(
        idempotency.claim_many("many", ["a,b", '"c"'], digests=["1", "2"], responses=[DOCUMENT, "a string"])
    )
    assert {a.key: (a.claim.outcome, a.claim.response) for a in answers} == {
        "a,b": ("claimed", DOCUMENT),
        '"c"': ("claimed", "a string"),
    }
    assert len(ask(idempotency.claim_many("many", ["d", "e"]))) == 2
    assert ask(idempotency.lag(3600)) == 0

    ordered = time_ordered_key()
    assert ask(idempotency.claim_ordered("scope", ordered)).claimed
    ask(idempotency.remember_ordered("scope", ordered, DOCUMENT))
    assert ask(idempotency.claim_ordered("scope", ordered)).response == DOCUMENT
    assert ask(idempotency.clean(AT_ONCE, 100)) == 6
    assert ask(idempotency.clean_ring()) == 0


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
                outbox.Settlement(NOBODY, 1, "unknown", delay_seconds=1.5),
            ],
            "me",
        )
    )
    assert {a.id: a.refusal for a in answers} == {first: None, second: None, third: None, NOBODY: "not_found"}

    ask(outbox.take("mail", "me", AT_ONCE, 10))
    assert ask(outbox.expire("mail", "unknown", 10)) == [third]
    assert [m.id for m in ask(outbox.take("mail", "me", 60, 10, unknown=True))] == [third]
    ask(outbox.resolve(first, "parked", "dead", "operator", AWKWARD, result=DOCUMENT))
    assert ask(outbox.prune(AT_ONCE, 10)) == 2


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


def walk_notify(ask: Ask) -> None:
    ask(notify.sleep_on(AWKWARD))
    ask(notify.wake_up(AWKWARD))


def walk_poison_entries(ask: Ask) -> None:
    ask(poison_entries.poison("stream", "1-0", "no job", {"field": AWKWARD, "with a NUL\0": "\0"}))


def walk_lineage(ask: Ask) -> None:
    first = ask(lineage.check(None, recover=False))
    assert (first.state, first.epoch) == ("in_order", 1)
    again = ask(lineage.check(first.mark, recover=True))
    assert (again.state, again.evidence) == ("in_order", None)
    assert ask(lineage.read_age()) == lineage.PRIMARY
