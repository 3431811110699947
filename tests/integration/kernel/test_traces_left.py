"""Every act of an operator and every refusal of a plural form is written down, with who and why."""

from typing import Any

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller, refusal_counts

SCHEDULE = """
    select fencepost.schedule_declare('tick', '* * * * *', 'UTC', 'once', '0', '2031-01-01', 'mail', 'send',
                                      '1', 1, 1, '1 s', null, null, null, '{}')
"""
EVENTS = "select noun, subject, event, actor, token, detail from fencepost.events order by event_id"


def test_what_an_operator_does_is_written_down(app: Caller, clock: Clock) -> None:
    waiting, other, running = (job_calls.submit(app) for _ in range(3))
    job_calls.claim(app, running)
    dead = job_calls.dead(app)
    given_up = job_calls.dead(app)
    app.execute(SCHEDULE)
    before = len(app.rows(EVENTS))
    expected: list[tuple[Any, ...]] = []
    acts: tuple[tuple[str, str, int | str, str, int | None, set[str]], ...] = (
        (f"job_hurry({waiting}, 'carol')", "job", waiting, "hurried", None, set()),
        (f"job_cancel({other}, 'carol')", "job", other, "cancelled", 0, set()),
        (f"job_cancel({running}, 'carol')", "job", running, "cancel_requested", None, set()),
        (f"job_replay({dead}, 'carol')", "job", dead, "replayed", 1, {"from", "error", "finished_at"}),
        (f"job_discard({given_up}, 'carol')", "job", given_up, "discarded", 1, {"from", "final_status"}),
        ("queue_pause('mail', 'carol')", "queue", "mail", "paused", None, set()),
        ("queue_resume('mail', 'carol')", "queue", "mail", "resumed", None, set()),
        ("queue_bound('mail', 7, 'carol')", "queue", "mail", "bounded", None, {"waiting_max"}),
        ("queue_rate('mail', 7, 7, 'carol')", "queue", "mail", "rate_limited", None, {"per_second", "burst"}),
        ("schedule_pause('tick', 'carol')", "schedule", "tick", "paused", None, set()),
        ("schedule_resume('tick', 'carol')", "schedule", "tick", "resumed", None, set()),
        ("schedule_retire('{send}', '{}', 'carol')", "schedule", "tick", "retired", None, set()),
    )
    for call, noun, subject, event, token, detail in acts:
        query: Any = "select fencepost." + call
        app.execute(query)
        expected.append((noun, str(subject), event, "carol", token, detail))

    written = [(*tuple(row.values())[:5], set(row["detail"] or ())) for row in app.rows(EVENTS)[before:]]
    assert written == expected


def test_every_refusal_of_a_plural_form_is_counted_and_written_down(app: Caller, clock: Clock) -> None:
    app.execute("select fencepost.lease_acquire('r', 'anna', '1 hour')")
    job_id = job_calls.running(app)
    app.execute("select fencepost.outbox_put('c', 'k', '1')")
    app.execute("select fencepost.outbox_take('c', 'anna', '1 hour', 1)")
    app.execute("select fencepost.claim('s', 'k', 'digest')")
    ordered = "'01000000-0000-7000-8000-000000000000'"
    calls = (
        ("lease_acquire_many('{r}', 'bert', '1 hour')", "not_owner", "lease", "r"),
        ("lease_renew_many('{r}', 'bert', '{1}', '1 hour')", "not_owner", "lease", "r"),
        ("lease_release_many('{r}', 'bert', '{1}')", "not_owner", "lease", "r"),
        (f"job_claim_many('{{{job_id}}}', 'bert')", "not_owner", "job", str(job_id)),
        (f"job_finish_many('{{{job_id}}}', '{{1}}', 'bert')", "not_owner", "job", str(job_id)),
        (f"job_renew_many('{{{job_id}}}', '{{1}}', 'bert')", "not_owner", "job", str(job_id)),
        (f"job_leave_many('{{{job_id}}}', '{{1}}', 'bert', '{{retry}}')", "not_owner", "job", str(job_id)),
        ("outbox_renew('{1}', '{1}', 'bert', '1 hour')", "not_owner", "outbox", "1"),
        ("outbox_settle_many('{1}', '{1}', 'bert', '{sent}')", "not_owner", "outbox", "1"),
        ("claim('s', 'k', 'another')", "mismatch", "request", "s/k"),
        ("claim_many('s', '{k}', '{another}')", "mismatch", "request", "s/k"),
        (f"claim_ordered('s', {ordered})", "too_old", "request", None),
    )
    for number, (call, reason, noun, subject) in enumerate(calls, 1):
        query: Any = "select fencepost." + call
        app.execute(query)
        rows = app.rows("select reason, noun, subject, seen from fencepost.refusals order by refusal_id")
        assert len(rows) == number, call
        assert (rows[-1]["reason"], rows[-1]["noun"]) == (reason, noun), call
        assert subject in (None, rows[-1]["subject"])
        assert rows[-1]["seen"], call
    assert sum(refusal_counts(app).values()) == len(calls)
