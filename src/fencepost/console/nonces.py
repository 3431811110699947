"""Signers: a strip of nonces, and the transactions on them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Request
from pydantic import BaseModel

from fencepost.console.place import Limit, MaybeId, Place
from fencepost.console.sheet import Sheet
from fencepost.errors import NotFound

SIGNERS_MAX = 500
ChainId = Annotated[int, Path(ge=0, le=9_223_372_036_854_775_807)]
Signer = Annotated[str, Path(min_length=1, max_length=256, pattern=r"^[^\x00/]+$")]


class SignerQuery(BaseModel):
    before: MaybeId = None
    limit: Limit = 200


def add_pages(place: Place) -> None:
    @place.desk.page("/nonces", "signers.html", "Nonces")
    async def signers(request: Request) -> Sheet:
        """Every signer: its owner, its next nonce, its gaps and what is under way."""
        rows = await place.reading.rows(
            "select * from fencepost.nonce_signers order by chain_id, signer limit %s", SIGNERS_MAX
        )
        return Sheet({"signers": rows}, rows="signers")

    @place.desk.page("/nonces/{chain_id}/{signer}", "signer.html", "Signer")
    async def signer(
        request: Request, chain_id: ChainId, signer: Signer, query: Annotated[SignerQuery, Query()]
    ) -> Sheet:
        """One signer's strip, newest first, and its newest transactions."""
        row = await place.reading.row(
            "select * from fencepost.nonce_signers where chain_id = %s and signer = %s", chain_id, signer
        )
        if row is None:
            raise NotFound(f"There is no signer {signer} on chain {chain_id}.")
        strip = await place.reading.rows(
            "select nonce, status, locked_until, fencing_token, tx_hash, created_at, updated_at, request_id"
            " from fencepost.signer_nonce_allocation where chain_id = %s and signer = %s and nonce < %s"
            " order by nonce desc limit %s",
            chain_id,
            signer,
            query.before if query.before is not None else 9_223_372_036_854_775_807,
            query.limit,
        )
        transactions = await place.reading.rows(
            "select transaction_id, state, nonce_status, nonce, recipient, value, tx_hash, error, created_at"
            " from fencepost.managed_transaction where chain_id = %s and signer = %s"
            " order by created_at desc limit 50",
            chain_id,
            signer,
        )
        return Sheet(
            {
                "title": f"{signer} on {chain_id}",
                "signer": row,
                "strip": strip,
                "transactions": transactions,
                "next_before": strip[-1]["nonce"] if len(strip) == query.limit else None,
            },
            rows="strip",
        )
