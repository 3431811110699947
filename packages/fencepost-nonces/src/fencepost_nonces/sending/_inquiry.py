"""Asks the chain which transaction used a nonce: the reads that `nonce_use` decides from.

Each read names its block, so it does not matter which backend answers it. When a backend does not know the
block, the read is repeated a few times: the next answer may come from another backend.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencepost_nonces._errors import ChainUnavailable
from fencepost_nonces.sending._nonce_use import (
    Block,
    Contradiction,
    Evidence,
    Finding,
    Use,
    judge,
    links,
    passing_block,
)
from fencepost_nonces.sending._rpc import Chain, Counts, RpcError
from fencepost_nonces.sending._transaction_calls import Open

T = TypeVar("T")
TRIES = 6


class Inquiry:
    """The reads for one signer and one turn: nothing about a block is read twice."""

    def __init__(self, chain: Chain, address: str, counts: Counts, confirmations: int) -> None:
        self._chain = chain
        self._address = address
        self._head = counts.head
        self._confirmations = confirmations
        self._counts: dict[int, int] = {}
        self._headers: dict[int, Block] = {}
        self._full: dict[int, tuple[Block, Block | None]] = {}

    async def block_hash(self, number: int) -> str | None:
        """The hash of the chain's block at this number; None when no backend returns one."""
        block = await self._header(number)
        return None if block is None else block.block_hash

    async def who_used(self, tx: Open) -> Finding:
        """Which transaction used the nonce, as far as the chain proves it."""
        try:
            number = await self._search(tx.nonce)
        except Contradiction as contradiction:
            self._counts.clear()
            return Finding(Use.ASK_AGAIN, str(contradiction))
        if number is None:
            return Finding(Use.ASK_AGAIN, "no endpoint has the account's count at the blocks in question")
        by_number, by_hash = await self._block(number)
        evidence = Evidence(
            self._counts[number - 1],
            self._counts[number],
            by_number,
            by_hash,
            [await self._header(number + place) for place in range(1, links(self._confirmations) + 1)]
            if by_number is not None and not self._is_ours(tx, by_number)
            else (),
            self._head,
        )
        return judge(self._address, tx.nonce, tx.hashes, tx.order, evidence, self._confirmations)

    @staticmethod
    def _is_ours(tx: Open, block: Block) -> bool:
        """Whether a version signed here is in the block: then its depth is not read, but its receipt is."""
        return bool({one.tx_hash for one in block.transactions} & {one.lower() for one in tx.hashes})

    async def _search(self, nonce: int) -> int | None:
        """The block in which the count passed the nonce; None when a count on the way cannot be read."""
        search = passing_block(nonce, max(0, self._head - self._confirmations))
        number = next(search)
        while True:
            count = await self._count(number)
            if count is None:
                return None
            try:
                number = search.send(count)
            except StopIteration as end:
                return int(end.value)

    async def _count(self, number: int) -> int | None:
        if number not in self._counts:
            read = await _insist(lambda: self._chain.transaction_count(self._address, number))
            if read is None:
                return None
            self._counts[number] = read
        return self._counts[number]

    async def _header(self, number: int) -> Block | None:
        if number not in self._headers:
            read = await _insist(lambda: self._chain.block(number))
            if read is None:
                return None
            self._headers[number] = read
        return self._headers[number]

    async def _block(self, number: int) -> tuple[Block | None, Block | None]:
        """The block with its transactions, read by its number and once more by its hash."""
        if number not in self._full:
            block = await _insist(lambda: self._chain.block(number, full=True))
            if block is None:
                return None, None
            again = await _insist(lambda: self._chain.block_by_hash(block.block_hash, full=True))
            if again is None:
                return block, None
            self._full[number] = (block, again)
        return self._full[number]


async def _insist(read: Callable[[], Awaitable[T | None]]) -> T | None:
    """The first result of a few reads that is not None; None when there is none."""
    for _ in range(TRIES):
        try:
            found = await read()
        except (RpcError, ChainUnavailable):
            continue
        if found is not None:
            return found
    return None
