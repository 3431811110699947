"""Executes a custom run: compiles a program and runs it once on an input of its author's own. Nothing is
judged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fencepost_judge._compiling import Compiler, Program
from fencepost_judge._language import Language
from fencepost_judge._protocol import RunOutcome, Verdict
from fencepost_judge._store import remove_folder
from fencepost_judge._workspace import Workspace
from fencepost_judge.sandbox._box_files import BoxFiles
from fencepost_judge.sandbox._run_spec import Limits
from fencepost_judge.sandbox._sandbox_pool import SandboxPool

OUTPUT_BYTES_MAX = 65_536
FAILED = "The judge failed. Nothing is wrong with the program."
"""The message for the author: the reason is in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomRunOutcome:
    """How it ended: OK, CE with the compiler's message, or the verdict of the run. SE when the box is at
    fault."""

    verdict: str
    message: str = ""
    output: str = ""
    errors: str = ""
    cut: bool = False
    """Whether the output was longer than what is returned."""
    exit_code: int = 0
    exit_signal: int = 0
    time_ms: int = 0
    mem_kb: int = 0


@dataclass(frozen=True, slots=True)
class CustomRunExecutor:
    """What custom runs need on one machine."""

    compiler: Compiler
    workspace: Workspace
    boxes: SandboxPool
    limits: Limits

    async def try_out(
        self, language: Language, sources: Mapping[str, bytes], given: bytes | None, job_id: str, attempt: int
    ) -> CustomRunOutcome:
        """Compile, and run if there is an input."""
        compiled = await self.compiler.compile(language, sources, job_id, attempt)
        if compiled.program is None:
            assert compiled.outcome is not None
            fault = compiled.outcome.verdict is Verdict.SE
            return CustomRunOutcome(
                verdict="SE" if fault else "CE", message=FAILED if fault else compiled.message
            )
        try:
            if given is None:
                return CustomRunOutcome(verdict="OK", message=compiled.message)
            return await self._run(compiled.program, given, job_id, attempt)
        finally:
            remove_folder(self.workspace.folder / compiled.program.folder)

    async def _run(self, program: Program, given: bytes, job_id: str, attempt: int) -> CustomRunOutcome:
        order = program.language.run_order(program.folder, program.entry, self.limits)
        order = replace(order, job_id=job_id, attempt_id=attempt)
        scratch = self.workspace.scratch_file
        with scratch(given) as stdin, scratch() as output, scratch() as errors:
            outcome = await self.boxes.run(order, BoxFiles(stdin, output, errors))
            return _tried(outcome, output, errors)


def _tried(outcome: RunOutcome, output: int, errors: int) -> CustomRunOutcome:
    cut = any(os.fstat(one).st_size > OUTPUT_BYTES_MAX for one in (output, errors))
    return CustomRunOutcome(
        verdict=outcome.verdict.value,
        output=_told(output),
        errors=_told(errors),
        cut=cut,
        exit_code=outcome.exit_code,
        exit_signal=outcome.exit_signal,
        time_ms=outcome.time_ms,
        mem_kb=outcome.mem_kb,
    )


def _told(descriptor: int) -> str:
    """As text that can be stored: PostgreSQL stores no NUL, and JSON no bytes."""
    said = os.pread(descriptor, OUTPUT_BYTES_MAX, 0).decode("utf-8", "replace")
    return said.replace("\0", "\N{REPLACEMENT CHARACTER}")
