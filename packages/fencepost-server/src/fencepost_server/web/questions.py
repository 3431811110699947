"""What a person confirms before an action is done: a page of its own, which scripts show as a dialog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fencepost_server.web.forms import FORM_FIELD
from fencepost_server.web.words import say

CONFIRMED = "confirmed"
TEMPLATE = "question.html"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A table of how something is and how it would be."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The object of an action and its consequences, from the rows as they are now."""

    title: str
    """Names the object: "Cancel job 12?"."""
    consequences: Sequence[str]
    answer: str
    """The label of the button that does it. No button is preselected."""
    back: str
    """The page that a person returns to who does not confirm."""
    comparisons: Sequence[Comparison] = field(default_factory=tuple[Comparison, ...])


def is_confirmed(fields: Mapping[str, str]) -> bool:
    """Whether the form says that its question was answered."""
    return fields.get(CONFIRMED) == "yes"


def question_facts(question: Confirmation, action: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """The facts of the page: its form is the same request, confirmed."""
    repeated = {name: value for name, value in fields.items() if name not in (FORM_FIELD, CONFIRMED)}
    return {
        "title": question.title,
        "question": question,
        "action": action,
        "fields": {**repeated, CONFIRMED: "yes"},
    }


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 job`, `3 jobs`."""
    return say(f"{{count}} {one if count == 1 else many or one + 's'}", count=f"{count:,}")
