"""Which transaction used a nonce: proved by the block in which the count passed it, or not at all."""

from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_nonces.sending._nonce_use import (
    LINKS_MAX,
    Block,
    Contradiction,
    Evidence,
    Finding,
    Mined,
    Use,
    judge,
    links,
    passing_block,
)
from fencepost_nonces.sending._transaction_calls import TransactionRequest

SENDER = "0x" + "ab" * 20
OURS = TransactionRequest("0x" + "11" * 20, 5, b"", 21_000)
THEIRS = TransactionRequest("0x" + "22" * 20, 7, b"", 21_000)
ALSO_THERE = Mined("0xee", "0x" + "cd" * 20, 3, OURS)
STRANGERS = Mined("0xcc", SENDER, 3, THEIRS)
DEPTH = 2


def block(number: int, *transactions: Mined, parent: int | None = None, name: str = "b") -> Block:
    return Block(
        number, f"0x{name}{number}", f"0x{name}{number - 1 if parent is None else parent}", transactions
    )


def proof(*transactions: Mined, **more: Any) -> Evidence:
    """Block 10 counts nonce 3, and two more are on top of it."""
    found = block(10, ALSO_THERE, *transactions)
    return replace(Evidence(3, 4, found, found, [block(11), block(12)], head=12), **more)


def judged(evidence: Evidence) -> Finding:
    return judge(SENDER, 3, ["0xAA", "0xab"], OURS, evidence, DEPTH)


def test_a_foreign_transaction_in_a_deep_block_is_a_proof() -> None:
    finding = judged(proof(STRANGERS))

    assert (finding.use, finding.tx_hash) == (Use.STRANGER, "0xcc")
    assert finding.block is not None
    assert finding.block.number == 10


@pytest.mark.parametrize("version", ["0xaa", "0xab"])
def test_every_version_that_was_ever_signed_is_ours(version: str) -> None:
    finding = judged(proof(Mined(version, SENDER, 3, OURS), on_top=()))
    assert (finding.use, finding.tx_hash) == (Use.OURS, version)


OTHER_CHAIN = block(10, ALSO_THERE, STRANGERS, name="f")


@pytest.mark.parametrize(
    "more",
    [
        {"by_number": None},
        {"by_hash": None},
        {"by_hash": OTHER_CHAIN},
        {"by_hash": block(11, ALSO_THERE, STRANGERS)},
        {"by_hash": block(10, STRANGERS)},
        {"count_before": 4},
        {"count_at": 3},
        {"head": 11},
        {"on_top": ()},
        {"on_top": [block(11)]},
        {"on_top": [block(11), None]},
        {"on_top": [block(12), block(13)]},
        {"on_top": [block(11, name="f"), block(12)]},
        {"on_top": [block(11), block(12, name="f")]},
        {"on_top": [block(11), block(12, parent=10)]},
    ],
)
def test_what_is_missing_or_contradicts_itself_is_asked_again(more: dict[str, Any]) -> None:
    assert judged(proof(STRANGERS, **more)).use is Use.ASK_AGAIN


@pytest.mark.parametrize(
    "transactions",
    [
        (),
        (replace(STRANGERS, nonce=4),),
        (replace(STRANGERS, sender="0x" + "cd" * 20),),
        # Sped up from a wallet: another hash, and the same payment. Sent once more, it would be paid twice.
        (replace(STRANGERS, order=replace(OURS, gas=50_000)),),
    ],
    ids=["nobody in it", "another nonce", "another sender", "the same payment"],
)
def test_what_proves_neither_the_one_nor_the_other_waits_for_a_person(transactions: Any) -> None:
    assert judged(proof(*transactions)).use is Use.UNPROVED


def test_no_more_links_are_read_than_that() -> None:
    assert [links(depth) for depth in (0, 12, 10_000)] == [0, 12, LINKS_MAX]


def found(counts: list[int], nonce: int, oldest: int = 0) -> tuple[int, int]:
    """The block, and how many counts it took, of which none is of a block before the oldest."""
    search = passing_block(nonce, len(counts) - 1)
    number, reads = next(search), 1
    while True:
        assert number >= oldest
        try:
            number, reads = search.send(counts[number]), reads + 1
        except StopIteration as end:
            return end.value, reads


@given(st.lists(st.integers(0, 3), min_size=1, max_size=300), st.data())
def test_the_block_that_passed_is_found_in_few_reads(used: list[int], data: st.DataObject) -> None:
    counts = [0, *accumulate(used)]
    if counts[-1] == 0:
        return
    nonce = data.draw(st.integers(0, counts[-1] - 1))

    number, reads = found(counts, nonce)

    assert counts[number - 1] <= nonce < counts[number]
    assert reads <= 2 * len(counts).bit_length() + 2


def test_what_was_used_lately_is_found_near_the_newest_block() -> None:
    """A node that is no archive has the state of the last hundred blocks or so, and of none before."""

    assert found([*[0] * 970, *[5] * 30], 4, oldest=900)[0] == 970


@pytest.mark.parametrize(
    "answers",
    [
        [3],  # Less than was counted at this block before.
        [5, 6],  # The block before counts more.
        [5, 5, 5, 2, 1],  # One in the middle counts less than the one before it.
        [5, 5, 5, 2, 6],  # And here more than the one after it.
        [5, 5, 5, 5, 5, 5, 5],  # The first block of the chain counts it already.
    ],
)
def test_counts_that_cannot_all_be_true_contradict_each_other(answers: list[int]) -> None:
    search = passing_block(3, 20)
    next(search)
    for answer in answers[:-1]:
        search.send(answer)
    with pytest.raises(Contradiction):
        search.send(answers[-1])
