"""What a test sees of the database, as the superuser, and how it waits for it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, LiteralString

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from tests.waiting_for import Waiter

WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Probes:
    database: Database
    looker: Waiter

    def rows(self, query: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        return self.looker.rows(query, values)

    def value(self, query: LiteralString, *values: Any) -> Any:
        [[value]] = self.rows(query, *values)
        return value

    def column(self, query: LiteralString, *values: Any) -> list[Any]:
        return [row[0] for row in self.rows(query, *values)]

    def plant(self, statement: str) -> None:
        """Change something behind the kernel's back, or a function of it, in this database alone."""
        with self.database.connect_admin() as admin:
            admin.execute(statement.encode())

    def state(self, job_id: int) -> str:
        return str(self.value("select state from fencepost.jobs where job_id = %s", job_id))

    def events(self, noun: str, subject: object) -> list[tuple[str, str | None]]:
        return [
            (str(event), actor)
            for event, actor in self.rows(
                "select event, actor from fencepost.events where noun = %s and subject = %s"
                " order by event_id",
                noun,
                str(subject),
            )
        ]

    async def until(self, condition: str, holds: Callable[[], bool], *, within: float = WAIT_SECONDS) -> None:
        await asyncio.to_thread(Deadline(within, condition).wait, holds)

    async def until_state(self, job_id: int, state: str) -> None:
        await self.until(f"job {job_id} is {state}", lambda: self.state(job_id) == state)
