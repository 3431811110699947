"""Managed transactions over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import AwareDatetime, Field

from fencepost.errors import InvalidInput
from fencepost_nonces._model import HexBytes, Strict
from fencepost_nonces.sending._acceptance import Acceptance, BatchAnswer
from fencepost_nonces.sending._fees import Speed
from fencepost_nonces.sending._transaction_calls import (
    BATCH_MAX,
    FeePolicy,
    Filters,
    State,
    Submission,
    TransactionRequest,
)
from fencepost_nonces.signer import Signer, address
from fencepost_server.web.errors import brief, status_of

TransactionId = Annotated[int, Path(ge=1, le=2**63 - 1)]
# A string, because JSON numbers above 2^53 lose digits in many languages.
Wei = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,77})$")]


class TransactionBody(Strict):
    chain_id: Annotated[int, Field(ge=1, le=2**63 - 1)]
    signer: Annotated[str, Field(min_length=1, max_length=128)]
    to: str | None = None
    value: Wei = "0"
    data: HexBytes = "0x"
    gas: Annotated[int, Field(ge=1)] | None = None
    """Estimated by a simulation when it is missing."""
    speed: Speed = "standard"
    fee_cap: Wei | None = None
    """The most that any version of it offers for a unit of gas, in wei."""
    deadline: AwareDatetime | None = None
    """If it is not mined by then, a no-op takes its nonce."""
    webhook: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """The outbox channel that gets a message when it ends, in the transaction that decides the end."""

    def submission(self, key: str) -> Submission:
        to = None if self.to is None else address(self.to, field="to")
        return Submission(
            Signer.of(self.chain_id, self.signer),
            key,
            TransactionRequest(to, int(self.value), bytes.fromhex(self.data[2:]), self.gas),
            FeePolicy(self.speed, None if self.fee_cap is None else int(self.fee_cap), self.deadline),
            self.webhook,
        )


class BatchItem(TransactionBody):
    idempotency_key: Annotated[str, Field(min_length=1, max_length=200)]


class BatchBody(Strict):
    transactions: Annotated[list[BatchItem], Field(min_length=1, max_length=BATCH_MAX)]


def make_transactions_router(acceptance: Acceptance) -> APIRouter:
    router = APIRouter(prefix="/transactions", tags=["transactions"])
    _add_submitting(router, acceptance)
    _add_reading(router, acceptance)

    @router.post("/{transaction_id}/cancel", status_code=202)
    async def cancel(transaction_id: TransactionId) -> dict[str, Any]:
        """Cancel it, or replace it with a no-op: whichever is mined decides."""
        return await acceptance.cancel(transaction_id)

    return router


def _add_submitting(router: APIRouter, acceptance: Acceptance) -> None:
    @router.post("", status_code=202)
    async def submit(
        body: TransactionBody,
        response: Response,
        idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
    ) -> dict[str, Any]:
        """Send a transaction once. The header Idempotency-Key names it; the same key returns the same one."""
        if idempotency_key is None:
            raise InvalidInput("The header Idempotency-Key is missing.", field="Idempotency-Key")
        asked = body.submission(idempotency_key)
        taken = await acceptance.submit(
            asked.signer, asked.key, asked.order, policy=asked.policy, webhook=asked.webhook
        )
        if taken.repeated:
            response.status_code = 200
        return await acceptance.show(taken.transaction_id)

    @router.post("/batch")
    async def submit_batch(body: BatchBody) -> dict[str, Any]:
        """Send up to 500 transactions, each once by its own key. Each is accepted or refused by itself."""
        asked = [_asked(item) for item in body.transactions]
        taken = iter(await acceptance.submit_many([one for one in asked if isinstance(one, Submission)]))
        answers = [next(taken) if isinstance(one, Submission) else one for one in asked]
        ids = [one.item.transaction_id for one in answers if one.item and one.item.transaction_id]
        shown = await acceptance.show_many(ids)
        return {"transactions": [_answer(one, shown) for one in answers]}


def _asked(item: BatchItem) -> Submission | BatchAnswer:
    """The submission, or the answer to one that cannot be: a wrong address stops no other."""
    try:
        return item.submission(item.idempotency_key)
    except InvalidInput as error:
        return BatchAnswer(item.idempotency_key, None, error)


def _answer(one: BatchAnswer, shown: Any) -> dict[str, Any]:
    """`transaction` and whether it is a repeat, or `error` in the shape of every error."""
    error: dict[str, str] | None = None
    if one.error is not None:
        error = {"code": status_of(one.error)[1], "message": brief(str(one.error))}
        if field := getattr(one.error, "field", None):
            error["field"] = field
    elif one.item is not None and one.item.refusal is not None:
        error = {
            "code": one.item.refusal,
            "message": "The key has a transaction with another content. Nothing was accepted.",
        }
    if error is not None:
        return {"idempotency_key": one.key, "error": error}
    assert one.item is not None
    return {
        "idempotency_key": one.key,
        "repeated": one.item.repeated,
        "transaction": shown[one.item.transaction_id],
    }


def _add_reading(router: APIRouter, acceptance: Acceptance) -> None:
    @router.get("")
    async def newest(
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        below: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
        chain_id: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
        signer: Annotated[str | None, Query(min_length=1, max_length=128)] = None,
        state: Annotated[list[State] | None, Query()] = None,
        created_from: AwareDatetime | None = None,
        created_until: AwareDatetime | None = None,
    ) -> list[dict[str, Any]]:
        """The newest transactions first; `below` is the id of the last one of the page before.

        `chain_id` and `signer` go together; `state` may be repeated; `created_until` itself is left out.
        """
        filters = filters_of(chain_id, signer, state, created_from, created_until)
        return await acceptance.newest(limit, below, filters)

    @router.get("/{transaction_id}")
    async def show(transaction_id: TransactionId) -> dict[str, Any]:
        return await acceptance.show(transaction_id)


def filters_of(
    chain_id: int | None,
    signer: str | None,
    states: list[State] | None,
    created_from: datetime | None,
    created_until: datetime | None,
) -> Filters:
    if (chain_id is None) != (signer is None):
        missing = "chain_id" if chain_id is None else "signer"
        raise InvalidInput(f"{missing} is missing: a signer is an address on a chain.", field=missing)
    one = None if chain_id is None or signer is None else Signer.of(chain_id, signer)
    return Filters(one, states or None, created_from, created_until)
