"""The desk: one function answers facts; here they become a page, JSON or CSV, for whoever may see them.

    @desk.page("/leases", "leases.html", "Leases")
    async def leases(request: Request, query: Annotated[LeaseQuery, Query()]) -> Sheet: ...

gives `/console/leases` and `/api/leases`. An action gives a form's target and a call of the API the same way.
No route is made elsewhere, so that none has no role.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar, cast

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from fencepost.console import people
from fencepost.console.doors import NOTICE_COOKIE, Doors, address_of, fields_of
from fencepost.console.role import Role, Visitor
from fencepost.console.sheet import Done, Sheet, as_csv, as_json
from fencepost.console.stationery import HEADERS, Stationery, link
from fencepost.errors import FencepostError, InvalidInput, Refusal
from fencepost.house import Fencepost
from fencepost.web.answers import status_of

PAGES = "/console"
API = "/api"
Format = Literal["json", "csv"]
PageFunction = TypeVar("PageFunction", bound=Callable[..., Awaitable[Sheet]])
ActionFunction = TypeVar("ActionFunction", bound=Callable[..., Awaitable[Done]])
_HTML_TITLES = {401: "Who are you?", 403: "Not for you", 404: "Not here", 429: "Slower"}


class Desk:
    """Makes the routes. `router` has them all."""

    def __init__(self, fp: Fencepost, doors: Doors, stationery: Stationery) -> None:
        self.fp = fp
        self.doors = doors
        self.stationery = stationery
        self.api = APIRouter(tags=["console"])
        self.pages = APIRouter(route_class=self._page_route(), include_in_schema=False)
        self.roles: dict[tuple[str, str], Role] = {}
        """The role that each method and path needs: what the test of the matrix walks through."""

    def page(
        self, path: str, template: str, title: str, *, needs: Role = Role.VIEWER
    ) -> Callable[[PageFunction], PageFunction]:
        def register(read: PageFunction) -> PageFunction:
            async def show(**arguments: Any) -> Response:
                request: Request = arguments["request"]
                sheet = await read(**arguments)
                table = {"table": sheet.rows, "api": link_of(API + path, request)}
                return self.show(request, template, {"title": title, **table, **sheet.facts})

            async def answer(format: Format = "json", **arguments: Any) -> Response:  # noqa: A002
                return _given_out(await read(**arguments), path, format)

            signature = inspect.signature(read, eval_str=True)
            _describe(show, read, signature)
            _describe(answer, read, _with_format(signature))
            where = PAGES if path == "/overview" else PAGES + path
            self._add(self.pages, "GET", where, show, needs)
            self._add(self.api, "GET", API + path, answer, needs)
            return read

        return register

    def action(
        self, path: str, name: str, *, needs: Role = Role.OPERATOR
    ) -> Callable[[ActionFunction], ActionFunction]:
        """A POST. The function takes the request, the parts of the path, and may take one `body`, a model."""

        def register(act: ActionFunction) -> ActionFunction:
            signature = inspect.signature(act, eval_str=True)
            model = signature.parameters["body"].annotation if "body" in signature.parameters else None

            async def submit(**arguments: Any) -> Response:
                request: Request = arguments["request"]
                if model is not None:
                    arguments["body"] = _filled(model, await fields_of(request))
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
                self.doors.leave_notice(request, response, done.message)
                return response

            async def answer(**arguments: Any) -> Response:
                done = await self._audited(name, act, arguments)
                secret = {"secret": done.secret} if done.secret is not None else {}
                return _json({"message": done.message, **(done.facts or {}), **secret})

            shown = [one for one in signature.parameters.values() if one.name != "body"]
            _describe(submit, act, signature.replace(parameters=shown))
            _describe(answer, act, signature)
            self._add(self.pages, "POST", PAGES + path, submit, needs)
            self._add(self.api, "POST", API + path, answer, needs)
            return act

        return register

    def raw(self, path: str, endpoint: Callable[..., Any], *, needs: Role) -> None:
        """A GET that answers for itself."""
        self._add(self.api, "GET", path, endpoint, needs)

    def show(
        self, request: Request, template: str, facts: Mapping[str, Any], *, status: int = 200
    ) -> Response:
        visitor: Visitor | None = getattr(request.state, "visitor", None)
        response = self.stationery.page(
            request,
            template,
            facts,
            visitor=visitor,
            form_token=self.doors.form_token(visitor),
            notice=self.doors.notice(request),
            status=status,
        )
        if NOTICE_COOKIE in request.cookies:
            response.delete_cookie(NOTICE_COOKIE, path="/")
        return response

    def _add(
        self, router: APIRouter, method: str, path: str, endpoint: Callable[..., Any], needs: Role
    ) -> None:
        self.roles[method, path] = needs
        router.add_api_route(
            path,
            endpoint,
            methods=[method],
            response_model=None,
            dependencies=[Depends(self.doors.needs(needs))],
            operation_id=f"{method.lower()}{path.replace('/', '_').replace('{', '').replace('}', '')}",
        )

    async def _audited(
        self, action: str, act: Callable[..., Awaitable[Done]], arguments: Mapping[str, Any]
    ) -> Done:
        """Written down before it happens; what came of it, afterwards."""
        request: Request = arguments["request"]
        visitor = visitor_of(request)
        detail: dict[str, Any] = arguments["body"].model_dump(mode="json") if "body" in arguments else {}
        detail.pop("password", None)
        subject = "/".join(str(value) for value in request.path_params.values()) or action
        deed = await self.fp.run(
            people.begin_deed(visitor.name, visitor.role.word, action, subject, detail, address_of(request))
        )
        try:
            done = await act(**arguments)
        except Exception as error:
            reason = error.reason if isinstance(error, Refusal) else type(error).__name__
            await self.fp.run(people.end_deed(deed, f"refused: {reason}"))
            raise
        await self.fp.run(people.end_deed(deed, "done"))
        return done

    def _page_route(self) -> type[APIRoute]:
        """Routes whose errors are pages: a stranger is sent to the login, a refusal tells its reason."""
        desk = self

        class PageRoute(APIRoute):
            def get_route_handler(self) -> Callable[[Request], Any]:
                handle = super().get_route_handler()

                async def guarded(request: Request) -> Response:
                    try:
                        return await handle(request)
                    except HTTPException as error:
                        return desk.refuse(request, error.status_code, str(error.detail))
                    except RequestValidationError as error:
                        return desk.refuse(request, 400, _first_complaint(error.errors()))
                    except FencepostError as error:
                        return desk.refuse(request, status_of(error)[0], str(error))

                return guarded

        return PageRoute

    def refuse(self, request: Request, status: int, message: str) -> Response:
        if status == 401:
            wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            target = link(f"{PAGES}/login", next=wanted if request.method == "GET" else None)
            return RedirectResponse(target, 303, headers=dict(HEADERS))
        title = _HTML_TITLES.get(status, "Refused" if status < 500 else "Failed")
        return self.show(request, "refused.html", {"title": title, "message": message}, status=status)


def visitor_of(request: Request) -> Visitor:
    """Whom the door has let in."""
    return cast("Visitor", request.state.visitor)


def link_of(path: str, request: Request) -> str:
    """The API's address of what a page shows, with the page's filters."""
    for name, value in request.path_params.items():
        path = path.replace("{" + name + ":path}", str(value)).replace("{" + name + "}", str(value))
    return f"{path}?{request.url.query}" if request.url.query else path


def _describe(made: Any, of: Any, signature: inspect.Signature) -> None:
    """FastAPI reads parameters from the signature, and the title and the text from name and docstring."""
    made.__signature__ = signature
    made.__name__ = of.__name__
    made.__doc__ = of.__doc__


def _with_format(signature: inspect.Signature) -> inspect.Signature:
    wanted = inspect.Parameter(
        "format",
        inspect.Parameter.KEYWORD_ONLY,
        default="json",
        annotation=Annotated[Format, Query(description="csv gives the table alone, as a file.")],
    )
    return signature.replace(parameters=[*signature.parameters.values(), wanted])


def _given_out(sheet: Sheet, path: str, form: Format) -> Response:
    if form == "json":
        return _json(sheet.facts)
    if sheet.rows is None:
        raise InvalidInput("There is no table here; ask for JSON.", field="format")
    name = path.strip("/").split("/")[0]
    disposition = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(as_csv(sheet), media_type="text/csv; charset=utf-8", headers={**HEADERS, **disposition})


def _json(facts: Mapping[str, Any]) -> Response:
    return Response(as_json(facts), media_type="application/json", headers=dict(HEADERS))


def _filled(model: type[BaseModel], fields: Mapping[str, str]) -> BaseModel:
    """A form's fields as the model; an empty field counts as left out."""
    given = {name: value for name, value in fields.items() if name in model.model_fields and value != ""}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise InvalidInput(_first_complaint(error.errors())) from None


def _first_complaint(errors: Any) -> str:
    first = errors[0]
    field = ".".join(str(part) for part in first["loc"] if part not in {"query", "path", "body"})
    return f"{field}: {first['msg']}."
