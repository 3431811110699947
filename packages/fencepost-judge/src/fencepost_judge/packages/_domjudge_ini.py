"""Reads domjudge-problem.ini, beside problem.yaml or in place of it. Unsupported keys are refused."""

from __future__ import annotations

import configparser
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fencepost.errors import InvalidInput

NAME = "domjudge-problem.ini"
REFUSED = "special_"
"""The prefix of keys that name programs of DOMjudge, and their arguments."""
BYTES_MAX = 65_536
SHOWN_MAX = 100


@dataclass(frozen=True, slots=True)
class DomjudgeIni:
    """The name and the time limit. Labels, colours and points belong to a contest, and are ignored."""

    name: str | None = None
    seconds: float | None = None


def read_ini(folder: Path) -> DomjudgeIni:
    """Raises InvalidInput naming the file; returns an empty value when there is none."""
    path = folder / NAME
    if not path.is_file():
        return DomjudgeIni()
    told = _told(path.read_bytes()[:BYTES_MAX].decode("utf-8-sig", "replace"))
    special = next((key for key, value in told.items() if key.startswith(REFUSED) and value), None)
    if special is not None:
        raise InvalidInput(
            f"{NAME}: {special[:SHOWN_MAX]} names a program of another system. Provide it as an output"
            " validator.",
            field=special[:SHOWN_MAX],
        )
    return DomjudgeIni(told.get("name") or None, _seconds(told.get("timelimit")))


def _told(text: str) -> Mapping[str, str]:
    """Keys and values, in sections or in none."""
    parser = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=(";",))
    try:
        parser.read_string(f"[fencepost]\n{text}")
    except configparser.DuplicateOptionError as error:
        raise InvalidInput(f"{NAME}: {error.option} is said twice.", field=error.option) from None
    except configparser.Error as error:
        why = str(error).splitlines()[0][:SHOWN_MAX]
        raise InvalidInput(f"{NAME} cannot be read: {why}", field=NAME) from None
    return {key: _bare(value) for section in parser.values() for key, value in section.items()}


def _bare(value: str) -> str:
    """Without the quotes that DOMjudge's parser requires."""
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


def _seconds(value: str | None) -> float | None:
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InvalidInput(
            f"{NAME}: timelimit {value[:SHOWN_MAX]!r} is no time in seconds.", field="timelimit"
        )
    return seconds
