"""The form in which a program is written, tried out and submitted. Below a statement, and after a custom
run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fencepost_judge._language import read_specs
from fencepost_judge._problem import ANSWERS
from fencepost_judge._service import Judging
from fencepost_server.accounts.secret import new_secret


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitForm:
    """The content of the form. `key` makes a second click on the same form the same submission."""

    problem: str | None
    contest: str | None = None
    language: str = ""
    code: str = ""
    input: str = ""
    languages: Mapping[str, str] = field(default_factory=dict[str, str])
    key: str = field(default_factory=new_secret)


def offered(judging: Judging, allowed: Sequence[str] | None = None) -> dict[str, str]:
    """The languages by name, with their titles and versions; only the allowed ones if the problem restricts
    them."""
    if allowed is not None and ANSWERS in allowed:
        return {ANSWERS: "Answers"}
    here = set(judging.languages) & set(judging.languages if allowed is None else allowed)
    versions = judging.language_versions
    return {
        spec.name: " · ".join(filter(None, (spec.title, versions.get(spec.name, "")[:40])))
        for spec in read_specs()
        if spec.name in here
    }


def sent(fields: Mapping[str, str]) -> dict[str, str]:
    """A form's fields; browsers end the lines of a text area with CRLF, which becomes LF."""
    return {name: value.replace("\r\n", "\n") for name, value in fields.items()}


def only_source(sources: Mapping[str, str]) -> str:
    """The program's only file; empty for several files, since the editor shows one."""
    return next(iter(sources.values())) if len(sources) == 1 else ""
