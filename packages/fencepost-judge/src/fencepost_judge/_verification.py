"""Verifies a package: its own submissions must get the verdicts that their folders name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from fencepost.errors import InvalidInput
from fencepost_judge._judging import Judge, JudgeFault, Judgement
from fencepost_judge._problem import ANSWERS, SCRIPT, ProgramSpec
from fencepost_judge._store import Store
from fencepost_judge._test_making import make_tests
from fencepost_judge._time_limit import given, infer
from fencepost_judge.packages._reading import JurySubmission, ReadProblem
from fencepost_judge.packages._validation_data import InputCheck

TOGETHER = 4
"""Inputs checked at once, as far as there are boxes."""


@dataclass(frozen=True, slots=True)
class Verified:
    """One submission of the jury. `got` is None when this machine does not support its language."""

    submission: JurySubmission
    got: Judgement | None
    fault: str = ""
    language: str = ""

    @property
    def broken(self) -> str:
        """The expectation that it does not meet; empty when it meets all."""
        if self.fault or self.got is None:
            return self.fault
        if self.got.verdict not in self.submission.expected:
            return f"not {'/'.join(sorted(self.submission.expected))}"
        said = (rule.broken_by(self.got.cases, self.got.score) for rule in self.submission.expectations.rules)
        return next((one for one in said if one), "")

    @property
    def skipped(self) -> str:
        """Why it was not run; empty when it was."""
        if self.got is not None or self.fault:
            return ""
        return "its language is not installed" if self.language else "no language has its extension"

    @property
    def kept(self) -> bool | None:
        """Whether it meets its expectations; None when it could not be run."""
        return None if self.got is None and not self.fault else not self.broken


async def verify(judge: Judge, read: ReadProblem, *, python: str = "python") -> AsyncGenerator[Verified]:
    """Run every submission, one after the other. `python` is the language of `.py` files."""
    for submission in read.submissions:
        language = ""
        try:
            language = submission.language(python=python)
            if language != ANSWERS and language not in judge.languages:
                yield Verified(submission, None, language=language)
                continue
            got = await judge.judge(
                read.problem,
                language,
                submission.sources,
                entry=submission.expectations.entry,
                # Expectations on single tests also apply to tests that would otherwise be skipped.
                everything=bool(submission.expectations.rules),
            )
            yield Verified(submission, got, language=language)
        except (JudgeFault, InvalidInput) as error:
            yield Verified(submission, None, str(error), language)


@dataclass(frozen=True, slots=True)
class DataCheck:
    """Whether a data file or a validator of the package is as it should be. None: it could not be checked."""

    name: str
    kept: bool | None
    why: str = ""


async def check_data(judge: Judge, read: ReadProblem) -> AsyncGenerator[DataCheck]:
    """Runs input validators on every input, and output validators on the outputs that they must accept or
    reject."""
    for name in read.validation.not_run:
        yield DataCheck(name, None, "it needs a tool that is not installed")
    usable = [one for one in read.validation.validators if one.language in (*judge.languages, SCRIPT)]
    for one in read.validation.validators:
        if one not in usable:
            yield DataCheck(one.name, None, "its language is not installed")
    try:
        inputs = read.validation.inputs if usable else ()
        for begin in range(0, len(inputs), TOGETHER):
            some = inputs[begin : begin + TOGETHER]
            for check in await asyncio.gather(*(_check_input(judge, usable, one) for one in some)):
                yield check
        for output in read.validation.outputs:
            opinion = await judge.check_output(read.problem, output.case, output.output)
            right = (opinion.verdict in ("AC", "PA")) is (output.expected == "AC")
            why = (
                "" if right else f"the output is {opinion.verdict}, not {output.expected}. {opinion.message}"
            )
            yield DataCheck(f"data/{output.case.name}.out", right, why)
    except JudgeFault as fault:
        yield DataCheck("validators", kept=False, why=str(fault))


@dataclass(slots=True)
class Verification:
    """A package and what was found so far."""

    read: ReadProblem
    data: list[DataCheck] = field(default_factory=list[DataCheck])
    submissions: list[Verified] = field(default_factory=list[Verified])

    @property
    def kept(self) -> list[bool | None]:
        """Whether each check and each submission is as it should be."""
        return [one.kept for one in self.data] + [one.kept for one in self.submissions]


Tell = Callable[[Verification], Awaitable[None]]


async def verify_package(
    judge: Judge, read: ReadProblem, store: Store, *, seconds: float | None, python: str, tell: Tell
) -> Verification:
    """Makes the tests and the time limit that the package leaves out, checks its data, and runs its
    submissions. `tell` is awaited when the problem is known, after the data, and after each submission.
    `seconds` replaces the package's time limit."""
    if seconds is not None:
        read = replace(read, problem=given(read.problem, seconds), timing=None)
    read = await make_tests(judge, read, store)
    read = replace(read, problem=await infer(judge, read, python=python), timing=None)
    made = Verification(read)
    await tell(made)
    async for check in check_data(judge, read):
        made.data.append(check)
    await tell(made)
    async for one in verify(judge, read, python=python):
        made.submissions.append(one)
        await tell(made)
    return made


async def _check_input(judge: Judge, validators: Sequence[ProgramSpec], given: InputCheck) -> DataCheck:
    """Every validator must accept a valid input; at least one must reject an invalid input."""
    rejected = ""
    for one in validators:
        accepted, said = await judge.check_input(one, given.args_of(one.name), given.input)
        if not accepted:
            rejected = f"{one.name} rejects it. {said[:200]}".strip()
            break
    if given.valid:
        return DataCheck(given.name, not rejected, rejected)
    return DataCheck(given.name, bool(rejected), "" if rejected else "every input validator accepts it")
