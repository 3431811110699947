"""The mutants themselves: they are what their names say, and every RAISE of the kernel is reached."""

import re
import subprocess
import sys
from collections import Counter

import pytest

from tests.mutants.excused import EXCUSED, REACHED_ELSEWHERE
from tests.mutants.grammar import Function
from tests.mutants.operators import OPERATORS, mutants
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
    assert EXCUSED.keys() <= {mutant.name for mutant in every}, "an excuse for what is not there any more"


def test_every_raise_is_counted() -> None:
    found = [site for function in functions_of("kernel") for site in sites(function)]
    texts = [file.read_text() for file in files_of("kernel")]

    # A RAISE inside a comment is none.
    written = sum(
        len(re.findall(r"^\s*(?:raise exception|perform fencepost\.\w*_refuse\()", text, re.M))
        for text in texts
    )
    assert len(found) == written
    assert all(f"census.{site.sequence}'" in counted(site.function) for site in found)
    assert all(any(site.statement.startswith(start) for site in found) for start in REACHED_ELSEWHERE)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_every_raise_of_the_kernel_is_reached_by_a_test() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--survey"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout[-5000:]
