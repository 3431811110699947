"""Exit codes of the commands. Scripts rely on them: a number never changes its meaning."""

from __future__ import annotations

from enum import IntEnum

from fencepost.errors import FencepostError, SchemaError, ServerUnavailable, SettingsError


class ExitCode(IntEnum):
    """The table of exit codes. `--help` is made from it; a test checks the reference against it."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> ExitCode:
        code = int.__new__(cls, number)
        code._value_ = number
        code.meaning = meaning
        return code

    OK = 0, "all is well"
    PROBLEM = 1, "a check failed, or the work was refused"
    USAGE = 2, "the command line is wrong"
    UNREACHABLE = 3, "PostgreSQL or Redis cannot be found, started or reached"
    NOT_FOUND = 4, "there is no such job, order, request or lease"
    SCHEMA = 5, "the database's schema is missing, too old or too new"
    SETTINGS = 6, "a setting is wrong"
    IN_USE = 7, "another process uses the data directory"
    VOID = 8, "a torture was too easy to prove anything"
    BUG = 70, "an unexpected error; please report it"
    INTERRUPTED = 130, "stopped by Ctrl-C"


class UserError(FencepostError):
    """An error that the user can fix: printed in a line or two, then the command exits with its code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.PROBLEM) -> None:
        super().__init__(message)
        self.code = code


def exit_code_for(error: Exception) -> ExitCode | None:
    """The code of an expected error; None for an unexpected one."""
    match error:
        case UserError():
            return error.code
        case SettingsError():
            return ExitCode.SETTINGS
        case SchemaError():
            return ExitCode.SCHEMA
        case ServerUnavailable():
            return _code_of_a_server(error)
        case FencepostError():
            return ExitCode.PROBLEM
        case _:
            return None


def _code_of_a_server(error: ServerUnavailable) -> ExitCode:
    from fencepost.embedded._errors import DirectoryInUseError  # noqa: PLC0415 - Only after an error.

    return ExitCode.IN_USE if isinstance(error, DirectoryInUseError) else ExitCode.UNREACHABLE


def exit_code_table() -> str:
    """Every exit code with its meaning, a line each, for the end of a `--help`."""
    return "\n".join(f"  {code.value:<4} {code.meaning}" for code in ExitCode)
