"""The router: one function returns facts; the router serves them as a page, JSON or CSV, if the role allows
it.

    @router.page("/leases", "leases.html", "Leases")
    async def leases(request: Request, query: Annotated[LeaseQuery, Query()]) -> PageData: ...

gives `/console/leases` and `/api/leases`. An action gives a form's target and an API call the same way. No
route is made elsewhere, so that every route has a role.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar, cast
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from fastapi.routing import APIRoute

from fencepost.client import Fencepost
from fencepost.errors import InvalidInput, Refusal
from fencepost.kernel._lineage import ReadAge
from fencepost_server.accounts.calls import end_audit_entry
from fencepost_server.console._auth import ConsoleAuth
from fencepost_server.console._page_templates import navigation
from fencepost_server.console._role import ACCOUNTS, Role, Visitor
from fencepost_server.console.listing import with_states
from fencepost_server.console.page_data import ActionDone, PageData, Table, as_json
from fencepost_server.web.forms import address_of, fields_of, filled
from fencepost_server.web.page_errors import as_page, title_of, to_login
from fencepost_server.web.questions import TEMPLATE as QUESTION
from fencepost_server.web.questions import Confirmation, is_confirmed, question_facts
from fencepost_server.web.templating import HEADERS, Templates

PAGES = "/console"
AGE_HEADER = "Read-From"
API = "/api"
DOWNLOAD_ROWS_MAX = 100_000
DOWNLOAD_STEP = 1000
# A filter that finds little passes many pages without a row.
DOWNLOAD_STEPS_MAX = 1000
Format = Literal["json", "csv"]
PageFunction = TypeVar("PageFunction", bound=Callable[..., Awaitable[PageData]])
ActionFunction = TypeVar("ActionFunction", bound=Callable[..., Awaitable[ActionDone]])
_BY_NAME = inspect.Parameter.KEYWORD_ONLY
# How the API's answers are described: facts, or one table of them; and the result of an action.
_SHEET = {
    "application/json": {"schema": {"type": "object"}},
    "text/csv": {"schema": {"type": "string"}},
}
_DONE = {
    "application/json": {
        "schema": {
            "type": "object",
            "required": ["message"],
            "properties": {"message": {"type": "string"}, "secret": {"type": "string"}},
        }
    }
}


class ConsoleRouter:
    """Makes the routes. `router` has them all."""

    def __init__(
        self,
        fp: Fencepost,
        auth: ConsoleAuth,
        templates: Templates,
        read_age: Callable[[], Awaitable[ReadAge]],
    ) -> None:
        """`read_age` says how old what pages read may be."""
        self.read_age = read_age
        self.fp = fp
        self.auth = auth
        self.templates = templates
        self.api = APIRouter(tags=["console"])
        self.pages = APIRouter(route_class=self._page_route(), include_in_schema=False)
        self.roles: dict[tuple[str, str], Role] = {}
        """The role that each method and path needs; the test of the role matrix walks through it."""

    def page(
        self, path: str, template: str, title: str, *, needs: Role = Role.VIEWER
    ) -> Callable[[PageFunction], PageFunction]:
        """Declare a page: an address, a template, and the least role that sees it."""

        def register(read: PageFunction) -> PageFunction:
            async def show(**arguments: Any) -> Response:
                request: Request = arguments["request"]
                age = await self.read_age()
                page_data = _listed(await read(**arguments), request)
                home = {
                    "read_from": age if age.is_standby else None,
                    "tables": page_data.tables,
                    "lists": page_data.lists,
                    "api": link_of(API + path, request),
                    "download": link_of(API + path, request, without=_places(arguments, page_data)),
                }
                return self.show(request, template, {"title": title, **home, **page_data.facts})

            async def answer(
                format: Format = "json",  # noqa: A002
                table: str | None = None,
                **arguments: Any,
            ) -> Response:
                age = await self.read_age()
                if format == "json":
                    response = _json(_listed(await read(**arguments), arguments["request"]).facts)
                else:
                    response = await _downloaded(read, arguments, path, table)
                if age.is_standby:
                    response.headers[AGE_HEADER] = str(age)
                return response

            signature = inspect.signature(read, eval_str=True)
            _describe(show, read, signature)
            _describe(answer, read, _with_format(signature))
            where = PAGES if path == "/overview" else PAGES + path
            self._add(self.pages, "GET", where, show, needs)
            self._add(self.api, "GET", API + path, answer, needs, _SHEET)
            return read

        return register

    def action(
        self,
        path: str,
        name: str,
        *,
        needs: Role = Role.OPERATOR,
        asks: Callable[..., Awaitable[Confirmation | None]] | None = None,
    ) -> Callable[[ActionFunction], ActionFunction]:
        """A POST. The function takes the request, the path parameters, and may take one `body`, a model.

        `asks` takes the same and answers what a person confirms first, or None when nothing is to be
        confirmed. A form without the field `confirmed` is answered with that question, as a page of its own;
        scripts show the same page as a dialog. A program is not asked: its call names object and decision.
        """

        def register(act: ActionFunction) -> ActionFunction:
            signature = inspect.signature(act, eval_str=True)
            model = signature.parameters["body"].annotation if "body" in signature.parameters else None

            async def submit(**arguments: Any) -> Response:
                request: Request = arguments["request"]
                fields = await fields_of(request)
                if model is not None:
                    arguments["body"] = filled(model, fields)
                if asks is not None and not is_confirmed(fields):
                    question = await asks(**arguments)
                    if question is not None:
                        facts = question_facts(question, request.url.path, fields)
                        return self.show(request, QUESTION, facts)
                done = await self._audited(name, act, arguments)
                if done.secret is not None:
                    facts = {
                        "title": "Keep this",
                        "message": done.message,
                        "secret": done.secret,
                        "back": done.back,
                    }
                    return self.show(request, "secret.html", facts)
                response = RedirectResponse(done.back, 303, headers=dict(HEADERS))
                self.auth.cookies.leave_notice(request, response, done.message)
                return response

            async def answer(**arguments: Any) -> Response:
                done = await self._audited(name, act, arguments)
                secret = {"secret": done.secret} if done.secret is not None else {}
                return _json({"message": done.message, **(done.facts or {}), **secret})

            shown = [one for one in signature.parameters.values() if one.name != "body"]
            _describe(submit, act, signature.replace(parameters=shown))
            _describe(answer, act, signature)
            self._add(self.pages, "POST", PAGES + path, submit, needs)
            self._add(self.api, "POST", API + path, answer, needs, _DONE)
            return act

        return register

    def raw(self, path: str, endpoint: Callable[..., Any], *, needs: Role, kind: str) -> None:
        """A GET that makes its own response."""
        self._add(self.api, "GET", path, endpoint, needs, {kind: {"schema": {"type": "string"}}})

    def show(
        self, request: Request, template: str, facts: Mapping[str, Any], *, status: int = 200
    ) -> Response:
        """Render a template for the request's visitor."""
        visitor: Visitor | None = getattr(request.state, "visitor", None)
        session = visitor.session if visitor else ""
        response = self.templates.page(
            request,
            template,
            {
                "may_operate": visitor is not None and visitor.may(Role.OPERATOR),
                "may_administer": visitor is not None and visitor.may(Role.ADMIN),
                **facts,
            },
            visitor=visitor,
            navigation=navigation(request, visitor),
            form_token=self.auth.form_token(request, session),
            notice=self.auth.cookies.notice(request),
            status=status,
        )
        if not session:
            self.auth.leave_visit(request, response)
        self.auth.cookies.take_notice(request, response)
        return response

    def _add(
        self,
        router: APIRouter,
        method: str,
        path: str,
        endpoint: Callable[..., Any],
        needs: Role,
        content: Mapping[str, Any] | None = None,
    ) -> None:
        self.roles[method, path] = needs
        router.add_api_route(
            path,
            endpoint,
            methods=[method],
            response_model=None,
            # Otherwise FastAPI would describe an answer as JSON that is not.
            response_class=Response,
            responses={200: {"content": content or {}}},
            dependencies=[Depends(self.auth.needs(needs))],
            operation_id=f"{method.lower()}{path.replace('/', '_').replace('{', '').replace('}', '')}",
        )

    async def _audited(
        self, action: str, act: Callable[..., Awaitable[ActionDone]], arguments: Mapping[str, Any]
    ) -> ActionDone:
        """Run an action. It is recorded before it happens; its result, afterwards."""
        request: Request = arguments["request"]
        visitor = visitor_of(request)
        detail: dict[str, Any] = arguments["body"].model_dump(mode="json") if "body" in arguments else {}
        detail.pop("password", None)
        subject = "/".join(str(value) for value in request.path_params.values()) or action
        audit_entry = await self.fp.run(
            ACCOUNTS.begin_audit_entry(
                visitor.name, visitor.role.word, action, subject, detail, address_of(request)
            )
        )
        try:
            done = await act(**arguments)
        except Exception as error:
            reason = error.reason if isinstance(error, Refusal) else type(error).__name__
            await self.fp.run(end_audit_entry(audit_entry, f"refused: {reason}"))
            raise
        await self.fp.run(end_audit_entry(audit_entry, "done"))
        return done

    def _page_route(self) -> type[APIRoute]:
        """Routes whose errors are pages: an anonymous visitor is sent to the login, a refusal states its
        reason."""
        router = self

        class PageRoute(APIRoute):
            def get_route_handler(self) -> Callable[[Request], Any]:
                handle = super().get_route_handler()

                async def guarded(request: Request) -> Response:
                    router.templates.speak(request)
                    return await as_page(handle, request, router.refuse)

                return guarded

        return PageRoute

    def refuse(self, request: Request, status: int, message: str) -> Response:
        """A page that says why; 401 leads to the login."""
        if status == 401:
            return to_login(request, f"{PAGES}/login")
        facts = {"title": title_of(status), "message": message}
        return self.show(request, "refused.html", facts, status=status)


def visitor_of(request: Request) -> Visitor:
    """The authenticated visitor of the request."""
    return cast("Visitor", request.state.visitor)


def link_of(path: str, request: Request, *, without: frozenset[str] = frozenset()) -> str:
    """The API's address of what a page shows, with the page's filters."""
    for name, value in request.path_params.items():
        path = path.replace("{" + name + ":path}", str(value)).replace("{" + name + "}", str(value))
    kept = [(name, value) for name, value in request.query_params.multi_items() if name not in without]
    return f"{path}?{urlencode(kept)}" if kept else path


def _listed(page_data: PageData, request: Request) -> PageData:
    """What a page returned, with the tables sorted that it read whole."""
    facts, lists = with_states(
        page_data.tables, page_data.facts, page_data.lists, request.query_params.get("sort")
    )
    return replace(page_data, facts=facts, lists=lists)


def _describe(made: Any, of: Any, signature: inspect.Signature) -> None:
    """FastAPI reads parameters from the signature, and the title and the text from name and docstring."""
    made.__signature__ = signature
    made.__name__ = of.__name__
    made.__doc__ = of.__doc__


def _with_format(signature: inspect.Signature) -> inspect.Signature:
    form = Query(
        description=f"csv gives one table alone, as a file: from `before` or `after` on to its end, at most "
        f"{DOWNLOAD_ROWS_MAX:,} rows, whatever `limit` says."
    )
    table = Query(description="The table for csv; by default the page's main one.", max_length=40)
    wanted = [
        inspect.Parameter("format", _BY_NAME, default="json", annotation=Annotated[Format, form]),
        inspect.Parameter("table", _BY_NAME, default=None, annotation=Annotated[str | None, table]),
    ]
    return signature.replace(parameters=[*signature.parameters.values(), *wanted])


async def _downloaded(
    read: Callable[..., Awaitable[PageData]], arguments: Mapping[str, Any], path: str, table: str | None
) -> Response:
    """A whole table, page by page: no connection is held while a client reads slowly."""
    first = _listed(await read(**_longest(arguments)), arguments["request"])
    name = table or first.rows
    if name is None or name not in first.tables:
        there = ", ".join(first.tables)
        raise InvalidInput(f"There is no such table. Available: {there}.", field="table")
    stem = "-".join(dict.fromkeys((path.strip("/").split("/")[0], name)))
    disposition = {"Content-Disposition": f'attachment; filename="{stem}.csv"'}
    lines = _lines(read, arguments, first, name)
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers={**HEADERS, **disposition})


async def _lines(
    read: Callable[..., Awaitable[PageData]], arguments: Mapping[str, Any], first: PageData, name: str
) -> AsyncGenerator[str]:
    table, page_data, told = Table(), first, 0
    for _ in range(DOWNLOAD_STEPS_MAX):
        rows = (page_data.facts.get(name) or ())[: DOWNLOAD_ROWS_MAX - told]
        told += len(rows)
        yield table.lines(rows)
        onward = page_data.onward(name)
        if onward is None or told == DOWNLOAD_ROWS_MAX:
            return
        page_data = await read(**_longest(arguments, onward))


def _places(arguments: Mapping[str, Any], page_data: PageData) -> frozenset[str]:
    """The parameters for the position in a list and the page length: a file has the whole list."""
    if not _is_paged(arguments):
        return frozenset()
    positions = (name for state in page_data.lists.values() for name in state.positions)
    return frozenset({"before", "after", "onward", "limit", *positions})


def _is_paged(arguments: Mapping[str, Any]) -> bool:
    return hasattr(arguments.get("query"), "limit")


def _longest(arguments: Mapping[str, Any], onward: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """The same query for as many rows as one page may have, from a position in the list."""
    if not _is_paged(arguments):
        return arguments
    changes = {"limit": DOWNLOAD_STEP, **(onward or {})}
    return {**arguments, "query": arguments["query"].model_copy(update=changes)}


def _json(facts: Mapping[str, Any]) -> Response:
    return Response(as_json(facts), media_type="application/json", headers=dict(HEADERS))
