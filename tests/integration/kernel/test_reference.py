"""The reference knows every function, by its arguments, and no other."""

import re
from pathlib import Path
from typing import Any

from fencepost.errors import REFUSALS
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.kernel_functions import KERNEL_FUNCTIONS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "kernel.md"
FUNCTIONS = """
    select proname::text as name, coalesce(proargnames[1:pronargs], '{}') as arguments,
           pronargdefaults as optional,
           provolatile = 's' or proname = 'clock' as reads
    from pg_proc where pronamespace = 'fencepost'::regnamespace and proname not like '\\_%%' order by proname
"""
ROW = re.compile(r"^\| `(\w+\([^`]*\))` \| (.*)$", re.MULTILINE)


def kernel_functions(admin: Caller) -> list[dict[str, Any]]:
    return [function for function in admin.rows(FUNCTIONS) if function["name"] in KERNEL_FUNCTIONS]


def signature(function: dict[str, Any]) -> str:
    """As the page writes it: without the prefix, and what may be left out in brackets."""
    arguments = [name.removeprefix("p_") for name in function["arguments"]]
    required = len(arguments) - function["optional"]
    optional = "".join(f"[, {name}]" for name in arguments[required:])
    written = f"{', '.join(arguments[:required])}{optional}"
    return f"{function['name']}({written.replace('[, ', '[', 1) if not required else written})"


def test_every_function_is_in_the_reference_with_its_arguments(admin: Caller) -> None:
    documented = [row[0] for row in ROW.findall(PAGE.read_text())]

    assert sorted(documented) == sorted(signature(function) for function in kernel_functions(admin))


def test_the_reference_says_which_functions_only_read(admin: Caller) -> None:
    marked = {row[0] for row in ROW.findall(PAGE.read_text()) if "*Reads*" in row[1]}

    assert marked == {signature(function) for function in kernel_functions(admin) if function["reads"]}


def test_the_reference_has_every_reason_with_its_state() -> None:
    rows = re.findall(r"^\| (ZF0\d\d) \| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)

    assert dict(rows) == {refusal.sqlstate: reason for reason, refusal in REFUSALS.items()}
