"""What a simulation means for the gas, and for whether a transaction is accepted: decided without a chain."""

import json

import pytest

from fencepost.errors import InvalidInput
from fencepost_nonces.sending._gas import Simulation, gas_limit, revert_reason, simulation_of
from fencepost_nonces.sending._rpc import RpcError, read_answer
from fencepost_nonces.sending._transaction_calls import TransactionRequest

PLAIN = TransactionRequest("0x" + "11" * 20, 5, b"", None)
CALL = TransactionRequest("0x" + "11" * 20, 0, b"\x01", None)
CREATION = TransactionRequest(None, 0, b"\x60", None)


def limit(simulation: Simulation, order: TransactionRequest, gas_max: int = 1_000_000) -> int:
    return gas_limit(simulation, order, margin_percent=20, gas_max=gas_max)


def test_only_a_plain_transfer_to_an_account_without_code_has_no_margin() -> None:
    assert limit(Simulation(21_000, to_has_code=False), PLAIN) == 21_000
    assert limit(Simulation(21_000, to_has_code=True), PLAIN) == 25_200
    assert limit(Simulation(21_000, to_has_code=False), CALL) == 25_200
    assert limit(Simulation(53_000), CREATION) == 63_600
    # Some chains ask for more than 21,000 of every transaction.
    assert limit(Simulation(80_001, to_has_code=False), PLAIN) == 96_002


def test_the_margin_does_not_exceed_the_greatest_gas_and_the_need_must_not() -> None:
    assert limit(Simulation(90_000), CALL, gas_max=100_000) == 100_000
    with pytest.raises(InvalidInput, match="NONCES_GAS_MAX"):
        limit(Simulation(100_001), CALL, gas_max=100_000)


def test_without_funds_only_a_plain_transfer_is_accepted() -> None:
    assert limit(Simulation(None, unfunded=True, to_has_code=False), PLAIN) == 21_000
    for order, has_code in ((PLAIN, True), (CALL, False), (CREATION, True)):
        with pytest.raises(InvalidInput, match="Fund the account"):
            limit(Simulation(None, unfunded=True, to_has_code=has_code), order)


def failed(error: object) -> Simulation | None:
    with pytest.raises(RpcError) as refused:
        read_answer("eth_estimateGas", json.dumps({"error": error}).encode())
    return simulation_of(refused.value)


@pytest.mark.parametrize(
    ("error", "reverted", "unfunded"),
    [
        ({"code": 3, "message": "execution reverted", "data": "0x"}, True, False),
        ({"code": 3, "message": "anything"}, True, False),
        ({"code": -32000, "message": "gas required exceeds allowance (30000000)"}, True, False),
        ({"code": -32000, "message": "invalid opcode: INVALID"}, True, False),
        ({"code": -32015, "message": "VM execution error.", "data": "Reverted 0x"}, True, False),
        ({"code": -32003, "message": "Out of gas: gas required exceeds allowance"}, True, False),
        ({"code": -32000, "message": "insufficient funds for transfer"}, False, True),
    ],
)
def test_an_error_about_the_transaction_is_an_answer(error: object, reverted: bool, unfunded: bool) -> None:
    found = failed(error)
    assert found is not None
    assert (found.reverted is not None, found.unfunded) == (reverted, unfunded)


@pytest.mark.parametrize(
    "error",
    [
        {"code": -32000, "message": "header not found"},
        {"code": -32601, "message": "the method eth_estimateGas does not exist"},
        {"code": -32603, "message": "internal error"},
        "busy",
    ],
)
def test_an_error_about_the_node_says_nothing_of_the_transaction(error: object) -> None:
    assert failed(error) is None


def reason(text: bytes, length: int | None = None) -> str:
    size = len(text) if length is None else length
    words = (0x20).to_bytes(32, "big") + size.to_bytes(32, "big") + text
    return "0x08c379a0" + words.hex()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (reason(b"out of stock"), '"out of stock"'),
        ({"data": reason(b"nested")}, '"nested"'),
        (reason(b"a\nb\x1b[31m"), '"a?b?[31m"'),
        (reason(b"x" * 5000), '"' + "x" * 200 + '"'),
        (reason(b"x", 2**255), '"x"'),
        ("0x4e487b71" + "00" * 31 + "11", "panic 0x11"),
        ("0xdeadbeef" + "00" * 100, "the data 0xdeadbeef" + "00" * 28),
        ("0x", None),
        ("Reverted", None),
        (7, None),
        (None, None),
    ],
)
def test_a_reason_is_short_and_printable(data: object, expected: str | None) -> None:
    assert revert_reason(data) == expected
