"""The entry point `fencepost`.

Command modules import at the top only what `--help` needs: a few hundred milliseconds before the first output
make a command line feel slow.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache

import typer

from fencepost.cli import doctor, explain, flows, jobs, migrate, recover, status, up, worker, workflows
from fencepost.cli.exit_codes import ExitCode, exit_code_for, exit_code_table
from fencepost.cli.terminal import remark
from fencepost.errors import SettingsError
from fencepost.plugin import Plugin, broken_plugins, load, plugins

app = typer.Typer(
    name="fencepost",
    no_args_is_help=True,
    rich_markup_mode=None,  # Plain help: it can be piped, and it needs no import of rich.
    add_completion=False,
    pretty_exceptions_enable=False,  # They print local variables, and those hold passwords.
    context_settings={"help_option_names": ["-h", "--help"]},
    help=f"""Exactly-once effects for Python, on PostgreSQL and Redis.

    \b
    Begin:
      fencepost doctor             what this machine has and lacks
      fencepost up                 everything, on an embedded PostgreSQL and Valkey
      fencepost status --watch     queues, leases, outbox and refusals, in another terminal
      fencepost explain job:7      the life of one job, with the reason of every refusal
      fencepost worker shop.tasks  run the jobs of an application
      fencepost serve              the services over HTTP
      fencepost jobs dead          what died, by cause; `jobs replay` runs it again

    \b
    Settings come from the environment, then from config.yaml:
      DATABASE_URL  REDIS_URL  MIGRATION_DATABASE_URL  LOG_LEVEL  METRICS_PORT  ...

    \b
    Exit codes:
    {exit_code_table().replace(chr(10), chr(10) + "    ")}
    """,
)
app.command("up")(up.up)
app.command("migrate")(migrate.migrate)
app.command("recover")(recover.recover)
app.command("doctor")(doctor.doctor)
app.command("status")(status.status)
app.command("explain")(explain.explain)
app.command("worker")(worker.worker)
app.add_typer(jobs.app, name="jobs")
app.add_typer(flows.app, name="flows")
app.add_typer(workflows.app, name="workflows")


def add_commands_of(plugin: Plugin) -> None:
    """The commands that a plugin brings, each a function or an application with commands of its own."""
    loaded = {name: load(reference) for name, reference in plugin.commands.items()}
    for name, command in loaded.items():
        if name in OWN_COMMANDS:
            raise SettingsError(f"It brings the command {name!r}, which the library has itself.")
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)


OWN_COMMANDS = frozenset(
    [
        *(str(command.name) for command in app.registered_commands),
        *(str(group.name) for group in app.registered_groups),
    ]
)


def _add_plugins() -> None:
    """One plugin that is broken does not take the other commands away."""
    left_out = dict(broken_plugins())
    for name, plugin in plugins().items():
        try:
            add_commands_of(plugin)
        except Exception as error:
            left_out[name] = f"{type(error).__name__}: {error}"
    for name, why in left_out.items():
        remark(f"fencepost: without the plugin {name}: {why}")


_add_plugins()


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. An expected error prints no traceback."""
    try:
        _command()(list(arguments), prog_name="fencepost")
    except SystemExit as finished:
        return int(finished.code or 0)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:
        code = exit_code_for(error)
        if code is not None:
            remark(f"fencepost: {error}")
            return code
        remark(traceback.format_exc().rstrip())
        return ExitCode.BUG
    return ExitCode.OK


@cache
def _command() -> Callable[..., object]:
    """The click command. Built once per process, because typer inspects every command's signature."""
    return typer.main.get_command(app)


def main() -> None:
    sys.exit(run(sys.argv[1:]))
