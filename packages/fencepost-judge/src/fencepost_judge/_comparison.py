"""Compares an output with the answer: pure functions on bytes.

The flags are those of the ICPC default validator: by default, case and spacing are ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, Self, TypeVar

from fencepost.errors import InvalidInput

SHOWN_BYTES = 40
_SPACE = re.compile(rb"\s+")
_C = TypeVar("_C", bound="Comparison")


class ExpectedAnswer(StrEnum):
    """Right, wrong, or right except for its spacing."""

    AC = "AC"
    WA = "WA"
    PE = "PE"


@dataclass(frozen=True, slots=True)
class Checked:
    """The answer, and a line that says where the output differs."""

    answer: ExpectedAnswer
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How a team's output is compared with the judge's answer."""

    case_sensitive: bool = False
    space_sensitive: bool = False
    absolute: float | None = None
    relative: float | None = None
    presentation_errors: bool = False
    exact: bool = False
    by_lines: bool = False
    """Whether tokens must be on the same lines; empty lines do not count."""
    order: Literal["kept", "lines", "tokens", "letters"] = "kept"
    """What may stand in any order."""

    @classmethod
    def from_flags(cls, flags: Sequence[str]) -> Self:
        """case_sensitive, space_change_sensitive, float_tolerance E and its absolute and relative forms."""
        made = cls()
        words = iter(flags)
        for word in words:
            match word:
                case "case_sensitive":
                    made = replace(made, case_sensitive=True)
                case "space_change_sensitive":
                    made = replace(made, space_sensitive=True)
                case "float_tolerance" | "float_absolute_tolerance" | "float_relative_tolerance":
                    made = _with_tolerance(made, word, next(words, ""))
                case "presentation_errors":
                    made = replace(made, presentation_errors=True)
                case "exact":
                    made = replace(made, exact=True)
                case "by_lines":
                    made = replace(made, by_lines=True)
                case "any_order_of_lines":
                    made = replace(made, order="lines")
                case "any_order_of_tokens":
                    made = replace(made, order="tokens")
                case "any_order_of_letters":
                    made = replace(made, order="letters")
                case _:
                    raise InvalidInput(
                        f"The default validator has no flag {word!r}.", field="validator_flags"
                    )
        return made


def _with_tolerance(made: _C, flag: str, value: str) -> _C:
    try:
        tolerance = float(value)
    except ValueError:
        tolerance = math.nan
    if not 0 <= tolerance < math.inf:
        raise InvalidInput(f"{flag} needs a number of at least 0, not {value!r}.", field="validator_flags")
    absolute = made.absolute if flag == "float_relative_tolerance" else tolerance
    relative = made.relative if flag == "float_absolute_tolerance" else tolerance
    return replace(made, absolute=absolute, relative=relative)


def compare(output: bytes, answer: bytes, how: Comparison) -> Checked:
    """Compare a team's output with the judge's answer."""
    if how.exact:
        return Checked(ExpectedAnswer.AC) if output == answer else _differs(output, answer)
    if how.order != "kept":
        same = _sorted(output, how) == _sorted(answer, how)
        return Checked(ExpectedAnswer.AC) if same else Checked(ExpectedAnswer.WA, _OTHERWISE[how.order])
    return _compare_tokens(output, answer, how)


def _compare_tokens(output: bytes, answer: bytes, how: Comparison) -> Checked:
    given, wanted = output.split(), answer.split()
    for place, (ours, theirs) in enumerate(zip(given, wanted, strict=False), 1):
        if not _same_token(ours, theirs, how):
            return Checked(ExpectedAnswer.WA, f"Token {place} is {_shown(ours)}, not {_shown(theirs)}.")
    if len(given) != len(wanted):
        what = "too short" if len(given) < len(wanted) else "too long"
        return Checked(ExpectedAnswer.WA, f"The output is {what}: {len(given)} tokens, not {len(wanted)}.")
    if (how.space_sensitive or how.presentation_errors) and _spaces(output) != _spaces(answer):
        wrong = ExpectedAnswer.PE if how.presentation_errors else ExpectedAnswer.WA
        return Checked(wrong, "The tokens are correct, but the spacing is not.")
    if how.by_lines and _widths(output) != _widths(answer):
        return Checked(ExpectedAnswer.WA, "The tokens are correct, but not on the right lines.")
    return Checked(ExpectedAnswer.AC)


_OTHERWISE = {
    "lines": "The lines differ, in whatever order they stand.",
    "tokens": "The tokens differ, in whatever order they stand.",
    "letters": "The letters differ, in whatever order they stand.",
}


def _sorted(text: bytes, how: Comparison) -> list[bytes] | bytes:
    text = text if how.case_sensitive else text.lower()
    match how.order:
        case "letters":
            return bytes(sorted(b"".join(text.split())))
        case "tokens":
            return sorted(text.split())
        case _:
            return sorted(b" ".join(line.split()) for line in text.splitlines() if line.strip())


def _widths(text: bytes) -> list[int]:
    """How many tokens each line has that has any."""
    return [count for line in re.split(rb"[\r\n]", text) if (count := len(line.split()))]


def _same_token(ours: bytes, theirs: bytes, how: Comparison) -> bool:
    if ours == theirs or (not how.case_sensitive and ours.lower() == theirs.lower()):
        return True
    if how.absolute is None and how.relative is None:
        return False
    given, wanted = _number(ours), _number(theirs)
    if given is None or wanted is None:
        return False
    error = abs(given - wanted)
    near = how.absolute is not None and error <= how.absolute
    return near or (how.relative is not None and error <= how.relative * abs(wanted))


def _number(token: bytes) -> float | None:
    """A decimal number. Rejects the other forms that Python accepts: underscores, nan, infinity."""
    if token.strip(b"0123456789+-.eE") or not token:
        return None
    try:
        value = float(token)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _spaces(text: bytes) -> list[bytes]:
    """The whitespace between the tokens; CRLF line ends count as LF."""
    return _SPACE.findall(text.replace(b"\r\n", b"\n"))


def _differs(output: bytes, answer: bytes) -> Checked:
    place = next((i for i, (a, b) in enumerate(zip(output, answer, strict=False)) if a != b), None)
    return Checked(
        ExpectedAnswer.WA, f"The first difference is at byte {place if place is not None else 'the end'}."
    )


def _shown(token: bytes) -> str:
    """The token cut to a limit and made printable, for display."""
    text = token[:SHOWN_BYTES].decode("utf-8", "replace")
    return repr(text) + ("…" if len(token) > SHOWN_BYTES else "")
