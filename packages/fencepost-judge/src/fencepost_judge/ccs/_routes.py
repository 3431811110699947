"""The routes of the Contest API. Spectators read what is public without an account."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from fencepost.errors import FencepostError, InvalidInput, NotFound
from fencepost_judge import _contests as contests
from fencepost_judge import _teams as teams
from fencepost_judge import _visibility as visibility
from fencepost_judge._authentication import Authentication, told_to
from fencepost_judge._contest_api import Question, ask_as
from fencepost_judge._problem import Slug
from fencepost_judge._role import JudgeRole, JudgeVisitor
from fencepost_judge._service import Judging
from fencepost_judge._submission_watch import EventStream
from fencepost_judge._text_zip import read_texts, write_texts
from fencepost_judge.ccs import _documents as documents
from fencepost_judge.ccs._authentication import CHALLENGE, ApiAuthentication
from fencepost_judge.ccs._documents import Document
from fencepost_judge.ccs._feed import EventFeed
from fencepost_judge.ccs._objects import COLLECTIONS, ContestObjects, filtered
from fencepost_judge.ccs._viewer import Viewer
from fencepost_server.accounts.passwords import Passwords
from fencepost_server.web.errors import brief, status_of

ROOT = "/api"
CONTEST = f"{ROOT}/contests/{{contest}}"
HEADERS = {"Access-Control-Allow-Origin": "*", "Cache-Control": "no-store"}
FILES_MAX = 100
Kind = Literal[
    "judgement-types",
    "languages",
    "problems",
    "groups",
    "organizations",
    "teams",
    "persons",
    "accounts",
    "submissions",
    "judgements",
    "runs",
    "clarifications",
    "awards",
]


class FileData(BaseModel):
    model_config = ConfigDict(extra="ignore")

    data: str
    mime: Literal["application/zip"] = "application/zip"


class SubmissionRequest(BaseModel):
    """A submission as a team's client sends it. A jury names the team."""

    model_config = ConfigDict(extra="forbid")

    language_id: Annotated[str, Field(max_length=36)]
    problem_id: Slug
    files: Annotated[list[FileData], Field(min_length=1, max_length=1)]
    entry_point: str | None = None
    team_id: str | None = None


class ClarificationRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=1000)]
    problem_id: str | None = None
    from_team_id: str | None = None
    to_team_id: str | None = None
    reply_to_id: str | None = None


class ContestChange(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str
    start_time: AwareDatetime | None = None
    scoreboard_thaw_time: AwareDatetime | None = None


def make_router(
    judging: Judging, *, app_token: str | None = None, passwords: Passwords | None = None
) -> APIRouter:
    limit = judging.settings.source_max_bytes
    auth = Authentication(judging.fp, app_token=app_token, source_max_bytes=limit)
    api_auth = ApiAuthentication(judging.fp, auth, judging.settings, passwords or Passwords())
    router = APIRouter(tags=["contest API"], route_class=_route_class(api_auth))
    _add_reading(router, judging)
    _add_feed(router, judging, api_auth)
    _add_changing(router, judging)
    return router


def _route_class(auth: ApiAuthentication) -> type[APIRoute]:
    """Identifies the visitor, and gives errors the shape of the specification."""

    class ApiRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def answer(request: Request) -> Response:
                request.state.visitor = None
                try:
                    request.state.visitor = await auth.visitor(request)
                    response = await handle(request)
                except HTTPException as error:
                    return _failure(error.status_code, str(error.detail), dict(error.headers or {}))
                except RequestValidationError as error:
                    first = error.errors()[0]
                    where = ".".join(str(part) for part in first["loc"][1:])
                    if tuple(first["loc"][:2]) == ("path", "kind"):
                        return _failure(404, "There is no such endpoint.", {})
                    return _failure(400, f"{where}: {first['msg']}.", {})
                except FencepostError as error:
                    told = told_to(request.state.visitor, error)
                    return _failure(status_of(told)[0], str(told), {})
                response.headers.update(HEADERS)
                return response

            return answer

    return ApiRoute


def _failure(status: int, message: str, headers: dict[str, str]) -> Response:
    return JSONResponse({"code": status, "message": brief(message)}, status, {**headers, **HEADERS})


def _visitor_of(request: Request) -> JudgeVisitor | None:
    found: JudgeVisitor | None = request.state.visitor
    return found


Visitor = Annotated[JudgeVisitor | None, Depends(_visitor_of)]


def viewer_of(visitor: JudgeVisitor | None) -> Viewer:
    if visitor is None:
        return Viewer()
    name = visitor.name if visitor.is_user else None
    return Viewer(name, visitor.may(JudgeRole.JURY), visitor.may(JudgeRole.ADMIN))


def _add_reading(router: APIRouter, judging: Judging) -> None:
    async def opened(visitor: JudgeVisitor | None, contest: str) -> ContestObjects:
        return await ContestObjects.open(judging, viewer_of(visitor), contest)

    @router.get(ROOT)
    async def information() -> Document:
        provider = {"name": "Fencepost", "version": version("fencepost-judge")}
        return {"version": documents.VERSION, "version_url": documents.VERSION_URL, "provider": provider}

    @router.get(f"{ROOT}/contests")
    async def all_contests(visitor: Visitor) -> list[Document]:
        found = await judging.fp.run(contests.contests(limit=10_000))
        shown = [one.contest for one in found if visitor is not None or one.contest.is_public]
        return [documents.contest(one) for one in shown]

    @router.get(CONTEST)
    async def one_contest(contest: str, visitor: Visitor) -> Document:
        return (await opened(visitor, contest)).contest()

    @router.get(f"{CONTEST}/state")
    async def state(contest: str, visitor: Visitor) -> Document:
        return (await opened(visitor, contest)).state()

    @router.get(f"{CONTEST}/scoreboard")
    async def scoreboard(contest: str, visitor: Visitor, group_id: str | None = None) -> Document:
        return await (await opened(visitor, contest)).scoreboard(group_id)

    @router.get(f"{CONTEST}/access")
    async def access(contest: str, visitor: Visitor) -> Document:
        objects = await opened(visitor, contest)
        return _access(objects.sight.viewer)

    @router.get(f"{CONTEST}/account")
    async def account(contest: str, visitor: Visitor) -> Document:
        viewer = (await opened(visitor, contest)).sight.viewer
        if viewer.name is None:
            raise HTTPException(404, "You are no account.")
        if viewer.team is not None and not viewer.is_jury:
            return documents.account(teams.TeamAccount(viewer.name, viewer.team))
        kind = "admin" if viewer.is_admin else "judge" if viewer.is_jury else None
        return {"id": viewer.name, "username": viewer.name, "type": kind}

    @router.get(f"{CONTEST}/submissions/{{submission}}/files")
    async def files(contest: str, submission: str, visitor: Visitor) -> Response:
        objects = await opened(visitor, contest)
        document = await objects.one("submissions", submission)
        found = await judging.fp.run(teams.sources(contest, int(document["id"])))
        if not found or not objects.sight.sources(found[0].team):
            raise NotFound(f"There is no submission {submission}.", noun="submission", subject=submission)
        content = await asyncio.to_thread(write_texts, found[0].files)
        named = {"Content-Disposition": f"attachment; filename=submission-{document['id']}.zip"}
        return Response(content, media_type="application/zip", headers=named)

    @router.get(f"{CONTEST}/{{kind}}")
    async def collection(request: Request, contest: str, kind: Kind, visitor: Visitor) -> list[Document]:
        found = await (await opened(visitor, contest)).collection(kind)
        wanted = [pair for pair in request.query_params.multi_items() if pair[0].endswith("_id")]
        return filtered(found, wanted)

    @router.get(f"{CONTEST}/{{kind}}/{{key}}")
    async def one(contest: str, kind: Kind, key: str, visitor: Visitor) -> Document:
        return await (await opened(visitor, contest)).one(kind, key)


def _add_feed(router: APIRouter, judging: Judging, auth: ApiAuthentication) -> None:
    # Before the route of collections, which has the same form.
    @router.get(f"{CONTEST}/event-feed")
    async def event_feed(
        request: Request,
        contest: str,
        visitor: Visitor,
        since_token: Annotated[str | None, Query(max_length=20)] = None,
        stream: bool = True,
    ) -> Response:
        """Everything, then every change; with `since_token` only the changes after it. `stream=false` ends
        when there is nothing more."""
        if since_token is not None and not (since_token.isascii() and since_token.isdigit()):
            raise InvalidInput("since_token is none of this feed.", field="since_token")
        after = None if since_token is None else int(since_token)

        async def viewer() -> Viewer | None:
            try:
                return viewer_of(await auth.visitor(request))
            except HTTPException:
                return None

        feed = EventFeed(judging, viewer_of(visitor), contest, after=after, again=viewer)
        await feed.check()
        user = visitor.name if visitor is not None and visitor.is_user else ""
        end = judging.streams.begin(user)
        return EventStream(feed.lines(stream=stream), end, {}, media_type="application/x-ndjson")

    router.routes.insert(0, router.routes.pop())


def _add_changing(router: APIRouter, judging: Judging) -> None:
    fp = judging.fp

    @router.post(f"{CONTEST}/submissions", status_code=201)
    async def submit(
        contest: str, request: SubmissionRequest, visitor: Visitor, response: Response
    ) -> Document:
        who = _some(visitor)
        author = await _author(judging, who, contest, request.team_id)
        if not who.may(JudgeRole.JURY):
            await judging.check_shown(request.problem_id)
        sources = await asyncio.to_thread(_unzipped, request.files[0].data, judging.settings.source_max_bytes)
        language = documents.language_of(request.language_id)
        job_id = await judging.submit(
            request.problem_id, language, sources, author=author, contest=contest, limited=who.is_limited
        )
        response.headers["Location"] = f"{ROOT}/contests/{contest}/submissions/{job_id}"
        objects = await ContestObjects.open(judging, viewer_of(who), contest)
        return await objects.one("submissions", str(job_id))

    @router.post(f"{CONTEST}/clarifications", status_code=201)
    async def clarify(
        contest: str, request: ClarificationRequest, visitor: Visitor, response: Response
    ) -> Document:
        who = _some(visitor)
        found = await visibility.contest(fp, contest)
        labels = {one.slug: one.label for one in found.contest.problems}
        if request.problem_id is not None and request.problem_id not in labels:
            raise NotFound(f"{contest} has no problem {request.problem_id}.", noun="problem", subject=contest)
        label = labels.get(request.problem_id or "")
        key = await _said(judging, who, contest, label, request)
        response.headers["Location"] = f"{ROOT}/contests/{contest}/clarifications/{key}"
        return await (await ContestObjects.open(judging, viewer_of(who), contest)).one("clarifications", key)

    @router.patch(CONTEST)
    async def change(contest: str, request: ContestChange, visitor: Visitor) -> Document:
        """Move the start, or thaw the scoreboard now."""
        who = _some(visitor)
        if not who.may(JudgeRole.JURY):
            raise HTTPException(403, f"This needs the role jury; you are {who.role.word}.")
        if request.id != contest:
            raise HTTPException(409, f"The body is about {request.id}.")
        try:
            await _change(judging, contest, request, who)
        except InvalidInput as error:
            raise HTTPException(403, str(error)) from None
        return (await ContestObjects.open(judging, viewer_of(who), contest)).contest()


async def _change(judging: Judging, contest: str, request: ContestChange, who: JudgeVisitor) -> None:
    if "start_time" in request.model_fields_set:
        if request.start_time is None:
            raise InvalidInput("A countdown cannot be paused; move the start instead.", field="start_time")
        await judging.fp.run(contests.start(contest, request.start_time, who.name))
    if request.scoreboard_thaw_time is not None:
        seen = await visibility.contest(judging.fp, contest)
        if request.scoreboard_thaw_time > seen.seen_at:
            raise InvalidInput("A thaw cannot be scheduled; ask for it then.", field="scoreboard_thaw_time")
        await judging.fp.run(contests.unfreeze(contest, who.name))


async def _said(
    judging: Judging, who: JudgeVisitor, contest: str, label: str | None, request: ClarificationRequest
) -> str:
    """Ask, answer or announce; returns the id of what was said."""
    if not who.may(JudgeRole.JURY):
        if request.to_team_id is not None or request.reply_to_id is not None:
            raise HTTPException(403, "A team asks the jury; only a jury answers.")
        if request.from_team_id is not None:
            await _author(judging, who, contest, request.from_team_id)
        return str(await ask_as(who, judging, contest, Question(label=label, text=request.text)))
    if request.reply_to_id is not None:
        if not request.reply_to_id.isdigit():
            raise NotFound("There is no such question.", noun="clarification", subject=request.reply_to_id)
        number, to_all = int(request.reply_to_id), request.to_team_id is None
        await judging.fp.run(contests.answer(contest, number, request.text, to_all=to_all, actor=who.name))
        return f"{number}-answer"
    if request.to_team_id is not None or request.from_team_id is not None:
        raise InvalidInput("A jury answers a question, or tells all.", field="reply_to_id")
    told = await judging.fp.run(contests.announce(contest, label, request.text, who.name))
    return str(told)


async def _author(judging: Judging, who: JudgeVisitor, contest: str, team: str | None) -> str:
    """The user in whose name a submission is made: of a team, itself; for a jury, a user of the team."""
    own = await judging.fp.run(contests.team_of(contest, who.name)) if who.is_user else None
    if who.is_user and (team is None or team == own):
        return who.name
    if not who.may(JudgeRole.JURY):
        raise HTTPException(403, f"You act for the team {own}, not for {team}.")
    if team is None:
        raise InvalidInput("team_id is missing.", field="team_id")
    acting = [one.name for one in await judging.fp.run(teams.accounts(contest)) if one.team == team]
    if not acting:
        raise InvalidInput(f"The team {team} has no account.", field="team_id")
    return acting[0]


def _some(visitor: JudgeVisitor | None) -> JudgeVisitor:
    if visitor is None:
        raise HTTPException(401, "Sign in required.", CHALLENGE)
    return visitor


def _unzipped(data: str, bytes_max: int) -> dict[str, str]:
    try:
        content = base64.b64decode(data, validate=True)
    except binascii.Error:
        raise InvalidInput("files: the data is not base64.", field="files") from None
    return read_texts(content, bytes_max=bytes_max, files_max=FILES_MAX, field="files")


def _access(viewer: Viewer) -> Document:
    """What this viewer may do and read, whether it is there now or not."""
    capabilities = []
    if viewer.is_jury:
        capabilities = ["contest_start", "contest_thaw", "proxy_submit", "admin_clar"]
    elif viewer.team is not None:
        capabilities = ["team_submit", "team_clar"]
    properties = dict(PROPERTIES)
    if not viewer.is_jury:
        del properties["runs"]
        if viewer.team is None:
            del properties["accounts"]
            properties["submissions"] = [one for one in properties["submissions"] if one != "files"]
    endpoints = [{"type": kind, "properties": names} for kind, names in properties.items()]
    return {"capabilities": capabilities, "endpoints": endpoints}


PROPERTIES = {
    "contest": [
        "id",
        "name",
        "formal_name",
        "start_time",
        "duration",
        "scoreboard_freeze_duration",
        "scoreboard_thaw_time",
        "scoreboard_type",
        "penalty_time",
    ],
    "judgement-types": ["id", "name", "penalty", "solved"],
    "languages": ["id", "name", "entry_point_required", "extensions", "compiler", "runner"],
    "problems": [
        "id",
        "label",
        "name",
        "ordinal",
        "rgb",
        "color",
        "time_limit",
        "test_data_count",
        "max_score",
    ],
    "groups": ["id", "icpc_id", "name", "type"],
    "organizations": ["id", "icpc_id", "name", "formal_name", "country"],
    "teams": [
        "id",
        "icpc_id",
        "name",
        "label",
        "display_name",
        "organization_id",
        "group_ids",
        "hidden",
    ],
    "persons": ["id", "name", "role", "team_ids"],
    "accounts": ["id", "username", "type", "team_id"],
    "state": ["started", "frozen", "ended", "thawed", "finalized", "end_of_updates"],
    "submissions": [
        "id",
        "language_id",
        "problem_id",
        "team_id",
        "time",
        "contest_time",
        "entry_point",
        "files",
    ],
    "judgements": [
        "id",
        "submission_id",
        "judgement_type_id",
        "score",
        "start_time",
        "start_contest_time",
        "end_time",
        "end_contest_time",
        "max_run_time",
    ],
    "runs": [
        "id",
        "judgement_id",
        "ordinal",
        "judgement_type_id",
        "time",
        "contest_time",
        "run_time",
    ],
    "clarifications": [
        "id",
        "from_team_id",
        "to_team_id",
        "reply_to_id",
        "problem_id",
        "text",
        "time",
        "contest_time",
    ],
    "awards": ["id", "citation", "team_ids"],
}
assert set(COLLECTIONS) < set(PROPERTIES)
