"""The pages, as a browser without scripts uses them: everything that the API does can be done with forms."""

import asyncio
import io
import re
import zipfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from fencepost.embedded import Database
from fencepost.errors import NotFound
from fencepost.kernel import worker as kernel_worker
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost.testing import Clock
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge._grading import CaseResult
from fencepost_judge._judging import Judgement
from fencepost_judge._role import ACCOUNTS, JudgeRole
from fencepost_judge.pages import _submissions as submissions
from tests.integration.judge.judge_env import PROGRAM, Browser, JudgeEnv, open_office

OWNER = "judge/boot-1"
PASSWORD = "correct horse battery"


async def accounts_of(office: JudgeEnv) -> None:
    for name, role in (("con", JudgeRole.CONTESTANT), ("cat", JudgeRole.CONTESTANT), ("jo", JudgeRole.JURY)):
        await office.add(name, role)


def hidden_field(page: httpx.Response, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page.text)
    assert found is not None, page.text
    return found[1]


def place_of(answer: httpx.Response) -> str:
    """Where a form has led."""
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def judged(office: JudgeEnv, database: Database, job_id: int, judgement: Judgement) -> None:
    """As a worker would."""
    with database.connect() as connection:
        connection.execute("select * from fencepost.job_claim(%s, %s)", (job_id, OWNER))
    await office.fp.run(judge_calls.put_result(job_id, 1, OWNER, judgement))


async def test_a_problem_is_read_and_a_program_sent_once_however_often_the_button_is_clicked(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        async with office.browser("con") as con:
            listed = await con.get("/judge")
            page = await con.get("/judge/problems/echo")
            form = {name: hidden_field(page, name) for name in ("problem_id", "contest", "key")}
            program = {"language": "python", "code": "print(\r\n  input())"}
            places = [
                place_of(await con.send("/judge/submissions", **form, **program, input="")) for _ in "12"
            ]
            changed = {**form, **program, "code": "print(7)"}
            places.append(place_of(await con.send("/judge/submissions", **changed)))
            monkeypatch.setattr(submissions, "STREAM_SECONDS", 0.01)
            stream = await con.get(f"{places[0]}/events")
            shown = await con.get(places[0])
            history = await con.get("/judge/submissions")
            again = await con.get(f"/judge/problems/echo?from={places[0].rpartition('/')[2]}")
            unknown = [await con.get(path) for path in ("/judge/problems/nothing", "/judge/submissions/999")]

    assert "/judge/problems/echo" in listed.text
    assert "all or nothing" in page.text
    assert places[0] == places[1] != places[2]
    assert stream.status_code == 200, "and it has ended, though nothing is judged"
    assert "print(\n  input())" in shown.text, "a text area's line ends are not the program's"
    assert "Submission" in shown.text
    assert "data-follow" in shown.text
    assert f'href="{places[0]}"' in history.text
    assert "print(\n  input())</textarea>" in again.text
    assert [one.status_code for one in unknown] == [404, 404]


async def test_what_is_refused_comes_back_with_its_reason_and_its_program(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path, submit_burst=1, submits_per_minute=0.001) as office:
        await accounts_of(office)
        async with office.browser("con") as con:
            wrong = await con.send("/judge/submissions", problem_id="echo", language="cobol", code="MOVE 1")
            first = await con.send("/judge/submissions", **PROGRAM)
            fast = await con.send("/judge/submissions", **PROGRAM)
            custom_run = await con.send("/judge/custom-runs", **PROGRAM, input="7")

    assert (wrong.status_code, first.status_code, fast.status_code, custom_run.status_code) == (
        400,
        303,
        429,
        429,
    )
    assert "MOVE 1</textarea>" in wrong.text
    for answer in (fast, custom_run):
        assert "submits too fast" in answer.text
        assert "print(input())</textarea>" in answer.text
    assert "7</textarea>" in custom_run.text


async def test_a_custom_run_shows_its_outcome_with_the_program_still_at_hand(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        async with office.browser("con") as con, office.browser("cat") as cat:
            place = place_of(await con.send("/judge/custom-runs", **PROGRAM, input="1\r\n2"))
            job_id = int(place.rpartition("/")[2].partition("?")[0])
            waiting = await con.get(place)
            kept = await office.judging.custom_runs.get(job_id)
            hidden = await cat.get(place)

    assert "problem=echo" in place
    assert "waiting for a box" in waiting.text
    assert "print(input())</textarea>" in waiting.text
    assert (kept.input, hidden.status_code) == ("1\n2", 404)


async def test_verdict_times_and_memory_are_shown_and_no_answer(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        job_id = await office.judging.submit("echo", "python", {"main.py": "1"}, author="con")
        cases = [
            CaseResult(name="sample/1", verdict="WA", time_ms=1234, mem_kb=2048, message="line 1 differs"),
            CaseResult(name="2", verdict="WA", time_ms=5, mem_kb=512, message="42 was right"),
        ]
        verdict = Judgement(verdict="WA", time_ms=1234, mem_kb=2048, cases=cases)
        await judged(office, database, job_id, verdict)
        async with office.browser("jo") as jo:
            whole = (await jo.get(f"/judge/submissions/{job_id}")).text
        async with office.browser("con") as con, office.browser("cat") as cat:
            shown = (await con.get(f"/judge/submissions/{job_id}")).text
            stream = await con.get(f"/judge/submissions/{job_id}/events")
            others = [await cat.get(f"/judge/submissions/{job_id}{end}") for end in ("", "/events")]

    for words in ("wrong answer", "1,234 ms", "2.0 MiB", "line 1 differs"):
        assert words in shown
    assert ["42 was" in told for told in (whole, shown, stream.text)] == [True, False, False]
    assert "data-follow" not in shown
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert '"verdict": "WA"' in stream.text
    assert [one.status_code for one in others] == [404, 404]


async def test_all_watchers_share_one_look_and_one_that_leaves_ends_no_other(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        watched = [
            await office.judging.submit("echo", "python", {"main.py": "1"}, author="con") for _ in range(3)
        ]
        looks: list[Sequence[int]] = []
        look = judge_calls.get_standings

        def counted(job_ids: Sequence[int]) -> Call[list[judge_calls.SubmissionStanding]]:
            looks.append(job_ids)
            return look(job_ids)

        monkeypatch.setattr(judge_calls, "get_standings", counted)
        together = office.judging.submission_watch
        leaver = asyncio.create_task(together.next(watched[0]))
        staying = [asyncio.create_task(together.next(job_id)) for job_id in (*watched, *watched)]
        unknown = asyncio.create_task(together.next(10**9))
        await asyncio.sleep(0)
        leaver.cancel()
        told = await asyncio.gather(*staying)
        with pytest.raises(NotFound, match="no submission"):
            await unknown

    assert [one.job_id for one in told] == [*watched, *watched]
    assert looks == [[*watched, 10**9]]


async def test_a_jury_looks_judges_again_and_decides(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        job_id = await office.judging.submit("echo", "python", {"main.py": "1"}, author="con")
        await judged(office, database, job_id, Judgement(verdict="WA"))
        async with office.browser("jo") as jo:
            everybody = await jo.get("/judge/submissions")
            preview = await jo.get("/judge/rejudge?problem_id=echo&author=&reason=test+7")
            nothing = await jo.get("/judge/rejudge?reason=test+7")
            places = [
                place_of(await jo.send("/judge/rejudgings", problem_id="echo", reason="test 7")) for _ in "12"
            ]
            early = await jo.send(f"{places[0]}/apply", confirmed="yes")
            waiting = await jo.get(places[0])
            await judged(office, database, job_id + 1, Judgement(verdict="AC"))
            compared = await jo.get(places[0])
            after = [
                await jo.get(place_of(await jo.send(f"{place}/{audit_entry}", confirmed="yes")))
                for place, audit_entry in zip(places, ("apply", "drop"), strict=True)
            ]
        standing = await office.judging.standing(job_id)

    assert f"/judge/submissions/{job_id}" in everybody.text
    assert "1 submission is meant" in preview.text
    assert (nothing.status_code, early.status_code) == (400, 409)
    assert "0 of 1 judged" in waiting.text
    assert "/apply" not in waiting.text
    assert "/apply" in compared.text
    assert re.search(r">WA</abbr>.*>AC</abbr>", compared.text, re.S)
    assert "1 results were replaced" in after[0].text
    assert 'state applied"' in after[0].text
    assert 'state dropped"' in after[1].text
    assert standing.result["verdict"] == "AC"


async def test_a_contest_is_made_joined_frozen_and_thawed(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    at = "/judge/contests/autumn"
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        form = {
            "contest": "autumn",
            "title": "Autumn",
            "scoring": "icpc",
            "penalty_minutes": "20",
            "problems": "A echo\r\n",
        }
        for hours, name in ((1, "starts_at"), (3, "freeze_at"), (4, "ends_at")):
            form[name] = (clock.now() + _hours(hours)).strftime("%Y-%m-%dT%H:%M")
        async with office.browser("jo") as jo, office.browser("con") as con:
            made = place_of(await jo.send("/judge/contest", **form))
            before = [await who.get(at) for who in (con, jo)]
            hidden = await con.get("/judge/problems/echo")
            clock.advance(3601 + 60)
            joined = place_of(await con.send(f"{at}/join"))
            sent = place_of(await con.send("/judge/submissions", **PROGRAM, contest="autumn"))
            await judged(office, database, _id(sent), Judgement(verdict="WA"))
            clock.advance(7200)
            late = place_of(await con.send("/judge/submissions", **PROGRAM, contest="autumn"))
            await judged(office, database, _id(late), Judgement(verdict="AC"))
            boards = [await who.get(f"{at}/scoreboard") for who in (con, jo)]
            early = await jo.send(f"{at}/unfreeze", confirmed="yes")
            clock.advance(3600)
            thawed = place_of(await jo.send(f"{at}/unfreeze", confirmed="yes"))
            final = await con.get(thawed)
            changed = await jo.get("/judge/contest?contest=autumn")

    assert (made, joined) == (at, at)
    assert ["The problems are shown when the contest begins" in page.text for page in before] == [True, False]
    assert (hidden.status_code, early.status_code) == (404, 400)
    assert "1 pending" in boards[0].text
    assert "1 pending" not in boards[1].text
    assert "Frozen since" in boards[0].text
    assert "solved in minute" in final.text
    assert "A echo" in changed.text


async def test_applying_a_rejudging_shows_the_standings_before_and_after(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        now = clock.now()
        form = {"contest": "autumn", "title": "Autumn", "scoring": "icpc", "problems": "A echo"}
        form |= {"penalty_minutes": "20", "freeze_at": "", "starts_at": now.strftime("%Y-%m-%dT%H:%M")}
        form |= {"ends_at": (now + _hours(4)).strftime("%Y-%m-%dT%H:%M")}
        async with office.browser("jo") as jo, office.browser("con") as con:
            place_of(await jo.send("/judge/contest", **form))
            clock.advance(61)
            place_of(await con.send("/judge/contests/autumn/join"))
            sent = place_of(await con.send("/judge/submissions", **PROGRAM, contest="autumn"))
            await judged(office, database, _id(sent), Judgement(verdict="WA"))
            place = place_of(await jo.send("/judge/rejudgings", problem_id="echo", reason="test 7"))
            await judged(office, database, _id(sent) + 1, Judgement(verdict="AC"))
            asked = await jo.send(f"{place}/apply")
            board = await con.get("/judge/contests/autumn/scoreboard")
            applied = await jo.get(place_of(await jo.send(f"{place}/apply", confirmed="yes")))

    assert "Standings of Autumn" in asked.text
    assert re.search(r"<td>con</td><td>place 1, 0 solved, 0 minutes</td><td>place 1, 1 solved", asked.text)
    assert "1 result of rejudging 1 become the standing ones." in asked.text
    assert "solved in minute" not in board.text, "a question changes nothing"
    assert 'state applied"' in applied.text


async def test_a_question_is_asked_answered_and_told_to_all(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    at = "/judge/contests/autumn"
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        async with office.browser("jo") as jo, office.browser("con") as con, office.browser("cat") as cat:
            now = clock.now()
            form = {"contest": "autumn", "title": "Autumn", "problems": "A echo"}
            form |= {"starts_at": now.strftime("%Y-%m-%dT%H:%M"), "scoring": "ioi"}
            form |= {"ends_at": (now + _hours(2)).strftime("%Y-%m-%dT%H:%M"), "freeze_at": ""}
            place_of(await jo.send("/judge/contest", **form))
            for who in (con, cat):
                place_of(await who.send(f"{at}/join"))
            place_of(await con.send(f"{at}/clarifications", label="A", text="Is 0 even?"))
            asked = await jo.get(f"{at}/clarifications")
            answer = re.search(r'action="([^"]+/answer)"', asked.text)
            assert answer is not None
            place_of(await jo.send(answer[1], text="It is."))
            twice = await jo.send(answer[1], text="It is not.")
            place_of(await jo.send(f"{at}/announcements", text="Lunch is ready."))
            seen = [(await who.get(f"{at}/clarifications")).text for who in (con, cat)]

    assert twice.status_code == 409
    assert ["It is." in page for page in seen] == [True, False]
    assert ["Lunch is ready." in page for page in seen] == [True, True]


def package(members: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return content.getvalue()


async def send_package(browser: Browser, content: bytes, **fields: str) -> httpx.Response:
    fields["form_token"] = fields.get("form_token") or await browser.form_token()
    files = {"package": ("Two Sums.zip", content, "application/zip")}
    return await browser.client.post("/judge/import", data=fields, files=files)


async def test_a_package_is_imported_from_a_zip_and_a_hostile_one_is_refused_by_its_member(
    database: Database, tmp_path: Path
) -> None:
    good = package({"1.in": "1 2\n", "1.ans": "3\n"})
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        async with office.browser("jo") as jo:
            made = place_of(await send_package(jo, good))
            named = place_of(await send_package(jo, good, slug="sums"))
            page = await jo.get(made)
            evil = await send_package(jo, package({"1.in": "", "../../evil": "x"}))
            noise = await send_package(jo, b"no zip at all")
            without = await jo.send("/judge/import", slug="")
            forged = await send_package(jo, good, form_token="made up", slug="forged")
            unchanged = await jo.get("/judge/problems/forged")

    assert (made, named) == ("/judge/problems/two-sums", "/judge/problems/sums")
    assert "version 1" in page.text
    assert (evil.status_code, noise.status_code, without.status_code) == (400, 400, 400)
    assert "../../evil" in evil.text
    assert (forged.status_code, unchanged.status_code) == (403, 404)


async def test_an_admin_takes_judges_out_of_service_and_no_other_worker(
    database: Database, tmp_path: Path
) -> None:
    with database.connect_admin() as admin:
        admin.execute(
            "select fencepost.judge_worker_enter('judge@node7:41:0a', 'node7', '1', '{}', 2, 2, 'box', '[]',"
            " '1 hour')"
        )
    async with open_office(database, tmp_path, app_token=None) as office, office.browser() as ada:
        why = {"reason": "a new disk"}
        place_of(await ada.send("/judge/workers/disable", target="judge@node7", confirmed="yes", **why))
        shown = (await ada.get("/judge/workers")).text
        foreign = await ada.send("/judge/workers/disable", target="worker@node7", confirmed="yes", **why)
        without = await ada.send("/judge/workers/drain", target="judge@node7", reason="")
        held = await office.judging.fp.run(kernel_worker.standing("judge@node7:41:0a"))
        place_of(await ada.send("/judge/workers/enable", target="judge@node7", **why))
        after = await office.judging.fp.run(kernel_worker.standing("judge@node7:41:0a"))

    assert "operator@judge: a new disk" in shown
    assert 'action="/judge/workers/enable"' in shown
    assert (foreign.status_code, without.status_code) == (404, 400)
    assert held is not None
    assert (held.state, held.actor, after) == ("disabled", "operator@judge", None)


async def test_the_operator_is_asked_nothing_until_there_is_a_user(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path, app_token=None) as office, office.browser() as operator:
        before = [await operator.get(path) for path in ("/judge", "/judge/users", "/judge/workers")]
        sent = place_of(await operator.send("/judge/submissions", **PROGRAM))
        place_of(await operator.send("/judge/users", name="ada", role="admin", password=PASSWORD))
        after = await operator.get("/judge/users")
        wrong = await operator.log_in("ada", "not this one at all")
        place_of(await operator.log_in("ada", PASSWORD))
        inside = await operator.get("/judge/users")
        own = await operator.get(sent)

    assert [page.status_code for page in before] == [200, 200, 200]
    assert "make it an admin with a password" in before[1].text
    assert place_of(after) == "/judge/login?next=%2Fjudge%2Fusers"
    assert (wrong.status_code, inside.status_code, own.status_code) == (403, 200, 200)


async def test_a_user_that_changes_the_password_stays_and_other_sessions_end(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        async with office.browser("con") as here, office.browser("con") as there:
            wrong = await here.send("/judge/account/password", old="guess", password=PASSWORD)
            short = await here.send("/judge/account/password", old=office.tokens["con"], password="short")
            place_of(await here.send("/judge/account/password", old=office.tokens["con"], password=PASSWORD))
            stays, gone = await here.get("/judge"), await there.get("/judge")
            place_of(await there.log_in("con", PASSWORD))
            with database.connect() as connection:
                run(connection, ACCOUNTS.disable_user("con", "jo"))
            locked = [await one.get("/judge") for one in (here, there)]
            refused = await there.log_in("con", PASSWORD)

    assert (wrong.status_code, short.status_code) == (400, 400)
    assert (stays.status_code, gone.status_code) == (200, 303)
    assert [page.status_code for page in locked] == [303, 303]
    assert refused.status_code == 403


async def test_guessed_passwords_lock_out_no_user_with_a_known_browser(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        async with office.browser("con") as here, office.browser() as stranger:
            with database.connect() as connection:
                for _ in range(10):
                    run(connection, ACCOUNTS.begin_login("con", "192.0.2.1", window_seconds=900))
                connection.commit()
            refused = await stranger.log_in("con", office.tokens["con"])
            place_of(await here.send("/judge/account/password", old=office.tokens["con"], password=PASSWORD))
            wrong = [await here.send("/judge/account/password", old="guess", password="x") for _ in range(4)]
            place_of(await here.send("/judge/logout"))
            place_of(await here.log_in("con", PASSWORD))

    assert refused.status_code == 429
    assert ["Too many attempts" in one.text for one in wrong] == [False, False, False, True]


async def test_one_user_has_so_many_streams_open(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        async with office.browser("con") as con:
            place = place_of(await con.send("/judge/submissions", **PROGRAM))
            ends = [
                office.judging.streams.begin("con") for _ in range(office.judging.settings.streams_per_user)
            ]
            job = place.rpartition("/")[2]
            refused = [
                await con.get(f"{place}/events"),
                await office.ask(office.tokens["con"], "GET", f"/status/{job}/events"),
            ]
            for end in ends:
                end()

    assert [one.status_code for one in refused] == [429, 429]
    assert "JUDGE_STREAMS_PER_USER" in refused[1].text


async def test_an_admin_makes_and_revokes_tokens_and_locks_out(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        await office.add("ada", JudgeRole.ADMIN)
        async with office.browser("ada") as ada:
            made = await ada.send("/judge/users/con/tokens", label="laptop", days="2")
            found = re.search(r"fpj_[\w-]+", made.text)
            assert found is not None
            works = await office.ask(found[0], "GET", "/judge/api/me")
            page = await ada.get("/judge/users/con")
            revoke = re.findall(r'action="(/judge/tokens/\d+/revoke)"', page.text)
            for place in revoke:
                place_of(await ada.send(place, confirmed="yes"))
            over = await office.ask(found[0], "GET", "/judge/api/me")
            place_of(await ada.send("/judge/users/cat/lock", confirmed="yes"))
            itself = await ada.send("/judge/users/ada/lock", confirmed="yes")
            listed = await ada.get("/judge/users")

    assert (works.json()["name"], over.status_code) == ("con", 401)
    assert found[0] not in page.text
    assert itself.status_code == 400
    assert "locked" in listed.text


def _hours(count: int) -> timedelta:
    return timedelta(hours=count)


def _id(place: str) -> int:
    return int(place.rpartition("/")[2].partition("?")[0])
