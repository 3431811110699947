"""Events that workflows wait for."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast, overload

from fencepost.crashpoints import crash_point
from fencepost.kernel import _event as kernel_event
from fencepost.kernel.call import Json
from fencepost.transaction import SyncTransaction, Transaction, send

if TYPE_CHECKING:
    from fencepost.kernel.drivers import AsyncConnection, SyncConnection


class Events:
    """`fp.events`: emits events in a transaction of yours."""

    @overload
    def emit(
        self,
        tx: Transaction | AsyncConnection,
        event: str,
        payload: Json = None,
        *,
        actor: str | None = None,
    ) -> Awaitable[bool]: ...
    @overload
    def emit(
        self,
        tx: SyncTransaction | SyncConnection,
        event: str,
        payload: Json = None,
        *,
        actor: str | None = None,
    ) -> bool: ...
    def emit(self, tx: Any, event: str, payload: Json = None, *, actor: str | None = None) -> Any:
        """Emit an event in a Fencepost transaction or on your connection: it happens when that commits.

        The workflows that wait for it go on then, and one that waits for it later finds it. The first
        emission stays: returns whether this was it.
        """
        crash_point("workflow.emit.before_call")
        return cast("Any", send)(tx, kernel_event.emit(event, payload, actor=actor))
