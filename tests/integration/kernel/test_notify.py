"""A writer pays for a notification only while a reader sleeps."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.embedded._database import SERVICE
from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_calls import OWNER

SECONDS_MAX = 30
SILENCE: Any = "select pg_notify('fencepost', 'end')"


@pytest.fixture
def listener(database: Database) -> Iterator[Caller]:
    # Straight to the server: a listener needs a session.
    with closing(Caller(database.server.url(database.name, SERVICE))) as caller:
        caller.execute("listen fencepost")
        yield caller


def heard(listener: Caller, speaker: Caller) -> list[str]:
    """What was notified before now: the last word is our own, so that no test has to wait for silence."""
    speaker.execute(SILENCE)
    topics: list[str] = []
    for notify in listener.connection.notifies(timeout=SECONDS_MAX):
        if notify.payload == "end":
            return topics
        topics.append(notify.payload)
    raise AssertionError("the last word was not heard")


def test_no_notification_is_sent_while_no_listener_sleeps(app: Caller, listener: Caller) -> None:
    job_calls.submit(app)
    app.execute("select fencepost.outbox_put('orders', null, '{}')")

    assert heard(listener, app) == []


def test_a_sleeper_hears_a_job_of_its_queue_and_a_message_of_its_channel(
    app: Caller, listener: Caller
) -> None:
    app.execute("select fencepost.sleep_on('job:mail')")
    app.execute("select fencepost.sleep_on('outbox:orders')")
    job_calls.submit(app, queue="other")
    job_calls.submit(app)
    app.execute("select fencepost.outbox_put('orders', null, '{}')")
    app.execute("select fencepost.outbox_put_many('orders', null, '{1, 2}'::jsonb[])")

    assert heard(listener, app) == ["job:mail", "outbox:orders", "outbox:orders"]


def test_a_listener_that_is_awake_is_not_notified(app: Caller, listener: Caller) -> None:
    app.execute("select fencepost.sleep_on('job:mail')")
    app.execute("select fencepost.wake_up('job:mail')")
    job_calls.submit(app)

    assert heard(listener, app) == []


def test_a_notification_comes_with_the_commit(
    app: Caller, listener: Caller, connect: Callable[[], Caller]
) -> None:
    app.execute("select fencepost.sleep_on('job:mail')")
    writer = connect()
    writer.execute("begin")
    job_calls.submit(writer)
    assert heard(listener, app) == []
    writer.execute("commit")

    assert heard(listener, app) == ["job:mail"]


def test_a_job_for_later_wakes_no_caller_now(app: Caller, listener: Caller, clock: Clock) -> None:
    app.execute("select fencepost.sleep_on('job:mail')")
    app.execute("select fencepost.job_submit('mail', 'send', '{}', p_run_at => '2031-01-01')")
    job_id = job_calls.running(app, tries_max=9)
    heard(listener, app)
    app.execute("select fencepost.job_retry(%s, 1, %s, 'no', '1 minute')", job_id, OWNER)

    assert heard(listener, app) == []


@pytest.mark.parametrize(("seconds", "topics"), [(-1, ["job:mail"]), (0, ["job:mail"]), (1, [])])
def test_a_job_wakes_its_queue_if_it_is_due(
    app: Caller, listener: Caller, clock: Clock, seconds: int, topics: list[str]
) -> None:
    app.execute("select fencepost.sleep_on('job:mail')")
    at = clock.now() + timedelta(seconds=seconds)
    app.execute("select fencepost.job_submit('mail', 'send', '{}', p_run_at => %s)", at)

    assert heard(listener, app) == topics


@pytest.mark.parametrize("back", ["release", "reclaim", "replay", "resume", "slot", "hurry", "rate", "batch"])
def test_a_job_that_waits_again_wakes_its_queue(
    app: Caller, listener: Caller, clock: Clock, back: str
) -> None:
    job_id = job_calls.submit_keyed(app, "user:7", 1)
    other = job_calls.submit_keyed(app, "user:7", 1)
    job_calls.claim_many(app, [job_id, other])
    if back == "replay":
        app.execute("select fencepost.job_bury(%s, 1, %s, 'no')", job_id, OWNER)
    app.execute("select fencepost.sleep_on('job:mail')")
    match back:
        case "release":
            app.execute("select fencepost.job_release(%s, 1, %s)", job_id, OWNER)
        case "reclaim":
            clock.advance(60)
            app.execute("select fencepost.job_reclaim(1)")
        case "replay":
            app.execute("select fencepost.job_replay(%s, 'carol')", job_id)
        case "resume":
            app.execute("select fencepost.queue_resume('mail', 'carol')")
        case "hurry":
            app.execute("select fencepost.job_hurry(%s, 'carol')", other)
        case "rate":
            app.execute("select fencepost.queue_rate('mail', 7, 7, 'carol')")
        case "batch":
            app.execute("select fencepost.batch_make('{}', %s)", other)
        case _:
            app.execute("select fencepost.job_finish(%s, 1, %s)", job_id, OWNER)

    assert set(heard(listener, app)) == {"job:mail"}


def test_falling_asleep_twice_is_sleeping(app: Caller, admin: Caller, clock: Clock) -> None:
    app.execute("select fencepost.sleep_on('job:mail')")
    first = clock.now()
    clock.advance(5)
    app.execute("select fencepost.sleep_on('job:mail')")

    assert admin.row("select topic, since from fencepost.sleeper") == {"topic": "job:mail", "since": first}


def test_only_that_waits_for_a_result_is_forgotten_after_a_while(
    app: Caller, admin: Caller, clock: Clock
) -> None:
    for topic in ("resul", "result", "result:7", "result:8", "result;", "job:mail"):
        app.execute("select fencepost.sleep_on(%s)", topic)
    clock.advance(60)
    app.execute("select fencepost.sleep_on('result:9')")
    assert app.value("select fencepost.result_prune('1 minute')") == 0, "a minute old is not older"
    clock.advance(1)

    assert app.value("select fencepost.result_prune('1 minute')") == 2
    left = admin.column("select topic from fencepost.sleeper order by topic")
    assert set(left) == {"resul", "result", "result:9", "result;", "job:mail"}


@pytest.mark.parametrize(("delay", "topics"), [("0", ["job:mail"]), ("1 second", [])])
def test_a_job_without_a_key_that_waits_again_wakes_its_queue_if_it_is_due(
    app: Caller, listener: Caller, clock: Clock, delay: str, topics: list[str]
) -> None:
    job_id = job_calls.running(app)
    app.execute("select fencepost.sleep_on('job:mail')")
    app.execute("select fencepost.job_release(%s, 1, %s, %s)", job_id, OWNER, delay)

    assert heard(listener, app) == topics
