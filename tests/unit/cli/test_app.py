from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from fencepost.cli import _status as status
from fencepost.cli._app import _application, run  # pyright: ignore[reportPrivateUsage]
from fencepost.cli.exit_codes import ExitCode, UserError, exit_code_for
from fencepost.embedded import DirectoryInUseError, ServerStartError
from fencepost.errors import MigrationFailed, SchemaMissing, ServerUnavailable, SettingsError

COMMANDS = ("up", "migrate", "doctor", "status", "explain")
GROUPS = (
    "console",
    "flows",
    "jobs",
    "nonces",
    "orders",
    "players",
    "schedules",
    "tokens",
    "tx",
    "webhooks",
    "workers",
    "workflows",
)
"""The judge has a table of its own."""
REFERENCE = Path(__file__).parents[3] / "docs/reference/cli.md"


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No config.yaml, no running system, and none of the settings of the tester's machine."""
    monkeypatch.chdir(tmp_path)
    for name in ("DATABASE_URL", "REDIS_URL", "MIGRATION_DATABASE_URL", "FENCEPOST_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == ExitCode.OK
    said = capsys.readouterr().out
    assert "Examples:" in said
    assert f"fencepost {command}" in said


def test_the_first_help_names_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])
    said = capsys.readouterr().out
    for code in ExitCode:
        assert f"{code.value:<4} {code.meaning}" in said


def test_the_reference_names_every_exit_code_and_command() -> None:
    page = REFERENCE.read_text()
    for code in ExitCode:
        assert f"| {code.value} | {code.meaning} |" in page
    for command in COMMANDS:
        assert f"`fencepost {command}" in page


@pytest.mark.parametrize("group", GROUPS)
def test_the_reference_names_every_command_of_a_group(group: str) -> None:
    _, _, after = REFERENCE.read_text().partition(f"### `fencepost {group} ")
    named = set(re.split(r"[ |]+", after.partition("`")[0]))
    commands = vars(typer.main.get_command(_application(group)))["commands"][group].commands
    hidden = {name for name, command in commands.items() if command.hidden}
    assert set(commands) - hidden == named


@pytest.mark.parametrize(
    "arguments", [["statsu"], ["status", "--nope"], ["explain"], ["status", "--every", "0"]]
)
def test_a_wrong_command_line_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == ExitCode.USAGE
    assert "Usage: fencepost" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SettingsError("x"), ExitCode.SETTINGS),
        (ServerUnavailable("x"), ExitCode.UNREACHABLE),
        (SchemaMissing("x"), ExitCode.SCHEMA),
        (MigrationFailed("x"), ExitCode.PROBLEM),
        (UserError("x", ExitCode.NOT_FOUND), ExitCode.NOT_FOUND),
        (DirectoryInUseError("x"), ExitCode.IN_USE),
        (ServerStartError("x"), ExitCode.UNREACHABLE),
        (ZeroDivisionError("x"), None),
    ],
)
def test_an_expected_error_has_its_code(error: Exception, code: ExitCode | None) -> None:
    assert exit_code_for(error) == code


def test_a_wrong_setting_is_told_in_one_line_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://app:s3cret@db/shop")
    assert run(["status"]) == ExitCode.SETTINGS
    assert capsys.readouterr().err == (
        "fencepost: DATABASE_URL is 'mysql://app:***@db/shop' (environment); "
        "allowed: a URL beginning with postgresql:// or postgres://.\n"
    )


@pytest.mark.parametrize("arguments", [["status"], ["explain", "7"], ["migrate"], ["migrate", "--check"]])
def test_without_a_database_it_says_how_to_get_one(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == ExitCode.UNREACHABLE
    assert "Start one in another terminal, or set DATABASE_URL." in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["status"], ["explain", "7"], ["migrate"], ["up"]])
def test_a_server_that_does_not_answer_is_named_without_its_password(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://app:s3cret@127.0.0.1:1/shop")
    assert run(arguments) == ExitCode.UNREACHABLE
    said = capsys.readouterr().err
    assert "postgresql://app:***@127.0.0.1:1/shop" in said
    assert "Traceback" not in said
    assert "s3cret" not in said


def test_a_bug_shows_its_traceback_but_no_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_value: object) -> None:
        raise ZeroDivisionError("while talking to redis://:s3cret@cache")

    monkeypatch.setattr(status, "answer_json", broken)
    monkeypatch.setattr("fencepost.cli._live_status.look", lambda: type("Board", (), {"as_json": dict}))
    assert run(["status", "--json"]) == ExitCode.BUG
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "redis://:***@cache" in said
    assert "s3cret@cache" not in said


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fencepost.cli._live_status.look", interrupted)
    assert run(["status"]) == ExitCode.INTERRUPTED


def test_a_command_of_a_distribution_that_is_not_installed_says_which_one_brings_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fencepost.cli._app.plugins", dict)
    assert run(["serve"]) == ExitCode.USAGE
    assert "pip install fencepost-server" in capsys.readouterr().err


def test_a_command_loads_no_other_command() -> None:
    probe = (
        "import sys; from fencepost.cli._app import run; run(['status', '--help']); "
        "sys.exit(' '.join(m for m in sys.modules if 'commands' in m or m == 'fencepost.cli._up') or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_line_itself_loads_nothing_heavy() -> None:
    """What a command needs, it imports when it runs; what `import fencepost` brings is another matter."""
    heavy = {
        "psycopg",
        "redis",
        "rich",
        "fencepost.embedded",
        "fencepost.cli._stack",
        "fencepost.cli._doctor_checks",
    }
    probe = (
        "import sys, fencepost; before = set(sys.modules); import fencepost.cli._app; "
        f"sys.exit(', '.join({heavy!r} & (set(sys.modules) - before)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_names_every_installed_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == ExitCode.OK
    first, *others = capsys.readouterr().out.splitlines()
    assert first == f"fencepost {version('fencepost')}"
    assert f"fencepost-server {version('fencepost-server')}" in others


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sched"], ["schedules"]),
        (["jobs", "li"], ["list"]),
        (["jobs", "list", "--st"], ["--state"]),
        (["jobs", "list", "--state", "de"], ["dead"]),
        (["jobs", "list", "--state", "dead", "--lim"], ["--limit"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["nothing", "x"], []),
    ],
)
def test_a_word_is_completed(
    words: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_FENCEPOST_COMPLETE", "1")
    assert run(words) == ExitCode.OK
    assert [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()] == expected


def test_bash_completes_a_command_line_by_the_script(tmp_path: Path) -> None:
    program = tmp_path / "fencepost"
    program.write_text(f"#!{sys.executable}\nfrom fencepost.cli._main import main\nmain()\n")
    program.chmod(0o755)
    script = f"""
        export PATH={tmp_path}:$PATH
        eval "$(fencepost completion bash)"
        COMP_WORDS=(fencepost schedules change nightly --missed "") COMP_CWORD=5
        _fencepost
        printf '%s\\n' "${{COMPREPLY[@]}}"
        complete -p fencepost
    """
    told = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.splitlines()[:3] == ["once", "all", "skip"]
    assert "-F _fencepost fencepost" in told.stdout


@pytest.fixture
def with_program(tmp_path: Path) -> dict[str, str]:
    """An environment in which `fencepost` is this one, and no file of the user's own is read."""
    program = tmp_path / "fencepost"
    program.write_text(f"#!{sys.executable}\nfrom fencepost.cli._main import main\nmain()\n")
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "dumb"}


def shell_of(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed, so its completion cannot be run")
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fencepost sched", ["schedules"]),
        ("fencepost jobs list --state de", ["dead"]),
        ("fencepost completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_fish_completes_a_command_line_by_the_script(
    line: str, expected: list[str], with_program: dict[str, str]
) -> None:
    script = 'fencepost completion fish | source; complete --do-complete "$argv[1]"'
    told = subprocess.run(
        [shell_of("fish"), "--no-config", "-c", script, line],
        env=with_program,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (sorted(one.partition("\t")[0] for one in told.stdout.splitlines()), told.stderr) == (
        sorted(expected),
        "",
    )


def test_zsh_completes_a_command_line_by_the_script(tmp_path: Path, with_program: dict[str, str]) -> None:
    """Its completion needs a terminal, and a person who presses the tabulator."""
    (tmp_path / ".zshrc").write_text(
        "autoload -U compinit; compinit -u -D\n"
        'eval "$(fencepost completion zsh)"\n'
        "unsetopt zle_bracketed_paste\nPS1='READY '\n"
    )
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        [shell_of("zsh"), "-i", "+m"],
        env={**with_program, "ZDOTDIR": str(tmp_path)},
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
    )
    os.close(inside)
    try:
        read_until(terminal, "READY")
        os.write(terminal, b"fencepost schedu\t")
        assert "fencepost schedules" in read_until(terminal, "schedules")
        os.write(terminal, b"li\t")
        assert "list" in read_until(terminal, "list")
        # Several are listed, each with its help.
        os.write(terminal, b"\x15fencepost completion \t\t")
        told = read_until(terminal, "fish")
        assert "bash" in told
        assert "zsh" in told
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def read_until(terminal: int, words: str) -> str:
    """What the terminal shows up to these words."""
    seen = ""
    while words not in seen:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, f"Timed out after 60 s waiting for {words!r}: {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen


@pytest.mark.parametrize("arguments", [["statsu"], ["jobs"], ["status", "--nope"], ["status"]])
def test_every_line_of_an_error_is_json_when_the_log_is(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(arguments)
    plain = capsys.readouterr()
    monkeypatch.setenv("LOG_FORMAT", "json")
    assert run(arguments) == code
    lines = capsys.readouterr().err.splitlines()
    assert plain.err
    assert lines
    assert {json.loads(line)["level"] for line in lines} == {"error"}
