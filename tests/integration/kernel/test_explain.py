"""The life of one thing, oldest first, with every refusal that was recorded."""

from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_calls import OWNER, RIVAL
from tests.integration.kernel.job_states import SITUATIONS
from tests.integration.kernel.test_idempotency_ring import uuid7

EXPLAIN = "select event, actor, token from fencepost.explain(%s)"


def life(caller: Caller, subject: str) -> list[tuple[str, str | None, int | None]]:
    return [(row["event"], row["actor"], row["token"]) for row in caller.rows(EXPLAIN, subject)]


def test_the_life_of_a_job(app: Caller, clock: Clock) -> None:
    job_id = job_calls.submit(app)
    clock.advance(1)
    assert life(app, f"job:{job_id}") == [("submitted", None, None), ("waiting", None, 0)]
    job_calls.claim(app, job_id)
    clock.advance(60)
    job_calls.claim(app, job_id, RIVAL)
    clock.advance(1)
    app.execute("select fencepost.job_finish_many(%s, '{1}', %s)", [job_id], OWNER)
    clock.advance(1)
    app.execute("select fencepost.job_finish(%s, 2, %s)", job_id, RIVAL)

    assert life(app, str(job_id)) == [
        ("submitted", None, None),
        ("lost", OWNER, 1),
        ("claimed", RIVAL, 2),
        ("refused:stale_attempt", OWNER, None),
        ("finished", RIVAL, 2),
    ]


def test_the_life_of_a_discarded_job_is_told_in_order(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)
    clock.advance(1)
    app.execute("select fencepost.job_bury(%s, 1, %s, 'broken')", job_id, OWNER)
    clock.advance(60)
    app.execute("select fencepost.job_discard(%s, 'carol')", job_id)

    told = app.rows("select * from fencepost.explain(%s)", f"job:{job_id}")
    assert [(row["event"], row["actor"], row["token"]) for row in told] == [
        ("submitted", None, None),
        ("claimed", OWNER, 1),
        ("buried", OWNER, 1),
        ("dead", OWNER, 1),
        ("discarded", "carol", 1),
    ]
    assert [row["at"] for row in told] == sorted(row["at"] for row in told)
    # What it died of is told by its end, and what it was called until then by the person's act.
    assert told[3]["detail"]["error"] == "broken"
    assert told[4]["detail"] == {"from": "dead", "final_status": "failed"}


def test_a_job_shows_its_entry_and_its_holder(app: Caller, clock: Clock) -> None:
    driven, held = job_calls.dispatched(app), job_calls.running(app)

    assert life(app, f"job:{driven}")[-1] == ("dispatched", None, 0)
    assert life(app, f"job:{held}")[-1] == ("claimed", OWNER, 1)


def test_the_life_of_a_message(app: Caller, clock: Clock) -> None:
    message_id = app.value("select fencepost.outbox_put('orders', 'AAPL', '{}')")
    clock.advance(1)
    app.execute("select fencepost.outbox_take('orders', 'relay-1', '30 seconds', 1)")
    clock.advance(1)
    app.execute("select fencepost.outbox_settle(%s, 1, 'relay-1', 'failed', 'no')", message_id)
    clock.advance(1)
    app.execute("select fencepost.outbox_settle_many(%s, '{0}', 'relay-1', '{sent}')", [message_id])

    assert life(app, f"outbox:{message_id}") == [
        ("put", None, None),
        ("failed", "relay-1", 1),
        ("failed", None, 1),
        ("refused:stale_attempt", "relay-1", None),
    ]


def test_the_life_of_a_lease(app: Caller, clock: Clock) -> None:
    app.execute("select fencepost.lease_acquire('shard:1', 'a/boot-1', '1 minute')")
    clock.advance(60)
    app.execute("select fencepost.lease_acquire('shard:1', 'b/boot-1', '1 minute')")
    clock.advance(1)
    app.execute("select fencepost.lease_acquire_many('{shard:1}', 'a/boot-1', '1 minute')")

    assert life(app, "lease:shard:1") == [
        ("acquired", "a/boot-1", 1),
        ("taken_over", "b/boot-1", 2),
        ("held", "b/boot-1", 2),
        ("refused:not_owner", "a/boot-1", None),
    ]


def test_what_happened_is_told_before_what_it_led_to_at_the_same_instant(app: Caller, clock: Clock) -> None:
    clock.freeze()
    app.execute("select fencepost.lease_acquire('shard:1', 'a/boot-1', '1 minute')")
    assert life(app, "lease:shard:1") == [("acquired", "a/boot-1", 1), ("held", "a/boot-1", 1)]
    app.execute("select fencepost.lease_release('shard:1', 'a/boot-1', 1)")

    assert [event for event, _, _ in life(app, "lease:shard:1")] == ["acquired", "released", "free"]


def test_the_life_of_a_request_whose_names_hold_slashes(app: Caller, clock: Clock) -> None:
    app.execute("select fencepost.claim('api/v1', 'a/b')")
    clock.advance(1)
    app.execute("select fencepost.claim('api/v1', 'a/b')")

    assert life(app, "request:api/v1/a/b") == [("claimed", None, None), ("refused:duplicate", None, None)]
    assert life(app, "request:api/v1") == []


def test_the_life_of_a_time_ordered_request(app: Caller, clock: Clock) -> None:
    key = uuid7(clock.now())
    app.execute("select fencepost.claim_ordered('orders', %s)", key)

    assert life(app, f"request:orders/{key}") == [("claimed", None, None)]


def test_the_life_of_a_queue(app: Caller, clock: Clock) -> None:
    app.execute("select fencepost.queue_pause('mail', 'carol')")

    assert life(app, "queue:mail") == [("paused", "carol", None)]


def test_the_life_of_a_resources_checkpoints(app: Caller, clock: Clock) -> None:
    app.execute("select fencepost.lease_acquire('flow:1', 'a/boot-1', '1 hour')")
    for call in (
        "select fencepost.checkpoint_begin('flow:1', 1)",
        """select fencepost.checkpoint_store('flow:1', 1, 1, null, '{"p0": 7}', 'abc')""",
        "select fencepost.checkpoint_commit('flow:1', 1, 1)",
        "select fencepost.checkpoint_begin('flow:1', 1)",
    ):
        app.execute(call)
        clock.advance(1)
    app.refused("not_found", "select fencepost.checkpoint_abort('flow:1', 1, 9)")
    app.execute("select fencepost.refusal_record('not_found', 'checkpoint', 'flow:1#9', 'a', '{}', '{}')")
    app.execute("select fencepost.refusal_record('not_found', 'checkpoint', 'flow:11#9', 'a', '{}', '{}')")

    moments = app.rows("select * from fencepost.explain('checkpoint:flow:1')")

    assert [(row["event"], row["token"], row["detail"].get("number")) for row in moments] == [
        ("begun", 1, 1),
        ("stored", 1, 1),
        ("committed", 1, 1),
        ("begun", 1, 2),
        ("refused:not_found", None, None),
    ]
    assert moments[1]["detail"]["frontier"] == {"p0": 7}
    assert moments[1]["detail"]["state_bytes"] == 3


def test_a_job_and_a_message_say_to_which_trace_they_belong(app: Caller) -> None:
    headers = '{"trace_id": "4bf92f35"}'
    job_id = app.row("select * from fencepost.job_submit('mail', 'send', '{}', p_headers => %s)", headers)
    message_id = app.value("select fencepost.outbox_put('orders', null, '{}', %s)", headers)

    for subject in (f"job:{job_id['job_id']}", f"outbox:{message_id}"):
        told = app.rows("select * from fencepost.explain(%s)", subject)
        assert told[0]["detail"]["trace_id"] == "4bf92f35"


def test_what_no_caller_knows_has_no_life(app: Caller) -> None:
    for subject in ("job:999", "99999999999999999999", "lease:none", "nonsense", "job:"):
        assert life(app, subject) == []
    app.invalid("subject", EXPLAIN, "")
    app.invalid("subject", EXPLAIN, "x" * 1201)


def whole_life(caller: Caller, subject: str) -> list[dict[str, object]]:
    return caller.rows("select * from fencepost.explain(%s)", subject)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_life_of_a_job_is_its_own(app: Caller, clock: Clock, situation: str) -> None:
    job_id = SITUATIONS[situation](app, clock)
    app.execute("select fencepost.job_claim_many(%s, 'stranger')", [job_id])
    alone = whole_life(app, f"job:{job_id}")
    assert len(alone) > 1

    # What waits for a busy key cannot be made twice.
    for other in (name for name in SITUATIONS if "busy" not in name):
        app.execute("select fencepost.queue_resume('mail', 'carol')")
        app.execute("select fencepost.job_claim_many(%s, 'stranger')", [SITUATIONS[other](app, clock)])

    assert whole_life(app, f"job:{job_id}") == alone
    assert whole_life(app, str(job_id)) == alone


# A story of one thing, by its name, and what it is asked for as.
STORIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "lease": (
        "lease:{name}",
        ("lease_acquire('{name}', 'a', '1 minute')", "lease_acquire_many('{{{name}}}', 'b', '1 minute')"),
    ),
    "request": ("request:s/{name}", ("claim('s', '{name}', 'd')", "claim('s', '{name}', 'e')")),
    "scope": ("request:{name}/k", ("claim('{name}', 'k', 'd')", "claim('{name}', 'k', 'e')")),
    "checkpoint": (
        "checkpoint:{name}",
        (
            "lease_acquire('{name}', 'a', '1 minute')",
            "checkpoint_begin('{name}', 1)",
            "checkpoint_store('{name}', 1, 1, null, '7', null)",
            "refusal_record('not_found', 'checkpoint', '{name}#9', 'a', '{{}}', '{{}}')",
        ),
    ),
    "queue": ("queue:{name}", ("queue_pause('{name}', 'carol')", "queue_bound('{name}', 7, 'carol')")),
    "stream": ("stream:{name}#1-0", ("stream_poison('{name}', '1-0', 'unreadable', '{{}}')",)),
}


@pytest.mark.parametrize("noun", STORIES)
def test_the_life_of_a_thing_is_its_own(app: Caller, clock: Clock, noun: str) -> None:
    asked, story = STORIES[noun]

    def tell(name: str) -> None:
        for call in story:
            query: Any = "select fencepost." + call.format(name=name)
            app.execute(query)

    tell("ours")
    alone = whole_life(app, asked.format(name="ours"))
    assert len(alone) > len(story) - 2
    app.execute("select fencepost.refusal_record('not_found', 'else', 'ours#9', 'a', '{}', '{}')")
    for name in ("our", "ours2", "theirs", "OURS"):
        tell(name)
        assert whole_life(app, asked.format(name="ours")) == alone


def test_the_life_of_a_message_is_its_own(app: Caller, clock: Clock) -> None:
    first, _ = app.column("select fencepost.outbox_put_many('c', '{k, l}', '{1, 2}'::jsonb[])")
    app.execute("select fencepost.outbox_take('c', 'o', '1 minute', 2)")
    alone = whole_life(app, f"outbox:{first}")
    assert [row["event"] for row in alone] == ["put", "sending"]
    app.execute(
        "select fencepost.outbox_settle(id, 1, 'o', 'dead') from fencepost.outbox_messages where key = 'l'"
    )

    assert whole_life(app, f"outbox:{first}") == alone


def test_the_life_of_a_time_ordered_request_is_that_of_its_scope_and_key(app: Caller, clock: Clock) -> None:
    key = uuid7(clock.now())
    for scope in ("orders", "other"):
        app.execute("select fencepost.claim_ordered(%s, %s, %s)", scope, key, scope)
    app.execute("select fencepost.claim_ordered('orders', %s)", uuid7(clock.now()))

    told = whole_life(app, f"request:orders/{key.upper()}")
    assert [row["detail"] for row in told] == [{"digest": "orders", "response": None}]
