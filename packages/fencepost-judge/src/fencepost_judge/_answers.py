"""Submissions that are answers: a file for each test, in place of a program. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from fencepost.errors import InvalidInput
from fencepost_judge._problem import Problem

SUFFIXES = (".ans", ".out", ".txt", "")
_SEPARATOR = re.compile(r"^===[ \t]*(\S+)[ \t]*\r?\n", re.MULTILINE)
NAMED_MAX = 10


def stems(problem: Problem) -> dict[str, str]:
    """What the file with the answer to a test is called, without its ending: as the test, or with the names
    of its folders before it, where another test has the same name."""
    lasts = {case.name: case.name.rpartition("/")[2] for case in problem.data.all_cases()}
    count = Counter(lasts.values())
    return {name: last if count[last] == 1 else name.replace("/", "-") for name, last in lasts.items()}


def answers_of(problem: Problem, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """The answers by the names of the tests. One text may hold them all, each behind a line `=== NAME`; for a
    problem with one test it is the answer. Raises InvalidInput for an answer to no test."""
    known = {stem + suffix: name for name, stem in stems(problem).items() for suffix in SUFFIXES}
    files = dict(sources)
    if len(files) == 1 and not set(files) & set(known):
        (text,) = files.values()
        parts = _SEPARATOR.split(text.decode("utf-8", "replace"))
        if len(parts) == 1 and len(set(known.values())) == 1:
            return dict.fromkeys(known.values(), text)
        if not parts[0].strip() and len(parts) > 1:
            files = {name: part.encode() for name, part in zip(parts[1::2], parts[2::2], strict=True)}
    unknown = sorted(set(files) - set(known))
    if unknown:
        names = sorted(set(stems(problem).values()))
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        raise InvalidInput(
            f"{unknown[0][:80]} is the answer to no test. There is {', '.join(names[:NAMED_MAX])}{more}.",
            field="sources",
        )
    return {known[name]: content for name, content in files.items()}
