"""A worker that is out of service claims nothing, and a pinned one claims what its pin leaves."""

import json
from typing import Any, LiteralString

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller

HOST = "db-7.example"
WORKER = f"worker@{HOST}:41:0a1b2c"
JUDGE = f"judge@{HOST}:42:0a1b2d"
ELSEWHERE = "worker@other:41:0a1b2e"
SERVES = json.dumps({"kinds": {"send": "*", "part": "*"}, "offers": "gpu"})
ENDINGS: dict[str, LiteralString] = {
    "job_claim_many": "select job_id, outcome"
    " from fencepost.job_claim_many(array[%s]::bigint[], %s, p_serves => %s)",
    "job_claim_next": "select job_id, outcome"
    " from fencepost.job_claim_next('mail', 1, %s, 9, p_serves => %s)",
    "job_claim_by_priority": "select job_id, outcome"
    " from fencepost.job_claim_by_priority('mail', %s, 9, p_serves => %s)",
}
HOLDS = ("drain", "disable")


def submit(app: Caller, kind: str = "send", queue: str = "mail", needs: str = "[]") -> int:
    job_id: int = app.value(
        "select job_id from fencepost.job_submit(%s, %s, '{}',"
        " p_headers => jsonb_build_object('needs', %s::jsonb))",
        queue,
        kind,
        needs,
    )
    return job_id


def register(app: Caller, owner: str, place: int = 1, queues: str = "{mail}", serves: str = SERVES) -> None:
    token = app.value(
        "select token from fencepost.lease_acquire(%s, %s, '1 minute')", f"job-worker:{place}", owner
    )
    app.value(
        "select fencepost.job_worker_announce(%s, %s, %s, %s)", f"job-worker:{place}", token, queues, serves
    )


def decide(app: Caller, op: str, target: str) -> Any:
    decisions: dict[str, LiteralString] = {
        "drain": "select fencepost.worker_drain(%s, 'ann', 'a new disk')",
        "disable": "select fencepost.worker_disable(%s, 'ann', 'a new disk')",
        "enable": "select fencepost.worker_enable(%s, 'ann', 'the disk is there')",
        "unpin": "select fencepost.worker_unpin(%s, 'ann', 'enough')",
    }
    return app.value(decisions[op], target)


def pin(app: Caller, target: str, *, queues: Any = None, kinds: Any = None, abilities: Any = None) -> None:
    app.value(
        "select fencepost.worker_pin(%s, %s, %s, %s, 'ann', 'for the finals')",
        target,
        queues,
        kinds,
        abilities,
    )


def claim(app: Caller, owner: str, *, queue: str = "mail", serves: str | None = SERVES) -> dict[int, str]:
    rows = app.rows(
        "select job_id, outcome from fencepost.job_claim_by_priority(%s, %s, 9, p_serves => %s)",
        queue,
        owner,
        serves,
    )
    return {row["job_id"]: row["outcome"] for row in rows}


@pytest.mark.parametrize("op", HOLDS)
@pytest.mark.parametrize("target", [WORKER, f"worker@{HOST}", HOST])
def test_a_held_worker_gets_nothing_from_any_claim(app: Caller, admin: Caller, op: str, target: str) -> None:
    register(app, WORKER)
    job_id = submit(app)
    before = admin.rows("select * from fencepost.job_waiting")
    assert decide(app, op, target) == [WORKER]

    assert app.rows(ENDINGS["job_claim_many"], job_id, WORKER, SERVES) == [
        {"job_id": job_id, "outcome": "withheld"}
    ]
    assert app.rows(ENDINGS["job_claim_next"], WORKER, SERVES) == []
    assert app.rows(ENDINGS["job_claim_by_priority"], WORKER, SERVES) == []
    refused = app.refused("in_flight", "select * from fencepost.job_claim(%s, %s)", job_id, WORKER)
    assert refused.seen["out_of_service"]["reason"] == "a new disk"
    assert admin.rows("select * from fencepost.job_waiting") == before
    assert claim(app, ELSEWHERE) == {job_id: "claimed"}


@pytest.mark.parametrize("op", HOLDS)
def test_a_held_worker_takes_over_no_lost_job(app: Caller, clock: Clock, op: str) -> None:
    register(app, WORKER)
    job_id = submit(app)
    assert claim(app, ELSEWHERE) == {job_id: "claimed"}
    decide(app, op, WORKER)
    clock.advance(120)
    assert app.rows(ENDINGS["job_claim_many"], job_id, WORKER, SERVES) == [
        {"job_id": job_id, "outcome": "withheld"}
    ]
    assert app.value("select owner from fencepost.jobs where job_id = %s", job_id) == ELSEWHERE


@pytest.mark.parametrize("op", HOLDS)
def test_a_held_worker_takes_no_suspects(app: Caller, clock: Clock, op: str) -> None:
    jobs = [submit(app), submit(app)]
    register(app, WORKER)
    assert set(claim(app, ELSEWHERE)) == set(jobs)
    clock.advance(120)
    app.rows("select * from fencepost.job_reclaim(10)")
    register(app, WORKER)
    decide(app, op, HOST)
    asked = ("{mail}", SERVES, WORKER)
    assert app.value("select fencepost.job_reserve_suspects(%s, %s, %s, '1 minute')", *asked) is False
    assert app.rows("select * from fencepost.job_claim_suspects(%s, %s, %s, 9)", *asked) == []
    decide(app, "enable", HOST)
    assert app.value("select fencepost.job_reserve_suspects(%s, %s, %s, '1 minute')", *asked) is True
    assert len(app.rows("select * from fencepost.job_claim_suspects(%s, %s, %s, 9)", *asked)) == 1


def test_a_held_worker_finishes_and_renews_what_it_has(app: Caller) -> None:
    register(app, WORKER)
    job_id = submit(app)
    claim(app, WORKER)
    decide(app, "disable", HOST)
    renewed = app.rows(
        "select refusal from fencepost.job_renew_many(array[%s], array[1], %s)", job_id, WORKER
    )
    assert renewed == [{"refusal": None}]
    finished = app.rows(
        "select refusal from fencepost.job_finish_many(array[%s], array[1], %s, '{ok}')", job_id, WORKER
    )
    assert finished == [{"refusal": None}]


def test_a_drain_ends_with_the_process_and_a_disabled_host_stays_so(app: Caller) -> None:
    restarted = f"worker@{HOST}:99:ffff00"
    register(app, WORKER)
    job_id = submit(app)
    decide(app, "drain", HOST)
    assert claim(app, WORKER) == {}
    assert claim(app, restarted) == {job_id: "claimed"}
    job_id = submit(app)
    decide(app, "disable", HOST)
    assert claim(app, restarted) == {}
    decide(app, "enable", HOST)
    assert claim(app, WORKER) == {job_id: "claimed"}


def test_a_drain_does_not_shorten_a_disabling(app: Caller, admin: Caller) -> None:
    register(app, WORKER)
    decide(app, "disable", WORKER)
    decide(app, "drain", WORKER)
    assert admin.value("select state from fencepost.worker_hold") == "disabled"


def test_a_name_holds_its_own_workers_only(app: Caller) -> None:
    decide(app, "disable", f"judge@{HOST}")
    job_id = submit(app)
    assert claim(app, JUDGE) == {}
    assert claim(app, WORKER) == {job_id: "claimed"}


def test_a_name_is_not_a_part_of_another(app: Caller) -> None:
    """Neither a longer host, nor the end of another host, nor a name without a host."""
    decide(app, "disable", "7.example")
    decide(app, "disable", "db-7")
    decide(app, "disable", "worker")
    job_id = submit(app)
    assert claim(app, WORKER) == {job_id: "claimed"}
    job_id = submit(app)
    decide(app, "disable", "lane:7")
    assert claim(app, "lane:7") == {}
    assert claim(app, "lane:8") == {job_id: "claimed"}


def test_what_is_not_there_is_not_drained_or_enabled(app: Caller) -> None:
    for op in ("drain", "enable", "unpin"):
        with pytest.raises(psycopg.Error, match="not_found"):
            decide(app, op, "nowhere")
    assert decide(app, "disable", "nowhere") == []


def test_enabling_a_host_enables_all_that_belongs_to_it_and_nothing_wider(app: Caller) -> None:
    register(app, WORKER)
    decide(app, "drain", HOST)
    decide(app, "disable", f"judge@{HOST}")
    decide(app, "disable", "other")
    assert decide(app, "enable", HOST) == [f"judge@{HOST}", WORKER]
    assert claim(app, ELSEWHERE) == {}
    with pytest.raises(psycopg.Error, match="not_found") as refused:
        decide(app, "enable", "worker@other")
    assert "a new disk" in str(refused.value.diag.message_detail)


def test_every_decision_is_in_the_history_with_its_actor_and_reason(app: Caller) -> None:
    decide(app, "disable", HOST)
    decide(app, "enable", HOST)
    pin(app, HOST, queues=["mail"])
    decide(app, "unpin", HOST)
    told = app.rows(
        "select event, actor, detail ->> 'reason' as why from fencepost.explain(%s)", f"worker:{HOST}"
    )
    assert [(one["event"], one["actor"], one["why"]) for one in told] == [
        ("disabled", "ann", "a new disk"),
        ("enabled", "ann", "the disk is there"),
        ("pinned", "ann", "for the finals"),
        ("unpinned", "ann", "enough"),
    ]


@pytest.mark.parametrize("claimed_with", list(ENDINGS))
@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize(
    ("pinned", "left"),
    [
        ({"queues": ["mail"]}, "all"),
        ({"queues": ["news"]}, "none"),
        ({"kinds": ["part"]}, "part"),
        ({"abilities": ["cpu"]}, "without needs"),
        ({"abilities": ["gpu"]}, "all"),
        ({"kinds": ["part", "more"], "abilities": []}, "part"),
    ],
)
def test_a_pinned_worker_claims_what_its_pin_leaves(
    app: Caller, claimed_with: str, said: bool, pinned: dict[str, Any], left: str
) -> None:
    send, part, picture = submit(app), submit(app, "part"), submit(app, needs='["gpu"]')
    pin(app, HOST, **pinned)
    serves = SERVES if said else None
    if claimed_with == "job_claim_many":
        asked = "select job_id, outcome from fencepost.job_claim_many(%s::bigint[], %s, p_serves => %s)"
        rows = app.rows(asked, [send, part, picture], WORKER, serves)
    else:
        rows = app.rows(ENDINGS[claimed_with], WORKER, serves)
    claimed = {row["job_id"] for row in rows if row["outcome"] == "claimed"}
    expected = {
        "all": {send, part, picture},
        "none": set[int](),
        "part": {part},
        "without needs": {send, part},
    }[left]
    assert claimed == expected
    # What it may not take waits for others, who need not be told of the pin.
    assert set(claim(app, ELSEWHERE)) == {send, part, picture} - expected


def test_all_pins_of_a_worker_apply(app: Caller) -> None:
    _, part, picture = submit(app), submit(app, "part"), submit(app, "part", needs='["gpu"]')
    pin(app, HOST, kinds=["part"])
    pin(app, WORKER, abilities=["gpu"])
    assert {job for job, outcome in claim(app, WORKER).items() if outcome == "claimed"} == {part, picture}
    more = submit(app, "part", needs='["gpu"]')
    pin(app, WORKER, queues=["news"])
    assert claim(app, WORKER) == {}
    decide(app, "unpin", WORKER)
    assert claim(app, WORKER) == {more: "claimed"}


def test_a_pinned_worker_takes_only_those_suspects(app: Caller, clock: Clock) -> None:
    jobs = [submit(app), submit(app), submit(app, "part")]
    assert set(claim(app, ELSEWHERE)) == set(jobs)
    clock.advance(120)
    app.rows("select * from fencepost.job_reclaim(10)")
    pin(app, HOST, kinds=["part"])
    taken = app.rows("select kind from fencepost.job_claim_suspects('{mail}', %s, %s, 9)", SERVES, WORKER)
    assert taken == [{"kind": "part"}]


def test_a_pin_that_names_nothing_is_refused(app: Caller) -> None:
    with pytest.raises(psycopg.Error, match="A pin names queues"):
        pin(app, HOST)


def test_work_whose_workers_are_out_of_service_is_told(app: Caller) -> None:
    register(app, WORKER)
    submit(app)
    unserved: LiteralString = "select message from fencepost.unserved_work"
    assert app.rows(unserved) == []
    decide(app, "disable", HOST)
    message = "queue mail: 1 waiting, no worker serves it; 1 out of service"
    assert app.rows(unserved) == [{"message": message}]
    decide(app, "enable", HOST)
    assert app.rows(unserved) == []
    pin(app, HOST, queues=["news"])
    assert app.rows(unserved) == [{"message": "queue mail: 1 waiting, no worker serves it"}]


def test_the_list_has_each_worker_with_its_state(app: Caller) -> None:
    register(app, WORKER)
    register(app, JUDGE, 2, "{judge}")
    job_id = submit(app)
    claim(app, WORKER)
    decide(app, "drain", WORKER)
    decide(app, "disable", f"judge@{HOST}")
    decide(app, "disable", "away")
    pin(app, HOST, kinds=["send"])
    listed = {row["target"]: row for row in app.rows("select * from fencepost.worker_list()")}
    assert [(target, row["state"], row["running"]) for target, row in listed.items()] == [
        ("away", "disabled", 0),
        (JUDGE, "disabled", 0),
        (WORKER, "draining", 1),
    ]
    one = listed[WORKER]
    assert (one["name"], one["host"], one["queues"], one["kinds"], one["offers"]) == (
        "worker",
        HOST,
        ["mail"],
        ["part", "send"],
        ["gpu"],
    )
    assert (one["held_by"], one["reason"], one["actor"], one["pin_reason"]) == (
        WORKER,
        "a new disk",
        "ann",
        "for the finals",
    )
    assert one["pinned_to"] == {"kinds": {"send": "*"}, "offers": None}
    app.rows("select * from fencepost.job_finish_many(array[%s], array[1], %s, '{ok}')", job_id, WORKER)
    drained = app.value("select state from fencepost.worker_list() where target = %s", WORKER)
    assert drained == "drained"


def test_drains_of_processes_that_ended_are_forgotten(app: Caller, admin: Caller, clock: Clock) -> None:
    register(app, WORKER)
    decide(app, "drain", WORKER)
    decide(app, "disable", HOST)
    clock.advance(86_000)
    register(app, ELSEWHERE, 2)
    assert admin.value("select count(*) from fencepost.worker_hold") == 2
    clock.advance(1000)
    register(app, ELSEWHERE, 3)
    assert admin.rows("select target from fencepost.worker_hold") == [{"target": HOST}]


def test_a_hold_that_is_not_committed_blocks_no_claim(app: Caller, database: Database) -> None:
    """A claim takes no lock on holds, so a decision that is open, or stuck, stops no worker."""
    job_id = submit(app)
    with psycopg.connect(database.url) as open_one:
        open_one.execute("select fencepost.worker_disable(%s, 'ann', 'perhaps')", (HOST,))
        assert claim(app, WORKER) == {job_id: "claimed"}
        open_one.rollback()


BUGS = {
    "a claim by id does not ask whether its worker is held": (
        "_job_claim",
        "if fencepost._worker_is_held(p_owner) then",
        "if false then",
    ),
    "a claim of a queue does not ask whether its worker is held": (
        "_job_claim_room",
        "fencepost._worker_is_held(p_owner)",
        "false",
    ),
    "a disabled host holds only the processes that were there": (
        "worker_disable",
        "perform fencepost._worker_hold(p_target,",
        "perform fencepost._worker_hold((fencepost._worker_owners(p_target))[1],",
    ),
    "a pin counts for claims of a queue and not for claims by id": (
        "_job_claim",
        "v_serves  jsonb := fencepost.worker_serves(p_owner, p_serves)",
        "v_serves  jsonb := p_serves",
    ),
}


def out_of_service(app: Caller) -> None:
    """A host is disabled, its worker is started again, and each way to claim is tried; then it is pinned."""
    restarted = f"worker@{HOST}:99:ffff00"
    job_id = submit(app)
    register(app, WORKER)
    decide(app, "disable", HOST)
    for owner in (WORKER, restarted):
        (answer,) = app.rows(ENDINGS["job_claim_many"], job_id, owner, SERVES)
        assert answer["outcome"] == "withheld"
        assert app.rows(ENDINGS["job_claim_next"], owner, SERVES) == []
        assert claim(app, owner) == {}
    decide(app, "enable", HOST)
    pin(app, HOST, kinds=["part"])
    (answer,) = app.rows(ENDINGS["job_claim_many"], job_id, WORKER, SERVES)
    assert answer["outcome"] == "set_aside"


def test_out_of_service_means_every_claim(app: Caller) -> None:
    out_of_service(app)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_seen_by_that(app: Caller, admin: Caller, bug: str) -> None:
    plant(admin, *BUGS[bug])
    with pytest.raises(AssertionError):
        out_of_service(app)


def plant(admin: Caller, name: str, right: str, wrong: str) -> None:
    definition: str = admin.value(
        "select pg_get_functiondef(p.oid) from pg_proc p where p.proname = %s", name
    )
    assert right in definition
    admin.connection.execute(definition.replace(right, wrong).encode())
