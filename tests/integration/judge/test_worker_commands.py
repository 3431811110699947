"""Workers, clarifications and custom runs: over HTTP and on the command line."""

import json
from dataclasses import replace
from pathlib import Path

from fencepost.embedded import Database
from fencepost.kernel import drivers
from fencepost_judge import _contests as contests
from fencepost_judge._discovery import Load
from fencepost_judge._discovery_kernel import KernelDirectory
from fencepost_judge._role import JudgeRole
from tests.integration.judge.judge_env import Command, open_office, problem_folder
from tests.integration.judge.test_commands import CONTEST
from tests.integration.judge.test_discovery import WORKER


async def test_a_jury_sees_the_workers_and_a_contestant_does_not(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office:
        await office.add("jo", JudgeRole.JURY)
        await office.add("con", JudgeRole.CONTESTANT)
        directory = KernelDirectory(office.fp, lease_seconds=30)
        registration = await directory.enter(WORKER)
        await directory.beat(registration, Load(busy=3, load_average=0.5))
        seen = await office.ask("jo", "GET", "/judge/api/workers")
        refused = await office.ask("con", "GET", "/judge/api/workers")

    (worker,) = seen.json()
    assert (worker["owner"], worker["state"], worker["busy"]) == (WORKER.owner, "alive", 3)
    assert worker["languages"] == {"c": "12.2", "python": "3.11"}
    assert refused.status_code == 403


def test_workers_are_told_to_a_person_and_to_a_program(judge: Command, database: Database) -> None:
    none = judge("workers")
    with database.connect() as connection:
        for owner in ("a", "b"):
            info = replace(WORKER, owner=owner)
            connection.execute(
                "select * from fencepost.judge_worker_enter(%s, %s, %s, %s, 4, 2, 'box', '[]', '1 minute')",
                (info.owner, info.host, info.version, json.dumps(dict(info.languages))),
            )
        connection.execute("select fencepost.judge_worker_leave(2, 1, 'b')")
    alive, everybody = judge("workers"), json.loads(judge("workers", "--all", "--json")[1])

    assert none == (0, "No workers are registered.")
    assert alive == (0, "alive  a  0 of 4 boxes, 0 running, load 0.0  box  c, python")
    assert [(one["owner"], one["state"]) for one in everybody] == [("a", "alive"), ("b", "left")]


def test_questions_are_listed_answered_once_and_announced(
    judge: Command, database: Database, tmp_path: Path
) -> None:
    judge("import", str(problem_folder(tmp_path / "echo", "1\n")))
    (tmp_path / "contest.yaml").write_text(CONTEST)
    judge("contest", "put", "autumn", "contest.yaml")
    judge("contest", "join", "autumn", "ann")
    with database.connect() as connection:
        drivers.run(connection, contests.ask("autumn", "A", "ann", "May it be empty?"))
    waiting = judge("clarify", "list", "autumn", "--open")
    answered = judge("clarify", "answer", "autumn", "1", "No.", "--to-all")
    again = judge("clarify", "answer", "autumn", "1", "Yes.")
    announced = judge("clarify", "announce", "autumn", "Ten minutes more.")
    everything = judge("clarify", "list", "autumn")[1].splitlines()

    assert waiting == (0, "1 A  ann: May it be empty?  -> open")
    assert (answered, again[0], announced[0]) == ((0, "autumn: question 1 is answered."), 1, 0)
    assert everything[0] == "1 A  ann: May it be empty?  -> No. (to all)"
    assert everything[1].endswith("announced  -> Ten minutes more. (to all)")
    assert judge("clarify", "list", "autumn", "--open") == (0, "")
    unknown = (("list", "x"), ("answer", "autumn", "9", "No."), ("announce", "x", "No."))
    assert [judge("clarify", *words)[0] for words in unknown] == [4, 4, 4]


def test_a_custom_run_without_a_worker_says_so(judge: Command, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void){return 0;}")
    (tmp_path / "notes.txt").write_text("x")
    waited = judge("try", "main.c", "--within", "1")
    unknown = judge("try", "notes.txt")

    assert (waited[0], "fencepost judge workers" in waited[1]) == (1, True)
    assert (unknown[0], "no known language" in unknown[1]) == (1, True)
