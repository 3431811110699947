"""A claim takes no job that its worker does not serve, and work that no worker serves is told."""

import json
from typing import Any, LiteralString

import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_calls import OWNER, RIVAL

Known = dict[str, str]


def serves(kinds: Known, offers: str = "") -> str:
    return json.dumps({"kinds": kinds, "offers": offers})


def submit(app: Caller, kind: str, payload: str = "{}", **options: Any) -> int:
    job_id: int = app.value(
        """select job_id from fencepost.job_submit('mail', %s, %s, p_priority => %s, p_headers => %s,
             p_concurrency_key => %s, p_concurrency_limit => %s)""",
        kind,
        payload,
        options.get("priority", 1),
        options.get("headers", "{}"),
        options.get("key"),
        1 if "key" in options else None,
    )
    return job_id


def claim(app: Caller, limit: int, kinds: Known, *, offers: str = "", owner: str = OWNER) -> dict[int, str]:
    """What the worker is answered, in the order of the answers."""
    rows = app.rows(
        "select job_id, outcome from fencepost.job_claim_by_priority('mail', %s, %s, p_serves => %s)",
        owner,
        limit,
        serves(kinds, offers),
    )
    return {row["job_id"]: row["outcome"] for row in rows}


def test_a_job_of_another_kind_is_set_aside_as_it_was(app: Caller, admin: Caller, clock: Clock) -> None:
    known, strange = submit(app, "send"), submit(app, "part")
    before = job_calls.job(app, strange)
    clock.advance(1)

    assert claim(app, 10, {"send": ""}) == {known: "claimed", strange: "set_aside"}
    assert job_calls.job(app, strange) == before
    assert claim(app, 10, {"send": ""}) == {}
    assert claim(app, 10, {"part": ""}, owner=RIVAL) == {strange: "claimed"}
    assert (job_calls.job(app, strange)["attempt"], job_calls.job(app, strange)["tries"]) == (1, 1)
    assert admin.value("select count(*) from fencepost.event") == 0


@pytest.mark.parametrize("key", [None, "user:7"])
def test_an_entry_of_a_job_that_is_set_aside_is_done_with(app: Caller, key: str | None) -> None:
    job_id = submit(app, "part", **({} if key is None else {"key": key}))
    app.execute("select fencepost.job_dispatched(%s, '{1-0}', 'life')", [job_id])
    query: LiteralString = "select outcome from fencepost.job_claim_many(%s, %s, null, %s)"

    assert app.value(query, [job_id], OWNER, serves({"send": ""})) == "set_aside"
    seen = job_calls.job(app, job_id)
    assert (seen["state"], seen["attempt"], seen["tries"]) == ("pending", 0, 0)
    assert app.column("select job_id from fencepost.job_dispatch('mail', 1, 10)") == []
    assert app.value(query, [job_id], RIVAL, serves({"part": ""})) == "claimed"


def test_a_worker_that_lacks_an_argument_never_gives_a_job_to_one_that_lacks_another(app: Caller) -> None:
    job_id = submit(app, "send", '{"x": 1, "y": 2, "z": 3}')

    assert claim(app, 1, {"send": "x y"}) == {job_id: "set_aside"}
    assert claim(app, 1, {"send": "x z"}, owner=RIVAL) == claim(app, 1, {"send": "x y"}) == {}
    assert claim(app, 1, {"send": "z y w x"}) == {job_id: "claimed"}


@pytest.mark.parametrize("payload", ["{}", "[1, 2]", '"text"', '{"any": {"z": 1}}'])
def test_a_handler_that_ignores_unknown_arguments_takes_every_payload(app: Caller, payload: str) -> None:
    job_id = submit(app, "send", payload)

    assert claim(app, 1, {"send": "*"}) == {job_id: "claimed"}


@pytest.mark.parametrize("needs", ["[]", '"rust"', "{}", "null", '["cpp", "rust"]'])
def test_needs_are_met_by_what_a_worker_offers(app: Caller, needs: str) -> None:
    job_id = submit(app, "judge", headers=f'{{"needs": {needs}}}')

    assert claim(app, 1, {"judge": "rust cpp"}, offers="rust cpp go") == {job_id: "claimed"}


def test_a_worker_that_lacks_an_ability_never_takes_the_job(app: Caller) -> None:
    job_id = submit(app, "judge", '{"rust": 1}', headers='{"needs": ["cpp", "rust"]}')

    assert claim(app, 1, {"judge": "rust cpp"}, offers="cpp") == {job_id: "set_aside"}
    assert claim(app, 1, {"judge": "*"}, offers="rust") == {}
    assert claim(app, 1, {"judge": "*"}, offers="rust cpp") == {job_id: "claimed"}


def test_jobs_that_were_set_aside_are_claimed_in_their_order(app: Caller, clock: Clock) -> None:
    order: list[int] = []
    for kind in ("part", "send", "part", "send", "part"):
        order.append(submit(app, kind, '{"x": 1}' if len(order) == 2 else "{}"))
        clock.advance(1)
    assert set(claim(app, 5, {"other": ""}).values()) == {"set_aside"}
    late = submit(app, "send")

    every: Known = {"send": "", "part": "x"}
    assert claim(app, 3, every) == dict.fromkeys(order[:3], "claimed")
    assert claim(app, 3, every) == dict.fromkeys([*order[3:], late], "claimed")


def test_places_are_shared_with_the_priorities_of_jobs_that_were_set_aside(app: Caller) -> None:
    urgent = [submit(app, "part", priority=0) for _ in range(20)]
    bulk = [submit(app, "send", priority=3) for _ in range(20)]
    assert set(claim(app, 20, {"other": ""})) <= {*urgent, *bulk}

    claimed = set(claim(app, 9, {"send": "", "part": ""}))

    assert (len(claimed & set(urgent)), len(claimed & set(bulk))) == (8, 1)


def test_a_job_that_was_set_aside_keeps_to_its_concurrency_key_and_its_pause(app: Caller) -> None:
    first, second = submit(app, "part", key="user:7"), submit(app, "part", key="user:7")
    claim(app, 2, {"other": ""})
    app.execute("select fencepost.queue_pause('mail', 'carol')")
    assert claim(app, 2, {"part": ""}) == {}
    assert app.value("select fencepost.job_aside_due('mail', %s)", serves({"part": ""})) is None
    app.execute("select fencepost.queue_resume('mail', 'carol')")

    assert claim(app, 2, {"part": ""}) == {first: "claimed", second: "deferred"}


def test_who_says_nothing_serves_everything(app: Caller) -> None:
    job_ids = [submit(app, "part"), submit(app, "part", '{"x": 1}')]
    claim(app, 2, {"other": ""})

    claimed = app.column("select job_id from fencepost.job_claim_next('mail', 1, %s, 5)", OWNER)

    assert sorted(claimed) == job_ids


def test_a_worker_is_told_when_the_next_of_its_jobs_is_due(app: Caller, clock: Clock) -> None:
    submit(app, "part")
    now = clock.now()
    claim(app, 1, {"other": ""})
    due: LiteralString = "select fencepost.job_aside_due('mail', %s)"

    assert app.value(due, serves({"part": ""})) == now
    assert app.value(due, serves({"other": ""})) is None


def test_setting_aside_wakes_the_workers_of_the_queue(app: Caller, database: Any) -> None:
    submit(app, "part")
    app.execute("select fencepost.sleep_on('job:mail')")
    with database.connect() as listener:
        listener.autocommit = True
        listener.execute("listen fencepost")
        claim(app, 1, {"other": ""})
        assert [one.payload for one in listener.notifies(timeout=30, stop_after=1)] == ["job:mail"]


def test_a_need_is_forgotten_when_no_job_has_it(app: Caller, admin: Caller, clock: Clock) -> None:
    submit(app, "part")
    claim(app, 1, {"other": ""})
    clock.advance(7200)
    prune: LiteralString = "select fencepost.job_need_prune('1 hour', 10)"

    assert app.value(prune) == 0
    claim(app, 1, {"part": ""})
    assert app.value(prune) == 1
    assert admin.value("select count(*) from fencepost.job_need") == 0


def test_a_need_that_a_transaction_uses_is_not_forgotten(app: Caller, connect: Any, clock: Clock) -> None:
    submit(app, "part")
    claim(app, 1, {"other": ""})
    claim(app, 1, {"part": ""})
    submit(app, "part")
    clock.advance(7200)
    rival: Caller = connect()
    with rival.transaction():
        assert set(claim(rival, 1, {"other": ""}, owner=RIVAL).values()) == {"set_aside"}
        assert app.value("select fencepost.job_need_prune('1 hour', 10)") == 0
    assert set(claim(app, 1, {"part": ""}).values()) == {"claimed"}


def test_waiting_jobs_that_were_set_aside_count_against_the_bound(app: Caller) -> None:
    app.execute("select fencepost.queue_bound('mail', 2, 'carol')")
    submit(app, "part")
    submit(app, "part")
    claim(app, 2, {"other": ""})
    app.execute("select fencepost.queue_count()")

    assert "2 waiting jobs" in app.held_back("select fencepost.job_submit('mail', 'send', '{}')")


def announce(app: Caller, place: str, kinds: Known, offers: str = "") -> None:
    app.execute("select fencepost.lease_acquire(%s, %s, '60 s')", place, place)
    app.execute("select fencepost.job_worker_announce(%s, 1, '{mail}', %s)", place, serves(kinds, offers))


def unserved(app: Caller) -> list[tuple[str, int, str]]:
    rows = app.rows("select reason, waiting, message from fencepost.unserved_work order by message")
    return [(row["reason"], row["waiting"], row["message"]) for row in rows]


def test_a_queue_without_a_worker_is_told_until_one_serves_it(app: Caller, clock: Clock) -> None:
    for _ in range(12):
        submit(app, "send")
    app.execute(
        "select fencepost.job_submit('later', 'send', '{}', p_run_at => %s)", clock.now().replace(2040)
    )
    without = [("no_worker", 12, "queue mail: 12 waiting, no worker serves it")]

    assert unserved(app) == without
    announce(app, "job-worker:1", {"send": ""})
    assert unserved(app) == []
    clock.advance(61)
    assert unserved(app) == without


def test_kinds_arguments_and_needs_without_a_worker_are_told(app: Caller) -> None:
    announce(app, "job-worker:1", {"send": "x"}, offers="cpp")
    announce(app, "job-worker:2", {"send": "y"})
    submit(app, "part")
    submit(app, "send", '{"x": 1, "colour": 2}')
    submit(app, "send", headers='{"needs": ["rust"]}')
    submit(app, "send", '{"y": 2}')
    assert len(claim(app, 10, {"other": ""})) == 4

    waiting = "queue mail: 1 waiting"
    assert unserved(app) == [
        ("unknown_arguments", 1, f"{waiting}, kind send waits for workers that know argument colour"),
        ("unmet_needs", 1, f"{waiting}, kind send waits for workers that offer rust"),
        ("unknown_kind", 1, f"{waiting}, no worker has a handler for kind part"),
    ]
    announce(app, "job-worker:3", {"send": "x colour", "part": ""}, offers="rust")
    assert unserved(app) == []


def test_a_schedule_whose_kind_is_gone_is_told(app: Caller, admin: Caller) -> None:
    admin.execute(
        """insert into fencepost.job_schedule (name, expression, zone, missed, grace, queue, kind, payload,
             headers, priority, tries_max, lease, next_tick, declared_at)
           values ('heartbeat', '* * * * *', 'UTC', 'once', '1 minute', 'mail', 'beat', '{}', '{}', 1, 1,
             '1 minute', '2040-01-01', '2026-01-01')"""
    )
    announce(app, "job-worker:1", {"send": ""})
    told = [("schedule", 0, "schedule heartbeat fires beat, a kind that no worker of queue mail has")]

    assert unserved(app) == told
    announce(app, "job-worker:2", {"beat": ""})
    assert unserved(app) == []
    app.execute("select fencepost.lease_release('job-worker:2', 'job-worker:2', 1)")
    assert unserved(app) == told
    app.execute("select fencepost.schedule_pause('heartbeat', 'carol')")
    assert unserved(app) == []


def test_a_former_holder_of_a_place_announces_nothing(app: Caller, clock: Clock) -> None:
    announce(app, "job-worker:1", {"send": ""})
    clock.advance(61)
    app.execute("select fencepost.lease_acquire('job-worker:1', 'next', '60 s')")
    app.refused(
        "not_owner", "select fencepost.job_worker_announce('job-worker:1', 1, '{mail}', %s)", serves({})
    )
    assert app.column("select owner from fencepost.job_workers") == []


def plant(admin: Caller, function: str, right: str, wrong: str) -> None:
    text: str = admin.value("select pg_get_functiondef(oid) from pg_proc where proname = %s", function)
    assert right in text
    admin.connection.execute(text.replace(right, wrong).encode())


def test_a_planted_bug_takes_what_its_worker_does_not_serve(app: Caller, admin: Caller) -> None:
    """What the first test sees when a claim does not ask."""
    plant(admin, "_job_serves", "case when not p_kinds ? p_kind then false", "case when false then false")
    strange = submit(app, "part")
    assert claim(app, 1, {"send": ""}) == {strange: "claimed"}


def test_a_planted_bug_charges_a_try_for_setting_aside(app: Caller, admin: Caller) -> None:
    """What the first test sees when a job comes back with the count of a claim."""
    plant(admin, "_job_start", "p.tries - 1", "p.tries")
    strange = submit(app, "part")
    claim(app, 1, {"send": ""})
    assert job_calls.job(app, strange)["tries"] == 1


def test_a_planted_bug_compares_only_what_the_last_worker_lacked(app: Caller, admin: Caller) -> None:
    """What the test of two workers sees when a need does not hold all arguments: the job goes to and fro."""
    plant(admin, "_need_is_served", "p_need.arguments <@", "p_need.arguments &&")
    job_id = submit(app, "send", '{"x": 1, "y": 2, "z": 3}')
    claim(app, 1, {"send": "x y"})
    for _ in range(3):
        assert claim(app, 1, {"send": "x z"}, owner=RIVAL) == {job_id: "set_aside"}


def test_a_planted_bug_forgets_a_need_that_is_in_use(
    app: Caller, admin: Caller, connect: Any, clock: Clock
) -> None:
    """What the test of an open transaction sees when setting aside does not lock the need."""
    plant(admin, "_job_need", " for key share", "")
    submit(app, "part")
    claim(app, 1, {"other": ""})
    claim(app, 1, {"part": ""})
    lost = submit(app, "part")
    clock.advance(7200)
    rival: Caller = connect()
    with rival.transaction():
        assert claim(rival, 1, {"other": ""}, owner=RIVAL) == {lost: "set_aside"}
        assert app.value("select fencepost.job_need_prune('1 hour', 10)") == 1
    assert claim(app, 1, {"part": ""}) == {}
