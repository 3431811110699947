"""The mutants themselves: they are what their names say, and every RAISE is reached."""

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fencepost.kernel.migrate import component_folders
from tests.mutants.exchange import plant
from tests.mutants.excused import EXCUSED, REACHED_ELSEWHERE
from tests.mutants.grammar import Function
from tests.mutants.operators import OPERATORS, mutants
from tests.mutants.python_operators import OPERATORS as PYTHON_OPERATORS
from tests.mutants.python_operators import python_mutants
from tests.mutants.subject import KERNEL, PYTHON, Modules, subject
from tests.mutants.survey import counted, files_of, functions_of, sites

FENCE = Function(
    "fence",
    "fence.sql",
    """create or replace function fencepost.fence(p_token bigint) returns void language plpgsql as $$
begin
  select * into v_held from lease l
  where l.token = p_token and (l.owner is not null or l.at between 1 and 2) for key share;
  if not found or v_held.at <= 7 then
    perform fencepost._refuse('not_owner'); -- and not this
  end if;
  update lease set token = token + 1 where resource = 'and';
end $$;""",
)

PYTHON_FENCE = """
class Fence:
    @staticmethod
    def judge(token: int = 7, held: int = 7, owner: str = "") -> bool:
        assert token != 9
        if not (token == held and owner):
            raise ValueError(f"{token + 1} is late")
        if 0 < token <= 7:
            return True
        print(owner if owner else max(held, token))

    @staticmethod
    def after(token):
        return token + 1
"""


def instead(kind: str) -> list[str]:
    """What stands in the place of each mutant of that kind."""
    return [
        f"{FENCE.text[mutant.start : mutant.end]} -> {mutant.instead}"
        for mutant in mutants(FENCE)
        if f": {kind}: " in mutant.name
    ]


def test_each_operator_changes_what_its_name_says() -> None:
    assert instead("without the conjunct") == [
        "and (l.owner is not null or l.at between 1 and 2) -> ",
        "l.token = p_token and -> ",
    ]
    assert instead("without the alternative") == [
        "or l.at between 1 and 2 -> ",
        "l.owner is not null or -> ",
        "or v_held.at <= 7 -> ",
        "not found or -> ",
    ]
    assert instead("flipped") == ["= -> <>", "<= -> <", "= -> <>"], "an assignment is no comparison"
    assert instead("null the other way round") == ["is not -> is"]
    assert instead("without the not") == ["not -> "]
    assert instead("without the lock") == ["for key share -> "]
    assert instead("without the step") == ["+ 1 -> "]
    assert instead("without the statement") == ["perform fencepost._refuse('not_owner'); -> null;"]


def test_every_function_of_the_kernel_is_read_and_every_mutant_has_a_name_of_its_own() -> None:
    written = sum(file.read_text().count("create or replace function") for file in files_of("kernel"))
    every = [mutant for function in functions_of("kernel") for mutant in mutants(function)]
    kinds = {kind for kind in OPERATORS if any(f": {kind}: " in mutant.name for mutant in every)}

    assert len(functions_of("kernel")) == written
    assert [name for name, count in Counter(mutant.name for mutant in every).items() if count > 1] == []
    assert all(mutant.text != mutant.function.text for mutant in every)
    assert kinds == set(OPERATORS)


def test_every_excuse_is_for_something_that_is_there() -> None:
    every = {mutant.name for name in (KERNEL, PYTHON) for mutant in subject(name).mutants()}
    assert EXCUSED.keys() <= every
    assert all(EXCUSED.values())


def python_instead(tmp_path: Path, kind: str) -> list[str]:
    path = tmp_path / "fence.py"
    path.write_text(PYTHON_FENCE)
    made = [mutant for mutant in python_mutants(path, "fence") if f": {kind}: " in mutant.name]
    return [mutant.name.partition(f": {kind}: ")[2] for mutant in made]


def test_each_operator_changes_what_its_name_says_in_python(tmp_path: Path) -> None:
    assert python_instead(tmp_path, "without the operand") == [
        "token == held and owner -> (owner)",
        "token == held and owner -> (token == held)",
    ]
    assert python_instead(tmp_path, "flipped") == [
        "token == held -> (token != held)",
        "0 < token <= 7 -> (0 <= token <= 7)",
        "0 < token <= 7 -> (0 < token < 7)",
    ]
    assert python_instead(tmp_path, "without the not") == [
        "not (token == held and owner) -> (token == held and owner)"
    ]
    assert python_instead(tmp_path, "negated") == ["owner -> (not owner)"]
    assert python_instead(tmp_path, "another constant") == ["0 -> 1", "7 -> 8", "True -> False", "1 -> 2"]
    assert python_instead(tmp_path, "another sign") == ["token + 1 -> (token - 1)"]
    assert python_instead(tmp_path, "the other end") == ["max -> min"]
    assert python_instead(tmp_path, "without the statement") == [
        'raise ValueError(f"{token + 1} is late") -> pass',
        "return True -> pass",
        "print(owner if owner else max(held, token)) -> pass",
    ]


def test_a_caller_that_has_imported_a_function_calls_its_mutant(tmp_path: Path) -> None:
    path = tmp_path / "fence.py"
    path.write_text(PYTHON_FENCE)
    specification = importlib.util.spec_from_file_location("fence_of_a_test", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["fence_of_a_test"] = module
    try:
        specification.loader.exec_module(module)
        after = module.Fence.after
        (mutant,) = (one for one in python_mutants(path, "fence") if "another sign" in one.name)
        assert (after(7), mutant.unit) == (8, "fence.Fence.after")

        plant(mutant)

        assert after(7) == 6
    finally:
        del sys.modules["fence_of_a_test"]


def test_every_mutant_of_python_has_a_name_of_its_own_and_is_one_of_a_function_that_is_there() -> None:
    every = Modules().mutants()

    assert [name for name, count in Counter(mutant.name for mutant in every).items() if count > 1] == []
    assert {
        kind for kind in PYTHON_OPERATORS if any(f": {kind}: " in mutant.name for mutant in every)
    } == set(PYTHON_OPERATORS)
    newest = {mutant.path: mutant for mutant in every}
    for mutant in newest.values():
        compile(mutant.module_text, str(mutant.path), "exec")


def test_every_raise_is_counted() -> None:
    found = [site for function in functions_of("kernel") for site in sites(function)]
    texts = [file.read_text() for file in files_of("kernel")]

    # A RAISE inside a comment is none.
    written = sum(
        len(re.findall(r"^\s*(?:raise exception|perform fencepost\.\w*_refuse\()", text, re.M))
        for text in texts
    )
    assert len(found) == written
    assert all(f"survey.{site.sequence}'" in counted(site.function) for site in found)
    assert all(any(site.statement.startswith(start) for site in found) for start in REACHED_ELSEWHERE)


PACKAGES = (
    "kernel",
    "accounts",
    "console",
    "flows",
    "judge",
    "mutations",
    "nonces",
    "orders",
    "players",
    "webhooks",
)


def test_no_package_with_functions_is_forgotten() -> None:
    assert set(component_folders()) == set(PACKAGES)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("package", PACKAGES)
def test_every_raise_is_reached_by_a_test(package: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--survey", "--of", package],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-5000:]
