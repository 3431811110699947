"""Judging one submission: compile, run every test, ask whether its output is right, grade."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from fencepost.errors import InvalidInput
from fencepost.judge.comparison import Checked, Comparison, compare
from fencepost.judge.compiling import Program, compile_sources
from fencepost.judge.conversation import LEFT, converse, decides
from fencepost.judge.data_cache import Cache
from fencepost.judge.grading import SKIPPED, CaseResult, grade, points_by_group
from fencepost.judge.language import Language
from fencepost.judge.problem import Problem, Protocol, TestCase
from fencepost.judge.protocol import Outcome, Verdict
from fencepost.judge.sandbox.box_files import BoxFiles
from fencepost.judge.sandbox.boxes import Boxes
from fencepost.judge.sandbox.order import Limits, Order
from fencepost.judge.store import CorruptData, StoreUnavailable, remove_folder
from fencepost.judge.trying import Tried, Trier
from fencepost.judge.turns import in_turn
from fencepost.judge.validating import Opinion, Validator
from fencepost.judge.workshop import Workshop

LITTLE_BYTES = 16_384
Progress = Callable[[Sequence[CaseResult], int], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a submission got. SE when the judge, and not the submission, is to blame."""

    verdict: str
    score: float | None = None
    time_ms: int = 0
    mem_kb: int = 0
    message: str = ""
    cases: Sequence[CaseResult] = field(default_factory=list[CaseResult])
    points: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of each group of a scoring problem, by its name."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One submission in hand."""

    problem: Problem
    program: Program
    validator: Validator | None
    job_id: str
    attempt_id: int

    def flags(self, case: TestCase) -> Sequence[str]:
        return case.flags if case.flags is not None else self.problem.flags


@dataclass(frozen=True, slots=True)
class _Room:
    """Where a validator leaves its feedback in one pass, and what it left in the last."""

    feedback: Path | None
    remembered: Path | None


class JudgeFault(Exception):
    """The judge's own failure: the box, the data or the validator. Worth another try, elsewhere or later."""


class DataAway(JudgeFault):
    """The store cannot be reached: worth waiting for."""


async def _nobody_watches(results: Sequence[CaseResult], count: int) -> None:
    return None


class Judge:
    """Everything that judging needs on one machine."""

    def __init__(
        self,
        boxes: Boxes,
        workshop: Workshop,
        cache: Cache,
        languages: Mapping[str, Language],
        *,
        parallel: int = 1,
        trial_limits: Limits | None = None,
    ) -> None:
        self.languages = languages
        self._trier = Trier(workshop, boxes, trial_limits or Limits())
        self._boxes = boxes
        self._workshop = workshop
        self._cache = cache
        self._parallel = parallel
        self.running = 0
        """Submissions and trials in hand."""
        self._validators: dict[str, Validator] = {}
        self._compiling = asyncio.Lock()

    @property
    def boxes_busy(self) -> int:
        return self._boxes.busy

    async def judge(
        self,
        problem: Problem,
        language: str,
        sources: Mapping[str, bytes],
        *,
        job_id: str = "",
        attempt_id: int = 0,
        progress: Progress = _nobody_watches,
    ) -> Judgement:
        """Raises JudgeFault when no verdict can be given; never blames the submission for it."""
        with self._in_hand():
            return await self._judge(problem, language, sources, job_id, attempt_id, progress)

    async def _judge(
        self,
        problem: Problem,
        language: str,
        sources: Mapping[str, bytes],
        job_id: str,
        attempt_id: int,
        progress: Progress,
    ) -> Judgement:
        compiled = await compile_sources(
            self._workshop, self._boxes, self._language(language), sources, job_id, attempt_id
        )
        if compiled.program is None:
            assert compiled.outcome is not None
            if compiled.outcome.verdict is Verdict.SE:
                raise JudgeFault(f"compile: {compiled.outcome.sandbox_error}")
            return Judgement(verdict="CE", message=compiled.message)
        try:
            run = _Run(problem, compiled.program, await self._validator(problem), job_id, attempt_id)
            results = await self._run_all(run, progress)
        except StoreUnavailable as error:
            raise DataAway(f"data: {error}") from error
        except (CorruptData, FileNotFoundError) as error:
            raise JudgeFault(f"data: {error}") from error
        finally:
            remove_folder(self._workshop.folder / compiled.program.folder)
        final = grade(problem, results)
        first = next((one for one in results.values() if one.verdict not in ("AC", SKIPPED)), None)
        return Judgement(
            verdict=final.verdict,
            score=final.score,
            time_ms=final.time_ms,
            mem_kb=final.mem_kb,
            message=first.message if first else "",
            cases=[results[case.name] for case in problem.data.all_cases() if case.name in results],
            points=points_by_group(problem, results),
        )

    async def try_out(
        self,
        language: str,
        sources: Mapping[str, bytes],
        given: bytes | None,
        *,
        job_id: str = "",
        attempt_id: int = 0,
    ) -> Tried:
        """Compile, and run on an input if there is one. Nothing is judged."""
        with self._in_hand():
            return await self._trier.try_out(self._language(language), sources, given, job_id, attempt_id)

    @contextmanager
    def _in_hand(self) -> Generator[None]:
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def _language(self, name: str) -> Language:
        if name not in self.languages:
            raise InvalidInput(
                f"{name!r} is not offered here. There is: {', '.join(self.languages)}.", field="language"
            )
        return self.languages[name]

    async def _validator(self, problem: Problem) -> Validator | None:
        """Compiled once for its content, however many submissions wait for it."""
        spec = problem.validator
        if spec is None:
            return None
        key = repr(sorted(spec.files.items()))
        async with self._compiling:
            if key not in self._validators:
                sources = {
                    name: (await self._cache.path(digest)).read_bytes() for name, digest in spec.files.items()
                }
                language = self.languages.get(spec.language)
                if language is None:
                    raise JudgeFault(f"validator: {spec.language} is not offered here")
                compiled = await compile_sources(self._workshop, self._boxes, language, sources)
                if compiled.program is None:
                    raise JudgeFault(f"validator: {compiled.message}")
                self._validators[key] = Validator(compiled.program, spec.protocol)
        return self._validators[key]

    async def _run_all(self, run: _Run, progress: Progress) -> dict[str, CaseResult]:
        results: dict[str, CaseResult] = {}
        count = sum(1 for _ in run.problem.data.all_cases())
        waiting = in_turn(run.problem, results)
        while turn := list(islice(waiting, self._parallel)):
            for result in await asyncio.gather(*(self._case(run, case) for case in turn)):
                results[result.name] = result
            await progress(list(results.values()), count)
        return results

    async def _case(self, run: _Run, case: TestCase) -> CaseResult:
        if run.validator is None:
            return await self._passes(run, case, None)
        feedback = self._workshop.new_app()
        try:
            return await self._passes(run, case, feedback)
        finally:
            remove_folder(feedback)

    async def _passes(self, run: _Run, case: TestCase, feedback: Path | None) -> CaseResult:
        """Run and check; a multi-pass validator may hand over another input for another run, and finds there
        what it left itself. Only a validator has feedback to give."""
        one_pass = self._interactive if run.problem.interactive else self._plain
        given, remembered = await self._cache.path(case.input), None
        time_ms = mem_kb = 0
        for left in reversed(range(run.problem.bounds.passes)):
            room = feedback / str(left) if feedback else None
            if room is not None:
                room.mkdir(mode=0o755)
            result, following = await one_pass(run, case, given, _Room(room, remembered))
            time_ms, mem_kb = max(time_ms, result.time_ms), max(mem_kb, result.mem_kb)
            if following is None or result.verdict != "AC":
                return replace(result, time_ms=time_ms, mem_kb=mem_kb)
            # Of all that it left, this alone is not there any more in the next pass.
            given = following.rename(following.parent.with_suffix(".in"))
            remembered = following.parent
        raise JudgeFault("validator: it asked for more passes than the problem allows")

    async def _plain(
        self, run: _Run, case: TestCase, given: Path, room: _Room
    ) -> tuple[CaseResult, Path | None]:
        with self._workshop.scratch_file() as output, self._workshop.scratch_file() as errors:
            stdin = os.open(given, os.O_RDONLY | os.O_CLOEXEC)
            try:
                outcome = await self._boxes.run(self._order(run, case), BoxFiles(stdin, output, errors))
            finally:
                os.close(stdin)
            failed = _failure(case, outcome, run.program.language)
            if failed is not None:
                return failed, None
            opinion = await self._check(run, case, given, output, room)
        return _judged(case, outcome, opinion), opinion.next_input

    async def _check(self, run: _Run, case: TestCase, given: Path, output: int, room: _Room) -> Opinion:
        if run.validator is None or room.feedback is None:
            return await self._compare(run, case, output)
        copied: Path | None = None
        if run.validator.protocol is Protocol.TESTLIB:
            copied = self._workshop.new_app() / "output"
            copied.write_bytes(_content(output))
        try:
            order = await self._validation(run, run.validator, case, given, room, copied)
            os.lseek(output, 0, os.SEEK_SET)
            with self._workshop.scratch_file() as said:
                outcome = await self._boxes.run(order, BoxFiles(output, said, said))
                return _believed(run.validator.opinion(outcome, room.feedback, os.pread(said, 4096, 0)))
        finally:
            if copied is not None:
                remove_folder(copied.parent)

    async def _compare(self, run: _Run, case: TestCase, output: int) -> Opinion:
        answer, flags = await self._cache.path(case.answer), run.flags(case)
        # A thread costs more than comparing a little.
        little = os.fstat(output).st_size <= LITTLE_BYTES and answer.stat().st_size <= LITTLE_BYTES
        checked = (
            _compare(output, answer, flags)
            if little
            else await asyncio.to_thread(_compare, output, answer, flags)
        )
        return Opinion(checked.answer, checked.message)

    async def _validation(
        self,
        run: _Run,
        validator: Validator,
        case: TestCase,
        given: Path,
        room: _Room,
        copied: Path | None = None,
    ) -> Order:
        place = self._workshop.place
        data = (place(given), place(await self._cache.path(case.answer)))
        shown = place(copied) if copied else None
        remembered = place(room.remembered) if room.remembered else None
        assert room.feedback is not None
        return validator.order(data, shown, run.flags(case), room.feedback, remembered)

    async def _interactive(
        self, run: _Run, case: TestCase, given: Path, room: _Room
    ) -> tuple[CaseResult, Path | None]:
        """The program and the validator, each in a box, each reading what the other one writes."""
        if run.validator is None or room.feedback is None:
            raise JudgeFault("validator: an interactive problem needs one")
        order = await self._validation(run, run.validator, case, given, room)
        with self._workshop.scratch_file() as errors, self._workshop.scratch_file() as said:
            talk = await converse(self._boxes, self._order(run, case), order, errors, said)
            opinion = run.validator.opinion(talk.validator, room.feedback, os.pread(said, 4096, 0))
        failed = _failure(case, talk.program, run.program.language)
        if talk.validator.verdict is Verdict.SE:
            raise JudgeFault(f"sandbox: {talk.validator.sandbox_error}")
        if failed is not None and not decides(opinion, told=talk.told):
            return failed, None
        if talk.told and opinion.verdict == "JE":
            opinion = Opinion("WA", LEFT)
        return _judged(case, talk.program, _believed(opinion)), opinion.next_input

    def _order(self, run: _Run, case: TestCase) -> Order:
        bounds = run.problem.bounds
        limits = Limits(
            cpu_ms=bounds.time_ms,
            wall_ms=bounds.time_ms * 2 + 2000,
            memory_kb=bounds.memory_kb,
            output_kb=bounds.output_kb,
        )
        order = run.program.language.run_order(run.program.folder, run.program.entry, limits, case.args)
        return replace(order, job_id=run.job_id, attempt_id=run.attempt_id)


def _failure(case: TestCase, outcome: Outcome, language: Language) -> CaseResult | None:
    """The result of a run that did not end well, whatever it wrote."""
    if outcome.verdict is Verdict.OK:
        return None
    if outcome.verdict is Verdict.SE:
        raise JudgeFault(f"sandbox: {outcome.sandbox_error}")
    verdict = outcome.verdict.value
    if verdict == "RE" and not outcome.exit_signal and outcome.exit_code in language.spec.memory_exit_codes:
        verdict = "MLE"
    how = f"signal {outcome.exit_signal}" if outcome.exit_signal else f"exit code {outcome.exit_code}"
    return CaseResult(
        name=case.name,
        verdict=verdict,
        time_ms=outcome.time_ms,
        mem_kb=outcome.mem_kb,
        message=f"It ended with {how}." if verdict == "RE" else "",
    )


def _judged(case: TestCase, outcome: Outcome, opinion: Opinion) -> CaseResult:
    return CaseResult(
        name=case.name,
        verdict=opinion.verdict,
        time_ms=outcome.time_ms,
        mem_kb=outcome.mem_kb,
        message=opinion.message,
        share=opinion.share,
        points=opinion.points,
    )


def _believed(opinion: Opinion) -> Opinion:
    if opinion.verdict == "JE":
        raise JudgeFault(f"validator: {opinion.message}")
    return opinion


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _compare(output: int, answer: Path, flags: Sequence[str]) -> Checked:
    return compare(_content(output), answer.read_bytes(), Comparison.from_flags(flags))
