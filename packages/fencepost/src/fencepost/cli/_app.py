"""The entry point `fencepost`.

Commands are references, imported when they are needed: a command line that names its command loads and builds
that one and no other, and `--help` loads all of them for their first lines. Command modules import at the top
only what `--help` needs: a few hundred milliseconds before the first output make a command line feel slow.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, cast

import typer

from fencepost._extras import missing_extra
from fencepost.cli._completion import VARIABLE as COMPLETING
from fencepost.cli._completion import completions
from fencepost.cli.exit_codes import ExitCode, exit_code_for, exit_code_table
from fencepost.cli.terminal import answer, logs_json, remark
from fencepost.plugin import OWN_COMMANDS, broken_plugins, load, plugins

BROUGHT_BY: Mapping[str, str] = {
    "serve": "fencepost-server",
    "run": "fencepost-server",
    "console": "fencepost-server",
    "orders": "fencepost-orders",
    "players": "fencepost-players",
    "nonces": "fencepost-nonces",
    "tx": "fencepost-nonces",
    "judge": "fencepost-judge",
    "torture": "fencepost-torture",
}
"""Commands that the documentation speaks of, and the distributions that bring them."""
_HELP = """Exactly-once effects for Python, on PostgreSQL and Redis.

    \b
    Begin:
      fencepost doctor             check what this machine has and lacks
      fencepost up                 everything, on an embedded PostgreSQL and Valkey
      fencepost status --watch     queues, leases, outbox and refusals, in another terminal
      fencepost explain job:7      the history of one job, with the reason of every refusal
      fencepost worker shop.tasks  run the jobs of an application
      fencepost serve              the services over HTTP
      fencepost run orders         what a service executes by itself: a role
      fencepost workers list       workers and judges, in service or not; `workers drain node7`
      fencepost jobs dead          dead jobs by cause; `jobs replay` runs them again

    \b
    Settings come from the environment, then from config.yaml:
      DATABASE_URL  REDIS_URL  MIGRATION_DATABASE_URL  LOG_LEVEL  METRICS_PORT  ...

    \b
    Exit codes:
    {exit_codes}
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. An expected error prints no traceback."""
    try:
        return _called(arguments)
    except SystemExit as finished:
        return int(finished.code or 0)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:
        if isinstance(error, ImportError) and (needed := missing_extra(error)):
            remark(f"fencepost: {needed}", level="error")
            return ExitCode.PROBLEM
        code = exit_code_for(error)
        if code is not None:
            remark(f"fencepost: {error}", level="error")
            return code
        remark(traceback.format_exc().rstrip(), level="error")
        return ExitCode.BUG


def _called(arguments: Sequence[str]) -> int:
    if list(arguments[:1]) == ["--version"]:
        answer(_versions())
        return ExitCode.OK
    app = _application(arguments[0] if arguments else "")
    if COMPLETING in os.environ:
        for line in completions(app, arguments):
            answer(line)
        return ExitCode.OK
    command = typer.main.get_command(app)
    if not logs_json():
        command(list(arguments), prog_name="fencepost")
        return ExitCode.OK
    # An error of usage is a line of the log, too.
    try:
        return int(command(list(arguments), prog_name="fencepost", standalone_mode=False) or ExitCode.OK)
    except typer.Abort:
        return ExitCode.PROBLEM
    except Exception as error:
        # typer names no class for them.
        if not hasattr(error, "format_message"):
            raise
        remark(f"fencepost: {cast('Any', error).format_message()}", level="error")
        return ExitCode.USAGE


def _versions() -> str:
    """The version of the library, then of each distribution that is installed beside it."""
    lines = [f"fencepost {version('fencepost')}"]
    for distribution in sorted(set(BROUGHT_BY.values())):
        try:
            lines.append(f"{distribution} {version(distribution)}")
        except PackageNotFoundError:
            continue
    return "\n".join(lines)


VersionOption = Annotated[bool, typer.Option("--version", help="Print the installed versions, and exit.")]


def _root(show_version: VersionOption = False) -> None:
    """Otherwise typer turns an application with one command into that command itself."""


def _application(named: str) -> typer.Typer:
    """The command line with the named command; with all of them when none of ours has this name."""
    app = typer.Typer(
        name="fencepost",
        no_args_is_help=True,
        rich_markup_mode=None,  # Plain help: it can be piped, and it needs no import of rich.
        add_completion=False,
        pretty_exceptions_enable=False,  # They print local variables, and those hold passwords.
        context_settings={"help_option_names": ["-h", "--help"]},
        help=_HELP.format(exit_codes=exit_code_table().replace("\n", "\n    ")),
    )
    app.callback(help=app.info.help)(_root)
    for name, why in broken_plugins().items():
        remark(f"fencepost: without the plugin {name}: {why}", level="warning")
    brought = {command: name for name, plugin in plugins().items() for command in plugin.commands}
    if named in OWN_COMMANDS:
        _add(app, {named: OWN_COMMANDS[named]})
    elif named in brought:
        _add_plugin(app, brought[named])
    else:
        _add(app, OWN_COMMANDS, is_listing=True)
        for plugin in plugins():
            _add_plugin(app, plugin, is_listing=True)
        if named in BROUGHT_BY:
            remark(f"fencepost: {named!r} is part of another distribution: pip install {BROUGHT_BY[named]}")
    return app


def _add_plugin(app: typer.Typer, name: str, *, is_listing: bool = False) -> None:
    """One plugin that is broken does not take the other commands away."""
    try:
        _add(app, plugins()[name].commands, is_listing=is_listing)
    except Exception as error:
        remark(f"fencepost: without the plugin {name}: {type(error).__name__}: {error}", level="warning")


def _add(app: typer.Typer, commands: Mapping[str, str], *, is_listing: bool = False) -> None:
    """Each is a function, or an application with commands of its own, which a listing does not show."""
    for name, command in {name: load(reference) for name, reference in commands.items()}.items():
        if isinstance(command, typer.Typer):
            app.add_typer(typer.Typer(help=command.info.help) if is_listing else command, name=name)
        else:
            app.command(name)(command)


def main() -> None:
    sys.exit(run(sys.argv[1:]))
