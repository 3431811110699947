"""Compiles programs inside a box, and prepares the compiler's message for display."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fencepost.errors import InvalidInput
from fencepost.logs import get_logger
from fencepost_judge._language import Language, LanguageSpec, PreparationSpec
from fencepost_judge._main_class import class_in_folder, class_in_jar, named_for_compiler
from fencepost_judge._problem import Bounds
from fencepost_judge._protocol import RunOutcome, Verdict
from fencepost_judge._store import remove_folder
from fencepost_judge._workspace import Workspace
from fencepost_judge.sandbox._box_files import BoxFiles
from fencepost_judge.sandbox._run_spec import Limits, RunSpec
from fencepost_judge.sandbox._sandbox_pool import SandboxPool

_log = get_logger(__name__)
MESSAGE_BYTES_MAX = 8192
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)")
_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+([\w., \t]+)", re.MULTILINE)
NO_MAIN = "There is no class with a main method."
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Program:
    """A runnable program: its folder in the workspace, and the file it starts with."""

    language: Language
    folder: str
    entry: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """The program, or the compiler's message."""

    program: Program | None
    message: str
    outcome: RunOutcome | None


class Compiler:
    """Compiles programs on one machine, and prepares once what a language's compilations share."""

    def __init__(self, workspace: Workspace, boxes: SandboxPool) -> None:
        self._workspace = workspace
        self._boxes = boxes
        self._preparing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._prepared: dict[str, str | None] = {}
        """By language: the folder in the workspace, or None after a preparation that failed."""

    async def compile(
        self,
        language: Language,
        sources: Mapping[str, bytes],
        job_id: str = "",
        attempt_id: int = 0,
        *,
        entry: str | None = None,
        at_least: Bounds | None = None,
    ) -> Compiled:
        """Compile. Without a program, the outcome says whether the box or the source is at fault.

        `entry` is the file or class to start with, if it is known; `at_least` is what the problem guarantees
        to compilers.
        """
        entry = entry or entry_of(language.spec, sources)
        if language.spec.main_class == "folder":
            place = list(sources).index(entry) if entry in sources else None
            sources = named_for_compiler(sources)
            entry = entry if place is None else list(sources)[place]
        workspace = self._workspace
        source = workspace.write_sources(sources)
        out = workspace.new_app()
        prepared = await self._prepared_for(language, sources)
        order = language.compile_order(workspace.place(source), list(sources), entry, out, prepared)
        if order is None:
            remove_folder(out)
            return Compiled(Program(language, workspace.place(source), entry), "", None)
        order = replace(order, job_id=job_id, attempt_id=attempt_id, limits=_room(order.limits, at_least))
        outcome, message = await self._run(order)
        kept = out if language.spec.runs_from == "output" else source
        if outcome.verdict is not Verdict.OK:
            remove_folder(source)
            remove_folder(out)
            return Compiled(None, message or _why(outcome), outcome)
        remove_folder(source if kept is out else out)
        if language.spec.main_class != "no":
            found = _main_class(language.spec, kept, entry)
            if found is None:
                remove_folder(kept)
                return Compiled(None, NO_MAIN, outcome)
            entry = found
        return Compiled(Program(language, workspace.place(kept), entry), message, outcome)

    async def _prepared_for(self, language: Language, sources: Mapping[str, bytes]) -> str | None:
        """The folder with what the language prepares, made at its first use. Compilations do without one that
        failed: it only saves time."""
        spec = language.spec.prepare
        if spec is None or not any(spec.for_text.encode() in text for text in sources.values()):
            return None
        async with self._preparing[language.name]:
            if language.name not in self._prepared:
                self._prepared[language.name] = await self._prepare(language, spec)
        return self._prepared[language.name]

    async def _prepare(self, language: Language, spec: PreparationSpec) -> str | None:
        began, out = time.monotonic(), self._workspace.new_app()
        outcome, message = await self._run(language.prepare_order(spec, out))
        seconds = round(time.monotonic() - began, 3)
        if outcome.verdict is not Verdict.OK:
            remove_folder(out)
            why = message or outcome.sandbox_error or _why(outcome)
            _log.warning("judge_language_not_prepared", language=language.name, seconds=seconds, message=why)
            return None
        _log.info("judge_language_prepared", language=language.name, seconds=seconds)
        return self._workspace.place(out)

    async def _run(self, order: RunSpec) -> tuple[RunOutcome, str]:
        with self._workspace.scratch_file() as said, self._workspace.scratch_file() as nothing:
            outcome = await self._boxes.run(order, BoxFiles(nothing, said, said))
            return outcome, clean(os.pread(said, MESSAGE_BYTES_MAX * 2, 0))


def _room(limits: Limits, at_least: Bounds | None) -> Limits:
    if at_least is None:
        return limits
    cpu_ms = max(limits.cpu_ms, at_least.compile_ms or 0)
    memory_kb = max(limits.memory_kb, at_least.compile_memory_kb or 0)
    return limits.with_(cpu_ms=cpu_ms, wall_ms=max(limits.wall_ms, cpu_ms * 2), memory_kb=memory_kb)


def _main_class(spec: LanguageSpec, made: Path, entry: str) -> str | None:
    wanted = Path(entry).stem if entry.endswith(tuple(spec.extensions)) else entry.rpartition(".")[2]
    if spec.main_class == "jar":
        return class_in_jar(made / "main.jar", wanted)
    return class_in_folder(made, wanted)


def entry_of(spec: LanguageSpec, sources: Mapping[str, str | bytes]) -> str:
    """The file that a program starts with: the language's usual name, or the first file with its
    extension. For Python, a file that no other file imports."""
    if spec.source in sources:
        return spec.source
    suffix = os.path.splitext(spec.source)[1]  # noqa: PTH122
    fitting = sorted(name for name in sources if name.endswith((suffix, *spec.extensions)))
    if not fitting:
        raise InvalidInput(f"There is no {suffix} file among {', '.join(sources)}.", field="sources")
    return _python_entry({name: sources[name] for name in fitting}) if suffix == ".py" else fitting[0]


def _python_entry(sources: Mapping[str, str | bytes]) -> str:
    texts = {
        name: text if isinstance(text, str) else text.decode("utf-8", "replace")
        for name, text in sources.items()
    }
    if "__main__.py" in texts:
        return "__main__.py"
    imported = {
        module.split()[0].partition(".")[0]
        for text in texts.values()
        for names in _IMPORT.findall(text)
        for module in names.split(",")
        if module.strip()
    }
    first = [name for name in texts if Path(name).stem not in imported] or list(texts)
    return next((name for name in first if "__main__" in texts[name]), first[0])


DRIVERS = {"python": "__main__.py", "pypy": "__main__.py"}
"""The package format's name for the first file of a language, where it differs from ours."""


def driver_of(spec: LanguageSpec, included: Collection[str]) -> str | None:
    """The package's file that a program in this language starts with, if the package includes one."""
    usual = (DRIVERS.get(spec.name, spec.source), spec.source)
    return next((name for name in usual if name in included), None)


def clean(said: bytes) -> str:
    """The message for display: without colours, control characters and paths of the box, and cut to a
    limit."""
    text = said.decode("utf-8", "replace")
    text = _CONTROL.sub("", _ESCAPE.sub("", text)).replace("/app/", "").replace("/out/", "")
    return text if len(text) <= MESSAGE_BYTES_MAX else text[:MESSAGE_BYTES_MAX] + "\n… (cut)"


def _why(outcome: RunOutcome) -> str:
    if outcome.error:
        return f"The compiler's output was refused: {outcome.error}."
    named = {"TLE": "took too long", "MLE": "used too much memory", "OLE": "wrote too much"}
    return f"The compiler {named.get(outcome.verdict, 'failed without a message')}."
