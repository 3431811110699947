"""Signers: a strip of nonces, the transactions on them, and what needs attention after a recovery."""

from __future__ import annotations

import pathlib
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from pydantic import BaseModel

from fencepost.errors import NotFound
from fencepost_server.console.context import LAST_ID, ConsoleContext, Limit, MaybeId, Name, following
from fencepost_server.console.page_data import PageData
from fencepost_server.console.plugin_pages import ConsolePages
from fencepost_server.web.formatting import link

DOUBTS_MAX = 100
ChainId = Annotated[int, Path(ge=0, le=9_223_372_036_854_775_807)]
Signer = Annotated[str, Path(min_length=1, max_length=256, pattern=r"^[^\x00/]+$")]


class SignersQuery(BaseModel):
    """In order of chain and name: the signers behind `after` on `chain`."""

    state: Literal["", "recovering"] | None = None
    chain: MaybeId = None
    after: Name | None = None
    limit: Limit = 50

    def filters(self) -> dict[str, Any]:
        return {"state": self.state or None, "limit": self.limit if self.limit != 50 else None}


class SignerQuery(BaseModel):
    """Nonces below `before`, transactions below `sent_before`."""

    before: MaybeId = None
    sent_before: MaybeId = None
    limit: Limit = 200


def _add(context: ConsoleContext) -> None:
    @context.router.page("/nonces", "signers.html", "Nonces")
    async def signers(request: Request, query: Annotated[SignersQuery, Query()]) -> PageData:
        """Every signer: its owner, next nonce, gaps and what is under way; and what needs attention."""
        rows = await context.reading.rows(
            "select * from fencepost.nonce_signers where (chain_id, signer) > (%s, %s)"
            " and (%s or recovering_since is not null) order by chain_id, signer limit %s",
            query.chain or 0,
            query.after or "",
            query.state != "recovering",
            query.limit,
        )
        doubts = await context.reading.rows(
            "select transaction_id, chain_id, signer, state, nonce, recipient, value, in_doubt_since,"
            " unproved_since from fencepost.managed_transaction"
            " where in_doubt_since is not null or unproved_since is not null"
            " order by transaction_id limit %s",
            DOUBTS_MAX,
        )
        last = rows[-1] if len(rows) == query.limit else None
        return PageData(
            {
                "signers": rows,
                "doubts": doubts,
                "doubts_most": DOUBTS_MAX,
                "next_after": last and {"chain": last["chain_id"], "after": last["signer"]},
                "filters": query.filters(),
                "states": ("recovering",),
            },
            "signers",
            ("doubts",),
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
            raise NotFound(f"There is no signer {signer} on chain {chain_id}.")
        strip = await context.reading.rows(
            "select nonce, status, locked_until, fencing_token, tx_hash, created_at, updated_at, request_id"
            " from fencepost.signer_nonce_allocation where chain_id = %s and signer = %s and nonce < %s"
            " order by nonce desc limit %s",
            chain_id,
            signer,
            query.before if query.before is not None else LAST_ID,
            query.limit,
        )
        ids, next_sent_before = await context.reading.page(
            "select ids, next_before from fencepost.console_transaction_page("
            "%s::bigint, %s::text, %s::bigint, %s::integer, %s::integer)",
            chain_id,
            signer,
            query.sent_before,
            query.limit,
            context.settings.scan_max,
        )
        transactions = await context.reading.rows(
            "select transaction_id, state, nonce_status, nonce, recipient, value, tx_hash, error, created_at,"
            " in_doubt_since, unproved_since from fencepost.managed_transaction"
            " where transaction_id = any (%s)"
            " order by transaction_id desc",
            ids,
        )
        return PageData(
            {
                "title": f"{signer} on {chain_id}",
                "signer": row,
                "strip": strip,
                "transactions": transactions,
                "next_before": following(strip, "nonce", query.limit),
                "next_sent_before": next_sent_before,
                "filters": {"limit": query.limit if query.limit != 200 else None},
            },
            "strip",
            ("transactions",),
            {"transactions": "sent_before"},
        )


def _describe_need(need: str, _name: str | None) -> tuple[str, str]:
    if need == "signers recovering":
        return "signers waiting for recovery", link("/console/nonces", state="recovering")
    return need, "/console/nonces#doubt"


PAGES = ConsolePages(
    address="/console/nonces",
    title="Nonces",
    templates=pathlib.Path(__file__).parent / "console_templates",
    add=_add,
    describe_need=_describe_need,
)
