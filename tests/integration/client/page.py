"""A page of the documentation as a program: its files, its tables, and the commands that it shows.

A `python` block whose first line is `# name.py` is that file. An `sql` block is run by the owner of the
database. In a `console` block, every line that begins with `$` is a command, and the lines below it are what
it must print; `…` stands for anything. A block below `<!-- not run: reason -->` is only looked at.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]+ -->\n)?```(?P<language>\w+)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    language: str
    body: str

    @property
    def file_name(self) -> str:
        """The file that a Python block is."""
        first = self.body.partition("\n")[0]
        match = re.fullmatch(r"# (\w+\.py)", first)
        assert match is not None, f"a python block begins with its file's name, not with {first!r}"
        return match[1]

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Each command of a console block with the lines that it prints."""
        for part in re.split(r"^\$ ", self.body, flags=re.MULTILINE)[1:]:
            command, *output = part.splitlines()
            yield command, output


def blocks(page: Path) -> list[Block]:
    """The blocks that are to be run, in their order."""
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["language"], match["body"]) for match in found if match["skip"] is None]


def agrees(printed: list[str], shown: list[str]) -> bool:
    """Whether the page tells the truth about the output. A line of `…` alone stands for any lines."""
    pattern = "".join(
        r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + "\n" for line in shown
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None
