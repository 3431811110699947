"""A page is run as its reader would: its shell, its prompts, its ports and its Ctrl-C."""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.integration.client.page import PASSWORD, PageRun, left_out


def no_database() -> "AbstractContextManager[psycopg.Connection[Any]]":
    raise AssertionError("these pages have no database")


def run(directory: Path, *blocks: str) -> int:
    page = directory / "page.md"
    page.write_text("\n\n".join(blocks))
    return PageRun(directory, {"PATH": os.environ["PATH"]}, no_database).run(page)


def console(*lines: str) -> str:
    return "\n".join(["```console", *lines, "```"])


def test_commands_are_those_of_a_shell_with_its_variables(tmp_path: Path) -> None:
    assert (
        run(
            tmp_path,
            console("$ export NAME=$(echo ada) AGE=7", "$ echo $NAME $AGE | tr a-z A-Z  # loud", "ADA 7"),
        )
        == 1
    )


def test_a_prompt_is_answered_and_a_password_is_typed(tmp_path: Path) -> None:
    ask = "import getpass\nanswer = input('Sure? [y/N]: ')\nprint(answer, getpass.getpass())"
    ask = f"```python\n# ask.py\n{ask}\n```"

    assert run(tmp_path, ask, console("$ python ask.py", "Sure? [y/N]: y", "Password:", f"y {PASSWORD}")) == 1


def test_the_ports_of_a_page_are_free_ones_everywhere(tmp_path: Path) -> None:
    file = "```ini\n# ports.ini\nport = 8080\nother = 18080\n```"
    with pytest.raises(AssertionError, match="other = 18080"):
        run(tmp_path, file, console("$ cat ports.ini", "nothing"))

    (_, port, other) = (tmp_path / "ports.ini").read_text().splitlines()
    assert port != "port = 8080"
    assert other == "other = 18080"


def test_ctrl_c_ends_the_process_that_began_last(tmp_path: Path) -> None:
    # What is run beside a page has a name: this is one.
    server = (
        "```python\n# broker.py\nimport signal, sys, time\nfrom pathlib import Path\n"
        "def end(*_):\n    Path('ended').touch()\n    sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\nprint('Listening.', flush=True)\ntime.sleep(60)\n```"
    )

    run(tmp_path, server, console("$ python broker.py", "Listening."), console("^C", "$ ls ended", "ended"))


@pytest.mark.parametrize(
    ("command", "shown"),
    [("echo one", "two"), ("echo one", ""), ("ls /nowhere", ""), ("echo it >&2; exit 3", "that")],
)
def test_a_command_that_does_otherwise_than_shown_is_found_out(
    tmp_path: Path, command: str, shown: str
) -> None:
    with pytest.raises(AssertionError):
        run(tmp_path, console(f"$ {command}", *filter(None, [shown])))


def test_a_refusal_is_shown_from_standard_error(tmp_path: Path) -> None:
    assert run(tmp_path, console("$ echo refused >&2; exit 3", "refused")) == 1


def test_what_is_left_out_is_listed_with_its_reason(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run: it needs a broker -->\n" + console("$ trade") + "\n\n" + console("$ true") + "\n"
    )

    assert left_out(page) == {"$ trade": "it needs a broker"}
