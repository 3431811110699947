"""`fp.outbox`: messages that commit with your rows, and are delivered in order for each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fencepost._connections import Connections
from fencepost._sync_form import Form, Operations, operation
from fencepost.kernel import outbox as kernel_outbox
from fencepost.kernel.call import Call, Json
from fencepost.kernel.outbox import Outcome
from fencepost.transaction import in_transaction


class Outbox(Operations[Form]):
    """Messages are put in your transaction. A relay delivers them: `fencepost.outbox.relay`, or a webhook."""

    def __init__(self, connections: Connections[Any]) -> None:
        self._connections = connections
        self.is_blocking = connections.is_blocking

    @in_transaction
    def put(
        self,
        channel: str,
        payload: Json,
        *,
        key: str | None = None,
        headers: Mapping[str, Json] | None = None,
        not_before: datetime | None = None,
    ) -> Call[int]:
        """Write a message; answers its id. Its headers carry the caller's trace."""
        return kernel_outbox.put(channel, payload, key=key, headers=headers, not_before=not_before)

    @in_transaction
    def put_many(
        self, channel: str, payloads: Sequence[Json], *, keys: Sequence[str | None] | None = None
    ) -> Call[list[int]]:
        """Write many messages with one statement, in order for each key; answers their ids."""
        return kernel_outbox.put_many(channel, payloads, keys=keys)

    @operation
    async def resolve(
        self,
        message_id: int,
        outcome: Outcome,
        *,
        expected: str,
        note: str,
        actor: str | None = None,
        result: Json = None,
    ) -> None:
        """Record a person's decision about a message, guarded by the state that the person saw."""
        actor = actor or self._connections.owner
        await self._connections.run(
            kernel_outbox.resolve(message_id, expected, outcome, actor, note, result=result)
        )
