"""The flows into sinks that commit in phases: they come to all their crash points, and their judge sees one
wrong record in any sink, and whatever was left half done."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import LiteralString

import pytest

from fencepost.testing import Breach
from fencepost_torture._pace import RunPace
from fencepost_torture._plan import RunPlan
from fencepost_torture._run import TortureRun
from fencepost_torture._system_environment import Account, SystemEnvironment
from fencepost_torture._tally import Tally
from fencepost_torture.systems._sinks import Sinks
from tests.acceptance.torture.wreckage import wreck

SINKS = "fencepost_torture.systems._sinks:SINKS"
HASTY = "tests.acceptance.torture.hasty:Hasty"
HELPINGS, RECORDS = 10, 40
OUT: LiteralString = """
    select id, key || '-' || row_number() over (partition by key order by id) from arrival order by id
"""


class FewSinks(Sinks):
    """Two flows: the even records go to files, the odd ones to prepared rows, and all of them elsewhere."""

    processes = 2


@pytest.fixture
def sinks(env: SystemEnvironment) -> Iterator[FewSinks]:
    system = FewSinks()
    with system.open(env):
        for turn in range(HELPINGS):
            system.ask(env, turn)
        undisturbed(env)
        assert system.account(env) == Account(RECORDS, RECORDS)
        yield system


def undisturbed(env: SystemEnvironment) -> None:
    """What a run without faults leaves behind."""
    out = env.rows(OUT)
    with env.database.connect_admin() as admin:
        for arrival, value in out:
            admin.execute("insert into result values (%s, %s)", (arrival, value))
            if arrival % 2:
                admin.execute("insert into effect (arrival, value) values (%s, %s)", (arrival, value))
    even = [record for record in out if record[0] % 2 == 0]
    for number, records in enumerate((even[:9], even[9:])):
        write(file_of(env, number), records)


def file_of(env: SystemEnvironment, number: int) -> Path:
    return env.directory / "files" / f"task-{number:012}-1.jsonl"


def write(file: Path, records: list[tuple[int, str]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def read(file: Path) -> list[tuple[int, str]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def rules(breaches: list[Breach]) -> set[tuple[str, str]]:
    """Each with the sink that it is about."""
    names = ("files", "prepared rows", "rows elsewhere", "deliveries elsewhere")
    return {(b.rule, name) for b in breaches for name in names if name in f"{b.key} {b.what}"}


def test_an_undisturbed_run_is_accepted(env: SystemEnvironment, sinks: FewSinks) -> None:
    assert list(sinks.judge(env)) == []
    assert list(sinks.remains(env)) == []


ROW_DAMAGES: dict[str, tuple[LiteralString, set[tuple[str, str]]]] = {
    "a row is prepared twice": (
        "insert into effect (arrival, value) select arrival, value from effect where arrival = 39",
        {("doubled", "prepared rows")},
    ),
    "a prepared row is lost": ("delete from effect where arrival = 7", {("lost", "prepared rows")}),
    "a row was counted with a state of before": (
        "update effect set value = '1-6' where arrival = 39",
        {("as without faults", "prepared rows"), ("order of a key", "prepared rows")},
    ),
    "two rows of a key changed places": (
        """update effect e set value = o.value, arrival = o.arrival from effect o
           where (e.arrival, o.arrival) in ((7, 13), (13, 7))""",
        {("order of a key", "prepared rows")},
    ),
    "a row of another flow": (
        "insert into effect (arrival, value) values (40, '4-7')",
        {("unrequested", "prepared rows")},
    ),
    "a row is written over by itself": (
        "update result set value = value where arrival = 40",
        {("doubled", "deliveries elsewhere")},
    ),
    "a row is written over by one of before": (
        "update result set value = '4-6' where arrival = 40",
        {
            ("as without faults", "rows elsewhere"),
            ("as without faults", "deliveries elsewhere"),
            ("order of a key", "deliveries elsewhere"),
            ("doubled", "deliveries elsewhere"),
        },
    ),
    "a row elsewhere is gone": ("delete from result where arrival = 12", {("lost", "rows elsewhere")}),
    "the last records are forgotten as if they had never come": (
        """with a as (delete from arrival where id = 39), b as (delete from effect where arrival = 39),
                c as (delete from result where arrival = 39) delete from delivery where arrival = 39""",
        {("lost", "prepared rows"), ("lost", "rows elsewhere"), ("lost", "deliveries elsewhere")},
    ),
}


@pytest.mark.parametrize(("damage", "seen"), ROW_DAMAGES.values(), ids=ROW_DAMAGES)
def test_one_wrong_row_is_seen(
    env: SystemEnvironment, sinks: FewSinks, damage: LiteralString, seen: set[tuple[str, str]]
) -> None:
    wreck(env, damage)

    assert rules(list(sinks.judge(env))) == seen


Damage = Callable[[SystemEnvironment], None]


def a_file_is_there_twice(env: SystemEnvironment) -> None:
    write(file_of(env, 2), read(file_of(env, 1)))


def a_file_is_gone(env: SystemEnvironment) -> None:
    file_of(env, 0).unlink()


def files_changed_places(env: SystemEnvironment) -> None:
    file_of(env, 0).rename(file_of(env, 2))


FILE_DAMAGES: dict[Damage, set[str]] = {
    # What comes again comes after what came since.
    a_file_is_there_twice: {"doubled", "order of a key"},
    a_file_is_gone: {"lost"},
    files_changed_places: {"order of a key"},
}


@pytest.mark.parametrize(("damage", "seen"), FILE_DAMAGES.items(), ids=[d.__name__ for d in FILE_DAMAGES])
def test_one_wrong_file_is_seen(
    env: SystemEnvironment, sinks: FewSinks, damage: Damage, seen: set[str]
) -> None:
    damage(env)

    assert rules(list(sinks.judge(env))) == {(rule, "files") for rule in seen}


def test_what_is_left_half_done_is_seen(env: SystemEnvironment, sinks: FewSinks) -> None:
    write(env.directory / "files" / ".staging" / "task-000000000002-1.jsonl", [(42, "0-8")])
    wreck(
        env,
        """insert into fencepost.checkpoint (resource, number, token, status, begun_at)
           values ('flow:sinks-0/group/0000', 3, 1, 'begun', now())""",
        """insert into fencepost.checkpoint (resource, number, token, status, frontier, begun_at, stored_at)
           values ('flow:sinks-0/group/0000', 2, 1, 'stored', '{}', now(), now()),
                  ('flow:sinks-0/group/0000', 1, 1, 'committed', '{}', now(), now())""",
    )
    with env.database.connect_admin() as admin:
        admin.execute("begin; insert into effect (arrival, value) values (41, '5-7')")
        admin.execute("prepare transaction 'left'")
        try:
            left = {breach.key for breach in sinks.remains(env)}
        finally:
            admin.execute("rollback prepared 'left'")

    assert left == {
        "checkpoint flow:sinks-0/group/0000#3",
        "checkpoint flow:sinks-0/group/0000#2",
        "transaction left",
        "task-000000000002-1.jsonl",
    }


def all_points(tally: Tally, _effects: Mapping[str, int]) -> bool:
    return all(tally.points[point] for point in Sinks.points)


@pytest.mark.timeout(300)
@pytest.mark.full
def test_all_crash_points_are_hit_and_nothing_breaks() -> None:
    pace = RunPace(crowd=2, helpings_per_second={SINKS: 4.0}, evenly=True)
    outcome = TortureRun(
        RunPlan(
            5,
            120.0,
            [SINKS],
            ["crash", "kill"],
            gap_seconds=0.05,
            lease_seconds=1.0,
            pace=pace,
            server_settings={"fsync": "off", "full_page_writes": "off"},
            liveness_leases=30,
            enough=all_points,
        )
    ).run()

    assert outcome.judgement.breaches == [], outcome.log[-4000:]
    assert [point for point in Sinks.points if not outcome.tally.points[point]] == []


@pytest.mark.timeout(120)
def test_files_that_are_there_before_their_checkpoint_are_seen() -> None:
    pace = RunPace(helpings_per_second={HASTY: 4.0})
    plan = RunPlan(5, 4.0, [HASTY], ["kill"], lease_seconds=1.0, pace=pace, server_settings={"fsync": "off"})

    outcome = TortureRun(plan).run()

    assert outcome.judgement.verdict == "violated"
    assert {breach.rule for _, breach in outcome.judgement.breaches} >= {"doubled"}
    assert outcome.judgement.lost == 0
