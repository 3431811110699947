"""Rights: every route and every role, tokens, and how fast a user may submit."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.logs import configure_logging
from fencepost.testing import Clock
from fencepost_judge._access import ACCESS, SMALL_BYTES
from fencepost_judge._role import ACCOUNTS, JudgeRole
from tests.integration.judge.judge_env import PROGRAM, SERVER_TOKEN, open_office

ROLES = {None: 0, "fpj_unknown": 0, "wrong": 0, "con": 1, "jo": 2, "ada": 3, SERVER_TOKEN: 3}
"""The callers: without a token, with made-up tokens, a contestant, a jury, an admin, the operator; and the
rights of each."""

NAMES = ("job_id", "slug", "name", "token_id", "generation", "contest", "clarification_id", "interval_id")


async def test_every_route_admits_the_roles_of_the_table_and_no_others(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        for name, role in (("con", JudgeRole.CONTESTANT), ("jo", JudgeRole.JURY), ("ada", JudgeRole.ADMIN)):
            await office.add(name, role)
        got: dict[tuple[str, str, str | None], int] = {}
        for method, path in ACCESS:
            for who in ROLES:
                # Nothing that these name exists, so that nothing is changed on the way.
                place = path.format(**dict.fromkeys(NAMES, "0"))
                answer = await office.ask(who, method, place)
                got[method, path, who] = answer.status_code
    expected = {
        (method, path, who): (401 if rank == 0 else 403)
        for (method, path), access in ACCESS.items()
        for who, rank in ROLES.items()
        if rank < access.role
    }

    assert {key: status for key, status in got.items() if status in (401, 403)} == expected
    assert not [key for key, status in got.items() if status >= 500]


def test_a_contestant_changes_nothing_but_what_is_their_own() -> None:
    changing = {line for line, access in ACCESS.items() if line[0] != "GET" and access.role < JudgeRole.JURY}

    assert changing == {
        ("POST", "/submit"),
        ("POST", "/submit/batch"),
        ("POST", "/judge/api/submissions/{job_id}/token"),
        ("POST", "/judge/api/custom-runs"),
        ("POST", "/judge/api/contests/{contest}/contestants"),
        ("POST", "/judge/api/contests/{contest}/clarifications"),
    }
    assert {
        line for line, access in ACCESS.items() if "users" in line[1] and access.role < JudgeRole.ADMIN
    } == set()


async def test_no_caller_is_asked_until_there_is_a_user_and_every_caller_from_then_on(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path, app_token=None) as office:
        before = await office.ask(None, "GET", "/judge/api/me")
        guess = await office.ask("fpj_guess", "GET", "/judge/api/me")
        made = await office.ask(None, "PUT", "/judge/api/users/ada", json={"role": "admin"})
        after = await office.ask(None, "GET", "/judge/api/me")
        token = await office.add("ada", JudgeRole.ADMIN)
        with_token = await office.ask(token, "GET", "/judge/api/me")

    assert before.json() == {"name": "operator", "role": "admin", "is_user": False}
    assert (guess.status_code, made.status_code, after.status_code) == (401, 204, 401)
    assert with_token.json() == {"name": "ada", "role": "admin", "is_user": True}


async def test_a_contestant_sees_their_own_submissions_and_acts_in_their_own_name(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        for name, role in (
            ("con", JudgeRole.CONTESTANT),
            ("cat", JudgeRole.CONTESTANT),
            ("jo", JudgeRole.JURY),
        ):
            await office.add(name, role)
        job_id = (await office.ask("con", "POST", "/submit", json=PROGRAM)).json()["job_id"]
        forged = await office.ask("cat", "POST", "/submit", json=PROGRAM | {"author": "con"})
        behalf = await office.ask("jo", "POST", "/submit", json=PROGRAM | {"author": "con"})
        seen = {who: await office.ask(who, "GET", f"/status/{job_id}") for who in ("con", "cat", "jo")}
        listed = await office.ask("cat", "GET", "/submissions?author=con")
        own = await office.ask("con", "GET", "/submissions")
        streamed = await office.ask("cat", "GET", f"/status/{job_id}/events")

    assert (forged.status_code, behalf.status_code) == (403, 202)
    assert {who: answer.status_code for who, answer in seen.items()} == {"con": 200, "cat": 404, "jo": 200}
    assert seen["cat"].json() == {"code": "not_found", "message": f"There is no submission {job_id}."}
    assert (listed.status_code, streamed.status_code) == (403, 404)
    assert [one["job_id"] for one in own.json()] == [behalf.json()["job_id"], job_id]


async def test_a_token_is_shown_once_and_ends_with_its_time_its_revocation_or_its_user(
    database: Database, tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(level="debug", form="json")
    async with open_office(database, tmp_path) as office:
        made: list[dict[str, Any]] = []
        for name in ("ann", "bob", "cem"):
            await office.ask(SERVER_TOKEN, "PUT", f"/judge/api/users/{name}", json={"role": "contestant"})
            answer = await office.ask(
                SERVER_TOKEN, "POST", f"/judge/api/users/{name}/tokens", json={"label": "laptop", "days": 2}
            )
            made.append(answer.json())
        ann, bob, cem = (one["token"] for one in made)

        async def known() -> list[int]:
            return [(await office.ask(one, "GET", "/judge/api/me")).status_code for one in (ann, bob, cem)]

        first = await known()
        listed = (await office.ask(SERVER_TOKEN, "GET", "/judge/api/users/ann/tokens")).text
        await office.ask(SERVER_TOKEN, "DELETE", f"/judge/api/tokens/{made[0]['token_id']}")
        await office.ask(SERVER_TOKEN, "DELETE", "/judge/api/users/bob")
        refused = await known()
        # A user that is enabled again cannot use the old token.
        await office.ask(SERVER_TOKEN, "PUT", "/judge/api/users/bob", json={"role": "contestant"})
        back = await known()
        clock.advance(3 * 86_400)
        expired = await known()
    with psycopg.connect(database.admin_url) as connection:
        kept = connection.execute("select t::text from fencepost.account_token t").fetchall()
        events = connection.execute("select a::text from fencepost.account_audit a").fetchall()
    said = capsys.readouterr()

    assert (first, refused, back, expired) == ([200] * 3, [401, 401, 200], [401, 401, 200], [401] * 3)
    everything = f"{listed}{kept}{events}{said.out}{said.err}"
    assert [token for token in (ann, bob, cem) if token in everything] == []


async def test_a_user_submits_as_fast_as_they_may_and_a_repeat_costs_nothing(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async with open_office(database, tmp_path, submit_burst=2, submits_per_minute=6) as office:
        for name, role in (
            ("con", JudgeRole.CONTESTANT),
            ("cat", JudgeRole.CONTESTANT),
            ("jo", JudgeRole.JURY),
        ):
            await office.add(name, role)

        async def submit(who: str, key: str, **changes: Any) -> int:
            answer = await office.ask(
                who, "POST", "/submit", json=PROGRAM | changes, headers={"Idempotency-Key": key}
            )
            if answer.status_code == 429:
                waits.append(int(answer.headers["Retry-After"]))
            return answer.status_code

        waits: list[int] = []
        missing = [await submit("con", f"m{i}", problem_id="no-such") for i in range(3)]
        allowed = [await submit("con", key) for key in ("a", "b", "c", "a")]
        others = [await submit(who, key) for who in ("cat", "jo", "jo", "jo") for key in (who,)]
        clock.advance(10)
        later = [await submit("con", key) for key in ("c", "d")]

    assert missing == [404] * 3
    assert allowed == [202, 202, 429, 202]
    assert others == [202] * 4
    assert later == [202, 429]
    # Six a minute: the next one comes within ten seconds.
    assert all(1 <= wait <= 10 for wait in waits)


async def test_a_body_larger_than_its_route_allows_is_refused_before_it_is_read(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path, source_max_bytes=1000) as office:
        await office.add("con", JudgeRole.CONTESTANT)
        most = SMALL_BYTES + 6000

        async def pieces(count: int) -> Any:
            for _ in range(count):
                yield b" " * 1000

        whole = await office.ask("con", "POST", "/submit", content=b" " * (most + 1))
        piecewise = await office.ask("con", "POST", "/submit", content=pieces(40))
        fitting = await office.ask("con", "POST", "/submit", content=b" " * most)
        program = await office.ask("con", "POST", "/submit", json=PROGRAM | {"code": "x" * 1001})

    assert (whole.status_code, piecewise.status_code) == (413, 413)
    assert (fitting.status_code, program.status_code, program.json()["field"]) == (400, 400, "code")


async def test_a_name_that_could_be_mistaken_is_refused(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office:
        odd = [
            (
                await office.ask(SERVER_TOKEN, "PUT", f"/judge/api/users/{name}", json={"role": "jury"})
            ).status_code
            for name in ("a%20b", "-a", "%3Cb%3E", "x" * 65)
        ]
        nobody = await office.ask(SERVER_TOKEN, "POST", "/judge/api/users/nobody/tokens", json={"label": "x"})
        users = await office.fp.run(ACCOUNTS.users(None, 10))

    assert (odd, nobody.status_code, users) == ([400] * 4, 404, [])
