"""Runs an interactive program with its validator. The first to fail decides, by cause and not by the clock.

Two processes that end at nearly the same time cannot be ordered from outside: on a busy machine the end of
the first may be observed last. So neither process learns of the other's end before that end is recorded. The
judge keeps a copy of both ends of both pipes:

- After the program has ended, its pipes stay open until the validator has read all of its output and waits
  for more. Only then do the pipes close. What the validator reports before that is about the program's
  output; what it reports afterwards, or how it fails, may be because the program has ended.
- After the validator has ended, the program reads the end of its input. What the program still writes is read
  and discarded: it gets no broken pipe, so the validator's end does not change how the program ends.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from fencepost.backoff import Backoff
from fencepost_judge._protocol import RunOutcome
from fencepost_judge._validating import Opinion
from fencepost_judge.sandbox._box_files import BoxFiles
from fencepost_judge.sandbox._process_tree import states_of
from fencepost_judge.sandbox._run_spec import RunSpec
from fencepost_judge.sandbox._sandbox_pool import SandboxPool

LOOKS = Backoff(0.002, 0.02, jitter=0)
CLOSED_LOOKS = Backoff(0.25, 2.0, jitter=0)
LOOKS_WHEN_ALL_IS_READ, LOOKS_WHEN_STUCK = 2, 10
WAIT_SECONDS_MAX = 10.0
"""How long a validator may compute after the program's last output."""
UNSEEN_SECONDS_MAX = 3.0
"""The same for a validator that is not found among the processes: it has closed its input, or /proc hides
it."""
BLOCK_BYTES = 65_536
LEFT = "The program ended before the conversation was over."
OWN_PROGRAM = "fencepost-box"


@dataclass(frozen=True, slots=True)
class Talk:
    """How both ended. `told`: the validator learned that the program had ended before it ended itself."""

    program: RunOutcome
    validator: RunOutcome
    told: bool


async def converse(boxes: SandboxPool, program: RunSpec, validator: RunSpec, errors: int, said: int) -> Talk:
    """Run both, each reading what the other writes; their stderr goes to `errors` and `said`."""
    line = _Line()
    theirs, ours = line.program_files(errors), line.validator_files(said)
    try:
        outcome, judged = await boxes.run_pair((program, theirs), (validator, ours), line.attend)
        return Talk(outcome, judged, line.told)
    finally:
        theirs.hand_over()
        ours.hand_over()
        line.close()


def decides(opinion: Opinion, *, told: bool) -> bool:
    """Whether the validator's verdict counts although the program failed. It does if the validator did not
    know of the failure: then the program was wrong first, or the validator is broken. A program is only
    right if it also ends without a failure."""
    return not told and opinion.verdict not in ("AC", "PA")


class _Pipe:
    """A pipe between two programs. The judge keeps both ends open."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self._kept = {"reader": os.dup(self.reader), "writer": os.dup(self.writer)}
        self.name = f"pipe:[{os.fstat(self.reader).st_ino}]"

    @property
    def kept_reader(self) -> int:
        return self._kept["reader"]

    def unread_bytes(self) -> int:
        room = fcntl.ioctl(self.kept_reader, termios.FIONREAD, struct.pack("i", 0))
        (count,) = struct.unpack("i", room)
        return int(count)

    def close_writer(self) -> None:
        self._close("writer")

    def close(self) -> None:
        self._close("writer")
        self._close("reader")

    def _close(self, end: str) -> None:
        if end in self._kept:
            os.close(self._kept.pop(end))


class _Seen(Enum):
    NO_HOLDER = auto()
    BUSY = auto()
    ASLEEP = auto()


class _Line:
    """The pipes of one interactive run, and whether the validator has been told of the program's end."""

    def __init__(self) -> None:
        self._to_program = _Pipe()
        self._to_validator = _Pipe()
        self.told = False

    def program_files(self, errors: int) -> BoxFiles:
        return BoxFiles(self._to_program.reader, self._to_validator.writer, errors, pipes=True)

    def validator_files(self, said: int) -> BoxFiles:
        return BoxFiles(self._to_validator.reader, self._to_program.writer, said, pipes=True)

    def close(self) -> None:
        self._to_program.close()
        self._to_validator.close()

    async def attend(self, program: asyncio.Task[RunOutcome], validator: asyncio.Task[RunOutcome]) -> None:
        """Returns when both have ended."""
        await self._until_one_ends(program, validator)
        if not validator.done():
            await self._until_it_waits(validator)
            self.told = self.told or not validator.done()
            self.close()
            await asyncio.wait({validator})
        if not program.done():
            await self._let_go_on(program)

    async def _until_one_ends(
        self, program: asyncio.Task[RunOutcome], validator: asyncio.Task[RunOutcome]
    ) -> None:
        """Returns when one has ended. A program may close its output and go on; the validator is told of
        that end, too."""
        both, pauses = {program, validator}, CLOSED_LOOKS.waits()
        while not (await asyncio.wait(both, timeout=next(pauses), return_when=asyncio.FIRST_COMPLETED))[0]:
            if self.told or not await asyncio.to_thread(self._has_closed_its_output):
                continue
            await self._until_it_waits(validator)
            if not validator.done():
                self.told = True
                self._to_validator.close_writer()

    def _has_closed_its_output(self) -> bool:
        """True if the program still has its input open and no process but the judge can write to its
        output."""
        if _strangers_with(self._to_program.name, writing=False):
            return not _holders(self._to_validator.name, writing=True)
        return False

    async def _until_it_waits(self, validator: asyncio.Task[RunOutcome]) -> None:
        """Returns when the validator has ended, has read everything and sleeps, or is blocked in a write
        that no process reads. A process that waits for a processor does not sleep."""
        began, pauses = time.monotonic(), LOOKS.waits()
        calm, unread_before = 0, -1
        known: list[int] = []
        while not (await asyncio.wait({validator}, timeout=next(pauses)))[0]:
            waited = time.monotonic() - began
            unread = self._to_validator.unread_bytes()
            seen = await asyncio.to_thread(self._look, known)
            calm = calm + 1 if seen is _Seen.ASLEEP and unread == unread_before else 0
            unread_before = unread
            if calm >= (LOOKS_WHEN_STUCK if unread else LOOKS_WHEN_ALL_IS_READ):
                return
            if waited > (UNSEEN_SECONDS_MAX if seen is _Seen.NO_HOLDER else WAIT_SECONDS_MAX):
                return

    def _look(self, known: list[int]) -> _Seen:
        if not known:
            holders = _holders(self._to_validator.name, writing=False)
            known += filter(_is_a_stranger, holders)
            if not known:
                return _Seen.BUSY if holders else _Seen.NO_HOLDER
        return _Seen.ASLEEP if all(states_of(pid) == {"S"} for pid in known) else _Seen.BUSY

    async def _let_go_on(self, program: asyncio.Task[RunOutcome]) -> None:
        """Closes the program's input, and discards what it still writes until it ends."""
        self._to_program.close()
        self._to_validator.close_writer()
        loop, reader = asyncio.get_running_loop(), self._to_validator.kept_reader

        def discard() -> None:
            if not os.read(reader, BLOCK_BYTES):
                loop.remove_reader(reader)

        loop.add_reader(reader, discard)
        try:
            await asyncio.wait({program})
        finally:
            loop.remove_reader(reader)


def _strangers_with(pipe: str, *, writing: bool) -> list[int]:
    return [pid for pid in _holders(pipe, writing=writing) if _is_a_stranger(pid)]


def _holders(pipe: str, *, writing: bool) -> list[int]:
    """Processes in boxes that have this end of the pipe open."""
    own = os.readlink("/proc/self/ns/mnt")  # noqa: PTH115
    pids = (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())
    return [pid for pid in pids if _is_in_a_box(pid, own) and _holds(pid, pipe, writing=writing)]


def _is_in_a_box(pid: int, own: str) -> bool:
    """Checked first: most processes of a machine are not in a box, and their descriptors need not be read."""
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/mnt") != own  # noqa: PTH115
    return False


def _holds(pid: int, pipe: str, *, writing: bool) -> bool:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - Thousands of them: names are enough.
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{name}") == pipe:  # noqa: PTH115
                    return _is_for_writing(pid, name) == writing
    return False


def _is_for_writing(pid: int, name: str) -> bool:
    for text in Path(f"/proc/{pid}/fdinfo/{name}").read_text(encoding="ascii").splitlines():
        if text.startswith("flags:"):
            return int(text.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _is_a_stranger(pid: int) -> bool:
    """Whether the process has executed the program, and is not still the box that starts it."""
    try:
        return not Path(f"/proc/{pid}/exe").readlink().name.startswith(OWN_PROGRAM)
    except OSError:
        return False
