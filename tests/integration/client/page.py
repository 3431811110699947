"""A page of the documentation as a program: its files, its tables, and the commands that it shows.

A block whose first line is `# name.py` (or another name) is that file. An `sql` block is run by the owner
of the database. In a `console` block, every line that begins with `$` is a command for bash, and the lines
below it are what it must print; `…` stands for anything. A prompt among them is answered: with what stands
behind it, or with a password. Servers and workers run beside the rest of the page, until its end or a line
`^C` that ends the one that began last. A block below `<!-- not run: reason -->` is only looked at.

The ports that a page names are replaced by free ones, and addresses of a production by those of servers that
the test has. An `sql` block for one of several servers begins with `-- on the NAME server`.
"""

import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from fencepost.embedded._deadline import Deadline
from tests.matrix.ports import free_port

COMMAND_SECONDS_MAX = 200
UP_SECONDS_MAX = 120
DRAIN_SECONDS_MAX = 120
INSTALL = "pip install "
# What a page says to have a Python of its own. Those who run pages bring one.
ENVIRONMENT = ("python3 -m venv .venv", ". .venv/bin/activate")
SYSTEM_INSTALL = "sudo apt-get install "
UP = "fencepost up"
CTRL_C = "^C"
PASSWORD = "correct horse battery staple"
BESIDE = (
    UP,
    "fencepost worker",
    "fencepost serve",
    "fencepost run",
    "fencepost flows run",
    "fencepost judge work",
    "fencepost demo",
    "celery ",
    "caddy run",
    "nginx ",
    "node_modules/.bin/anvil",
    "pgbouncer ",
    "python collector.py",
    "python broker.py",
)
TO_ITS_END = " --until-done"
"""What makes a program of these end by itself."""
Owner = Callable[[], AbstractContextManager["psycopg.Connection[Any]"]]
Owners = Mapping[str, Owner]
BASH = shutil.which("bash") or "/bin/bash"

_BLOCK = re.compile(
    r"(?P<skip>^ *<!-- not run: (?P<reason>[^\n]+) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w+)\n(?P<body>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_FILE = re.compile(r"# ([\w./-]+\.\w+|Caddyfile|Dockerfile)")
_SERVER = re.compile(r"-- on the (\w+) server")
_ASSIGNMENTS = re.compile(r"(?:env )?(?:\w+=\S* )*")
_PORT = re.compile(r"(?<![\d.])(?:8080|8443|8444|940[1-4]|6432|4318|8545)(?!\d)")
_DEFAULT_PORT = ":8642"
"""`fencepost up` takes another one when it is taken."""
_PROMPT = re.compile(r"(?P<text>Password:|Repeat for confirmation:|.* \[y/N\]:) ?(?P<answer>\w*)")


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
        for part in re.split(r"^(?:\$ |(?=\^C$))", self.body, flags=re.MULTILINE)[1:]:
            command, *output = part.splitlines()
            while command.endswith("\\"):
                command += "\n" + output.pop(0)
            yield command, output


def blocks(page: Path) -> list[Block]:
    """The blocks that are to be run, in their order."""
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [
        Block(match["language"], textwrap.dedent(match["body"])) for match in found if match["skip"] is None
    ]


def left_out(page: Path) -> dict[str, str]:
    """The first lines of the blocks that are only looked at, with the reasons."""
    found = (match for match in _BLOCK.finditer(page.read_text(encoding="utf-8")) if match["skip"])
    return {match["body"].strip().splitlines()[0]: match["reason"] for match in found}


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
    owner: Owner
    """Connects to the database as its owner."""
    install: Callable[[list[str]], None] | None = None
    install_on_the_system: Callable[[list[str]], None] | None = None
    instead: Mapping[str, str] = field(default_factory=dict[str, str])
    """What stands here for what the page prints."""
    owners: Owners = field(default_factory=dict[str, Owner])
    """Connects to the server of this name, for a page with several."""
    _beside: list[ExitStack] = field(default_factory=list[ExitStack])
    _ports: dict[str, str] = field(default_factory=dict[str, str])

    def run(self, page: Path) -> int:
        """How many commands ran to their end, and printed what the page shows."""
        with ExitStack() as until_the_end:
            until_the_end.callback(self._end_all)
            return sum(self._run(block) for block in blocks(page))

    def _run(self, block: Block) -> int:
        body = _PORT.sub(self._free_port, block.body)
        for printed, real in self.instead.items():
            body = body.replace(printed, real)
        match block.language:
            case "python" | "yaml" | "toml" | "ini" | "nginx" | "caddy" | "dockerfile":
                (self.directory / block.file_name).write_text(body, encoding="utf-8")
                return 0
            case "sql":
                server = _SERVER.match(body)
                with self.owners[server[1]]() if server else self.owner() as owner:
                    owner.execute(body.encode())
                return 0
            case "console":
                return sum(self._obey(command, shown) for command, shown in Block("console", body).commands())
            case other:
                raise AssertionError(f"a block of {other} cannot be run")

    def _free_port(self, printed: re.Match[str]) -> str:
        return self._ports.setdefault(printed[0], str(free_port()))

    def _obey(self, command: str, shown: list[str]) -> bool:
        """Whether it is a command that runs to its end, which prints what is shown."""
        shown = [line.replace(_DEFAULT_PORT, ":…") for line in shown]
        if self._prepares(command) or self._goes_on_beside(command, shown):
            return False
        prompts = [match for match in map(_PROMPT.fullmatch, shown) if match is not None]
        printed = self._typed(command, prompts) if prompts else self._printed(command, shown)
        assert agrees(printed, shown), f"$ {command}\nprinted {printed}\nshown   {shown}"
        return True

    def _prepares(self, command: str) -> bool:
        """Install something, or set a variable for the commands that follow."""
        if command in ENVIRONMENT:
            return True
        if command.startswith(INSTALL):
            if self.install is not None:
                self.install(shlex.split(command.removeprefix(INSTALL)))
            return True
        if command.startswith(SYSTEM_INSTALL):
            assert self.install_on_the_system is not None
            self.install_on_the_system(shlex.split(command.removeprefix(SYSTEM_INSTALL)))
            return True
        if command.startswith("export "):
            self._export(command)
            return True
        return False

    def _goes_on_beside(self, command: str, shown: list[str]) -> bool:
        """Begin a server or a worker, or end the one that began last."""
        if command == CTRL_C:
            self._beside.pop().close()
            return True
        if not _ASSIGNMENTS.sub("", command, count=1).startswith(BESIDE) or command.endswith(TO_ITS_END):
            return False
        if not command.startswith(UP) or self.install is not None:
            self._beside.append(ExitStack())
            self._beside[-1].enter_context(self.beside(command, shown))
        return True

    def _export(self, command: str) -> None:
        done = self._run_to_its_end(f"set -e; {command}\nenv -0")
        assert done.returncode == 0, f"$ {command}\n{done.stderr}"
        self.environment = dict(one.split("=", 1) for one in done.stdout.split("\0") if "=" in one)

    def _printed(self, command: str, shown: list[str]) -> list[str]:
        done = self._run_to_its_end(command)
        # A worker inside the command logs the tracebacks of its jobs.
        assert not (done.returncode and "Traceback" in done.stderr), done.stderr
        is_told = any(line != "…" for line in shown)
        # A program that ends as if the power had gone says nothing.
        refused = done.returncode and done.stderr
        assert is_told or not refused, f"$ {command}\nends with {done.returncode}: {done.stderr}"
        printed = done.stdout or (done.stderr if done.returncode else "")
        return [line.rstrip() for line in printed.splitlines()]

    def _run_to_its_end(self, command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [BASH, "-c", command],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS_MAX,
        )

    def _typed(self, command: str, prompts: list[re.Match[str]]) -> list[str]:
        """What a terminal shows of a command whose prompts are answered by hand."""
        ours, its = pty.openpty()
        process = subprocess.Popen(
            [BASH, "-c", command],
            cwd=self.directory,
            env={**self.environment, "TERM": "dumb"},
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
        )
        os.close(its)
        try:
            seen = "".join(_conversation(ours, prompts))
            process.wait(COMMAND_SECONDS_MAX)
        finally:
            process.kill()
            process.wait()
            os.close(ours)
        assert "Traceback" not in seen, seen
        # A progress that was wiped off leaves its empty line.
        return [line.rstrip() for line in seen.splitlines() if line.strip()]

    @contextmanager
    def beside(self, command: str, shown: list[str]) -> Generator[None]:
        """A server or a worker until the end of the page, when it drains. Waits for what the page shows."""
        words = re.findall(r"[\w.]+", command)
        log = self.directory / f"{'-'.join(words[:4])}.log"
        errors = log.with_suffix(".err")
        with log.open("w") as output, errors.open("w") as error_output:
            # Bash becomes the command when there is no other.
            process = subprocess.Popen(
                [BASH, "-c", command],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=error_output,
            )
            try:
                Deadline(UP_SECONDS_MAX, f"{command} has printed {shown}").wait(
                    lambda: _has_begun(process, log, errors, shown)
                )
                yield
                ended = process.poll()
                assert not ended, f"$ {command}\nended by itself with {ended}:\n{errors.read_text()}"
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(DRAIN_SECONDS_MAX)
                finally:
                    process.kill()

    def _end_all(self) -> None:
        """The one that began last first: it may use the others."""
        with ExitStack() as all_of_them:
            for one in self._beside:
                all_of_them.push(one)
        self._beside.clear()


def _conversation(terminal: int, prompts: list[re.Match[str]]) -> Iterator[str]:
    """What the terminal shows until the program ends. A prompt is answered when it is shown last."""
    end = time.monotonic() + COMMAND_SECONDS_MAX
    waiting, line = list(prompts), ""
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            came = os.read(terminal, 4096).decode()
        except OSError:  # Linux says so when the program has closed its side.
            return
        yield came
        line = (line + came).rpartition("\n")[2]
        # The space comes last, when the program reads: what is typed before that is thrown away.
        if waiting and line == waiting[0]["text"] + " ":
            os.write(terminal, f"{waiting.pop(0)['answer'] or PASSWORD}\n".encode())
    raise TimeoutError(f"the command waits for something after {line!r}")


def _has_begun(process: "subprocess.Popen[bytes]", log: Path, errors: Path, shown: list[str]) -> bool:
    """Servers of others say on their standard error that they have begun."""
    printed = [log.read_text(), errors.read_text()]
    assert process.poll() is None, f"it ended with {process.returncode}:\n{''.join(printed)}"
    return not shown or any(
        agrees(lines[:number], shown)
        for lines in (text.splitlines() for text in printed)
        for number in range(len(lines) + 1)
    )
