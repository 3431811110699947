"""Which cores the boxes run on, and what of the processor makes equal programs take unequal times."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from fencepost.errors import InvalidInput

CPU = "/sys/devices/system/cpu"
ANY, AUTO = "any", "auto"


class Texts(Protocol):
    def text(self, path: str) -> str | None: ...


def read_list(said: str) -> list[int]:
    """`0-2,5` as numbers: as the kernel and JUDGE_CORES write lists of processors."""
    found: list[int] = []
    for part in said.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InvalidInput(f"{said!r} is no list of processors such as 2-5,8.", field="JUDGE_CORES")
        found += range(int(first), int(last or first) + 1)
    return found


def chosen_cores(said: str, machine: Texts, allowed: Collection[int] | None = None) -> Sequence[int]:
    """The processors that boxes are pinned to, in turn; none for `any`. `auto` is one of each core that this
    process may use: two threads of a core slow each other down."""
    usable = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
    if said == ANY:
        return ()
    if said == AUTO:
        return [one for one in usable if one == min(set(siblings(one, machine)) & set(usable))]
    wanted = list(dict.fromkeys(read_list(said)))
    missing = sorted(set(wanted) - set(usable))
    if missing:
        raise InvalidInput(
            f"JUDGE_CORES names the processor {missing[0]}, which this process may not use. Usable:"
            f" {', '.join(map(str, usable))}.",
            field="JUDGE_CORES",
        )
    return wanted


def siblings(processor: int, machine: Texts) -> list[int]:
    """The processors that share a core, this one included."""
    path = f"{CPU}/cpu{processor}/topology/thread_siblings_list"
    said = machine.text(path)
    return read_list(said.strip()) if said and said.strip() else [processor]


@dataclass(frozen=True, slots=True)
class Processor:
    """What is known of it; None where the kernel does not say."""

    turbo: bool | None
    threads: bool | None
    """Whether two threads of a core are in use."""
    governor: str | None


def processor(machine: Texts) -> Processor:
    intel = _word(machine, f"{CPU}/intel_pstate/no_turbo")
    other = _word(machine, f"{CPU}/cpufreq/boost")
    smt = _word(machine, f"{CPU}/smt/active")
    turbo = intel == "0" if intel is not None else None if other is None else other == "1"
    return Processor(
        turbo, None if smt is None else smt == "1", _word(machine, f"{CPU}/cpu0/cpufreq/scaling_governor")
    )


def _word(machine: Texts, path: str) -> str | None:
    said = machine.text(path)
    return said.strip() or None if said is not None else None
