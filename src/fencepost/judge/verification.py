"""Whether a package keeps its word: its own submissions must get what their folders say."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from fencepost.errors import InvalidInput
from fencepost.judge.judging import Judge, JudgeFault, Judgement
from fencepost.judge.packages.reading import JurySubmission, ReadProblem
from fencepost.judge.packages.source_files import language_of


@dataclass(frozen=True, slots=True)
class Verified:
    """One submission of the jury. `got` is None when this machine lacks its language."""

    submission: JurySubmission
    got: Judgement | None
    fault: str = ""

    @property
    def kept(self) -> bool | None:
        """Whether it got what it should; None when it could not be asked."""
        if self.fault:
            return False
        return None if self.got is None else self.got.verdict in self.submission.expected


async def verify(judge: Judge, read: ReadProblem) -> AsyncGenerator[Verified]:
    """Run every submission, one after the other."""
    for submission in read.submissions:
        try:
            language = language_of(submission.sources)
            if language not in judge.languages:
                yield Verified(submission, None)
                continue
            yield Verified(submission, await judge.judge(read.problem, language, submission.sources))
        except (JudgeFault, InvalidInput) as error:
            yield Verified(submission, None, str(error))
