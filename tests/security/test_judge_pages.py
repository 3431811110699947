"""The judge's pages against strangers: every page and role, forms of others, markup, secrets."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from fencepost.embedded import Database
from fencepost.logs import configure_logging
from fencepost_judge import _contests as contests
from fencepost_judge import _discovery_kernel as discovery_kernel
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge import _jury as jury
from fencepost_judge._access import OPEN_PAGES, PAGES, PAGES_ROOT
from fencepost_judge._discovery import WorkerInfo
from fencepost_judge._grading import CaseResult
from fencepost_judge._judging import Judgement
from fencepost_judge._problem import StatementFile
from fencepost_judge._rejudging import Filter
from fencepost_judge._role import JudgeRole
from fencepost_judge._scoreboard import Contest, ContestProblem, Scoring
from tests.integration.judge.judge_env import PROGRAM, Browser, JudgeEnv, open_office

ROLES = {None: 0, "con": 1, "jo": 2, "ada": 3}
"""The user at the browser, and its rights."""
NAMES = (
    "job_id",
    "slug",
    "name",
    "token_id",
    "generation",
    "contest",
    "clarification_id",
    "decision",
    "interval_id",
)
EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}</pre></textarea>"
SHOWN = [path for method, path in PAGES if method == "GET" and not path.endswith("/events")]
OWNER = "judge/boot-1"
WORKER = WorkerInfo(
    owner=EVIL,
    host=EVIL,
    version=EVIL[:64],
    languages={EVIL: EVIL},
    slots=1,
    processors=1,
    sandbox=EVIL[:64],
    degraded=[EVIL],
)
PASSWORD = "correct horse battery"


async def accounts_of(office: JudgeEnv) -> None:
    for name, role in (("con", JudgeRole.CONTESTANT), ("jo", JudgeRole.JURY), ("ada", JudgeRole.ADMIN)):
        await office.add(name, role)


async def browsers(office: JudgeEnv, closing: AsyncExitStack) -> dict[str | None, Browser]:
    return {who: await closing.enter_async_context(office.browser(who)) for who in ROLES}


async def send(browser: Browser, method: str, path: str, token: str | None) -> int:
    headers = {"x-form-token": token} if token is not None else {}
    answer = await browser.client.request(method, path, headers=headers)
    return answer.status_code


async def test_every_page_admits_the_roles_of_the_table_and_no_others(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office, AsyncExitStack() as closing:
        await accounts_of(office)
        got: dict[tuple[str, str, str | None], int] = {}
        unbound: dict[tuple[str, str | None], int] = {}
        for who, browser in (await browsers(office, closing)).items():
            token = await browser.form_token()
            # The last: it ends the session.
            for method, path in sorted(PAGES, key=lambda line: line[1] == f"{PAGES_ROOT}/logout"):
                # Nothing that these name exists, so that nothing is changed on the way.
                place = path.format(**dict.fromkeys(NAMES, "0"))
                if method == "POST":
                    unbound[path, who] = await send(browser, method, place, None)
                got[method, path, who] = await send(browser, method, place, token)
    expected = {
        (method, path, who): 303 if rank == 0 else 403
        for (method, path), access in PAGES.items()
        for who, rank in ROLES.items()
        if rank < access.role
    }

    strangers = {key: status for key, status in got.items() if ROLES[key[2]] == 0}
    assert set(strangers.values()) == {303}, "a stranger is sent to the login"
    assert {key: status for key, status in got.items() if ROLES[key[2]] and status == 403} == {
        key: status for key, status in expected.items() if status == 403
    }
    assert not [key for key, status in got.items() if status >= 500]
    assert {status for (_, who), status in unbound.items() if who} == {403}, "a form without its token"


def test_a_contestant_changes_nothing_but_what_is_their_own() -> None:
    changing = {
        path for (method, path), access in PAGES.items() if method == "POST" and access.role < JudgeRole.JURY
    }

    assert changing == {
        f"{PAGES_ROOT}/submissions",
        f"{PAGES_ROOT}/submissions/{{job_id}}/token",
        f"{PAGES_ROOT}/custom-runs",
        f"{PAGES_ROOT}/sample-runs",
        f"{PAGES_ROOT}/contests/{{contest}}/join",
        f"{PAGES_ROOT}/contests/{{contest}}/clarifications",
        f"{PAGES_ROOT}/account/password",
        f"{PAGES_ROOT}/logout",
    }
    assert {path for _, path in OPEN_PAGES} == {
        f"{PAGES_ROOT}/contests/{{contest}}/scoreboard",
        f"{PAGES_ROOT}/login",
        f"{PAGES_ROOT}/login/sso",
        f"{PAGES_ROOT}/login/sso/back",
        f"{PAGES_ROOT}/static/{{name}}",
    }
    assert not [path for (_, path), one in PAGES.items() if "users" in path and one.role < JudgeRole.ADMIN]


async def test_a_form_of_another_session_or_site_does_nothing(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        async with office.browser("con") as con, office.browser("jo") as jo, office.browser() as stranger:
            token, other = await con.form_token(), await jo.form_token()
            borrowed = await con.send("/judge/submissions", form_token=other, **PROGRAM)
            headers = {"sec-fetch-site": "cross-site"}
            elsewhere = await con.client.post(
                "/judge/submissions", data={**PROGRAM, "form_token": token}, headers=headers
            )
            # A login prepared by another account would put that account under my work.
            login = {"name": "con", "password": office.tokens["con"]}
            prepared = await stranger.client.post("/judge/login", data=login)
            history = await con.get("/judge/submissions")

    assert [one.status_code for one in (borrowed, elsewhere, prepared)] == [403, 403, 403]
    assert "Nothing was sent yet" in history.text


async def test_the_cookies_are_for_the_server_alone_and_cannot_be_made_up(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        async with office.browser() as stranger:
            entered = await stranger.log_in("con", office.tokens["con"])
            cookies = entered.headers.get_list("set-cookie")
            session = stranger.client.cookies["fencepost_judge_session"]
            out = await stranger.send("/judge/logout")
            stranger.client.cookies.set("fencepost_judge_session", session)
            stolen = await stranger.get("/judge")
            stranger.client.cookies.clear()
            stranger.client.cookies.set("fencepost_judge_session", session.swapcase())
            made_up = await stranger.get("/judge")

    assert cookies
    assert all("HttpOnly" in one and "SameSite=lax" in one for one in cookies)
    assert [one.status_code for one in (out, stolen, made_up)] == [303, 303, 303]
    assert made_up.headers["location"].startswith("/judge/login")


async def test_the_login_tells_nothing_leads_nowhere_else_and_is_slow_to_guess(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        async with office.browser() as stranger:
            guesses = [await stranger.log_in(name, "not this one at all") for name in ("con", "nobody")]
            foreign = await stranger.log_in("jo", office.tokens["con"])
            evil = (
                "https://evil.example/",
                "//evil.example/judge",
                "/judge//evil",
                "/judge\\evil",
                "/courts",
            )
            led = [
                await stranger.send("/judge/login", name="con", password=office.tokens["con"], next=place)
                for place in evil
            ]
            for _ in range(10):
                await stranger.log_in("ada", "wrong")
            refused = await stranger.log_in("ada", office.tokens["ada"])

    assert [one.status_code for one in (*guesses, foreign)] == [403, 403, 403]
    assert all("Name, password or token is wrong." in one.text for one in (*guesses, foreign))
    assert {one.headers["location"] for one in led} == {"/judge"}
    assert refused.status_code == 429


async def evil_server(office: JudgeEnv, database: Database) -> AsyncIterator[str]:
    """A system in which every user has written what it should not; the pages that show it."""
    folder = office.judging.settings.workspace
    assert folder is not None
    place = folder.parent / "evil"
    place.mkdir()
    (place / "1.in").write_text(EVIL)
    (place / "1.ans").write_text(EVIL)
    await office.judging.import_problem(place, slug="evil")
    found = (await office.judging.problem("evil")).problem
    statement = f"# {EVIL}\n\n{EVIL}\n\n$\\text{{{EVIL}}}$ $\\href{{javascript:alert(1)}}{{x}}$\n\n"
    statement += f"```{EVIL}\n{EVIL}\n```\n\n[a](javascript:alert(3)) ![b](http://evil.example/x.png)\n\n"
    statement += f'<http://x.example/"onclick=alert(4)>\n\n| {EVIL} |\n|---|\n| `{EVIL}` |\n'
    attached = {"evil.html": office.judging.store.put(EVIL.encode())}
    written = [StatementFile(language="en", format="html", content=attached["evil.html"])]
    changes = {"title": EVIL, "statement": statement, "attachments": attached, "statements": written}
    await office.fp.run(judge_calls.put_problem(found.model_copy(update=changes)))
    yield "/judge"
    yield "/judge/problems/evil"
    yield "/judge/problems/evil?statement=en.html"
    cases = [CaseResult(name=EVIL, verdict="WA", message=EVIL, errors=EVIL)]
    for author in ("con", EVIL[:100]):
        job_id = await office.judging.submit("evil", "python", {"main.py": EVIL}, author=author)
        with database.connect() as connection:
            connection.execute("select * from fencepost.job_claim(%s, %s)", (job_id, OWNER))
        verdict = Judgement(verdict="CE", message=EVIL, cases=cases)
        await office.fp.run(judge_calls.put_result(job_id, 1, OWNER, verdict))
        yield f"/judge/submissions/{job_id}"
        yield f"/judge/problems/evil?from={job_id}"
    opened = await office.judging.rejudge(Filter(problem="evil"), reason=EVIL, actor=EVIL)
    yield f"/judge/rejudgings/{opened.generation}?everything=true"
    now = datetime.now(UTC)
    contest = Contest(
        slug="evil",
        title=EVIL,
        scoring=Scoring.IOI,
        starts_at=now - timedelta(hours=1),
        ends_at=now + timedelta(hours=1),
        problems=[ContestProblem("A", "evil")],
    )
    await office.fp.run(contests.put_contest(contest, "jo"))
    await office.fp.run(contests.join("evil", EVIL[:100]))
    await office.fp.run(contests.ask("evil", "A", EVIL[:100], EVIL))
    await office.fp.run(contests.announce("evil", None, EVIL, EVIL))
    into = await office.judging.submit("evil", "python", {"main.py": EVIL}, author=EVIL[:100], contest="evil")
    with database.connect() as connection:
        connection.execute("select * from fencepost.job_claim(%s, %s)", (into, OWNER))
    await office.fp.run(judge_calls.put_result(into, 1, OWNER, Judgement(verdict="AC", cases=cases)))
    await office.fp.run(jury.note(into, EVIL, EVIL))
    yield f"/judge/submissions/{into}"
    at = now + timedelta(minutes=1)
    await office.fp.run(contests.remove_interval("evil", None, at, at + timedelta(minutes=1), EVIL, EVIL))
    parts = ("scoreboard", "clarifications", "teams", "unverified", "balloons", "clock", "news", "archive")
    for page in ("", *(f"/{part}" for part in parts)):
        yield f"/judge/contests/evil{page}"
    custom_run = await office.judging.custom_runs.submit("python", {"main.py": EVIL}, EVIL, author="ada")
    yield f"/judge/custom-runs/{custom_run}?problem=evil"
    yield f"/judge/sample-runs?runs={custom_run}&problem=evil"
    yield f"/judge/submissions/{into}/test-runs?run={custom_run}&test=1"
    for path in (
        "submissions",
        "submissions?author=" + "%3Cscript%3E",
        "contests",
        "rejudgings",
        "users",
        "contest?contest=evil",
    ):
        yield f"/judge/{path}"
    await office.fp.run(discovery_kernel.enter(WORKER, 3600))
    evil = "problems/evil"
    for path in (f"{evil}/attachments/evil.html", f"{evil}/statements/en.html"):
        yield f"/judge/{path}"
    for path in ("workers", "import", "account", "users/con"):
        yield f"/judge/{path}"
    async for verification in evil_verifications(office, database, place / "1.in"):
        yield verification
    yield f"/judge/rejudge?author={'%3Cscript%3Ealert(1)'}&reason=%3Cscript%3Ealert(1)%3C/script%3E"
    yield "/judge/problems/%3Cscript%3Ealert(1)"
    yield "/judge/submissions?before=%3Cscript%3Ealert(1)"


async def evil_verifications(office: JudgeEnv, database: Database, package: Path) -> AsyncIterator[str]:
    """What a package's names make of a report, of a refusal, and of the lines while a judge runs it."""
    text = f"# {EVIL}\n\n{EVIL}\n\n| {EVIL} |\n| --- |\n| {EVIL} |\n\n[a](javascript:alert(3))\n"
    told: tuple[tuple[str, dict[str, Any]], ...] = (
        ("judge_verification_done", {"right": 1, "wrong": 1, "skipped": 0, "text": text}),
        ("judge_verification_done", {"refused": EVIL}),
        ("job_progress", {"done": 0, "total": 1, "lines": [EVIL]}),
    )
    for function, document in told:
        job_id = await office.judging.verifications.submit(package, "evil", None, actor=EVIL)
        with database.connect() as connection:
            connection.execute("select * from fencepost.job_claim(%s, %s)", (job_id, OWNER))
            call = sql.SQL("select fencepost.{}(%s, 1, %s, %s)").format(sql.Identifier(function))
            connection.execute(call, (job_id, OWNER, Jsonb(document)))
        yield f"/judge/verifications/{job_id}"
        if "text" in document:
            yield f"/judge/verifications/{job_id}/report"
    yield "/judge/verifications"


async def test_what_people_write_is_shown_and_never_run(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        seen, visited = 0, set[str]()
        async with office.browser("ada") as ada:
            async for path in evil_server(office, database):
                page = await ada.get(path)
                assert page.status_code < 500, path
                if page.status_code == 200:
                    visited |= {one for one in SHOWN if form_of(one).fullmatch(path.partition("?")[0])}
                if "/attachments/" in path or "/statements/" in path:
                    assert page.headers["content-disposition"].startswith("attachment"), page.headers
                    assert page.headers["content-type"] == "application/octet-stream"
                    continue
                if path.endswith("/report"):
                    assert page.headers["content-disposition"] == 'attachment; filename="evil.md"', (
                        page.headers
                    )
                    assert page.headers["content-type"].startswith("text/markdown")
                    assert page.headers["x-content-type-options"] == "nosniff"
                    continue
                if path.endswith(("/archive", "/news")):
                    assert page.headers["content-type"] in ("application/zip", "application/json")
                    assert page.headers["x-content-type-options"] == "nosniff"
                    continue
                keeps_to_itself(path, page.headers, page.text)
                seen += "&lt;script&gt;alert(1)" in page.text
            await ada.send("/judge/users/con/tokens", label=EVIL[:100])
            labelled = await ada.get("/judge/users/con")
            keeps_to_itself("a token", labelled.headers, labelled.text)

    assert seen > 10, "the text was on the pages, escaped"
    assert visited == set(SHOWN), "every page of the table was looked at"


def form_of(route: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{\w+\}", "[^/]+", route))


class Markup(HTMLParser):
    """The tags that a browser would see, and the attributes of each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def keeps_to_itself(path: str, headers: Any, text: str) -> None:
    """Nothing of what came in became markup, and the browser is told to run nothing of it either."""
    for tag, attributes in Markup(text).tags:
        assert tag not in {"iframe", "object", "embed", "base", "svg", "style"}, (path, tag)
        assert tag != "script" or (attributes.get("src") or "").startswith(f"{PAGES_ROOT}/static/"), path
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (path, tag)
        for name in {"href", "src", "action", "formaction"} & set(attributes):
            target = attributes[name] or ""
            assert target.startswith(("/", "#", "?", "http://x.example/")), (path, tag, target)
            assert not target.startswith("//"), (path, tag, target)
    assert "49" not in re.findall(r">(\d+)<", text), path
    policy = headers["content-security-policy"]
    nonce = re.search(r"script-src 'nonce-([^']+)';", policy)
    assert nonce is not None, path
    assert set(re.findall(r'nonce="([^"]+)"', text)) <= {nonce[1]}, path
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
    assert headers["cache-control"] == "no-store"


async def test_no_secret_is_in_a_log_or_on_a_page(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(level="debug", form="json")
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        async with office.browser("ada") as ada:
            made = await ada.send("/judge/users/con/tokens", label="laptop")
            token = re.search(r"fpj_[\w-]+", made.text)
            assert token is not None
            await ada.send("/judge/users", name="con", role="contestant", password=PASSWORD)
            await ada.log_in("con", PASSWORD + "x")
            await ada.log_in("con", PASSWORD)
            await ada.send("/judge/account/password", old=PASSWORD, password=PASSWORD + "y")
            pages = [(await ada.get(path)).text for path in ("/judge", "/judge/account")]
            session = ada.client.cookies["fencepost_judge_session"]
    with psycopg.connect(database.admin_url) as connection:
        events = connection.execute("select array_agg(e::text) from fencepost.event e").fetchone()
    out = capsys.readouterr()
    said = out.out + out.err + "".join(pages) + str(events)

    for secret in (PASSWORD, token[0], session, session.partition(".")[0], *office.tokens.values()):
        assert secret not in said


HOSTILE = [
    "",
    "-1",
    "9223372036854775808",
    "1e9",
    "NaN",
    "x" * 3000,
    "%00",
    "%ff",
    "ü",
    "'; --",
    "..",
    "2030",
    "true",
]
FIELDS = [
    "before",
    "after",
    "author",
    "contest",
    "from",
    "everything",
    "reason",
    "submissions",
    "problem_id",
    "problem",
    "next",
]


async def test_no_request_makes_a_page_fail(database: Database, tmp_path: Path) -> None:
    """What no page of ours would send is answered, and never with a failure of ours."""
    async with open_office(database, tmp_path) as office:
        await accounts_of(office)
        async with office.browser("ada") as ada:
            token = await ada.form_token()
            lines = [line for line in PAGES if not line[1].endswith(("/events", "/logout"))]
            for number, (method, path) in enumerate(lines):
                for turn in range(4):
                    value = HOSTILE[(number + 3 * turn) % len(HOSTILE)]
                    place = re.sub(r"\{[^}]+\}", value or "x", path)
                    query = f"?{FIELDS[(number + turn) % len(FIELDS)]}={value}"
                    body = dict.fromkeys(FIELDS, value) if method == "POST" else None
                    answer = await ada.client.request(
                        method, place + query, data=body, headers={"x-form-token": token}
                    )
                    assert answer.status_code < 500, (method, place[:80], query[:80], answer.text[-600:])
