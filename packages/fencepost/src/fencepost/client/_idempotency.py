"""`fp.idempotency`: a request takes effect once, and a repeat gets the first answer."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, cast, overload

from fencepost.kernel import idempotency as kernel_idempotency
from fencepost.kernel.call import Call, Json
from fencepost.kernel.drivers import AsyncConnection, SyncConnection
from fencepost.kernel.idempotency import Claim, KeyClaim, digest
from fencepost.transaction import SyncTransaction, Transaction, in_transaction, send


class Idempotency:
    """Every method takes your transaction, because a key commits with the writes that it stands for."""

    digest = staticmethod(digest)

    @overload
    def claim(
        self,
        tx: Transaction | AsyncConnection,
        scope: str,
        key: str,
        *,
        digest: str | None = None,
        response: Json = None,
    ) -> Awaitable[Claim]: ...
    @overload
    def claim(
        self,
        tx: SyncTransaction | SyncConnection,
        scope: str,
        key: str,
        *,
        digest: str | None = None,
        response: Json = None,
    ) -> Claim: ...
    def claim(
        self, tx: Any, scope: str, key: str, *, digest: str | None = None, response: Json = None
    ) -> Any:
        """Claim a request, as the first statement of its transaction.

        In a transaction of ours: claimed or replayed; every other outcome is raised, and a replay does not
        commit. On a connection of yours the outcome is in the answer.
        """
        if isinstance(tx, Transaction | SyncTransaction):
            return tx.claim(scope, key, digest=digest, response=response)
        call = kernel_idempotency.claim(scope, key, digest=digest, response=response)
        return cast("Any", send)(tx, call)

    @in_transaction
    def claim_many(
        self,
        scope: str,
        keys: Sequence[str],
        *,
        digests: Sequence[str] | None = None,
        responses: Sequence[Json] | None = None,
    ) -> Call[list[KeyClaim]]:
        """Claim many requests of one scope with one statement; an outcome for each, and none is raised."""
        return kernel_idempotency.claim_many(scope, keys, digests=digests, responses=responses)

    @in_transaction
    def complete(self, scope: str, key: str, response: Json) -> Call[None]:
        """Store the response with a request that was claimed in this same transaction."""
        return kernel_idempotency.remember(scope, key, response)
