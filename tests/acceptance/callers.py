"""Callers that do one mutation through `Fencepost`: the right one, and the wrong ones that tests must catch.

A caller is told to grant something under a key, and goes on until it believes that the grant is settled.
"""

import asyncio
from collections.abc import Awaitable, Callable

import psycopg

from fencepost import Duplicate, Fencepost, IndeterminateCommit, InFlight
from fencepost.transaction import Transaction

Caller = Callable[[Fencepost, str], Awaitable[None]]

SCOPE = "grants"
ASK_AGAIN_SECONDS = 0.005


async def settles_by_its_key(fp: Fencepost, key: str) -> None:
    """Key and effect in one transaction; whatever happens, the same claim again."""
    await _settle(fp, key, response={"granted": key})


async def settles_without_a_response(fp: Fencepost, key: str) -> None:
    """The same with a key that keeps no answer: a repeat is a Duplicate, and as good."""
    await _settle(fp, key, response=None)


async def _settle(fp: Fencepost, key: str, *, response: object) -> None:
    while True:
        try:
            async with fp.transaction() as tx:
                claim = await tx.claim(SCOPE, key, response=response)
                if claim.claimed:
                    await _write(tx, key)
        except (IndeterminateCommit, InFlight):
            # Unknown, or our own lost transaction is not over yet, and no signal says when it is: ask again.
            await asyncio.sleep(ASK_AGAIN_SECONDS)
        except Duplicate:
            return
        else:
            return


async def takes_unknown_for_failed(fp: Fencepost, key: str) -> None:
    """Wrong: no key, and another try after every error."""
    while True:
        try:
            async with fp.transaction() as tx:
                await _write(tx, key)
        except IndeterminateCommit:
            continue
        return


async def takes_unknown_for_done(fp: Fencepost, key: str) -> None:
    """Wrong: what was sent is believed to have arrived."""
    try:
        async with fp.transaction() as tx:
            await tx.claim(SCOPE, key, response={})
            await _write(tx, key)
    except IndeterminateCommit:
        return


async def claims_before_in_another_transaction(fp: Fencepost, key: str) -> None:
    """Wrong: the key commits without the effect."""
    await _in_two_transactions(fp, key, claim_first=True)


async def claims_after_in_another_transaction(fp: Fencepost, key: str) -> None:
    """Wrong: the effect commits without its key."""
    await _in_two_transactions(fp, key, claim_first=False)


async def _in_two_transactions(fp: Fencepost, key: str, *, claim_first: bool) -> None:
    while True:
        try:
            if claim_first and not await _claimed(fp, key):
                return
            async with fp.transaction() as tx:
                await _write(tx, key)
            if not claim_first:
                await _claimed(fp, key)
        except (IndeterminateCommit, InFlight, psycopg.OperationalError):
            continue
        return


async def _claimed(fp: Fencepost, key: str) -> bool:
    async with fp.transaction() as tx:
        claim = await tx.claim(SCOPE, key, response={})
    return claim.claimed


async def _write(tx: Transaction, key: str) -> None:
    await tx.execute("insert into ledger (key) values (%s)", (key,))
