"""Completion of the command line in bash, zsh and fish.

A shell's script calls `fencepost` with the words that stand before the cursor and VARIABLE set; the answer is
one line for each completion, with its help behind a tab.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import typer

from fencepost.cli.terminal import answer

VARIABLE = "_FENCEPOST_COMPLETE"
Shell = Literal["bash", "zsh", "fish"]
SCRIPTS: dict[Shell, str] = {
    "bash": """\
_fencepost() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("${line%%$'\\t'*}")
    done < <(_FENCEPOST_COMPLETE=1 "${COMP_WORDS[0]}" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _fencepost fencepost
""",
    "zsh": """\
#compdef fencepost
_fencepost() {
    local line
    local -a items
    while IFS= read -r line; do
        items+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done < <(_FENCEPOST_COMPLETE=1 "${words[1]}" "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#items} )); then _describe fencepost items; else _files; fi
}
compdef _fencepost fencepost
""",
    "fish": """\
function __fencepost_complete
    set -l words (commandline -opc) (commandline -ct)
    env _FENCEPOST_COMPLETE=1 $words 2>/dev/null
end
complete -c fencepost -f -a '(__fencepost_complete)'
""",
}


def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish")]) -> None:
    """Print the script that completes this command line in a shell.

    \b
    Examples:
      eval "$(fencepost completion bash)"            in ~/.bashrc
      eval "$(fencepost completion zsh)"             in ~/.zshrc, after compinit
      fencepost completion fish > ~/.config/fish/completions/fencepost.fish
    """
    answer(SCRIPTS[shell].rstrip("\n"))


def completions(app: typer.Typer, words: Sequence[str]) -> Iterator[str]:
    """The lines for the words before the cursor; the last word is the one that is completed."""
    *before, incomplete = words or ("",)
    command: Any = typer.main.get_command(app)
    context = command.make_context("fencepost", before or ["-"], resilient_parsing=True)
    awaited: Any = None
    for word in before:
        if word.startswith("-"):
            awaited = next((one for one in _options(command) if word in one.opts and not one.is_flag), None)
        elif awaited is not None:
            awaited = None
        else:
            command = getattr(command, "commands", {}).get(word, command)
    for value, about in _candidates(command, awaited, incomplete, context):
        if value.startswith(incomplete):
            yield f"{value}\t{' '.join(about.split())}"


def _candidates(command: Any, awaited: Any, incomplete: str, context: Any) -> Iterator[tuple[str, str]]:
    if awaited is not None:
        yield from _choices([awaited], incomplete, context)
    elif incomplete.startswith("-"):
        yield from ((name, one.help or "") for one in _options(command) for name in one.opts)
    elif hasattr(command, "commands"):
        yield from (
            (name, one.get_short_help_str(80)) for name, one in command.commands.items() if not one.hidden
        )
    else:
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        yield from _choices(arguments, incomplete, context)


def _choices(parameters: list[Any], incomplete: str, context: Any) -> Iterator[tuple[str, str]]:
    """The words that parameters allow. Files are completed by the shell."""
    for parameter in parameters:
        for item in parameter.shell_complete(context, incomplete):
            if item.type == "plain":
                yield item.value, item.help or ""


def _options(command: Any) -> list[Any]:
    """Its options. `--help` is none of its parameters."""
    return [one for one in command.params if one.param_type_name == "option"]
