"""Whether this worker is in service: an operator, or the database, may have taken it out.

The claim decides, and gives a worker that is out of service nothing. This loop spares it the asking: it reads
no entries, which other workers could take, and says in its log why.
"""

from __future__ import annotations

from fencepost.jobs._executor import HeldJobs
from fencepost.kernel import worker
from fencepost.kernel.call import CallRunner
from fencepost.logs import get_logger
from fencepost.signals import announce

_log = get_logger(__name__)
LOOK_SECONDS = 5.0
"""How often a worker in service asks. One that claims in between is answered `withheld`, and asks at once."""


class Standing:
    """Gives places for jobs while the worker is in service."""

    def __init__(self, owner: str, held: HeldJobs, database: CallRunner, *, poll_seconds: float) -> None:
        self._owner = owner
        self._held = held
        self._database = database
        self._poll_seconds = poll_seconds
        self._hold: worker.Hold | None = None

    async def tick(self) -> float:
        hold = await self._database.run(worker.standing(self._owner))
        self._held.serve(hold is None)
        if hold is not None and hold != self._hold:
            _log.warning(
                "worker_out_of_service",
                owner=self._owner,
                state=hold.state,
                target=hold.target,
                reason=hold.reason,
                actor=hold.actor,
                remedy=f"fencepost workers enable {hold.target}",
            )
            announce("worker.out_of_service")
        elif hold is None and self._hold is not None:
            _log.info("worker_in_service", owner=self._owner)
            announce("worker.in_service")
        self._hold = hold
        return LOOK_SECONDS if hold is None else self._poll_seconds
