"""What a node of a chain says, what it does not know any more, and what cannot all be true."""

from collections.abc import Sequence
from typing import Any

import pytest

from fencepost_nonces._errors import ContradictingAnswers
from fencepost_nonces.sending._rpc import TRIES, Chain, Counts, RpcError


class Forgetful(Chain):
    """Knows the newest state only, as a node that is no archive."""

    head = 100

    async def call(self, method: str, *params: Any, wanted: bool = False) -> Any:
        if method == "eth_blockNumber":
            return hex(self.head)
        if params[-1] in ("latest", hex(self.head)):
            return hex(7)
        raise RpcError(method, "missing trie node")


@pytest.mark.parametrize("head", [5, 100], ids=["the chain is shorter", "the state is gone"])
async def test_what_is_not_known_in_depth_proves_nothing(head: int) -> None:
    chain = Forgetful(1, [])
    chain.head = head

    assert await chain.transaction_count("0xa") == 7
    assert await chain.counts("0xa", 12) == Counts(head, 7, 0)


async def test_a_node_without_a_pool_says_nothing_of_it() -> None:
    assert await Forgetful(1, []).pooled_count("0xa") == 0


class Backend:
    """One of those behind the URL: its newest block, and what each block counts."""

    def __init__(self, head: int, counts: dict[int, int]) -> None:
        self.head = head
        self.counts = counts


class Balanced(Chain):
    """Each call reaches the next of the backends that are given, and the last of them again and again."""

    def __init__(self, *backends: Backend) -> None:
        super().__init__(1, [])
        self.reach(*backends)

    def reach(self, *backends: Backend) -> None:
        self.next: list[Backend] = list(backends)
        self.asked = 0

    async def call(self, method: str, *params: Any, wanted: bool = False) -> Any:
        self.asked += 1
        backend = self.next.pop(0) if len(self.next) > 1 else self.next[0]
        if method == "eth_blockNumber":
            return hex(backend.head)
        assert params[-1] not in ("latest", "pending"), "every read names its block"
        number = int(params[-1], 16)
        if number not in backend.counts or number > backend.head:
            raise RpcError(method, "header not found")
        return hex(backend.counts[number])


COUNTS = {number: number // 10 for number in range(200)}
FRESH = Backend(100, COUNTS)
STALE = Backend(82, COUNTS)


def reached(pattern: str) -> Sequence[Backend]:
    return [FRESH if letter == "f" else STALE for letter in pattern]


@pytest.mark.parametrize(
    "pattern",
    [
        "fff",
        "fsfff",  # The head is the fresh one's, and the one that lags does not know its block.
        "ffsf",  # Deep enough for both: what both know is the same.
    ],
)
async def test_whichever_backend_answers_the_counts_are_those_of_one_chain(pattern: str) -> None:
    assert await Balanced(*reached(pattern)).counts("0xa", 12) == Counts(100, 10, 8)


async def test_a_head_that_goes_back_is_asked_for_again() -> None:
    chain = Balanced(FRESH)
    first = await chain.counts("0xa", 12)
    chain.reach(*reached("ssf"))

    assert await chain.counts("0xa", 12) == first
    assert chain.asked == 5

    chain.reach(STALE)
    with pytest.raises(ContradictingAnswers, match="block 100 was seen before"):
        await chain.counts("0xa", 12)
    assert chain.asked == TRIES


async def test_a_head_whose_block_nobody_shows_holds_nothing_up() -> None:
    chain = Balanced(Backend(10**6, {}))
    with pytest.raises(ContradictingAnswers):
        await chain.counts("0xa", 12)
    chain.reach(FRESH)
    assert (await chain.counts("0xa", 12)).head == 100


async def test_a_count_for_good_below_one_that_was_seen_contradicts_it() -> None:
    chain = Balanced(FRESH)
    await chain.counts("0xa", 12)
    chain.reach(Backend(101, dict.fromkeys(range(200), 3)))
    with pytest.raises(ContradictingAnswers):
        await chain.counts("0xa", 12)


async def test_what_is_seen_at_one_depth_is_no_measure_for_another() -> None:
    chain = Balanced(FRESH)
    assert (await chain.counts("0xa", 0)).final == 10
    assert (await chain.counts("0xa", 12)).final == 8


async def test_a_block_that_counts_less_than_one_before_it_contradicts_that() -> None:
    with pytest.raises(ContradictingAnswers):
        await Balanced(Backend(100, {100: 5, 88: 6})).counts("0xa", 12)
