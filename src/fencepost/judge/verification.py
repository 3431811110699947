"""Whether a package keeps its word: its own submissions must get what their folders say."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from fencepost.errors import InvalidInput
from fencepost.judge.judging import Judge, JudgeFault, Judgement
from fencepost.judge.packages.reading import JurySubmission, ReadProblem


@dataclass(frozen=True, slots=True)
class Verified:
    """One submission of the jury. `got` is None when this machine lacks its language."""

    submission: JurySubmission
    got: Judgement | None
    fault: str = ""

    @property
    def broken(self) -> str:
        """What it should have got or done and did not; empty when nothing."""
        if self.fault or self.got is None:
            return self.fault
        if self.got.verdict not in self.submission.expected:
            return f"not {'/'.join(sorted(self.submission.expected))}"
        said = (
            rule.broken_by(self.got.cases, self.got.score) for rule in self.submission.expectations.rules
        )
        return next((one for one in said if one), "")

    @property
    def kept(self) -> bool | None:
        """Whether it got what it should; None when it could not be asked."""
        return None if self.got is None and not self.fault else not self.broken


async def verify(judge: Judge, read: ReadProblem, *, python: str = "python") -> AsyncGenerator[Verified]:
    """Run every submission, one after the other. `python` is the language that a `.py` is in."""
    for submission in read.submissions:
        try:
            language = submission.language(python=python)
            if language not in judge.languages:
                yield Verified(submission, None)
                continue
            got = await judge.judge(
                read.problem,
                language,
                submission.sources,
                entry=submission.expectations.entry,
                # What is said of single tests holds for those too that nobody would run otherwise.
                everything=bool(submission.expectations.rules),
            )
            yield Verified(submission, got)
        except (JudgeFault, InvalidInput) as error:
            yield Verified(submission, None, str(error))
