"""The tree in the docstring, the classes and the table in the database say the same."""

import inspect
import re
from importlib.resources import files

import pytest

from fencepost import errors
from fencepost.errors import REFUSALS, FencepostError, Refusal, from_sqlstate

SCHEMA = files("fencepost.kernel").joinpath("schema")
FUNCTIONS = files("fencepost.kernel").joinpath("functions")
CLASSES = {
    name: cls
    for name, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, FencepostError) and cls.__module__ == errors.__name__
}


def drawn_tree() -> dict[str, str | None]:
    """Each class of the docstring's tree with its parent."""
    parents: dict[str, str | None] = {}
    branch: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    (?P<rail>[│ ]*)(?P<fork>[├└]── )?(?P<name>[A-Z]\w+)(?:\s{2}|$)", line)
        if match is None:
            continue
        depth = len(match["rail"]) // 4 + (1 if match["fork"] else 0)
        branch = [*branch[:depth], match["name"]]
        parents[match["name"]] = branch[depth - 1] if depth else None
    return parents


def parent(cls: type[FencepostError]) -> str | None:
    return next((base.__name__ for base in cls.__bases__ if issubclass(base, FencepostError)), None)


def stored_reasons() -> dict[str, str]:
    """Reason and SQLSTATE of every row that a migration stores."""
    rows: dict[str, str] = {}
    for file in SCHEMA.iterdir():
        rows.update(re.findall(r"\('(\w+)',\s*'(ZF\d{3})'", file.read_text(encoding="utf-8")))
    return rows


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    assert drawn_tree() == {name: parent(cls) for name, cls in CLASSES.items()}


def test_every_refusal_is_a_row_of_the_database_with_the_same_state() -> None:
    assert stored_reasons() == {reason: cls.sqlstate for reason, cls in REFUSALS.items()}


def test_every_refusal_class_is_found_by_its_reason() -> None:
    assert set(REFUSALS.values()) == {
        cls for cls in CLASSES.values() if issubclass(cls, Refusal) and cls is not Refusal
    }


def test_every_reason_has_its_counter() -> None:
    schema = "".join(file.read_text(encoding="utf-8") for file in SCHEMA.iterdir())
    counters = set(re.findall(r"create sequence fencepost\.refused_(\w+)", schema))

    assert counters == set(REFUSALS)


def test_every_reason_that_the_kernel_gives_is_known() -> None:
    functions = "".join(file.read_text(encoding="utf-8") for file in FUNCTIONS.iterdir())
    given = set(re.findall(r"_refuse\('(\w+)'", functions))

    assert given
    assert given <= set(REFUSALS)


def test_every_state_that_the_kernel_raises_has_a_class() -> None:
    functions = "".join(file.read_text(encoding="utf-8") for file in FUNCTIONS.iterdir())
    raised = set(re.findall(r"errcode = '(ZF\d{3})'", functions))

    assert raised
    assert [state for state in sorted(raised) if from_sqlstate(state, "message", None) is None] == []


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
def test_every_error_says_what_it_means(cls: type[FencepostError]) -> None:
    assert cls.__doc__
    assert cls.__doc__ != Exception.__doc__


@pytest.mark.parametrize("cls", REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_carries_its_facts(cls: type[Refusal]) -> None:
    refusal = from_sqlstate(
        cls.sqlstate, "message", '{"noun": "n", "subject": "s", "attempted": {"a": 1}, "seen": {"b": 2}}'
    )

    assert type(refusal) is cls
    assert isinstance(refusal, Refusal)
    assert (str(refusal), refusal.noun, refusal.subject) == ("message", "n", "s")
    assert (refusal.attempted, refusal.seen) == ({"a": 1}, {"b": 2})


def test_a_foreign_state_is_not_ours() -> None:
    assert from_sqlstate("23505", "message", None) is None
