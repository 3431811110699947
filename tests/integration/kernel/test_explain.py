"""The life of one thing, oldest first, with every refusal that was recorded."""

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_calls import OWNER, RIVAL
from tests.integration.kernel.test_marker_ring import uuid7

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


def test_a_job_says_where_it_was_driven_and_who_holds_it(app: Caller, clock: Clock) -> None:
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


def test_what_nobody_knows_has_no_life(app: Caller) -> None:
    for subject in ("job:999", "99999999999999999999", "lease:none", "nonsense", "job:"):
        assert life(app, subject) == []
    app.invalid("subject", EXPLAIN, "")
    app.invalid("subject", EXPLAIN, "x" * 1201)
