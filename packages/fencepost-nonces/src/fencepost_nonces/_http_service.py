"""The nonces as a service of the app: their routes and the node; the sender is the work of the role."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import APIRouter

from fencepost.client import Fencepost
from fencepost.kernel.migrate import require
from fencepost.outbox.settings import OutboxSettings
from fencepost_nonces import _queries as queries
from fencepost_nonces._api import make_router
from fencepost_nonces._compatible_names import NAMES
from fencepost_nonces._maintenance import Maintenance
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces._request_forwarder import RequestForwarder
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces._signer_leases import FirstNonce
from fencepost_nonces.node import Node
from fencepost_nonces.sending._acceptance import Acceptance
from fencepost_nonces.sending._api import make_transactions_router
from fencepost_nonces.sending._key_store import keys_of
from fencepost_nonces.sending._keys import Keys, LateKeys
from fencepost_nonces.sending._rpc import Chains
from fencepost_nonces.sending._sender import TransactionSender
from fencepost_nonces.signer import Signer
from fencepost_server.web.authorization import Right
from fencepost_server.web.http_service import HttpService, access_of


def make_service(
    fp: Fencepost, settings: NoncesSettings | None = None, keys: Keys | None = None
) -> HttpService:
    """`keys` is for tests and for custom key stores; otherwise the settings name them."""
    settings = settings or NoncesSettings.load()
    metrics, chains = NonceMetrics.on(fp.metrics), Chains(dict(settings.endpoints))
    if fp.settings.compatible_names:
        fp.metrics.export_also(NAMES.metrics)
    late = LateKeys(keys)
    node = Node(fp, settings, metrics, first_nonce=first_nonce_of(fp, chains))
    sender = TransactionSender(fp, node, chains, late, metrics)
    maintenance = Maintenance(fp, node, chains, metrics)
    forwarder = RequestForwarder(seconds=settings.wait_seconds + 5) if settings.routing == "forward" else None
    parts = (
        make_router(fp, node, forwarder),
        make_transactions_router(
            Acceptance(
                fp,
                chains,
                late,
                sender,
                metrics=metrics,
                settings=settings,
                hooks=OutboxSettings.load().hooks,
            )
        ),
    )
    router = APIRouter()
    access: dict[tuple[str, str], Right | str] = {}
    for part in parts:
        router.include_router(part)
        access.update(access_of(part, Right.SUBMIT))
    # An operator may cancel what a program has submitted.
    access["POST", "/transactions/{transaction_id}/cancel"] = Right.SUBMIT | Right.DECIDE

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        await asyncio.to_thread(require, fp.database_url, "nonces")
        if late.missing:
            late.use(await keys_of(settings))
        await node.start()
        try:
            yield
        finally:
            await node.stop()
            await chains.close()
            await late.close()
            if forwarder is not None:
                await forwarder.close()

    @asynccontextmanager
    async def working() -> AsyncGenerator[None]:
        sender.start()
        maintenance.start()
        try:
            yield
        finally:
            await maintenance.stop()
            await sender.stop()

    return HttpService("nonces", router, running, access=access, working=working)


def first_nonce_of(fp: Fencepost, chains: Chains) -> FirstNonce:
    """A signer that is new here starts at the chain's count of mined transactions, not of pending ones."""

    async def first_nonce(signer: Signer) -> int:
        chain = chains.get(signer.chain_id)
        if chain is None or not signer.name.startswith("0x"):
            return 0
        known = await fp.run(queries.signer(signer))
        held_before = bool(known) and known[0]["fencing_token"] > 0
        return 0 if held_before else (await chain.counts(signer.name, 0)).latest

    return first_nonce
