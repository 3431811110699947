"""What is not there is said to be not there, whatever asks the database for it."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import pytest

from fencepost.embedded import Database
from fencepost.errors import InvalidInput, NotFound
from fencepost.kernel.call import Call, nothing
from fencepost.kernel.drivers import run
from tests.integration.judge.judge_env import PROGRAM, JudgeEnv, open_office

PUT: LiteralString = """
    select fencepost.judge_contest_put(%s::text, 'Cup', 'icpc', fencepost.clock() - interval '1 hour', null,
      fencepost.clock() + interval '1 hour', 20, array['A'], array[%s::text], 'jo')
"""
ABSENT: dict[str, tuple[LiteralString, Sequence[Any], str]] = {
    "a problem of a contest": (PUT, ("cup", "absent"), "absent"),
    "a contest to join": ("select fencepost.judge_contest_join(%s, %s)", ("absent", "ann"), "absent"),
    "a question to answer": (
        "select fencepost.judge_clarification_answer(%s, %s, %s, false, 'jo')",
        ("cup", 7, "Read again."),
        "7",
    ),
    "whose session it would be": (
        "select fencepost.account_session_begin('x'::bytea, 'judge', %s, %s, 'here', '')",
        ("absent", timedelta(minutes=1)),
        "absent",
    ),
}


def call(database: Database, statement: LiteralString, values: Sequence[Any]) -> None:
    with database.connect() as connection:
        run(connection, Call(statement, tuple(values), nothing))


async def submit(office: JudgeEnv, contest: str | None = None) -> int:
    sources = {"main.py": PROGRAM["code"]}
    return await office.judging.submit("echo", "python", sources, author="ann", contest=contest)


@pytest.mark.parametrize("what", ABSENT)
async def test_what_is_not_there_is_told_by_its_name(database: Database, tmp_path: Path, what: str) -> None:
    statement, values, name = ABSENT[what]
    async with open_office(database, tmp_path):
        with pytest.raises(NotFound, match=name):
            call(database, statement, values)


async def test_a_problem_of_another_contest_is_not_in_this_one(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office:
        call(database, PUT, ("cup", "echo"))
        call(database, "select fencepost.judge_contest_join(%s, %s)", ("cup", "ann"))
        await submit(office, contest="cup")
        with database.connect_admin() as admin:
            admin.execute("delete from fencepost.judge_contest_problem")
        with pytest.raises(NotFound, match="echo"):
            await submit(office, contest="cup")


async def test_an_input_that_is_too_long_is_refused_by_the_database_too(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        job_id = await submit(office)
        statement: LiteralString = (
            "select fencepost.judge_custom_run_put(%s, 'ann', 'python', '{}', %s, '1 hour')"
        )
        with pytest.raises(InvalidInput) as refused:
            call(database, statement, (job_id, "x" * (1048576 + 1)))

    assert refused.value.field == "input"
