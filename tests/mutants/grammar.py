"""The functions of an SQL file, and their bodies as words."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FUNCTION = re.compile(r"^create or replace function fencepost\.(\w+).*?\$\$;", re.DOTALL | re.MULTILINE)
WORD = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<string>'(?:[^']|'')*')
      | (?P<word>\w+)
      | (?P<sign><>|<=|>=|:=|=>|::|\|\||->>|->|\#>>|\#>|.)""",
    re.VERBOSE | re.DOTALL,
)
OPENS, CLOSES = {"(", "["}, {")", "]"}


@dataclass(frozen=True, slots=True)
class Word:
    """A word, a sign or a string; `depth` counts the brackets and CASEs around it."""

    text: str
    start: int
    end: int
    depth: int


@dataclass(frozen=True)
class Function:
    """One statement of a file: what makes the function."""

    name: str
    file: str
    text: str

    @property
    def body(self) -> tuple[int, int]:
        return self.text.index("$$") + 2, self.text.rindex("$$")


def functions(file: Path) -> Iterator[Function]:
    return (Function(found[1], file.name, found[0]) for found in FUNCTION.finditer(file.read_text()))


def words(function: Function) -> list[Word]:
    """The body without spaces and comments. A closing bracket has the depth of its opening one."""
    found: list[Word] = []
    depth = 0
    start, end = function.body
    for match in WORD.finditer(function.text, start, end):
        text = match[0].lower()
        if match["space"]:
            continue
        closes = text in CLOSES or (text == "end" and _ends_case(found, depth))
        depth -= closes
        found.append(Word(text, match.start(), match.end(), depth))
        depth += text in OPENS or text == "case"
    return found


def _ends_case(before: list[Word], depth: int) -> bool:
    """Whether an END closes a CASE: the nearest open bracket or CASE around it is a CASE."""
    opener = next((word for word in reversed(before) if word.depth == depth - 1 and _opens(word)), None)
    return opener is not None and opener.text == "case"


def _opens(word: Word) -> bool:
    return word.text in OPENS or word.text == "case"
