"""What a workflow raises, beside the refusals of the kernel."""

from __future__ import annotations

from fencepost.errors import FencepostError
from fencepost.kernel._workflow import ChildOutcome


class Parked(BaseException):
    """The workflow was given back: it sleeps, waits, or begins again. Nothing after this is written.

    Not an Exception, so that `except Exception` around a wait does not catch it. A workflow that catches it
    nevertheless gets it again at its next step.
    """


class EventTimeout(FencepostError, TimeoutError):
    """The event was not emitted in time. This is recorded: an emission that comes later changes nothing."""

    def __init__(self, event: str) -> None:
        super().__init__(f"The event {event!r} was not emitted before its deadline.")
        self.event = event


class ChildJobFailed(FencepostError):
    """A child of the workflow ended without a result."""

    def __init__(self, outcome: ChildOutcome) -> None:
        super().__init__(
            f"The child {outcome.job_id} is {outcome.state or 'gone'}: {outcome.error or 'no error known'}. "
            f"See `fencepost explain {outcome.job_id}`."
        )
        self.outcome = outcome


class StepNameTaken(FencepostError):
    """Two steps of one name in one run: the second would be answered with the first one's result."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The step {name!r} was requested twice in one run, so its result would answer for both. "
            "Give each its own name: `wf.options(key=...)` in a loop, `wf.options(name=...)` elsewhere."
        )
        self.name = name
