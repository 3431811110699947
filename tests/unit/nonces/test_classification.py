"""Errors as the nodes really write them, and what each means."""

import pytest

from fencepost_nonces.sending._classification import PATTERNS, Meaning, classify, told

SAID = [
    ("geth", "already known", Meaning.KNOWN),
    ("geth", "nonce too low: next nonce 5, tx nonce 4", Meaning.NONCE_TOO_LOW),
    ("geth", "replacement transaction underpriced", Meaning.UNDERPRICED),
    ("geth", "transaction underpriced: tip needed 1, tip permitted 0", Meaning.FEE_TOO_LOW),
    ("geth", "insufficient funds for gas * price + value: balance 0, tx cost 1", Meaning.INSUFFICIENT_FUNDS),
    ("geth", "intrinsic gas too low: gas 20000, minimum needed 21000", Meaning.INVALID),
    ("geth", "exceeds block gas limit", Meaning.INVALID),
    ("geth", "max fee per gas less than block base fee: address 0x0, maxFeePerGas: 1", Meaning.FEE_TOO_LOW),
    ("geth", "txpool is full", Meaning.POOL_FULL),
    ("geth", "invalid sender", Meaning.INVALID),
    ("geth", "max priority fee per gas higher than max fee per gas", Meaning.INVALID),
    ("anvil", "transaction already imported", Meaning.KNOWN),
    ("anvil", "nonce too low", Meaning.NONCE_TOO_LOW),
    ("anvil", "replacement transaction underpriced", Meaning.UNDERPRICED),
    ("anvil", "Insufficient funds for gas * price + value", Meaning.INSUFFICIENT_FUNDS),
    ("anvil", "intrinsic gas too high", Meaning.INVALID),
    ("anvil", "invalid chain id for signer", Meaning.INVALID),
    ("hardhat", "Nonce too low. Expected nonce to be 5 but got 4.", Meaning.NONCE_TOO_LOW),
    ("hardhat", "Nonce too high. Expected nonce to be 4 but got 9.", Meaning.NONCE_TOO_HIGH),
    ("hardhat", "Known transaction: 0xabc", Meaning.KNOWN),
    ("hardhat", "Sender doesn't have enough funds to send tx.", Meaning.INSUFFICIENT_FUNDS),
    (
        "hardhat",
        "Replacement transaction underpriced. A gasPrice/maxFeePerGas of at least 11 is necessary",
        Meaning.UNDERPRICED,
    ),
    (
        "hardhat",
        "Transaction maxFeePerGas (1) is too low for the next block, which has a baseFeePerGas of 7",
        Meaning.FEE_TOO_LOW,
    ),
    ("hardhat", "Transaction gas limit is 9 and exceeds block gas limit of 8", Meaning.INVALID),
    ("nethermind", "OldNonce, Current nonce: 5, nonce of rejected tx: 4", Meaning.NONCE_TOO_LOW),
    ("nethermind", "AlreadyKnown", Meaning.KNOWN),
    ("nethermind", "NonceGap, Future nonce. Expected nonce: 4", Meaning.NONCE_TOO_HIGH),
    ("nethermind", "ReplacementNotAllowed", Meaning.UNDERPRICED),
    ("nethermind", "FeeTooLow, MaxFeePerGas too low", Meaning.FEE_TOO_LOW),
    ("nethermind", "InsufficientFunds, Account balance: 0", Meaning.INSUFFICIENT_FUNDS),
    ("nethermind", "GasLimitExceeded, Gas limit: 30000000", Meaning.INVALID),
    ("erigon", "could not replace existing tx", Meaning.UNDERPRICED),
    ("erigon", "existing tx with same hash", Meaning.KNOWN),
    ("erigon", "nonce too low", Meaning.NONCE_TOO_LOW),
    ("besu", "Upfront cost exceeds account balance", Meaning.INSUFFICIENT_FUNDS),
    ("besu", "Transaction nonce is too distant from current sender nonce", Meaning.NONCE_TOO_HIGH),
    ("anybody", "internal error", Meaning.PASSING),
    ("anybody", "", Meaning.PASSING),
]


@pytest.mark.parametrize(("node", "said", "meaning"), SAID, ids=[f"{n}: {s[:40]}" for n, s, _ in SAID])
def test_an_error_means_what_its_node_means(node: str, said: str, meaning: Meaning) -> None:
    assert classify(said) is meaning


def test_every_row_of_the_table_is_needed() -> None:
    """A row that no known text reaches is a guess, or stands behind one that takes its texts."""
    reached = {next((row for row in PATTERNS if row.text.search(said)), None) for _, said, _ in SAID}

    assert [row.text.pattern for row in PATTERNS if row not in reached] == UNTRIED


# Read in the nodes' sources and not met in a test.
UNTRIED = [
    "incompatible eip-155",
    "oversized data|max initcode size|exceeds the configured cap",
    "too many transactions",
]


def test_what_stands_in_the_way_is_told_and_nothing_where_nothing_does() -> None:
    assert told(None) is None
    assert told(Meaning.KNOWN) is None
    assert "the pool of the node is full" in str(told(Meaning.POOL_FULL))
