"""Compiling inside a box, and what a person gets to read when it fails."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from fencepost.errors import InvalidInput
from fencepost.judge.language import Language, LanguageSpec
from fencepost.judge.problem import Bounds
from fencepost.judge.protocol import Outcome, Verdict
from fencepost.judge.sandbox.box_files import BoxFiles
from fencepost.judge.sandbox.boxes import Boxes
from fencepost.judge.sandbox.order import Limits
from fencepost.judge.store import remove_folder
from fencepost.judge.workshop import Workshop

MESSAGE_BYTES_MAX = 8192
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Program:
    """Something that can be run: where it lies in the workspace, and which file it begins with."""

    language: Language
    folder: str
    entry: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """The program, or the compiler's message."""

    program: Program | None
    message: str
    outcome: Outcome | None


async def compile_sources(
    workshop: Workshop,
    boxes: Boxes,
    language: Language,
    sources: Mapping[str, bytes],
    job_id: str = "",
    attempt_id: int = 0,
    *,
    entry: str | None = None,
    at_least: Bounds | None = None,
) -> Compiled:
    """Compile. Without a program the outcome says whether the box or the source is to blame.

    `entry` is the file to begin with, where it is known; `at_least` is what the problem guarantees compilers.
    """
    entry = entry or entry_of(language.spec, sources)
    source = workshop.write_sources(sources)
    out = workshop.new_app()
    order = language.compile_order(workshop.place(source), list(sources), entry, out)
    if order is None:
        remove_folder(out)
        return Compiled(Program(language, workshop.place(source), entry), "", None)
    order = replace(order, job_id=job_id, attempt_id=attempt_id, limits=_room(order.limits, at_least))
    with workshop.scratch_file() as said, workshop.scratch_file() as nothing:
        outcome = await boxes.run(order, BoxFiles(nothing, said, said))
        message = clean(os.pread(said, MESSAGE_BYTES_MAX * 2, 0))
    kept = out if language.spec.runs_from == "output" else source
    if outcome.verdict is not Verdict.OK:
        remove_folder(source)
        remove_folder(out)
        return Compiled(None, message or _why(outcome), outcome)
    remove_folder(source if kept is out else out)
    return Compiled(Program(language, workshop.place(kept), entry), message, outcome)


def _room(limits: Limits, at_least: Bounds | None) -> Limits:
    if at_least is None:
        return limits
    cpu_ms = max(limits.cpu_ms, at_least.compile_ms or 0)
    memory_kb = max(limits.memory_kb, at_least.compile_memory_kb or 0)
    return limits.with_(cpu_ms=cpu_ms, wall_ms=max(limits.wall_ms, cpu_ms * 2), memory_kb=memory_kb)


def entry_of(spec: LanguageSpec, names: Collection[str]) -> str:
    """The file that a program begins with: the language's usual name, or the first of its extension."""
    if spec.source in names:
        return spec.source
    suffix = os.path.splitext(spec.source)[1]  # noqa: PTH122
    fitting = [name for name in names if name.endswith((suffix, *spec.extensions))]
    if not fitting:
        raise InvalidInput(f"There is no {suffix} file among {', '.join(names)}.", field="sources")
    return sorted(fitting)[0]


DRIVERS = {"python": "__main__.py", "pypy": "__main__.py"}
"""What the package format calls the first file of a language, where that is not our own name for it."""


def driver_of(spec: LanguageSpec, included: Collection[str]) -> str | None:
    """The file of a package that a program in this language begins with, if the package brings one."""
    usual = (DRIVERS.get(spec.name, spec.source), spec.source)
    return next((name for name in usual if name in included), None)


def clean(said: bytes) -> str:
    """For people: no colours, no control characters, no paths of the box, bounded."""
    text = said.decode("utf-8", "replace")
    text = _CONTROL.sub("", _ESCAPE.sub("", text)).replace("/app/", "").replace("/out/", "")
    return text if len(text) <= MESSAGE_BYTES_MAX else text[:MESSAGE_BYTES_MAX] + "\n… (cut)"


def _why(outcome: Outcome) -> str:
    if outcome.error:
        return f"The compiler's output was refused: {outcome.error}."
    named = {"TLE": "took too long", "MLE": "used too much memory", "OLE": "wrote too much"}
    return f"The compiler {named.get(outcome.verdict, 'failed without a message')}."
