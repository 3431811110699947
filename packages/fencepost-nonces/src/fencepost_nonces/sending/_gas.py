"""How much gas a transaction may use: estimated by the chain, unless the caller names it.

The estimate is a simulation on the newest block. It runs before anything is accepted: no transaction of the
database is open and no nonce is used. It does not know transactions of the same account that are not mined
yet. One that depends on them may revert in the simulation and not on the chain: its caller names the gas,
and then nothing is simulated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from fencepost.errors import InvalidInput
from fencepost_nonces.sending._classification import Meaning
from fencepost_nonces.sending._transaction_calls import GAS_MIN, TransactionRequest

if TYPE_CHECKING:
    from fencepost_nonces.sending._rpc import Chain, RpcError

REASON_CHARACTERS_MAX = 200
# EIP-1474 and geth: the code of a simulation that reverts.
REVERTED_CODE = 3
_REVERTED = re.compile(
    r"revert|invalid opcode|out of ?gas|gas required exceeds|always failing|stack (under|over)flow"
    r"|invalid jump|bad instruction|vm execution error|execution error",
    re.IGNORECASE,
)
# Solidity's Error(string) and Panic(uint256).
_ERROR_SELECTOR = "08c379a0"
_PANIC_SELECTOR = "4e487b71"
_WORD = 64


@dataclass(frozen=True, slots=True)
class Simulation:
    """What the chain says of a transaction on its newest block: the gas that it needs, or why it fails."""

    gas: int | None
    reverted: str | None = None
    unfunded: bool = False
    to_has_code: bool = True


def gas_limit(simulation: Simulation, order: TransactionRequest, *, margin_percent: int, gas_max: int) -> int:
    """The limit for a simulated transaction. Raises InvalidInput for one that must not be accepted.

    The state may change before it is mined, so a margin is added. A plain transfer to an account without code
    runs nothing, and needs no margin; the sender's funds may come later, as for every transaction.
    """
    if simulation.reverted is not None:
        raise InvalidInput(
            f"The chain's simulation of this transaction fails: {simulation.reverted}. Nothing was accepted, "
            "and no nonce was used. If it depends on earlier transactions that are not mined yet, give "
            "`gas`: then it is not simulated.",
            field="data",
        )
    is_plain = order.to is not None and not order.data and not simulation.to_has_code
    if simulation.unfunded and not is_plain:
        raise InvalidInput(
            "The signer has less than `value`, so the gas cannot be estimated. Nothing was accepted, and no "
            "nonce was used. Fund the account, or give `gas`: then the transaction waits for the funds.",
            field="value",
        )
    needed = simulation.gas or GAS_MIN
    if needed > gas_max:
        raise InvalidInput(
            f"It needs {needed} gas; allowed: at most {gas_max} (NONCES_GAS_MAX).", field="gas"
        )
    if is_plain and needed == GAS_MIN:
        return GAS_MIN
    return min(gas_max, needed + -(-needed * margin_percent // 100))


async def estimated(
    chain: Chain, sender: str, order: TransactionRequest, *, margin_percent: int, gas_max: int
) -> int:
    """The limit for a transaction, by a simulation on the newest block that is named in every read."""
    simulation = await chain.simulate(sender, order)
    return gas_limit(simulation, order, margin_percent=margin_percent, gas_max=gas_max)


def simulation_of(error: RpcError) -> Simulation | None:
    """What an error of the simulation says about the transaction; None when it says nothing about it."""
    if error.meaning is Meaning.INSUFFICIENT_FUNDS:
        return Simulation(None, unfunded=True)
    if error.code != REVERTED_CODE and _REVERTED.search(error.said) is None:
        return None
    reason = revert_reason(error.data)
    return Simulation(None, reverted="it reverts" + (f" with {reason}" if reason else ""))


def revert_reason(data: object) -> str | None:
    """The reason in the data of a revert, short and without control characters; None when there is none."""
    if isinstance(data, Mapping):
        data = cast("Mapping[str, Any]", data).get("data")
    if not isinstance(data, str) or re.fullmatch(r"0x([0-9a-fA-F]{2})+", data) is None:
        return None
    digits = data[2:].lower()
    selector, words = digits[:8], digits[8:]
    if selector == _PANIC_SELECTOR and len(words) >= _WORD:
        return f"panic 0x{int(words[:_WORD], 16):02x}"
    if selector != _ERROR_SELECTOR or len(words) < 2 * _WORD:
        return f"the data 0x{digits[:_WORD]}"
    length = min(int(words[_WORD : 2 * _WORD], 16), REASON_CHARACTERS_MAX)
    text = bytes.fromhex(words[2 * _WORD : 2 * _WORD + 2 * length]).decode(errors="replace")
    return f'"{"".join(one if one.isprintable() else "?" for one in text)}"'
