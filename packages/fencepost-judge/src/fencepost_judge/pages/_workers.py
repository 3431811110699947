"""Which workers judge, their load, which are out of service, and what could not be judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import Request, Response
from pydantic import BaseModel, Field

from fencepost.errors import FencepostError, NotFound
from fencepost.kernel import dead_letter
from fencepost.kernel import worker as kernel_worker
from fencepost.kernel.call import Call
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._authentication import Who
from fencepost_judge._discovery import ListedWorker
from fencepost_judge._role import JudgeRole
from fencepost_judge._service import QUEUE
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._page_sessions import form_of
from fencepost_server.web.forms import filled
from fencepost_server.web.questions import Confirmation

HOME = f"{PAGES_ROOT}/workers"
Decision = Literal["drain", "disable", "enable"]
DECISIONS: Mapping[Decision, tuple[Callable[[str, str, str], Call[list[str]]], str]] = {
    "drain": (kernel_worker.drain, "finishes what it has and claims nothing more"),
    "disable": (kernel_worker.disable, "is disabled, until it is enabled"),
    "enable": (kernel_worker.enable, "is in service again"),
}


_CONSEQUENCES: Mapping[Decision, str] = {
    "drain": "It finishes what it judges and claims nothing more, until it is started again.",
    "disable": "It claims nothing until it is enabled, also after a restart. What it judges now is finished.",
}


class DecisionForm(BaseModel):
    target: Annotated[str, Field(min_length=1, max_length=256)]
    reason: Annotated[str, Field(min_length=1, max_length=1000)]


def add(router: PageRouter) -> None:
    @router.router.get(HOME)
    async def workers(request: Request, who: Who) -> Response:
        facts: dict[str, Any] = {
            "workers": (),
            "error_message": None,
            "dead": await router.fp.run(dead_letter.count(dead_letter.Filter(queue=QUEUE))),
            "queue": QUEUE,
            "holds": {},
            "may_decide": who.may(JudgeRole.ADMIN),
            "judge_of": judge_of,
        }
        try:
            facts["workers"] = await router.judging.workers()
            for one in facts["workers"]:
                facts["holds"][one.owner] = await router.fp.run(kernel_worker.standing(one.owner))
        except FencepostError as error:
            # If the directory is unavailable, only the list is missing.
            facts["error_message"] = str(error)
        return router.show(request, "workers.html", "Workers", facts)

    @router.router.post(f"{HOME}/{{decision}}")
    async def decide(request: Request, who: Who, decision: Decision) -> Response:
        """Take a judge out of service or put it back. Of other workers the console decides."""
        form = filled(DecisionForm, await form_of(request))
        if form.target not in _targets(await router.judging.workers()):
            raise NotFound(f"There is no judge {form.target}.", noun="worker", subject=form.target)
        if decision != "enable":
            consequences = [_CONSEQUENCES[decision], f"Because: {form.reason}"]
            answer = f"{decision.capitalize()} {form.target}"
            if (
                asked := await router.ask(request, Confirmation(f"{answer}?", consequences, answer, HOME))
            ) is not None:
                return asked
        call, told = DECISIONS[decision]
        await router.fp.run(call(form.target, f"{who.name}@judge", form.reason))
        return router.done(request, HOME, f"{form.target} {told}.")


def judge_of(owner: str) -> str:
    """The name that all workers of a judge share, NAME@HOST, from the owner of one."""
    name, at, place = owner.rpartition("@")
    return f"{name}{at}{place.partition(':')[0]}"


def _targets(workers: Sequence[ListedWorker]) -> set[str]:
    return {target for one in workers for target in (one.owner, judge_of(one.owner))}
