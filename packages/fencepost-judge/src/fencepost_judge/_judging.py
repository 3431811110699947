"""Judges one submission: compiles it, runs every test, checks each output, and grades."""

from __future__ import annotations

import asyncio
import math
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from fencepost.errors import InvalidInput
from fencepost.logs import get_logger
from fencepost_judge._answers import answers_of
from fencepost_judge._comparison import Checked, Comparison, compare
from fencepost_judge._compiling import Compiler, Program, clean, driver_of
from fencepost_judge._conversation import LEFT, converse, decides
from fencepost_judge._custom_run_executor import CustomRunExecutor, CustomRunOutcome
from fencepost_judge._data_cache import Cache
from fencepost_judge._grading import SKIPPED, CaseResult, Grade, grading, points_by_group
from fencepost_judge._language import Language, script_language
from fencepost_judge._legacy_grading import Graded, Question
from fencepost_judge._problem import ANSWERS, SCRIPT, Problem, ProgramSpec, Protocol, TestCase, ValidatorSpec
from fencepost_judge._protocol import RunOutcome, Verdict
from fencepost_judge._store import CorruptData, StoreUnavailable, remove_folder
from fencepost_judge._test_order import in_test_order
from fencepost_judge._validating import (
    ACCEPTED,
    VALIDATOR_LIMITS,
    WRITTEN,
    Opinion,
    Validator,
    limits_of,
    read_bounded,
)
from fencepost_judge._workspace import Workspace
from fencepost_judge.packages._icpc import code_of
from fencepost_judge.packages._source_files import is_data
from fencepost_judge.sandbox._box_files import BoxFiles
from fencepost_judge.sandbox._run_spec import Limits, RunSpec
from fencepost_judge.sandbox._sandbox_pool import SandboxPool

_log = get_logger(__name__)
LITTLE_BYTES = 16_384
OUTPUT_BYTES_MAX = 4096
"""Of an output that is not right, the beginning that is kept."""
ERRORS_BYTES_MAX = 2048
"""Of the stderr of one test; and of all tests:"""
ALL_ERRORS_BYTES_MAX = 65_536
Progress = Callable[[Sequence[CaseResult], int], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The result of a submission. SE when the judge, and not the submission, is at fault."""

    verdict: str
    score: float | None = None
    time_ms: int = 0
    mem_kb: int = 0
    message: str = ""
    cases: Sequence[CaseResult] = field(default_factory=list[CaseResult])
    points: Mapping[str, float] = field(default_factory=dict[str, float])
    """The points of each group of a scoring problem, by its name."""


@dataclass(frozen=True, slots=True)
class Executed:
    """What a program of a package did."""

    outcome: RunOutcome
    output: bytes
    errors: bytes


@dataclass(frozen=True, slots=True)
class _Run:
    """One submission in progress."""

    problem: Problem
    program: Program
    validator: Validator | None
    more: Sequence[Validator]
    """Further validators, which must accept an output too."""
    beside: Sequence[str]
    """Files of the package in the program's folder, bound into its working directory."""
    job_id: str
    attempt_id: int
    submitted: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """The author's files."""
    everything: bool = False
    errors_left: list[int] = field(default_factory=lambda: [ALL_ERRORS_BYTES_MAX])
    """How many bytes of stderr the result still has room for."""

    def flags(self, case: TestCase) -> Sequence[str]:
        return case.flags if case.flags is not None else self.problem.flags


@dataclass(frozen=True, slots=True)
class _Room:
    """The folder for a validator's feedback in one pass, and its feedback from the previous pass."""

    feedback: Path | None
    remembered: Path | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request to judge."""

    problem: Problem
    language: str
    sources: Mapping[str, bytes]
    job_id: str
    attempt_id: int
    entry: str | None
    everything: bool


Cause = Literal["judge", "data", "problem", "store"]
"""What a system error comes from; `functions/judge_host.sql` says which of them are blamed on the judge."""


class JudgeFault(Exception):
    """The judge's own failure: the box, the data or the validator. Worth retrying, elsewhere or later."""

    cause: Cause = "judge"


class DataFault(JudgeFault):
    """Test data is missing or damaged: in the store, or only on this machine."""

    cause = "data"


class ProblemFault(JudgeFault):
    """A program of the problem's own fails: no machine is to blame."""

    cause = "problem"


class DataAway(JudgeFault):
    """The store cannot be reached: the job should wait."""

    cause = "store"


async def _is_unwatched(results: Sequence[CaseResult], count: int) -> None:
    return None


class Judge:
    """Everything that judging needs on one machine."""

    def __init__(
        self,
        boxes: SandboxPool,
        workspace: Workspace,
        cache: Cache,
        languages: Mapping[str, Language],
        *,
        parallel: int = 1,
        custom_run_limits: Limits | None = None,
    ) -> None:
        self.languages = languages
        self._compiler = Compiler(workspace, boxes)
        self._trier = CustomRunExecutor(self._compiler, workspace, boxes, custom_run_limits or Limits())
        self._boxes = boxes
        self._workspace = workspace
        self._cache = cache
        self._parallel = parallel
        self.running = 0
        """Submissions and custom runs in progress."""
        self._programs: dict[str, Program] = {}
        """Compiled validators and graders, by their content."""
        self._compiling = asyncio.Lock()
        self._scripts = script_language(languages)

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
        progress: Progress = _is_unwatched,
        entry: str | None = None,
        everything: bool = False,
    ) -> Judgement:
        """Raises JudgeFault when no verdict can be given; never blames the submission for it.

        `entry` is the file that the program starts with, if its author names one. With `everything` no test
        is skipped, whatever the other results are.
        """
        with self._in_hand():
            asked = _Asked(problem, language, sources, job_id, attempt_id, entry, everything)
            return await self._judge(asked, progress)

    async def _judge_answers(self, asked: _Asked, progress: Progress) -> Judgement:
        """A test without an answer is wrong; the others are checked as the output of a program is."""
        problem = asked.problem
        try:
            answers = answers_of(problem, asked.sources)
        except InvalidInput as error:
            return Judgement(verdict="CE", message=str(error))

        async def judged(case: TestCase) -> CaseResult:
            if case.name not in answers:
                return CaseResult(name=case.name, verdict="WA", message="There is no answer to it.")
            opinion = _believed(await self.check_output(problem, case, answers[case.name]))
            return CaseResult(
                name=case.name,
                verdict=opinion.verdict,
                message=opinion.message,
                output=opinion.output,
                share=opinion.share,
                points=opinion.points,
            )

        try:
            results = await self._run_tests(problem, judged, progress, everything=asked.everything)
            return _judgement(problem, results, await self._grade(problem, results))
        except StoreUnavailable as error:
            raise DataAway(f"data: {error}") from error
        except (CorruptData, FileNotFoundError) as error:
            raise DataFault(f"data: {error}") from error

    async def _judge(self, asked: _Asked, progress: Progress) -> Judgement:
        if asked.language == ANSWERS:
            return await self._judge_answers(asked, progress)
        problem, language = asked.problem, self._language(asked.language)
        try:
            included = await self._contents(problem.included(language.name))
        except StoreUnavailable as error:
            raise DataAway(f"data: {error}") from error
        except (CorruptData, FileNotFoundError) as error:
            raise DataFault(f"data: {error}") from error
        began = time.monotonic()
        compiled = await self._compiler.compile(
            language,
            {**asked.sources, **included},
            asked.job_id,
            asked.attempt_id,
            entry=asked.entry or driver_of(language.spec, included),
            at_least=problem.bounds,
        )
        seconds, ended = round(time.monotonic() - began, 3), compiled.program is not None
        _log.info("judge_compiled", language=language.name, seconds=seconds, compiled=ended)
        if compiled.program is None:
            assert compiled.outcome is not None
            if compiled.outcome.verdict is Verdict.SE:
                raise JudgeFault(f"compile: {compiled.outcome.sandbox_error}")
            return Judgement(verdict="CE", message=compiled.message)
        try:
            for name, content in included.items():
                self._workspace.put_beside(compiled.program.folder, name, content)
            run = _Run(
                problem,
                compiled.program,
                await self._validator(problem, problem.validator),
                [await self._made(problem, spec) for spec in problem.more_validators],
                [name for name in included if is_data(name)],
                asked.job_id,
                asked.attempt_id,
                asked.sources,
                asked.everything,
            )
            results = await self._run_tests(
                problem, partial(self._case, run), progress, everything=run.everything
            )
            final = await self._grade(problem, results)
        except StoreUnavailable as error:
            raise DataAway(f"data: {error}") from error
        except (CorruptData, FileNotFoundError) as error:
            raise DataFault(f"data: {error}") from error
        finally:
            remove_folder(self._workspace.folder / compiled.program.folder)
        return _judgement(problem, results, final)

    async def check_input(self, spec: ProgramSpec, args: Sequence[str], digest: str) -> tuple[bool, str]:
        """Whether an input validator accepts an input, and its message."""
        program = await self._program(spec)
        order = program.language.run_order(program.folder, program.entry, VALIDATOR_LIMITS, args)
        path = await self._cache.path(digest)
        with self._workspace.reading(path) as stdin, self._workspace.scratch_file() as said:
            outcome = await self._boxes.run(order, BoxFiles(stdin, said, said))
            told = clean(os.pread(said, LITTLE_BYTES, 0)).strip()
        if outcome.verdict is Verdict.SE:
            raise JudgeFault(f"sandbox: {outcome.sandbox_error}")
        accepted = spec.protocol.accepted if isinstance(spec, ValidatorSpec) else ACCEPTED
        return outcome.exit_code == accepted and not outcome.exit_signal, told

    async def check_output(self, problem: Problem, case: TestCase, output: bytes) -> Opinion:
        """The opinion of the problem's validators, or of the comparison, about an output."""
        first = await self._validator(problem, problem.validator)
        more = [await self._made(problem, spec) for spec in problem.more_validators]
        with self._workspace.scratch_file(output) as written:
            if first is None:
                return await self._compare(problem.flags if case.flags is None else case.flags, case, written)
            feedback = self._workspace.new_app()
            try:
                run = _Run(problem, first.program, first, more, (), "", 0)
                room = _Room(feedback / "0", None)
                (feedback / "0").mkdir(mode=0o755)
                return await self._opinion(run, case, await self._cache.path(case.input), written, room)
            finally:
                remove_folder(feedback)

    async def try_out(
        self,
        language: str,
        sources: Mapping[str, bytes],
        given: bytes | None,
        *,
        job_id: str = "",
        attempt_id: int = 0,
    ) -> CustomRunOutcome:
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
                f"{name!r} is not available here. Available: {', '.join(self.languages)}.", field="language"
            )
        return self.languages[name]

    async def _validator(self, problem: Problem, spec: ValidatorSpec | None) -> Validator | None:
        return None if spec is None else await self._made(problem, spec)

    async def _made(self, problem: Problem, spec: ValidatorSpec) -> Validator:
        program = await self._program(spec)
        return Validator(program, spec.protocol, limits_of(problem.bounds), spec.name)

    async def _program(self, spec: ProgramSpec) -> Program:
        """Compiled once for each content, however many submissions wait for it."""
        key = repr((spec.language, sorted(spec.files.items())))
        async with self._compiling:
            if key not in self._programs:
                sources = await self._contents(spec.files)
                language = self._language_of(spec)
                entry = driver_of(language.spec, sources)
                compiled = await self._compiler.compile(language, sources, entry=entry)
                if compiled.program is None:
                    if compiled.outcome is not None and compiled.outcome.verdict is Verdict.SE:
                        raise JudgeFault(f"compile: {compiled.outcome.sandbox_error}")
                    raise ProblemFault(f"validator: {compiled.message}")
                self._programs[key] = compiled.program
        return self._programs[key]

    def _language_of(self, spec: ProgramSpec) -> Language:
        language = self._scripts if spec.language == SCRIPT else self.languages.get(spec.language)
        if language is None:
            raise ProblemFault(f"validator: {spec.language} is not available here")
        return language

    async def _contents(self, files: Mapping[str, str]) -> dict[str, bytes]:
        return {name: (await self._cache.path(digest)).read_bytes() for name, digest in files.items()}

    async def _grade(self, problem: Problem, results: Mapping[str, CaseResult]) -> Grade:
        """`grading` decides without I/O; this runs the package's own grader when it is asked for."""
        steps = grading(problem, results)
        try:
            question = next(steps)
            while True:
                question = steps.send(await self._ask_grader(problem, question))
        except StopIteration as done:
            made: Grade = done.value
            return made

    async def _ask_grader(self, problem: Problem, question: Question) -> Graded:
        if problem.grader is None:
            raise ProblemFault(f"grader: {question.group} asks for one, and the problem has none")
        program = await self._program(problem.grader)
        order = program.language.run_order(
            program.folder, program.entry, limits_of(problem.bounds), question.flags
        )
        scratch = self._workspace.scratch_file
        with scratch(question.lines) as given, scratch() as said, scratch() as errors:
            outcome = await self._boxes.run(order, BoxFiles(given, said, errors))
            return _graded(question, outcome, _content(said))

    async def _run_tests(
        self,
        problem: Problem,
        judged: Callable[[TestCase], Awaitable[CaseResult]],
        progress: Progress,
        *,
        everything: bool,
    ) -> dict[str, CaseResult]:
        results: dict[str, CaseResult] = {}
        count = sum(1 for _ in problem.data.all_cases())
        waiting = in_test_order(problem, results, everything=everything)
        while turn := list(islice(waiting, self._parallel)):
            for result in await asyncio.gather(*(judged(case) for case in turn)):
                results[result.name] = result
            await progress(list(results.values()), count)
        return results

    async def _static(self, run: _Run, case: TestCase) -> CaseResult:
        """The static validator's opinion of the program: its files, and what was compiled, lie where the
        validator starts."""
        if run.problem.static_validator is None:
            raise ProblemFault("validator: static validation needs one")
        validator = await self._made(run.problem, run.problem.static_validator)
        compiled = self._workspace.folder / run.program.folder
        files = {one.name: one.read_bytes() for one in compiled.iterdir() if one.is_file()}
        given = self._workspace.write_sources({**files, **run.submitted})
        kept = self._workspace.new_app()
        name = "feedback"
        while (given / name).exists():
            name += "_"
        try:
            (given / name).mkdir(mode=0o755)
            (kept / "out").mkdir(mode=0o755)
            args = [
                code_of(run.program.language.name),
                run.program.entry,
                f"/out/{name}/",
                *run.flags(case),
            ]
            program = validator.program
            order = program.language.run_order(program.folder, program.entry, validator.limits, args)
            order = replace(
                order, in_out=True, out=kept / "out", out_from=self._workspace.place(given), job_id=run.job_id
            )
            scratch = self._workspace.scratch_file
            with scratch() as nothing, scratch() as told, scratch() as said:
                outcome = await self._boxes.run(order, BoxFiles(nothing, told, said))
                if outcome.verdict is Verdict.SE:
                    raise JudgeFault(f"sandbox: {outcome.sandbox_error}")
                spoken = os.pread(said, 4096, 0), os.pread(told, 4096, 0)
            opinion = _believed(validator.opinion(outcome, kept / "out" / name, *spoken))
        finally:
            remove_folder(given)
            remove_folder(kept)
        return CaseResult(
            name=case.name,
            verdict=opinion.verdict,
            message=opinion.message,
            share=opinion.share,
            points=opinion.points,
        )

    async def _case(self, run: _Run, case: TestCase) -> CaseResult:
        if case.static:
            return await self._static(run, case)
        if run.validator is None:
            return await self._passes(run, case, None)
        feedback = self._workspace.new_app()
        try:
            return await self._passes(run, case, feedback)
        finally:
            remove_folder(feedback)

    async def _passes(self, run: _Run, case: TestCase, feedback: Path | None) -> CaseResult:
        """Run and check. A multi-pass validator may supply another input for another run, and can read its
        feedback from the pass before. Only validators have a feedback folder."""
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
            # Everything else in the feedback folder stays for the next pass; only this file is moved.
            given = following.rename(following.parent.with_suffix(".in"))
            remembered = following.parent
        raise ProblemFault("validator: it asked for more passes than the problem allows")

    async def _plain(
        self, run: _Run, case: TestCase, given: Path, room: _Room
    ) -> tuple[CaseResult, Path | None]:
        with self._workspace.scratch_file() as output, self._workspace.scratch_file() as errors:
            order = await self._order(run, case)
            names = (run.problem.input_file, run.problem.output_file)
            outcome = await self._run_on(order, given, names, output, errors)
            written = self._written_errors(run, errors)
            failed = _failure(case, outcome, run.program.language)
            if failed is not None:
                return replace(failed, errors=written), None
            opinion = await self._opinion(run, case, given, output, room)
        return replace(_judged(case, outcome, opinion), errors=written), opinion.next_input

    def _written_errors(self, run: _Run, errors: int) -> str:
        """What the program wrote to its stderr, as far as the result has room for it."""
        text = clean(os.pread(errors, min(ERRORS_BYTES_MAX, run.errors_left[0]), 0))
        run.errors_left[0] = max(0, run.errors_left[0] - len(text.encode()))
        return text

    async def _run_on(
        self, order: RunSpec, given: Path | None, names: tuple[str, str], output: int, errors: int
    ) -> RunOutcome:
        """Run on an input. `names` are the files that the program reads and writes instead of its standard
        input and output: then it begins in /out, which has its input and is copied afterwards. A file that
        it did not write is an empty output."""
        input_file, output_file = names
        with self._workspace.scratch_file() as nothing:
            if not input_file and not output_file:
                with self._reading(given, nothing) as stdin:
                    return await self._boxes.run(order, BoxFiles(stdin, output, errors))
            place = self._workspace.new_app()
            try:
                order = _in_folder(order, place, input_file, given)
                order = replace(order, out_from=self._workspace.place(place / "before"))
                with self._reading(None if input_file else given, nothing) as stdin:
                    files = BoxFiles(stdin, nothing if output_file else output, errors)
                    outcome = await self._boxes.run(order, files)
                if outcome.verdict is Verdict.RE and outcome.error == "output_too_large":
                    return replace(outcome, verdict=Verdict.OLE)
                if output_file:
                    os.write(output, read_bounded(place / "after" / output_file, order.out_kb * 1024))
                return outcome
            finally:
                remove_folder(place)

    @contextmanager
    def _reading(self, given: Path | None, nothing: int) -> Generator[int]:
        if given is None:
            yield nothing
            return
        with self._workspace.reading(given) as stdin:
            yield stdin

    async def execute(
        self,
        spec: ProgramSpec,
        args: Sequence[str],
        digest: str | None,
        *,
        limits: Limits,
        names: tuple[str, str] = ("", ""),
    ) -> Executed:
        """Run a program of a package, on a stored input if there is one."""
        program = await self._program(spec)
        order = program.language.run_order(program.folder, program.entry, limits, args)
        given = None if digest is None else await self._cache.path(digest)
        with self._workspace.scratch_file() as output, self._workspace.scratch_file() as errors:
            outcome = await self._run_on(order, given, names, output, errors)
            return Executed(outcome, _content(output), _content(errors))

    async def _opinion(self, run: _Run, case: TestCase, given: Path, output: int, room: _Room) -> Opinion:
        """What is thought of an output; one that is not right is kept, as far as a page shows it."""
        opinion = await self._asked(run, case, given, output, room)
        if opinion.verdict in ("AC", "JE"):
            return opinion
        return replace(opinion, output=clean(os.pread(output, OUTPUT_BYTES_MAX, 0)))

    async def _asked(self, run: _Run, case: TestCase, given: Path, output: int, room: _Room) -> Opinion:
        """Asks the validators in order: the first one that does not accept the output decides."""
        if run.validator is None or room.feedback is None:
            return await self._compare(run.flags(case), case, output)
        several = (run.validator, *run.more)
        asked = [one for one in several if case.validator in (None, one.name)]
        if not asked:
            raise ProblemFault(f"validator: {case.name} asks for {case.validator}, which does not exist")
        first = await self._check(run, asked[0], case, given, output, room)
        for number, validator in enumerate(asked[1:]):
            if first.verdict != "AC":
                break
            beside = _Room(room.feedback.with_name(f"{room.feedback.name}-{number}"), None)
            assert beside.feedback is not None
            beside.feedback.mkdir(mode=0o755)
            opinion = await self._check(run, validator, case, given, output, beside)
            if opinion.verdict != "AC":
                return opinion
        return first

    async def _check(
        self, run: _Run, validator: Validator, case: TestCase, given: Path, output: int, room: _Room
    ) -> Opinion:
        assert room.feedback is not None
        copied: Path | None = None
        if validator.protocol is not Protocol.ICPC:
            copied = self._workspace.new_app() / "output"
            copied.write_bytes(_content(output))
        try:
            order = await self._validation(run, validator, case, given, room, copied)
            os.lseek(output, 0, os.SEEK_SET)
            with self._workspace.scratch_file() as told, self._workspace.scratch_file() as said:
                outcome = await self._boxes.run(order, BoxFiles(output, told, said))
                spoken = os.pread(said, 4096, 0), os.pread(told, 4096, 0)
                return _believed(validator.opinion(outcome, room.feedback, *spoken))
        finally:
            if copied is not None:
                remove_folder(copied.parent)

    async def _compare(self, flags: Sequence[str], case: TestCase, output: int) -> Opinion:
        answer = await self._cache.path(case.answer)
        # For small outputs a thread costs more than the comparison.
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
    ) -> RunSpec:
        place = self._workspace.place
        data = (place(given), place(await self._cache.path(case.answer)))
        shown = place(copied) if copied else None
        remembered = place(room.remembered) if room.remembered else None
        assert room.feedback is not None
        return validator.order(data, shown, run.flags(case), room.feedback, remembered)

    async def _interactive(
        self, run: _Run, case: TestCase, given: Path, room: _Room
    ) -> tuple[CaseResult, Path | None]:
        """Runs the program and the validator, each in a box, each reading what the other writes."""
        if run.validator is None or room.feedback is None:
            raise ProblemFault("validator: an interactive problem needs one")
        order = await self._validation(run, run.validator, case, given, room)
        with self._workspace.scratch_file() as errors, self._workspace.scratch_file() as said:
            talk = await converse(self._boxes, await self._order(run, case), order, errors, said)
            written = self._written_errors(run, errors)
            opinion = run.validator.opinion(talk.validator, room.feedback, os.pread(said, 4096, 0))
        failed = _failure(case, talk.program, run.program.language)
        if talk.validator.verdict is Verdict.SE:
            raise JudgeFault(f"sandbox: {talk.validator.sandbox_error}")
        if failed is not None and not decides(opinion, told=talk.told):
            return replace(failed, errors=written), None
        if talk.told and opinion.verdict == "JE":
            opinion = Opinion("WA", LEFT)
        opinion = _believed(opinion)
        if opinion.verdict == "AC" and run.more:
            opinion = await self._check_written(run, case, given, room)
        return replace(_judged(case, talk.program, opinion), errors=written), opinion.next_input

    async def _check_written(self, run: _Run, case: TestCase, given: Path, room: _Room) -> Opinion:
        """The checker's opinion of what the interactor wrote."""
        assert room.feedback is not None
        written = read_bounded(room.feedback / WRITTEN, VALIDATOR_LIMITS.output_kb * 1024)
        with self._workspace.scratch_file(written) as output:
            beside = _Room(room.feedback.with_name(f"{room.feedback.name}-checked"), None)
            assert beside.feedback is not None
            beside.feedback.mkdir(mode=0o755)
            return await self._check(run, run.more[0], case, given, output, beside)

    async def _order(self, run: _Run, case: TestCase) -> RunSpec:
        bounds = run.problem.bounds
        limits = Limits(
            cpu_ms=bounds.time_ms,
            wall_ms=bounds.time_ms * 2 + 2000,
            memory_kb=bounds.memory_kb,
            output_kb=bounds.output_kb,
        )
        order = run.program.language.run_order(run.program.folder, run.program.entry, limits, case.args)
        beside = {f"{run.program.folder}/{name}": f"/w/box/{name}" for name in run.beside}
        for name, digest in case.files.items():
            beside[self._workspace.place(await self._cache.path(digest))] = f"/w/box/{name}"
        return replace(order, binds={**order.binds, **beside}, job_id=run.job_id, attempt_id=run.attempt_id)


def _judgement(problem: Problem, results: Mapping[str, CaseResult], final: Grade) -> Judgement:
    first = next((one for one in results.values() if one.verdict not in ("AC", SKIPPED)), None)
    return Judgement(
        verdict=final.verdict,
        score=final.score,
        time_ms=final.time_ms,
        mem_kb=final.mem_kb,
        message=first.message if first else "",
        cases=[results[case.name] for case in problem.data.all_cases() if case.name in results],
        points=points_by_group(problem, results, final.score),
    )


def _in_folder(order: RunSpec, place: Path, input_file: str, given: Path | None) -> RunSpec:
    """The run in a folder of its own, which begins with the input."""
    before, after = place / "before", place / "after"
    before.mkdir(mode=0o755)
    after.mkdir(mode=0o755)
    kept_kb = order.limits.output_kb
    if input_file and given is not None:
        # Copied: a link would change the file that the cache has checked.
        shutil.copyfile(given, before / input_file)
        kept_kb += given.stat().st_size // 1024 + 64
    limits = order.limits.with_(disk_kb=max(order.limits.disk_kb, kept_kb * 2))
    return replace(order, in_out=True, out=after, out_kb=kept_kb, limits=limits)


def _failure(case: TestCase, outcome: RunOutcome, language: Language) -> CaseResult | None:
    """The result of a run that failed, whatever it wrote; None for one that did not."""
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


def _judged(case: TestCase, outcome: RunOutcome, opinion: Opinion) -> CaseResult:
    return CaseResult(
        name=case.name,
        verdict=opinion.verdict,
        time_ms=outcome.time_ms,
        mem_kb=outcome.mem_kb,
        message=opinion.message,
        output=opinion.output,
        share=opinion.share,
        points=opinion.points,
    )


def _believed(opinion: Opinion) -> Opinion:
    if opinion.verdict == "JE":
        raise ProblemFault(f"validator: {opinion.message}")
    return opinion


def _graded(question: Question, outcome: RunOutcome, said: bytes) -> Graded:
    """A grader must exit with 0 and print one line; anything else is the grader's failure."""
    if outcome.verdict is Verdict.SE:
        raise JudgeFault(f"sandbox: {outcome.sandbox_error}")
    if outcome.verdict is not Verdict.OK:
        raise ProblemFault(f"grader: it ended with {outcome.verdict} for {question.group}")
    found = re.fullmatch(rb"\s*(AC|WA|TLE|RTE)\s+([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*", said[:1000])
    try:
        score = float(found[2]) if found else math.nan
    except ValueError:
        score = math.nan
    if found is None or not math.isfinite(score):
        raise ProblemFault(f"grader: it said {said[:100]!r} for {question.group}, not a verdict and a score")
    return Graded(found[1].decode(), score)


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _compare(output: int, answer: Path, flags: Sequence[str]) -> Checked:
    return compare(_content(output), answer.read_bytes(), Comparison.from_flags(flags))
