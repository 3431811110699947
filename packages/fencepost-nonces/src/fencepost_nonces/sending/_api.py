"""Managed transactions over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import Field

from fencepost.errors import InvalidInput
from fencepost_nonces._model import HexBytes, Strict
from fencepost_nonces.sending._acceptance import Acceptance
from fencepost_nonces.sending._transaction_calls import TransactionRequest
from fencepost_nonces.signer import Signer, address

TransactionId = Annotated[int, Path(ge=1, le=2**63 - 1)]
# A string, because JSON numbers above 2^53 lose digits in many languages.
Wei = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,77})$")]


class TransactionBody(Strict):
    chain_id: Annotated[int, Field(ge=1, le=2**63 - 1)]
    signer: Annotated[str, Field(min_length=1, max_length=128)]
    to: str | None = None
    value: Wei = "0"
    data: HexBytes = "0x"
    gas: Annotated[int, Field(ge=1)] = 21_000
    webhook: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """The outbox channel that gets a message when it ends, in the transaction that decides the end."""

    def order(self) -> TransactionRequest:
        to = None if self.to is None else address(self.to, field="to")
        return TransactionRequest(to, int(self.value), bytes.fromhex(self.data[2:]), self.gas)


def make_transactions_router(acceptance: Acceptance) -> APIRouter:
    router = APIRouter(prefix="/transactions", tags=["transactions"])

    @router.post("", status_code=202)
    async def submit(
        body: TransactionBody,
        response: Response,
        idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
    ) -> dict[str, Any]:
        """Send a transaction once. The header Idempotency-Key names it; the same key returns the same one."""
        if idempotency_key is None:
            raise InvalidInput("The header Idempotency-Key is missing.", field="Idempotency-Key")
        signer = Signer.of(body.chain_id, body.signer)
        taken = await acceptance.submit(signer, idempotency_key, body.order(), webhook=body.webhook)
        if taken.repeated:
            response.status_code = 200
        return await acceptance.show(taken.transaction_id)

    @router.get("")
    async def newest(
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        below: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
    ) -> list[dict[str, Any]]:
        """The newest transactions first; `below` selects the next page."""
        return await acceptance.newest(limit, below)

    @router.get("/{transaction_id}")
    async def show(transaction_id: TransactionId) -> dict[str, Any]:
        return await acceptance.show(transaction_id)

    @router.post("/{transaction_id}/cancel", status_code=202)
    async def cancel(transaction_id: TransactionId) -> dict[str, Any]:
        """Cancel it, or replace it with a no-op: whichever is mined decides."""
        return await acceptance.cancel(transaction_id)

    return router
