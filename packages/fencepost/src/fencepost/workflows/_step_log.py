"""The steps of one run of a workflow: what was recorded before, and what is to be recorded. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fencepost.kernel import _workflow as kernel
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Json
from fencepost.kernel.job import Submission
from fencepost.workflows._errors import Parked, StepNameTaken


class StepLog:
    """Finds steps by name. Each name is used once in a run."""

    def __init__(self, running: kernel_job.Running, owner: str, loaded: kernel.Loaded) -> None:
        self.job_id = running.job_id
        self.attempt = running.attempt
        self.owner = owner
        self.now: datetime | None = loaded.now
        self.parked = False
        self._stored = {step.name: step for step in loaded.steps}
        self._used: set[str] = set()
        self._riders: list[kernel.Record] = []
        described = running.headers.get("workflow")
        self._described: Mapping[str, Any] = described if isinstance(described, Mapping) else {}

    @property
    def round(self) -> int:
        """How often the workflow was restarted."""
        return int(self._described.get("round", 0))

    @property
    def unrequested(self) -> list[str]:
        """Recorded steps that this run has not asked for: steps of code that is gone."""
        return [name for name in self._stored if name not in self._used]

    def use(self, name: str) -> kernel.StoredStep | None:
        """The recorded step of this name, if there is one."""
        self.require_running()
        if name in self._used:
            raise StepNameTaken(name)
        self._used.add(name)
        return self._stored.get(name)

    def require_running(self) -> None:
        if self.parked:
            raise Parked

    def record(
        self, name: str, digest: str, result: Json = None, undo: Submission | None = None
    ) -> kernel.Record:
        document = None if undo is None else undo_document(undo)
        return kernel.Record(self.job_id, self.attempt, name, digest, result, document)

    def ride(self, record: kernel.Record) -> None:
        """Record it with the next commit."""
        self._riders.append(record)

    @property
    def has_riders(self) -> bool:
        return bool(self._riders)

    def take_riders(self) -> Sequence[kernel.Record]:
        riders, self._riders = self._riders, []
        return riders

    def put_back(self, riders: Sequence[kernel.Record]) -> None:
        """They were not committed."""
        self._riders = [*riders, *self._riders]

    def idempotency_key(self, kind: str, name: str) -> str:
        return f"{kind}:{self.job_id}:{self.round}:{name}"


def undo_document(undo: Submission) -> dict[str, Json]:
    """The job that undoes a step, as it is stored with the step."""
    return {
        "queue": undo.queue,
        "kind": undo.kind,
        "payload": undo.payload,
        "priority": undo.options.priority,
        "tries_max": undo.options.tries,
        "lease": f"{undo.options.lease_seconds} seconds",
        "headers": dict(undo.headers),
    }
