"""The nonces over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from fencepost.client import Fencepost
from fencepost.errors import NotFound
from fencepost_nonces import _nonce_calls as nonce_calls
from fencepost_nonces import _queries as queries
from fencepost_nonces._model import (
    Ended,
    Endings,
    EndingsBody,
    HoldBody,
    Marked,
    ReserveBody,
    Reserved,
    ReservedNonce,
    SignedBody,
    UsedBody,
)
from fencepost_nonces._request_forwarder import RequestForwarder, route_class
from fencepost_nonces.node import Node
from fencepost_nonces.signer import Signer

ChainId = Annotated[int, Path(ge=1, le=2**63 - 1)]
SignerName = Annotated[str, Path(min_length=1, max_length=128)]
Nonce = Annotated[int, Path(ge=0, le=2**63 - 1)]


def make_router(fp: Fencepost, node: Node, forwarder: RequestForwarder | None) -> APIRouter:
    """Every route names chain and signer in its path, so that a proxy can route by them too."""
    router = APIRouter(prefix="/nonces", tags=["nonces"], route_class=route_class(forwarder))
    _add_reading(router, fp)
    _add_reserving(router, node)
    _add_marks(router, node)
    _add_blocks_of_marks(router, node)
    return router


def _add_reserving(router: APIRouter, node: Node) -> None:
    @router.post("/{chain_id}/{signer}/reserve")
    async def reserve(chain_id: ChainId, signer: SignerName, body: ReserveBody) -> Reserved:
        """A nonce for the request, or a block of them; the same request gets the same again."""
        rows = await node.reserve(Signer.of(chain_id, signer), body.request_ids())
        return Reserved(nonces=[ReservedNonce.of(row) for row in rows])


def _add_marks(router: APIRouter, node: Node) -> None:
    @router.post("/{chain_id}/{signer}/{nonce}/used")
    async def used(chain_id: ChainId, signer: SignerName, nonce: Nonce, body: UsedBody) -> Marked:
        """The nonce was used: CONSUMED."""
        one = Signer.of(chain_id, signer)
        await node.mark_used(one, nonce, body.hold, body.tx_hash)
        return Marked(chain_id=chain_id, signer=one.name, nonce=nonce, status="CONSUMED")

    @router.post("/{chain_id}/{signer}/{nonce}/recyclable")
    async def recyclable(chain_id: ChainId, signer: SignerName, nonce: Nonce, body: HoldBody) -> Marked:
        """The nonce was not used and not signed: RELEASED. Refused from SIGNING on."""
        one = Signer.of(chain_id, signer)
        await node.mark_recyclable(one, nonce, body.hold)
        return Marked(chain_id=chain_id, signer=one.name, nonce=nonce, status="RELEASED")

    @router.post("/{chain_id}/{signer}/{nonce}/signing")
    async def signing(chain_id: ChainId, signer: SignerName, nonce: Nonce, body: HoldBody) -> Marked:
        """Call this before signing: from here on the nonce is never given back."""
        one = Signer.of(chain_id, signer)
        await node.write(one, lambda lease: nonce_calls.mark_signing(one, lease, nonce, body.hold))
        return Marked(chain_id=chain_id, signer=one.name, nonce=nonce, status="SIGNING")

    @router.post("/{chain_id}/{signer}/{nonce}/signed")
    async def signed(chain_id: ChainId, signer: SignerName, nonce: Nonce, body: SignedBody) -> Marked:
        """The signed bytes, stored before they are broadcast."""
        one = Signer.of(chain_id, signer)
        raw = bytes.fromhex(body.raw[2:])
        await node.write(
            one, lambda lease: nonce_calls.mark_signed(one, lease, nonce, body.hold, body.tx_hash, raw)
        )
        return Marked(chain_id=chain_id, signer=one.name, nonce=nonce, status="SIGNED")

    @router.post("/{chain_id}/{signer}/{nonce}/broadcast")
    async def broadcast(chain_id: ChainId, signer: SignerName, nonce: Nonce, body: HoldBody) -> Marked:
        """The bytes were handed to the chain."""
        one = Signer.of(chain_id, signer)
        await node.write(one, lambda lease: nonce_calls.mark_broadcast(one, lease, nonce, body.hold))
        return Marked(chain_id=chain_id, signer=one.name, nonce=nonce, status="BROADCAST")


def _add_blocks_of_marks(router: APIRouter, node: Node) -> None:
    @router.post("/{chain_id}/{signer}/endings")
    async def endings(chain_id: ChainId, signer: SignerName, body: EndingsBody) -> Endings:
        """Mark many nonces used or recyclable with one statement; each has its own result."""
        one = Signer.of(chain_id, signer)
        answers = await node.mark_many(one, [line.ending() for line in body.endings])
        return Endings(endings=[Ended(nonce=line.nonce, refusal=line.refusal) for line in answers])


def _add_reading(router: APIRouter, fp: Fencepost) -> None:
    @router.get("/nodes")
    async def nodes() -> list[dict[str, Any]]:
        """The nodes that are alive."""
        return [
            {"address": node.address, "owner": node.owner, "expires_at": node.expires_at}
            for node in await fp.run(nonce_calls.nodes())
        ]

    @router.get("/signers")
    async def signers(limit: Annotated[int, Query(ge=1, le=10_000)] = 1000) -> list[dict[str, Any]]:
        """Every signer, with its owner and what is under way."""
        return await fp.run(queries.signers(limit))

    @router.get("/{chain_id}/{signer}")
    async def one_signer(
        chain_id: ChainId,
        signer: SignerName,
        below: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> dict[str, Any]:
        """One signer and its newest nonces, highest first."""
        one = Signer.of(chain_id, signer)
        found = await fp.run(queries.signer(one))
        if not found:
            raise NotFound(f"{one.resource} is not known.", noun="signer", subject=one.resource)
        return {**found[0], "nonces": await fp.run(queries.strip(one, below, limit))}
