"""Which names are signers: a wrong digit in an address is found before anything is written."""

import pytest

from fencepost.errors import InvalidInput
from fencepost_nonces._keccak import keccak256
from fencepost_nonces.signer import Signer, checksummed

# From EIP-55 itself.
GOOD = [
    "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
    "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
    "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
]


def test_keccak_is_the_one_of_ethereum() -> None:
    empty = "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    assert keccak256(b"").hex() == empty
    assert keccak256(b"x" * 136).hex() == keccak256(b"x" * 136).hex()
    assert len({keccak256(b"x" * size) for size in (134, 135, 136, 137, 271, 272, 273)}) == 7


def test_keccak_agrees_with_the_library_at_every_length_around_a_block() -> None:
    from eth_utils.crypto import keccak

    for size in (0, 1, 7, 8, 134, 135, 136, 137, 271, 272, 300):
        message = bytes(range(256))[: size % 256] * 2
        assert keccak256(message) == keccak(message)


@pytest.mark.parametrize("given", GOOD)
def test_a_right_checksum_is_the_address_in_lower_case(given: str) -> None:
    assert Signer.of(1, given).name == given.lower()
    assert checksummed(given.lower()) == given
    assert Signer.of(1, "0x" + given[2:].upper()).name == given.lower()


@pytest.mark.parametrize("given", GOOD)
def test_one_wrong_digit_is_noticed(given: str) -> None:
    wrong = given[:-1] + ("1" if given[-1] != "1" else "2")

    with pytest.raises(InvalidInput, match="checksum") as caught:
        Signer.of(1, wrong)
    assert caught.value.field == "signer"


@pytest.mark.parametrize(
    ("chain_id", "name", "field"),
    [
        (0, "alice", "chain_id"),
        (-1, "alice", "chain_id"),
        (2**63, "alice", "chain_id"),
        (1, "", "signer"),
        (1, "0x12", "signer"),
        (1, "0X" + "a" * 40, "signer"),
        (1, "0x" + "g" * 40, "signer"),
        (1, "two words", "signer"),
        (1, "x" * 129, "signer"),
        (1, "a/b", "signer"),
        (1, "a\n", "signer"),
    ],
)
def test_a_wrong_signer_is_named(chain_id: int, name: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Signer.of(chain_id, name)
    assert caught.value.field == field
