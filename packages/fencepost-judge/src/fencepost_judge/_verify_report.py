"""What a setter reads of a verified package: a report in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencepost_judge._grading import SKIPPED
from fencepost_judge._verification import DataCheck, Verification, Verified
from fencepost_judge.packages._reading import ReadProblem

SIGNS = {True: "ok", False: "FAIL", None: "skip"}
QUIET_TESTS_MAX = 20
_WIDE_SIGNS = {True: "ok  ", False: "FAIL", None: "skip"}


def headline(read: ReadProblem) -> str:
    """The problem in a line."""
    problem, timing = read.problem, read.problem.timing
    count = sum(1 for _ in problem.data.all_cases())
    kind = "scoring" if problem.scoring else "pass-fail"
    how = ", interactive" if problem.interactive else ""
    time = f", {problem.bounds.time_ms / 1000:g} s"
    if timing.origin == "inferred":
        time += f" (inferred: {timing.slowest} took {timing.slowest_ms} ms, times {timing.factor:g})"
    name = f"{problem.title} ({problem.slug})"
    return f"{name}: {kind}{how}, {count} tests, {len(read.submissions)} submissions{time}"


def progress_lines(made: Verification) -> list[str]:
    """What is known so far, a line each: more lines are appended, and none changes."""
    lines = [headline(made.read)]
    if not made.submissions and not made.data:
        return lines
    lines += [f"  {said}" for said in _data_lines(made.data)]
    lines += [f"  skip {name}: disabled" for name in made.read.disabled]
    total = len(made.read.submissions)
    return lines + [f"  {_line(one)}  [{place}/{total}]" for place, one in enumerate(made.submissions, 1)]


def _line(one: Verified) -> str:
    """One submission."""
    sign = _WIDE_SIGNS[one.kept]
    if one.got is None:
        return f"{sign} {one.submission.name}: {one.fault or one.skipped}"
    score = "" if one.got.score is None else f"  {one.got.score:g} points"
    wanted = f", {one.broken}" if one.broken else ""
    failed = next((case for case in one.got.cases if case.verdict not in ("AC", SKIPPED)), None)
    where = "" if failed is None else f"  at {failed.name}"
    return f"{sign} {one.submission.name}: {one.got.verdict}{wanted}{score}  {one.got.time_ms} ms{where}"


def _data_lines(data: Sequence[DataCheck]) -> list[str]:
    """The failed and skipped checks, and how many passed."""
    right = sum(one.kept is True for one in data)
    lines = [f"{_WIDE_SIGNS[one.kept]} {one.name}: {one.why}" for one in data if not one.kept]
    return [*lines, f"ok   data: {right} inputs and outputs"] if right else lines


def report(made: Verification) -> str:
    """The whole report."""
    read, verified, data, kept = made.read, made.submissions, made.data, made.kept
    failed, skipped = kept.count(False), kept.count(None) + len(read.disabled)
    found = f"{failed} not as expected" if failed else "everything as expected"
    lines = [f"# {_cell(headline(read))}", "", f"{found}, {skipped} not checked.", ""]
    lines += ["| | submission | language | expected | verdict | points | longest | memory | why |"]
    lines += ["| --- |" + " --- |" * 8, *(_row(one) for one in verified)]
    lines += [f"| skip | {_cell(name)} |  |  |  |  |  |  | disabled |" for name in read.disabled]
    lines += ["", *_margins(read, verified), *_quiet(verified), *_data(data)]
    return "\n".join(lines) + "\n"


def _row(one: Verified) -> str:
    got = one.got
    longest = max(got.cases, key=lambda case: case.time_ms, default=None) if got else None
    failed = next((case for case in got.cases if case.verdict not in ("AC", SKIPPED)), None) if got else None
    why = one.broken or one.skipped
    if failed is not None:
        why = "; ".join(part for part in (why, f"{failed.name}: {failed.verdict} {failed.message}") if part)
    cells = [
        SIGNS[one.kept],
        one.submission.name,
        one.language,
        "/".join(sorted(one.submission.expected)),
        got.verdict if got else "",
        "" if got is None or got.score is None else f"{got.score:g}",
        f"{longest.time_ms} ms ({longest.name})" if longest else "",
        f"{got.mem_kb / 1024:.0f} MiB" if got else "",
        why[:300],
    ]
    return f"| {' | '.join(map(_cell, cells))} |"


def _margins(read: ReadProblem, verified: Sequence[Verified]) -> Iterator[str]:
    """How far the time limit is from those that must meet it, and from those that must not."""
    limit_ms = read.problem.bounds.time_ms
    right = [one for one in verified if one.got and one.submission.expected == frozenset({"AC"})]
    if not right:
        return
    slowest = max(right, key=lambda one: one.got.time_ms if one.got else 0)
    assert slowest.got is not None
    part = slowest.got.time_ms / limit_ms
    name = _cell(slowest.submission.name)
    yield f"The slowest accepted submission, {name}, takes {part:.0%} of the time limit."
    if part > 0.5:
        yield "That is more than half of it: on a slower machine it may be too slow."
    yield ""


def _quiet(verified: Sequence[Verified]) -> Iterator[str]:
    """Tests that every wrong submission passes that ran them: they catch nothing."""
    wrong = [one.got for one in verified if one.got and "AC" not in one.submission.expected]
    ran = {case.name for got in wrong for case in got.cases if case.verdict != SKIPPED}
    caught = {case.name for got in wrong for case in got.cases if case.verdict not in ("AC", SKIPPED)}
    quiet = sorted(name for name in ran - caught if not name.startswith("sample/"))
    if quiet:
        shown = ", ".join(map(_cell, quiet[:QUIET_TESTS_MAX]))
        more = f" and {len(quiet) - QUIET_TESTS_MAX} more" if len(quiet) > QUIET_TESTS_MAX else ""
        yield f"No wrong submission fails at: {shown}{more}."
        yield ""


def _data(data: Sequence[DataCheck]) -> Iterator[str]:
    if not data:
        return
    right = sum(one.kept is True for one in data)
    yield f"Of {len(data)} checks of the data {right} are as they should be."
    wrong = [one for one in data if not one.kept]
    if wrong:
        yield ""
        yield "| | file | why |"
        yield "| --- | --- | --- |"
    for one in wrong:
        yield f"| {SIGNS[one.kept]} | {_cell(one.name)} | {_cell(one.why[:300])} |"


def _cell(text: str) -> str:
    """In a table a bar and a line's end would end the cell; nothing of a name is markup."""
    text = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in "|*_`<>[]$\\#" else letter for letter in text)
