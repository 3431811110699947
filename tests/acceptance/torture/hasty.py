"""A system whose files are there too early: before it is known that their checkpoint will be durable."""

from typing import Any
from unittest import mock

from fencepost_torture._system_environment import ProcessTask
from fencepost_torture.systems import _sinks as sinks


class HastyFiles(sinks.FlakyFiles):
    """Renames a file as soon as it is written."""

    async def pre_commit(self, txn: dict[str, Any]) -> None:
        await super().pre_commit(txn)
        await self.commit(txn)


class Hasty(sinks.Sinks):
    """The same flows into such files."""

    processes = 2

    def serve(self, task: ProcessTask) -> None:
        with mock.patch.object(sinks, "FlakyFiles", HastyFiles):
            super().serve(task)
