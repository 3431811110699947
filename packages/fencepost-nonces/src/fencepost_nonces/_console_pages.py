"""Signers: a strip of nonces, the transactions on them, and what needs attention after a recovery."""

from __future__ import annotations

import pathlib
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field

from fencepost.errors import NotFound
from fencepost_nonces import _operator as operator
from fencepost_nonces.sending import _transaction_calls as tx_calls
from fencepost_nonces.signer import Signer as SignerKey
from fencepost_server.console.context import ConsoleContext, Limit, MaybeId, Name
from fencepost_server.console.listing import Listing, ListQuery
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.plugin_pages import ConsolePages
from fencepost_server.web.formatting import link, quoted
from fencepost_server.web.questions import Confirmation, counted
from fencepost_server.web.words import say

DOUBTS_MAX = 50
OVERDUE_MAX = 30
_SIGNERS = Listing(
    table="signers",
    sql="select * from fencepost.nonce_signers"
    " where (chain_id, signer) > (coalesce(%(chain)s::bigint, 0), coalesce(%(after)s::text, ''))"
    " and (not %(recovering)s::boolean or recovering_since is not null)"
    " order by chain_id, signer limit %(limit)s",
    key=("chain_id", "signer"),
    positions=("chain", "after"),
    is_descending=False,
    columns={
        "chain_id": "bigint",
        "signer": "text",
        "owner_node": "text",
        "next_nonce": "bigint",
        "gaps": "bigint",
        "held_count": "bigint",
        "broadcast": "bigint",
        "oldest_open_at": "timestamptz",
        "recovering_since": "timestamptz",
    },
    searched=("signer", "owner_node"),
)
_STRIP = Listing(
    table="strip",
    sql="select nonce, status, locked_until, fencing_token, tx_hash, created_at, updated_at, request_id"
    " from fencepost.signer_nonce_allocation where chain_id = %(chain_id)s and signer = %(signer)s"
    " and nonce < coalesce(%(before)s::bigint, 9223372036854775807) order by nonce desc limit %(limit)s",
    key=("nonce",),
    positions=("before",),
    is_descending=True,
    columns={"nonce": "bigint"},
)
_TRANSACTIONS = Listing(
    table="transactions",
    sql="select transaction_id, state, nonce_status, nonce, recipient, value, tx_hash, error, created_at,"
    " in_doubt_since, unproved_since from fencepost.managed_transaction"
    " where transaction_id = any (%(ids)s) order by transaction_id desc",
    key=("transaction_id",),
    positions=("sent_before",),
    is_descending=True,
    columns={
        "transaction_id": "bigint",
        "state": "text",
        "nonce": "bigint",
        "recipient": "text",
        "value": "numeric",
        "tx_hash": "text",
        "error": "text",
        "created_at": "timestamptz",
    },
    searched=("state", "recipient", "tx_hash", "error"),
)
ChainId = Annotated[int, Path(ge=0, le=9_223_372_036_854_775_807)]
Signer = Annotated[str, Path(min_length=1, max_length=256, pattern=r"^[^\x00/]+$")]


TransactionId = Annotated[int, Path(ge=1, le=9_223_372_036_854_775_807)]
Nonce = Annotated[int, Field(ge=0, le=9_223_372_036_854_775_807)]
PAGE = "/console/nonces"


class ResumeSigner(BaseModel):
    model_config = {"extra": "forbid"}

    next_nonce: Nonce
    """The first nonce that no caller can have."""


class SettleNonce(BaseModel):
    """A decision about a reservation, guarded by the hold that was seen."""

    model_config = {"extra": "forbid"}

    nonce: Nonce
    hold: Nonce
    outcome: Literal["used", "released"]
    tx_hash: Annotated[str | None, Field(max_length=128, pattern=r"^[!-~]*$")] = None


class SignersQuery(ListQuery):
    """In order of chain and name: the signers behind `after` on `chain`."""

    state: Literal["", "recovering"] | None = None
    chain: MaybeId = None
    after: Name | None = None
    limit: Limit = 50

    def filters(self) -> dict[str, Any]:
        return {
            "state": self.state or None,
            "part": self.part or None,
            "limit": self.limit if self.limit != 50 else None,
        }


class SignerQuery(ListQuery):
    """Nonces below `before`, transactions below `sent_before`."""

    before: MaybeId = None
    sent_before: MaybeId = None
    limit: Limit = 100


def _add_pages(context: ConsoleContext) -> None:
    @context.router.page("/nonces", "signers.html", "Nonces")
    async def signers(request: Request, query: Annotated[SignersQuery, Query()]) -> PageData:
        """Every signer: its owner, next nonce, gaps and what is under way; and what needs attention."""
        page = await context.lists.read(
            _SIGNERS, query, query.limit, {"recovering": query.state == "recovering"}
        )
        doubts = await context.reading.rows(
            "select transaction_id, chain_id, signer, state, nonce, recipient, value, in_doubt_since,"
            " unproved_since from fencepost.managed_transaction"
            " where in_doubt_since is not null or unproved_since is not null"
            " order by transaction_id limit %s",
            DOUBTS_MAX,
        )
        overdue = await context.reading.rows(
            "select chain_id, signer, nonce, hold, status, request_id, locked_until, tx_hash"
            " from fencepost.signer_nonce_allocation"
            " where status in ('HELD', 'SIGNING', 'SIGNED', 'BROADCAST') and caller_signs"
            " and locked_until <= fencepost.clock() order by locked_until, chain_id, signer, nonce limit %s",
            OVERDUE_MAX,
        )
        return PageData(
            {
                "signers": page.rows,
                "doubts": doubts,
                "overdue": overdue,
                "overdue_most": OVERDUE_MAX,
                "doubts_most": DOUBTS_MAX,
                **page.next,
                "filters": query.filters(),
                "states": ("recovering",),
            },
            "signers",
            ("doubts", "overdue"),
            {"signers": page.state},
        )

    @context.router.page("/nonces/{chain_id}/{signer}", "signer.html", "Signer")
    async def signer(
        request: Request, chain_id: ChainId, signer: Signer, query: Annotated[SignerQuery, Query()]
    ) -> PageData:
        """One signer's strip, newest first, and its newest transactions."""
        row = await context.reading.row(
            "select * from fencepost.nonce_signers where chain_id = %s and signer = %s", chain_id, signer
        )
        if row is None:
            raise NotFound(
                say("There is no signer {signer} on chain {chain_id}.", signer=signer, chain_id=chain_id)
            )
        of = {"chain_id": chain_id, "signer": signer}
        strip = await context.lists.read(_STRIP, query, query.limit, of)

        async def ids(sent_before: int | None, limit: int) -> tuple[list[int], int | None]:
            return await context.reading.page(
                "select ids, next_before from fencepost.console_transaction_page("
                "%s::bigint, %s::text, %s::bigint, %s::integer, %s::integer)",
                chain_id,
                signer,
                sent_before,
                limit,
                context.settings.scan_max,
            )

        transactions = await context.lists.read(_TRANSACTIONS, query, query.limit, ids=ids)
        return PageData(
            {
                "title": f"{signer} on {chain_id}",
                "signer": row,
                "strip": strip.rows,
                "transactions": transactions.rows,
                **transactions.next,
                **strip.next,
                "filters": {
                    "part": query.part or None,
                    "limit": query.limit if query.limit != 100 else None,
                },
            },
            "strip",
            ("transactions",),
            {"strip": strip.state, "transactions": transactions.state},
        )


def _add(context: ConsoleContext) -> None:
    _add_pages(context)
    _add_actions(context)


def _add_actions(context: ConsoleContext) -> None:
    async def before_resume(request: Request, chain_id: int, signer: str, body: ResumeSigner) -> Confirmation:
        row = await context.reading.row(
            "select next_nonce, recovering_since, owner_node from fencepost.nonce_signers"
            " where chain_id = %s and signer = %s",
            chain_id,
            signer,
        )
        if row is None:
            raise NotFound(
                say("There is no signer {signer} on chain {chain_id}.", signer=signer, chain_id=chain_id)
            )
        outside = max(0, body.next_nonce - row["next_nonce"])
        told = [
            say(
                "Signer {signer} on chain {chain_id}, next nonce {next_nonce}, hands out nonces again.",
                signer=signer,
                chain_id=chain_id,
                next_nonce=row["next_nonce"],
            ),
            say("It goes on at {next_nonce}.", next_nonce=max(body.next_nonce, row["next_nonce"])),
            say(
                "{outside} below that are held for callers of the lost time.",
                outside=counted(outside, "nonce"),
            ),
            "A nonce that was given out already would be given out twice: name the first that no caller has.",
        ]
        at = _address(chain_id, signer)
        return Confirmation(
            say("Resume signer {signer}?", signer=signer),
            told,
            say("Resume at {next_nonce}", next_nonce=body.next_nonce),
            at,
        )

    @context.router.action("/nonces/{chain_id}/{signer}/resume", "signer.resume", asks=before_resume)
    async def resume(request: Request, chain_id: ChainId, signer: Signer, body: ResumeSigner) -> ActionDone:
        """Let a recovered signer go on at a nonce, or where its sequence is if that is higher."""
        resumed = await operator.resume(context.fp, SignerKey.of(chain_id, signer), body.next_nonce)
        context.live_snapshot.forget()
        held = say("{outside} below it are held", outside=counted(resumed.outside, "nonce"))
        told = say(
            "{signer} goes on at {next_nonce}; {held}.",
            signer=signer,
            next_nonce=resumed.next_nonce,
            held=held,
        )
        return ActionDone(told, _address(chain_id, signer), {"next_nonce": resumed.next_nonce})

    async def before_settle(request: Request, chain_id: int, signer: str, body: SettleNonce) -> Confirmation:
        row = await context.reading.row(
            "select status, request_id, tx_hash from fencepost.signer_nonce_allocation"
            " where chain_id = %s and signer = %s and nonce = %s",
            chain_id,
            signer,
            body.nonce,
        )
        if row is None:
            raise NotFound(
                say(
                    "Signer {signer} on chain {chain_id} has no nonce {nonce}.",
                    signer=signer,
                    chain_id=chain_id,
                    nonce=body.nonce,
                )
            )
        name = say(
            "Nonce {nonce} of {signer} on chain {chain_id}",
            nonce=body.nonce,
            signer=signer,
            chain_id=chain_id,
        )
        ends = {
            "used": "It counts as used and is not given out again.",
            "released": "It is given out again. If its caller signed with it, two transactions share it.",
        }
        told = [
            say(
                "{name}, {status}, was reserved by request {request_id}.",
                name=name,
                status=row["status"],
                request_id=row["request_id"],
            ),
            ends[body.outcome],
        ]
        return Confirmation(
            say("{name} was {outcome}?", name=name, outcome=body.outcome),
            told,
            say("Mark it {outcome}", outcome=body.outcome),
            PAGE,
        )

    @context.router.action("/nonces/{chain_id}/{signer}/settle", "nonce.settle", asks=before_settle)
    async def settle(request: Request, chain_id: ChainId, signer: Signer, body: SettleNonce) -> ActionDone:
        """Settle an overdue reservation: the nonce was used, or nothing was signed with it."""
        await operator.settle(
            context.fp,
            SignerKey.of(chain_id, signer),
            body.nonce,
            body.hold,
            is_used=body.outcome == "used",
            tx_hash=body.tx_hash or None,
        )
        context.live_snapshot.forget()
        return ActionDone(
            say("Nonce {nonce} is {outcome}.", nonce=body.nonce, outcome=body.outcome),
            PAGE,
            {"nonce": body.nonce},
        )

    async def known(transaction_id: int) -> dict[str, Any]:
        found = await context.fp.run(tx_calls.find(transaction_id))
        if not found:
            raise NotFound(say("There is no transaction {transaction_id}.", transaction_id=transaction_id))
        return found[0]

    async def before_vouch(request: Request, transaction_id: int) -> Confirmation:
        facts = await known(transaction_id)
        told = [
            say(
                "Transaction {transaction_id} of {signer} on chain {chain_id}.",
                transaction_id=transaction_id,
                signer=facts["signer"],
                chain_id=facts["chain_id"],
            ),
            say(
                "It sends {value} to {what}.", value=facts["value"], what=facts["to"] or say("a new contract")
            ),
            "It is sent. If a version of it was mined after all, the value is sent twice.",
        ]
        answer = say("Send transaction {transaction_id}", transaction_id=transaction_id)
        return Confirmation(
            say("Transaction {transaction_id} was not mined?", transaction_id=transaction_id),
            told,
            answer,
            f"{PAGE}#doubt",
        )

    @context.router.action("/transactions/{transaction_id}/vouch", "transaction.vouch", asks=before_vouch)
    async def vouch(request: Request, transaction_id: TransactionId) -> ActionDone:
        """State that none of its versions was mined: it is sent."""
        facts = await known(transaction_id)
        signer = SignerKey.of(facts["chain_id"], facts["signer"])
        await operator.vouch(context.fp, signer, transaction_id)
        context.live_snapshot.forget()
        return ActionDone(
            say("Transaction {transaction_id} will be sent.", transaction_id=transaction_id), PAGE
        )

    async def before_cancel(request: Request, transaction_id: int) -> Confirmation:
        facts = await known(transaction_id)
        ends = "It is replaced by one that does nothing. Whichever is mined decides."
        told = [
            say(
                "Transaction {transaction_id} of {signer}, {state}.",
                transaction_id=transaction_id,
                signer=facts["signer"],
                state=facts["state"],
            ),
            say(
                "It sends {value} to {what}.", value=facts["value"], what=facts["to"] or say("a new contract")
            ),
            "It ends at once." if facts["state"] == "QUEUED" else ends,
        ]
        answer = say("Cancel transaction {transaction_id}", transaction_id=transaction_id)
        return Confirmation(f"{answer}?", told, answer, _address(facts["chain_id"], facts["signer"]))

    @context.router.action("/transactions/{transaction_id}/cancel", "transaction.cancel", asks=before_cancel)
    async def cancel(request: Request, transaction_id: TransactionId) -> ActionDone:
        """Cancel a transaction that is not mined."""
        facts = await known(transaction_id)
        state = await context.fp.run(tx_calls.cancel(transaction_id))
        told = (
            say("is cancelled") if state == "CANCELLED" else say("is to be replaced by one that does nothing")
        )
        at = _address(facts["chain_id"], facts["signer"])
        return ActionDone(
            say("Transaction {transaction_id} {told}.", transaction_id=transaction_id, told=told),
            at,
            {"state": state},
        )


def _address(chain_id: int, signer: str) -> str:
    return f"{PAGE}/{chain_id}/{quoted(signer)}"


def _describe_need(need: str, _name: str | None) -> tuple[str, str]:
    if need == "signers recovering":
        return "signers waiting for recovery", link("/console/nonces", state="recovering")
    if need == "held nonces overdue":
        return "held nonces overdue", f"{PAGE}#overdue"
    if need == "transactions unproved":
        return "transactions unproved", f"{PAGE}#doubt"
    return "transactions in doubt", f"{PAGE}#doubt"


PAGES = ConsolePages(
    address="/console/nonces",
    title="Nonces",
    templates=pathlib.Path(__file__).parent / "console_templates",
    add=_add,
    describe_need=_describe_need,
)
