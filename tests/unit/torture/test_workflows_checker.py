"""What workflows left behind: one wrong row is seen among all that are right."""

from collections.abc import Callable
from typing import Any, LiteralString

import pytest

from fencepost_torture.systems import _workflows_checker as checker

Tables = dict[str, list[tuple[Any, ...]]]
ASKED = {
    "rows-0-0": "rows",
    "saga-0-1": "failing",
    "frail-0-2": "frail",
    "listener-0-3": "listener",
    "parent-0-4": "parent",
}


def done() -> Tables:
    """One of each, done by the test's code alone. The frail one died after its second step."""
    ended = [(key, "dead" if shape in ("failing", "frail") else "finished") for key, shape in ASKED.items()]
    written: list[tuple[Any, ...]] = []
    recorded: list[tuple[Any, ...]] = []
    for job_id, (key, name) in enumerate(ASKED.items(), 1):
        shape = checker.SHAPES[name]
        value = {"rows": "u", "parent": "3"}.get(name, "1")
        steps = shape.rows[:2] if name == "frail" else shape.rows
        written += [(key, step, job_id, 1, value, step) for step in steps]
        own = [step for step in steps if not step.startswith(checker.OF_CHILDREN)]
        undoable = name in ("failing", "frail")
        recorded += [(job_id, key, True, step, 1, undoable) for step in own]
        others = () if name == "frail" else shape.records
        recorded += [(job_id, key, True, other.format(key=key), 1, False) for other in others]
    undone: list[tuple[Any, ...]] = [(2, "c"), (2, "b"), (2, "a"), (3, "b"), (3, "a")]
    return {
        "ended": ended,
        "written": written,
        "recorded": recorded,
        "undone": undone,
        "first": [("go:listener-0-3", "1")],
        "emitted": [("go:listener-0-3", "1")],
        "mismatches": [],
    }


def rules(tables: Tables) -> set[str]:
    by_query = {
        checker.ENDED: "ended",
        checker.WRITTEN: "written",
        checker.RECORDED: "recorded",
        checker.UNDONE: "undone",
        checker.FIRST: "first",
        checker.EMITTED: "emitted",
        checker.MISMATCHES: "mismatches",
    }

    def rows(query: LiteralString) -> list[tuple[Any, ...]]:
        return tables[by_query[query]]

    return {breach.rule for breach in checker.check(rows, ASKED)}


def change(table: str, row: int, place: int, value: object) -> Callable[[Tables], None]:
    def damage(tables: Tables) -> None:
        changed = list(tables[table][row])
        changed[place] = value
        tables[table][row] = tuple(changed)

    return damage


def again(table: str, row: int) -> Callable[[Tables], None]:
    return lambda tables: tables[table].append(tables[table][row])


def without(table: str, row: int) -> Callable[[Tables], None]:
    def damage(tables: Tables) -> None:
        del tables[table][row]

    return damage


def swap_undos(tables: Tables) -> None:
    tables["undone"][0], tables["undone"][1] = tables["undone"][1], tables["undone"][0]


DAMAGES: dict[str, tuple[Callable[[Tables], None], set[str]]] = {
    "nothing": (lambda tables: None, set()),
    "a workflow never ends": (without("ended", 0), {"lost"}),
    "a workflow ends twice": (again("ended", 0), {"doubled"}),
    "one finishes that must fail": (change("ended", 1, 1, "finished"), {"as planned", "unrequested"}),
    "a step has two rows": (again("written", 0), {"doubled"}),
    "a step has no row": (without("written", 0), {"lost", "one commit"}),
    "a step has two records": (again("recorded", 0), {"doubled"}),
    "a step has no record": (without("recorded", 0), {"lost", "one commit"}),
    "a sleep is not recorded": (
        lambda tables: tables["recorded"].remove((2, "saga-0-1", True, "sleep", 1, False)),
        {"lost"},
    ),
    "a row of no step": (change("written", 0, 1, "z"), {"lost", "one commit", "unrequested"}),
    "another attempt wrote than recorded": (change("written", 0, 3, 2), {"one attempt", "tokens grow"}),
    "an older attempt wrote last": (
        lambda tables: (change("written", 0, 3, 2)(tables), change("recorded", 0, 4, 2)(tables))[0],
        {"tokens grow"},
    ),
    "an undo is done twice": (again("undone", 0), {"doubled"}),
    "an undo is not done": (without("undone", 4), {"lost"}),
    "a step that is gone is undone": (change("undone", 0, 1, "z"), {"lost", "unrequested"}),
    "what finished is undone": (lambda tables: tables["undone"].append((1, "a")), {"unrequested"}),
    "undone in the wrong order": (swap_undos, {"newest first"}),
    "a result changes": (change("written", 0, 4, "v"), {"one result"}),
    "an event is read that is another": (change("emitted", 0, 1, "2"), {"first emission", "one result"}),
    "two emissions are the first": (again("first", 0), {"first emission"}),
    "a step is asked for with other arguments": (
        lambda tables: tables["mismatches"].append((1,)),
        {"same arguments"},
    ),
    "a child's result is lost": (
        lambda tables: change(
            "written",
            next(n for n, row in enumerate(tables["written"]) if row[:2] == ("parent-0-4", "a")),
            4,
            "1",
        )(tables),
        {"one result"},
    ),
}


@pytest.mark.parametrize(("damage", "seen"), DAMAGES.values(), ids=DAMAGES)
def test_one_wrong_row_is_seen(damage: Callable[[Tables], None], seen: set[str]) -> None:
    tables = done()

    damage(tables)

    assert rules(tables) == seen
