"""A page of the documentation as a program: its files, its tables, and the commands that it shows.

A block whose first line is `# name.py` (or another ending) is that file. An `sql` block is run by the owner
of the database. In a `console` block, every line that begins with `$` is a command, and the lines below it
are what it must print; `…` stands for anything. Servers and workers run beside the rest of the page until
its end. A block below `<!-- not run: reason -->` is only looked at.
"""

import re
import shlex
import subprocess
import textwrap
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from fencepost.embedded._deadline import Deadline

COMMAND_SECONDS_MAX = 100
UP_SECONDS_MAX = 120
DRAIN_SECONDS_MAX = 30
INSTALL = "pip install "
# What a page says to have a Python of its own. Those who run pages bring one.
ENVIRONMENT = ("python3 -m venv .venv", ". .venv/bin/activate")
UP = "fencepost up"
BESIDE = (
    UP,
    "fencepost worker",
    "fencepost serve",
    "fencepost run",
    "fencepost flows run",
    "fencepost judge work",
    "fencepost demo",
    "celery ",
)

_BLOCK = re.compile(
    r"(?P<skip>^ *<!-- not run: [^\n]+ -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w+)\n(?P<body>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_FILE = re.compile(r"# ([\w./-]+\.\w+)")


@dataclass(frozen=True)
class Block:
    language: str
    body: str

    @property
    def file_name(self) -> str:
        """The file that a block is."""
        first = self.body.partition("\n")[0]
        match = _FILE.fullmatch(first)
        assert match is not None, f"a {self.language} block begins with its file's name, not with {first!r}"
        return match[1]

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Each command of a console block with the lines that it prints."""
        for part in re.split(r"^\$ ", self.body, flags=re.MULTILINE)[1:]:
            command, *output = part.splitlines()
            yield command, output


def blocks(page: Path) -> list[Block]:
    """The blocks that are to be run, in their order."""
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [
        Block(match["language"], textwrap.dedent(match["body"])) for match in found if match["skip"] is None
    ]


def agrees(printed: list[str], shown: list[str]) -> bool:
    """Whether the page tells the truth about the output. A line of `…` alone stands for any lines."""
    pattern = "".join(
        r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + "\n" for line in shown
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


@dataclass
class PageRun:
    """Runs a page in a directory, with these environment variables.

    Without `install`, the directory has what the page installs, and the servers that it starts.
    """

    directory: Path
    environment: Mapping[str, str]
    owner: Callable[[], AbstractContextManager["psycopg.Connection[Any]"]]
    """Connects to the database as its owner."""
    install: Callable[[list[str]], None] | None = None

    def run(self, page: Path) -> int:
        """How many commands ran to their end, and printed what the page shows."""
        ran = 0
        with ExitStack() as beside:
            for block in blocks(page):
                match block.language:
                    case "python" | "yaml" | "toml" | "ini":
                        (self.directory / block.file_name).write_text(block.body, encoding="utf-8")
                    case "sql":
                        with self.owner() as owner:
                            owner.execute(block.body.encode())
                    case "console":
                        ran += sum(self._obey(command, shown, beside) for command, shown in block.commands())
                    case other:
                        raise AssertionError(f"a block of {other} cannot be run")
        return ran

    def _obey(self, command: str, shown: list[str], beside: ExitStack) -> bool:
        if command in ENVIRONMENT or (command.startswith((INSTALL, UP)) and self.install is None):
            return False
        if command.startswith(INSTALL):
            assert self.install is not None
            self.install(shlex.split(command.removeprefix(INSTALL)))
            return False
        if command.startswith(BESIDE):
            beside.enter_context(self.beside(command, shown))
            return False
        printed = self._printed(command)
        assert agrees(printed, shown), f"$ {command}\nprinted {printed}\nshown   {shown}"
        return True

    def _printed(self, command: str) -> list[str]:
        done = subprocess.run(
            self._words(command),
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS_MAX,
        )
        # A worker inside the command logs the tracebacks of its jobs.
        assert not (done.returncode and "Traceback" in done.stderr), done.stderr
        return [line.rstrip() for line in done.stdout.splitlines()]

    @contextmanager
    def beside(self, command: str, shown: list[str]) -> Generator[None]:
        """A server or a worker until the end of the page, when it drains. Waits for what the page shows."""
        log = self.directory / f"{'-'.join(command.split()[:3])}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                self._words(command), cwd=self.directory, env=self.environment, stdout=output, stderr=output
            )
            try:
                Deadline(UP_SECONDS_MAX, f"{command} has printed {shown}").wait(
                    lambda: _has_begun(process, log, shown)
                )
                yield
            finally:
                process.terminate()
                try:
                    process.wait(DRAIN_SECONDS_MAX)
                finally:
                    process.kill()

    def _words(self, command: str) -> list[str]:
        """Found on the PATH of the page, and not on that of the tests."""
        first, *others = shlex.split(command)
        for directory in self.environment["PATH"].split(":"):
            if (found := Path(directory) / first).is_file():
                return [str(found), *others]
        raise AssertionError(f"{first} is not there: {self.environment['PATH']}")


def _has_begun(process: "subprocess.Popen[bytes]", log: Path, shown: list[str]) -> bool:
    printed = log.read_text()
    assert process.poll() is None, f"it ended with {process.returncode}:\n{printed}"
    lines = printed.splitlines()
    return not shown or any(agrees(lines[:number], shown) for number in range(len(lines) + 1))
