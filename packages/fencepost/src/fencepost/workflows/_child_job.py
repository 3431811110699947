"""Children of a workflow: jobs or workflows that one of its steps submits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Generic, TypeVar, cast

from fencepost.kernel import _workflow as kernel
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Call, Json
from fencepost.kernel.job import Submission, Submitted
from fencepost.workflows._errors import ChildJobFailed
from fencepost.workflows._step_codec import arguments_digest

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class ChildJob(Generic[T_co]):
    """A job or workflow to be started by a workflow, and how its result is read."""

    submission: Submission
    decode: Callable[[Json], T_co]

    @staticmethod
    def of(submission: Submission) -> ChildJob[Json]:
        """One of a plain job, `ChildJob.of(handler.submission(...))`. Its result is JSON."""
        child: ChildJob[Json] = ChildJob(submission, lambda result: result)
        return child


@dataclass(frozen=True, slots=True)
class Spawned(Generic[T_co]):
    """A child that was started; `wf.result` waits for it."""

    name: str
    batch: int
    job_ids: Sequence[int]
    decode: Callable[[Json], T_co]

    @property
    def job_id(self) -> int:
        """The id of the only child."""
        [job_id] = self.job_ids
        return job_id


def children_digest(children: Sequence[ChildJob[Any]]) -> str:
    return arguments_digest(
        tuple((child.submission.kind, child.submission.payload) for child in children), {}
    )


def submissions(children: Sequence[ChildJob[Any]]) -> list[Call[list[Submitted]]]:
    """The calls that submit them in order: one for each run of children that differ only in their payload."""

    def options(child: ChildJob[Any]) -> Submission:
        one = child.submission
        key = None if one.concurrency_key is None else ""
        return replace(one, payload=None, unique_key=None, concurrency_key=key, headers={})

    return [
        _submit_alike([child.submission for child in alike])
        for _, alike in groupby(children, lambda child: repr(options(child)))
    ]


def _submit_alike(jobs: Sequence[Submission]) -> Call[list[Submitted]]:
    first = jobs[0]
    return kernel_job.submit_many(
        first.queue,
        first.kind,
        [job.payload for job in jobs],
        first.options,
        unique_keys=[job.unique_key for job in jobs],
        concurrency_keys=None if first.concurrency_key is None else [job.concurrency_key for job in jobs],
        headers=[job.headers for job in jobs],
    )


def as_json(outcomes: list[kernel.ChildOutcome]) -> Json:
    """How children ended, as it is recorded in the step."""
    return [list(outcome) for outcome in outcomes]


def results(recorded: Json, decodes: Sequence[Callable[[Json], T]]) -> list[T]:
    """The results of children, in order. Raises ChildJobFailed for the first that has none."""
    outcomes = [kernel.ChildOutcome(*row) for row in cast("list[Any]", recorded)]
    failed = next((outcome for outcome in outcomes if outcome.state != "finished"), None)
    if failed is not None:
        raise ChildJobFailed(failed)
    return [decode(outcome.result) for outcome, decode in zip(outcomes, decodes, strict=True)]


def settled(recorded: Json, decodes: Sequence[Callable[[Json], T]]) -> list[T | ChildJobFailed]:
    """The same, with the failures in their places."""
    outcomes = [kernel.ChildOutcome(*row) for row in cast("list[Any]", recorded)]
    return [
        decode(outcome.result) if outcome.state == "finished" else ChildJobFailed(outcome)
        for outcome, decode in zip(outcomes, decodes, strict=True)
    ]
