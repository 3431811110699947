"""Asking a problem's own validator, in a box as well: its author is trusted, its bugs are not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fencepost.judge.compiling import Program, clean
from fencepost.judge.problem import Protocol
from fencepost.judge.protocol import Outcome, Verdict
from fencepost.judge.sandbox.order import Limits, Order

VALIDATOR_LIMITS = Limits(
    cpu_ms=60_000, wall_ms=120_000, memory_kb=1_048_576, output_kb=65_536, disk_kb=65_536, open_files=256
)
MESSAGE_BYTES = 2000
_SILENT = 42


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a validator thinks of an output. JE: it failed itself."""

    verdict: str
    message: str = ""
    share: float = 1.0
    next_input: Path | None = None


@dataclass(frozen=True, slots=True)
class Validator:
    """A compiled validator and how to talk to it."""

    program: Program
    protocol: Protocol

    def order(self, data: tuple[str, str], output: str | None, flags: Sequence[str], feedback: Path) -> Order:
        """For one test; `data` and `output` are paths below the workspace."""
        names = {data[0]: "/w/box/input", data[1]: "/w/box/answer"}
        if data[0] == data[1]:
            # One file of the store may be both, and a bind has one place only: the answer reads the input.
            names = {data[0]: "/w/box/input"}
        answer = names.get(data[1], "/w/box/input").removeprefix("/w")
        if self.protocol is Protocol.TESTLIB:
            assert output is not None
            names[output] = "/w/box/output"
            args = ["/box/input", "/box/output", answer]
        else:
            args = ["/box/input", answer, "/out/", *flags]
        order = self.program.language.run_order(
            self.program.folder, self.program.entry, VALIDATOR_LIMITS, args
        )
        return Order(
            args=order.args,
            limits=order.limits,
            roots=order.roots,
            binds={**order.binds, **names},
            env=order.env,
            proc=order.proc,
            out=feedback,
        )

    def opinion(self, outcome: Outcome, feedback: Path, said: bytes) -> Opinion:
        """Pure but for reading what the validator left."""
        if self.protocol is Protocol.TESTLIB:
            return _of_testlib(outcome, said)
        if outcome.verdict not in (Verdict.OK, Verdict.RE) or outcome.exit_signal:
            return Opinion("JE", f"The validator ended with {outcome.verdict}.")
        message = clean(read_bounded(feedback / "judgemessage.txt", MESSAGE_BYTES))
        if outcome.exit_code == 43:
            return Opinion("WA", message)
        if outcome.exit_code != _SILENT:
            return Opinion("JE", f"The validator ended with {outcome.exit_code}, not 42 or 43. {message}")
        following = feedback / "nextpass.in"
        return Opinion("AC", message, _share(feedback), following if following.is_file() else None)


def _share(feedback: Path) -> float:
    for name in ("score_multiplier.txt", "score.txt"):
        text = read_bounded(feedback / name, 100).strip()
        if text:
            try:
                return max(0.0, min(1.0, float(text)))
            except ValueError:
                return 0.0
    return 1.0


def _of_testlib(outcome: Outcome, said: bytes) -> Opinion:
    message = clean(said[:MESSAGE_BYTES])
    if outcome.verdict not in (Verdict.OK, Verdict.RE) or outcome.exit_signal:
        return Opinion("JE", f"The checker ended with {outcome.verdict}.")
    verdicts = {0: "AC", 1: "WA", 2: "PE", 4: "WA", 8: "PE"}
    if outcome.exit_code == 7:
        words = message.split()
        points = float(words[1]) if len(words) > 1 and words[1].replace(".", "", 1).isdigit() else 0.0
        return Opinion("AC" if points >= 1 else "PA", message, max(0.0, min(1.0, points)))
    return Opinion(verdicts.get(outcome.exit_code, "JE"), message)


def read_bounded(path: Path, bytes_max: int) -> bytes:
    """The copy has no links; bounded all the same."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, bytes_max)
    finally:
        os.close(descriptor)
