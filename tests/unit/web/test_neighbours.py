"""Pages link to a neighbour only where he is."""

import pytest
from fastapi import APIRouter, Request

from fencepost_judge._role import JudgeRole, JudgeVisitor
from fencepost_judge.pages._page_router import navigation as of_the_judge
from fencepost_server.console._page_templates import navigation as of_the_console
from fencepost_server.console._role import Role as ConsoleRole
from fencepost_server.console._role import Visitor as ConsoleVisitor
from fencepost_server.web._app import make_app
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings


def request_to(*parts: str) -> Request:
    app = make_app([HttpService(name, APIRouter()) for name in parts], WebSettings())
    return Request({"type": "http", "app": app, "headers": []})


@pytest.mark.parametrize("together", [True, False])
def test_console_and_judge_name_each_other_where_both_are(together: bool) -> None:
    request = request_to("console", "judge") if together else request_to("nonces")
    console = of_the_console(request, ConsoleVisitor("ada", ConsoleRole.VIEWER))
    judge = of_the_judge(request, JudgeVisitor("ada", JudgeRole.ADMIN))
    entrant = of_the_judge(request, JudgeVisitor("con", JudgeRole.CONTESTANT))

    assert (("/judge", "Judge", "Systems") in console) is together
    assert (("/console", "Console") in judge) is together
    assert [name for _, name in entrant] == ["Problems", "Contests", "Submissions"]
    assert of_the_judge(request, None) == of_the_console(request, None) == []
