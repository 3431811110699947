"""Mutations in processes of their own, with a crash point at every step."""

import asyncio

from fencepost import Fencepost, InFlight
from fencepost.crashpoints import crash_point
from fencepost.kernel import idempotency
from fencepost.signals import announce
from fencepost.transaction import Transaction

SCOPE = "grants"
STEPS = ("before_claim", "after_claim", "after_write", "before_commit", "after_commit")


async def grant(url: str, key: str) -> str:
    """The right way: key, effect and answer in one transaction. Answers how the claim was answered."""
    async with Fencepost(url) as fp:
        return await _settle(fp, key)


async def grant_many(url: str, count: int) -> None:
    """One after the other, from the first, however many are done already."""
    async with Fencepost(url) as fp:
        for n in range(count):
            await _settle(fp, f"grant-{n}")
            announce("mutation.settled")


async def _settle(fp: Fencepost, key: str) -> str:
    while True:
        try:
            return await _grant(fp, key)
        except InFlight:
            # A process that was killed a moment ago may still hold the key, and no signal says when its
            # backend has noticed: ask again.
            await asyncio.sleep(0.005)


async def _grant(fp: Fencepost, key: str) -> str:
    crash_point("mutation.before_claim")
    async with fp.transaction() as tx:
        claim = await tx.claim(SCOPE, key)
        crash_point("mutation.after_claim")
        if claim.claimed:
            await _write(tx, key)
            crash_point("mutation.after_write")
            await tx.run(idempotency.remember(SCOPE, key, {"granted": key}))
            crash_point("mutation.before_commit")
    crash_point("mutation.after_commit")
    return claim.outcome


async def claim_then_grant(url: str, key: str) -> None:
    """Wrong: the key commits first, in a transaction of its own."""
    async with Fencepost(url) as fp:
        async with fp.transaction() as tx:
            claim = await tx.claim(SCOPE, key, response={})
        crash_point("mutation.between")
        if claim.claimed:
            async with fp.transaction() as tx:
                await _write(tx, key)


async def grant_then_claim(url: str, key: str) -> None:
    """Wrong: the key commits last, in a transaction of its own."""
    async with Fencepost(url) as fp:
        async with fp.transaction() as tx:
            await _write(tx, key)
        crash_point("mutation.between")
        async with fp.transaction() as tx:
            await tx.claim(SCOPE, key, response={})


async def _write(tx: Transaction, key: str) -> None:
    await tx.execute("insert into ledger (key) values (%s)", (key,))
