"""The page of commands: usage, help and options of each, from the commands themselves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import typer

from fencepost.plugin import OWN_COMMANDS, load, plugins

INTRODUCTION = """\
Usage and options of every command, as `--help` has them. [The command line](../reference/cli.md) explains
the more important ones, the roles and the exit codes. Each command also has `-h` and `--help`."""


def page() -> str:
    lines = ["# Commands, all of them", "", INTRODUCTION]
    groups = {
        "fencepost": OWN_COMMANDS,
        **{f"plugin {name}": one.commands for name, one in plugins().items()},
    }
    for group, commands in groups.items():
        if commands:
            lines += ["", f"## {group}"]
        for name, reference in commands.items():
            lines += _described(f"fencepost {name}", _command(name, load(reference)))
    return "\n".join(lines) + "\n"


def _command(name: str, command: Any) -> Any:
    """As click has it: a group, or one command."""
    if isinstance(command, typer.Typer):
        return typer.main.get_group(command)
    app = typer.Typer(add_completion=False)
    app.command(name)(command)
    return typer.main.get_command(app)


def _described(path: str, command: Any) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(typer.Context(command)))
    yield from ("", f"### {path}", "", "```text", f"{path} {usage}".rstrip(), "```")
    if text := _help(command.help or ""):
        yield from ("", "```text", text, "```")
    options = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    if options := [one for one in options if "--help" not in one.opts]:
        yield from ("", "| option or argument | default | meaning |", "|---|---|---|")
        yield from map(_row, options)
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from _described(f"{path} {name}", inner)


def _help(text: str) -> str:
    return textwrap.dedent(text.replace("\b\n", "").split("\f")[0]).strip()


def _row(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts]) if is_option else parameter.name.upper()
    default = parameter.default
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        told = shown
    elif default is None or default is False or callable(default) or default in ((), ""):
        told = "must be given" if parameter.required else ""
    else:
        told = f"`{getattr(default, 'value', default)}`"
    meaning = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|")
    return f"| `{names}` | {told} | {meaning} |"
