"""Pages link to a neighbour only where he is."""

import pytest
from fastapi import APIRouter, Request

from fencepost.console.role import Role as ConsoleRole
from fencepost.console.role import Visitor as ConsoleVisitor
from fencepost.console.stationery import navigation as of_the_console
from fencepost.judge.pages.desk import navigation as of_the_judge
from fencepost.judge.role import Role, Visitor
from fencepost.web.app import make_app
from fencepost.web.part import Part
from fencepost.web.settings import WebSettings


def request_to(*parts: str) -> Request:
    app = make_app([Part(name, APIRouter()) for name in parts], WebSettings())
    return Request({"type": "http", "app": app, "headers": []})


@pytest.mark.parametrize("together", [True, False])
def test_console_and_judge_name_each_other_where_both_are(together: bool) -> None:
    request = request_to("console", "judge") if together else request_to("nonces")
    console = of_the_console(request, ConsoleVisitor("ada", ConsoleRole.VIEWER))
    judge = of_the_judge(request, Visitor("ada", Role.ADMIN))
    contestant = of_the_judge(request, Visitor("con", Role.CONTESTANT))

    assert (("/court", "Judge") in console) is together
    assert (("/console", "Console") in judge) is together
    assert [name for _, name in contestant] == ["Problems", "Contests", "Submissions"]
    assert of_the_judge(request, None) == of_the_console(request, None) == []
