"""What the blocks of a chain say of payments: one that is wrong is seen among all that are right."""

from collections.abc import Callable
from typing import Any

import pytest

from fencepost_nonces.testing.anvil import recipient
from fencepost_torture.systems._transactions import SIGNERS, chain_breaches, payment

ASKED = 4 * SIGNERS
Mined = list[dict[str, Any]]


def mined() -> Mined:
    """Every payment, as blocks hold it; and a no-op, which no caller asked for."""
    found: Mined = []
    for number in range(ASKED):
        sender, to, value = payment(number)
        found.append({"from": sender, "to": to, "value": hex(value), "nonce": hex(number // SIGNERS)})
    first = found[0]["from"]
    return [*found, {"from": first, "to": first, "value": "0x0", "nonce": hex(ASKED // SIGNERS)}]


def as_it_was(_blocks: Mined) -> None: ...


def again_with_another_nonce(blocks: Mined) -> None:
    blocks.append({**blocks[7], "nonce": hex(ASKED // SIGNERS)})


def again_with_the_same_nonce(blocks: Mined) -> None:
    blocks.append(blocks[7])


def never(blocks: Mined) -> None:
    del blocks[-2]


def in_the_middle_never(blocks: Mined) -> None:
    del blocks[7]


def to_somebody_else(blocks: Mined) -> None:
    blocks[7]["to"] = recipient(9)


def too_much(blocks: Mined) -> None:
    blocks[7]["value"] = hex(ASKED + 100)


def from_another_signer(blocks: Mined) -> None:
    blocks[7]["from"] = blocks[8]["from"]


def nothing_to_somebody(blocks: Mined) -> None:
    blocks[-1]["to"] = recipient(9)


DAMAGES: dict[Callable[[Mined], None], set[str]] = {
    as_it_was: set(),
    again_with_another_nonce: {"doubled"},
    again_with_the_same_nonce: {"doubled", "nonces in order"},
    never: {"lost"},
    in_the_middle_never: {"lost", "nonces in order"},
    to_somebody_else: {"lost", "unrequested"},
    too_much: {"lost", "unrequested"},
    from_another_signer: {"lost", "unrequested", "nonces in order"},
    nothing_to_somebody: {"unrequested"},
}


@pytest.mark.parametrize(("damage", "seen"), DAMAGES.items(), ids=[each.__name__ for each in DAMAGES])
def test_one_wrong_payment_is_seen(damage: Callable[[Mined], None], seen: set[str]) -> None:
    blocks = mined()
    damage(blocks)

    assert {breach.rule for breach in chain_breaches(ASKED, blocks)} == seen
