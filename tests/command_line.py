"""The commands that pages and deployments name, without running them."""

from typing import Any

import typer

from fencepost.cli._app import _application  # pyright: ignore[reportPrivateUsage]


class CommandMissing(AssertionError):
    """Only a group of commands is named."""


def find_command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that `fencepost WORDS…` runs, and the words that it is given."""
    assert words, "fencepost alone runs nothing"
    command: Any = typer.main.get_command(_application(words[0]))
    while hasattr(command, "commands"):
        if not words:
            raise CommandMissing(f"{command.name} is a group: a command is missing")
        assert words[0] in command.commands, f"There is no command {words[0]!r}."
        command, words = command.commands[words[0]], words[1:]
    return command, words


def check_options(words: list[str]) -> None:
    """Raises when there is no such command, or when it has no such option. Values are not looked at."""
    command, rest = find_command(words)
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    for word in rest[: rest.index("--")] if "--" in rest else rest:
        if word.startswith("-") and len(word) > 1:
            assert word.partition("=")[0] in known, f"{word!r} is no option of {command.name}."


def parse(words: list[str]) -> dict[str, Any]:
    """What the command would be called with. Raises what the command line would refuse."""
    command, rest = find_command(words)
    with command.make_context(command.name, list(rest)) as context:
        return dict(context.params)
