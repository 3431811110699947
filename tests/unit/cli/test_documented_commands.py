"""Every command that the documentation names exists, and has the options that it is given there."""

import re
import shlex
from contextlib import suppress
from pathlib import Path

import pytest

from tests.command_line import CommandMissing, check_options

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(ROOT / "deploy").rglob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if not {"generated", "results"} & set(page.parts)
)
PREFIX = r"(?:\w+=\S+ )*(?:kubectl exec \S+ (?:-it )?-- )?fencepost "
INLINE = re.compile(rf"`{PREFIX}([^`\n]+)`")
PROMPTED = re.compile(rf"^ *\$ {PREFIX}([^\n]+)$", re.MULTILINE)
# What follows is another program's, or a remark.
END = re.compile(r" [#|>&<].*|\\$| ….*")
NO_WORDS = ("…", "...", "--help")
NO_COMMAND = ("--version", "COMMAND", "coupons", "beside it")
"""An option of the program, a placeholder, the command of the example's plugin, and a peer of a benchmark."""


def commands_of(text: str) -> set[str]:
    found = {*INLINE.findall(text), *PROMPTED.findall(text)}
    return {END.sub("", command) for command in found if not command.startswith(NO_COMMAND)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_the_page_exist(page: Path) -> None:
    for command in sorted(commands_of(page.read_text(encoding="utf-8"))):
        words = [word for word in shlex.split(re.sub(r"[][]", "", command)) if word not in NO_WORDS]
        # A page may name a group alone: `fencepost jobs`.
        with suppress(CommandMissing):
            check_options(words)


def test_what_is_not_there_is_found() -> None:
    assert commands_of("`fencepost jobs list` and\n$ A=b fencepost status --watch  # look") == {
        "jobs list",
        "status --watch ",
    }
    for wrong in (["jbos"], ["jobs", "lits"], ["status", "--wach"]):
        with pytest.raises(AssertionError):
            check_options(wrong)


def test_commands_are_found_at_all() -> None:
    assert sum(len(commands_of(page.read_text(encoding="utf-8"))) for page in PAGES) > 500
