"""Runs a problem's own validator, also in a box: its author is trusted, but the validator may have bugs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fencepost_judge._compiling import Program, clean
from fencepost_judge._problem import Bounds, Protocol
from fencepost_judge._protocol import RunOutcome, Verdict
from fencepost_judge.sandbox._run_spec import Limits, RunSpec

VALIDATOR_LIMITS = Limits(
    cpu_ms=60_000, wall_ms=120_000, memory_kb=1_048_576, output_kb=65_536, disk_kb=65_536, open_files=256
)
MESSAGE_BYTES = 2000
ACCEPTED = 42
"""The exit code of a validator that accepts the output."""
WRITTEN = "output"
"""What an interactor leaves for the checker."""


def limits_of(bounds: Bounds) -> Limits:
    """The limits of a validator: the judge's defaults, and no less than the problem guarantees."""
    cpu_ms = max(VALIDATOR_LIMITS.cpu_ms, bounds.validation_ms or 0)
    return VALIDATOR_LIMITS.with_(
        cpu_ms=cpu_ms,
        wall_ms=cpu_ms * 2,
        memory_kb=max(VALIDATOR_LIMITS.memory_kb, bounds.validation_memory_kb or 0),
        output_kb=max(VALIDATOR_LIMITS.output_kb, bounds.validation_output_kb or 0),
        disk_kb=max(VALIDATOR_LIMITS.disk_kb, bounds.validation_output_kb or 0),
    )


@dataclass(frozen=True, slots=True)
class Opinion:
    """A validator's verdict on an output. JE: the validator itself failed."""

    verdict: str
    message: str = ""
    share: float = 1.0
    points: float | None = None
    """The points of the test, if the validator awards them."""
    next_input: Path | None = None
    output: str = ""
    """The beginning of an output that is not right."""


@dataclass(frozen=True, slots=True)
class Validator:
    """A compiled validator and its protocol."""

    program: Program
    protocol: Protocol
    limits: Limits = VALIDATOR_LIMITS
    name: str = ""

    def order(
        self,
        data: tuple[str, str],
        output: str | None,
        flags: Sequence[str],
        feedback: Path,
        remembered: str | None = None,
    ) -> RunSpec:
        """The run for one test. `data`, `output` and `remembered` (the feedback from the pass before) are
        paths below the workspace. Without an output the validator is connected to the program itself."""
        names = {data[0]: "/w/box/input", data[1]: "/w/box/answer"}
        if data[0] == data[1]:
            # Both may be the same stored file, and a bind has only one target: the answer then uses the
            # input's path.
            names = {data[0]: "/w/box/input"}
        answer = names.get(data[1], "/w/box/input").removeprefix("/w")
        if self.protocol is Protocol.ICPC:
            args = ["/box/input", answer, "/out/", *flags]
        elif output is None and self.protocol is Protocol.DMOJ:
            args = ["/box/input", answer]
        elif output is None:
            # An interactor writes there what a checker reads, if the problem has one; or it is the judge.
            args = ["/box/input", f"/out/{WRITTEN}", answer]
        else:
            names[output] = "/w/box/output"
            args = ["/box/input", "/box/output", answer]
            if self.protocol is Protocol.CMS:
                args = ["/box/input", answer, "/box/output"]
        order = self.program.language.run_order(self.program.folder, self.program.entry, self.limits, args)
        return replace(order, binds={**order.binds, **names}, out=feedback, out_from=remembered)

    def opinion(self, outcome: RunOutcome, feedback: Path, said: bytes, output: bytes = b"") -> Opinion:
        """Pure, except for reading the validator's feedback files. `said` is what it wrote to stderr,
        `output` to stdout."""
        if self.protocol is Protocol.CMS:
            return _of_cms(outcome, said, output)
        if self.protocol is not Protocol.ICPC:
            return _of_testlib(outcome, said + output, fractions=self.protocol is Protocol.TESTLIB)
        if outcome.verdict not in (Verdict.OK, Verdict.RE) or outcome.exit_signal:
            return Opinion("JE", f"The validator ended with {outcome.verdict}.")
        message = clean(read_bounded(feedback / "judgemessage.txt", MESSAGE_BYTES))
        if outcome.exit_code == 43:
            return Opinion("WA", message)
        if outcome.exit_code != ACCEPTED:
            return Opinion("JE", f"The validator ended with {outcome.exit_code}, not 42 or 43. {message}")
        following = feedback / "nextpass.in"
        return _worth(Opinion("AC", message, next_input=following if following.is_file() else None), feedback)


def _worth(opinion: Opinion, feedback: Path) -> Opinion:
    """A fraction of the test's score (score_multiplier.txt), or its points (score.txt)."""
    share, points = _figure(feedback / "score_multiplier.txt"), _figure(feedback / "score.txt")
    if (share is not None and not 0 <= share <= 1) or (points is not None and not 0 <= points < math.inf):
        return Opinion("JE", f"The validator's score is {points if share is None else share}.")
    return replace(opinion, share=1.0 if share is None else share, points=points)


def _figure(path: Path) -> float | None:
    """The number in a feedback file; NaN if it is not a number."""
    text = read_bounded(path, 100).strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        return math.nan


def _of_cms(outcome: RunOutcome, said: bytes, output: bytes) -> Opinion:
    """The first line of its output is a fraction of the test's worth; its stderr is a message."""
    message = clean(said[:MESSAGE_BYTES]).strip()
    if outcome.verdict is not Verdict.OK:
        return Opinion("JE", f"The checker ended with {outcome.verdict}. {message}")
    try:
        share = float(output.split(maxsplit=1)[0])
    except (ValueError, IndexError):
        share = math.nan
    if not 0 <= share <= 1:
        return Opinion("JE", f"The checker said {output[:40]!r}, not a fraction. {message}")
    return Opinion("AC" if share == 1 else "PA" if share else "WA", message, share)


def _of_testlib(outcome: RunOutcome, said: bytes, *, fractions: bool) -> Opinion:
    message = clean(said[:MESSAGE_BYTES])
    if outcome.verdict not in (Verdict.OK, Verdict.RE) or outcome.exit_signal:
        return Opinion("JE", f"The checker ended with {outcome.verdict}.")
    verdicts = {0: "AC", 1: "WA", 2: "PE", 4: "WA", 8: "PE"}
    if outcome.exit_code == 7:
        return _pointed(message, fractions=fractions)
    return Opinion(verdicts.get(outcome.exit_code, "JE"), message)


def _pointed(message: str, *, fractions: bool) -> Opinion:
    """With `fractions`, up to 1 it is a fraction of the test's score. Any other value is points, whose
    maximum is unknown."""
    said = re.match(r"points ([0-9]+(?:\.[0-9]+)?)(?:\s|$)", message)
    if said is None:
        return Opinion("JE", f"The checker gave points, and did not say how many. {message}")
    value = float(said[1])
    if value > 1 or not fractions:
        return Opinion("PA", message, points=value)
    return Opinion("AC" if value == 1 else "PA", message, value)


def read_bounded(path: Path, bytes_max: int) -> bytes:
    """The copied feedback contains no links; the read is bounded all the same."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, bytes_max)
    finally:
        os.close(descriptor)
