"""Decisions about the rows that are selected in a list: a count before they are made, and one after.

A list whose rows have actions declares what may be done to several of them. The form of the page sends the
keys of the rows that are selected; the question says how many of them the decision fits and what becomes of
them. What cannot be done is refused by the database, one row at a time, and counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, Field, create_model

from fencepost.errors import InvalidInput, NotFound, Refusal
from fencepost_server.console._role import Role
from fencepost_server.console.context import ConsoleContext
from fencepost_server.console.page_data import ActionDone
from fencepost_server.web.forms import IDS_MAX
from fencepost_server.web.questions import Confirmation, counted
from fencepost_server.web.words import say

NAMED_MAX = 5
"""The rows that a question names; of more it says how many there are."""


def _keys(value: object) -> object:
    """A form sends the keys as one text with commas between them, each quoted."""
    return [unquote(one) for one in value.split(",")] if isinstance(value, str) else value


Name = Annotated[str, Field(min_length=1, max_length=1200, pattern=r"^[^\x00]+$")]
Number = Annotated[int, Field(ge=0, le=9_223_372_036_854_775_807)]
Reason = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]
Act = Callable[[Any, Request, str], Awaitable[object]]
"""Does it to the row of a key; the last argument is the reason, or an empty text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One decision about several rows."""

    verb: str
    """`Pause`."""
    done: str
    """`paused`."""
    consequence: str
    act: Act
    fits: Collection[str] | None = None
    """The states of the rows that it fits; of every state without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkActions:
    """What may be done to the rows that are selected in one list."""

    table: str
    """The list; its action is at `/selected/TABLE`."""
    action: str
    """Its name in the audit."""
    one: str
    many: str
    back: str
    choices: Mapping[str, Choice]
    states: Callable[[Request, Sequence[Any]], Awaitable[Mapping[Any, str]]]
    """The state of each row that is there, by its key."""
    key: Any = Name
    reason: bool = False
    """Whether a person must give one."""
    needs: Role = Role.OPERATOR

    def model(self) -> type[BaseModel]:
        """The body of the action."""
        keys: Any = list.__class_getitem__(self.key)
        ids = Annotated[keys, BeforeValidator(_keys), Field(min_length=1, max_length=IDS_MAX)]
        fields: dict[str, Any] = {"how": (Literal[tuple(self.choices)], ...), "ids": (ids, ...)}
        if self.reason:
            fields["reason"] = (Reason, ...)
        name = "".join(part.capitalize() for part in self.action.replace(".", "_").split("_"))
        return create_model(f"{name}Selected", __config__={"extra": "forbid"}, **fields)

    async def question(self, request: Request, body: Any) -> Confirmation:
        """How many of the selected rows the decision fits, and what becomes of them."""
        keys, choice = list(dict.fromkeys(body.ids)), self.choices[body.how]
        states = await self.states(request, keys)
        of: dict[str, int] = {}
        for state in states.values():
            of[state] = of.get(state, 0) + 1
        fitting = [key for key in keys if key in states and _fits(choice, states[key])]
        told = ", ".join(
            f"{count:,} {say(state)}" for state, count in sorted(of.items(), key=lambda one: -one[1])
        )
        consequences = [
            say(
                "Selected are {keys}: {what}.",
                keys=counted(len(keys), self.one, self.many),
                what=told or say("none is kept"),
            )
        ]
        if fitting:
            named = ", ".join(str(key) for key in fitting[:NAMED_MAX])
            others = len(fitting) - NAMED_MAX
            consequences.append(
                say("{named} and {others} more.", named=named, others=f"{others:,}")
                if others > 0
                else f"{named}."
            )
        consequences.append(choice.consequence)
        if left := len(keys) - len(fitting):
            consequences.append(
                say(
                    "{left} of them cannot be, and stay as they are.", left=counted(left, self.one, self.many)
                )
            )
        if self.reason:
            consequences.append(say("Because: {reason}", reason=body.reason))
        answer = f"{say(choice.verb)} {counted(len(fitting), self.one, self.many)}"
        return Confirmation(f"{answer}?", consequences, answer, self.back)

    async def settle(self, request: Request, body: Any) -> ActionDone:
        """Do it to each of the rows that are named. What cannot be done is refused and counted."""
        choice, refused = self.choices[body.how], 0
        keys = list(dict.fromkeys(body.ids))
        states = await self.states(request, keys)
        for key in keys:
            if key not in states or not _fits(choice, states[key]):
                refused += 1
                continue
            try:
                await choice.act(key, request, getattr(body, "reason", ""))
            except (Refusal, InvalidInput, NotFound):
                refused += 1
        done = len(keys) - refused
        facts = {"settled": done, "refused": refused}
        told = say(
            "{done} {done2}, {refused} refused.",
            done=counted(done, self.one, self.many),
            done2=say(choice.done),
            refused=refused,
        )
        return ActionDone(told, self.back, facts)


def add_bulk_actions(context: ConsoleContext, actions: BulkActions) -> None:
    """Add the action of a list's form."""
    model = actions.model()

    async def ask(request: Request, body: BaseModel) -> Confirmation:
        return await actions.question(request, body)

    async def settle(request: Request, body: BaseModel) -> ActionDone:
        done = await actions.settle(request, body)
        context.live_snapshot.forget()
        return done

    for made in (ask, settle):
        made.__annotations__ = {**made.__annotations__, "request": Request, "body": model}
    settle.__annotations__["return"] = ActionDone
    settle.__name__ = f"settle_{actions.action.replace('.', '_')}"
    settle.__doc__ = (
        f"Decide about the {actions.many} that are named: {', '.join(actions.choices)}. "
        "What cannot be done is refused and counted."
    )
    context.router.action(f"/selected/{actions.table}", actions.action, needs=actions.needs, asks=ask)(settle)


def _fits(choice: Choice, state: str) -> bool:
    return choice.fits is None or state in choice.fits
