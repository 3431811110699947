"""A chain, through the JSON-RPC of its nodes: several endpoints, the next one when one does not answer."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from fencepost.http_client import HttpClient, MaybeSent, NotSent, Request, failure_name
from fencepost.logs import get_logger
from fencepost.redaction import redact_url
from fencepost_nonces._errors import ChainUnavailable, ContradictingAnswers
from fencepost_nonces.sending._classification import Meaning, classify
from fencepost_nonces.sending._fees import GWEI, HISTORY_BLOCKS, PERCENTILES, Market, Speed, tips_of
from fencepost_nonces.sending._gas import Simulation, simulation_of
from fencepost_nonces.sending._nonce_use import Block, Mined
from fencepost_nonces.sending._transaction_calls import TransactionRequest

_log = get_logger(__name__)
REST_SECONDS = 5.0
# How an endpoint signals its rate limit: by HTTP, or by EIP-1474's "limit exceeded".
TOO_MANY_REQUESTS = 429
LIMIT_EXCEEDED = -32005
# A full block has some megabytes.
BODY_BYTES_MAX = 1 << 26
# How often a read is repeated when it contradicts an earlier one: the next may come from another backend.
TRIES = 8
# The meaning is at the beginning of an error; the rest of a very long one is not searched.
ERROR_CHARACTERS_MAX = 10_000


class RpcError(Exception):
    """The node answered with an error."""

    def __init__(self, method: str, message: str, *, code: object = None, data: object = None) -> None:
        super().__init__(f"{method}: {message[:300]}")
        self.said = message[:ERROR_CHARACTERS_MAX]
        self.meaning: Meaning = classify(self.said)
        self.code = code
        self.data = data


class WrongChain(Exception):
    """An endpoint that serves another chain than its setting says, or does not say which."""


class Unreadable(ValueError):
    """The endpoint sent no valid answer to the request: the next endpoint may."""


class Overloaded(Exception):
    """The endpoint is rate limited, which says nothing about the chain: the next endpoint may answer."""


class Endpoint:
    """One node. It is skipped for a while after it did not answer."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.rests_until = 0.0
        self.checked = False


@dataclass(frozen=True, slots=True)
class Counts:
    """The account's transaction counts, at the newest block and at the one deep enough to be final."""

    head: int
    latest: int
    final: int


class Chain:
    """One chain. A read may go to any endpoint; sending the same bytes twice does no harm.

    Behind one endpoint there may be many backends, and one of them may lag. So a read that decides something
    names its block, and a read that contradicts an earlier one is repeated.
    """

    def __init__(self, chain_id: int, urls: Sequence[str], *, seconds: float = 10.0) -> None:
        self.chain_id = chain_id
        self._highest_head = 0
        # By account and depth: callers may require different depths.
        self._final_counts: dict[tuple[str, int], int] = {}
        self._endpoints = [Endpoint(url) for url in urls]
        self._client = HttpClient(reply_seconds=seconds, body_bytes_max=BODY_BYTES_MAX)
        self._ids = itertools.count(1)

    async def close(self) -> None:
        await self._client.close()

    async def call(self, method: str, *params: Any, wanted: bool = False) -> Any:
        """The result. RpcError is an answer; ChainUnavailable means that no endpoint answered.

        `wanted`: a lagging endpoint answers null, so after null the next one is asked too.
        """
        said: list[str] = []
        none_known = False
        for endpoint in sorted(self._endpoints, key=lambda one: one.rests_until > time.monotonic()):
            try:
                if not endpoint.checked:
                    await self._check(endpoint)
                result = await self._ask(endpoint, method, params)
                if result is not None or not wanted:
                    return result
                none_known = True
            except (NotSent, MaybeSent, Unreadable, WrongChain, Overloaded) as error:
                endpoint.rests_until = time.monotonic() + REST_SECONDS
                said.append(f"{redact_url(endpoint.url)}: {failure_name(error)}")
                _log.warning("endpoint_failed", chain_id=self.chain_id, endpoint=said[-1], method=method)
        if none_known:
            return None
        raise ChainUnavailable(f"No endpoint of chain {self.chain_id} answers: {'; '.join(said)}.")

    async def block_number(self) -> int:
        return int(await self.call("eth_blockNumber"), 16)

    async def transaction_count(self, address: str, block: int | str = "latest") -> int:
        place = hex(block) if isinstance(block, int) else block
        return int(await self.call("eth_getTransactionCount", address, place), 16)

    async def pooled_count(self, address: str) -> int:
        """The first nonce that is neither mined nor next in the pool; 0 if the node does not report it."""
        try:
            return await self.transaction_count(address, "pending")
        except RpcError:
            return 0

    async def counts(self, address: str, depth: int) -> Counts:
        """The counts at the newest block, and at the one `depth` blocks below it. Each read names its block.

        A read is repeated for a head below one that was seen before, for a head whose block the endpoint does
        not know, and for a final count that falls. Such answers come from a backend that lags behind.
        """
        for _ in range(TRIES):
            head = await self.block_number()
            if head < self._highest_head:
                continue
            try:
                latest = await self.transaction_count(address, head)
            except RpcError:
                continue
            # Only now: a number whose block no endpoint returns must not block every later read.
            self._highest_head = head
            final = await self._final_count(address, head, depth)
            if self._final_counts.get((address, depth), 0) <= final <= latest:
                self._final_counts[address, depth] = final
                return Counts(head, latest, final)
        raise ContradictingAnswers(
            f"The endpoints of chain {self.chain_id} contradict each other about {address}: "
            f"block {self._highest_head} was seen before. They are asked again."
        )

    async def _final_count(self, address: str, head: int, depth: int) -> int:
        """The final count; the last known one when no endpoint has the state of that block."""
        known = self._final_counts.get((address, depth), 0)
        if head < depth:
            return known
        said = ""
        for _ in range(TRIES):
            try:
                return await self.transaction_count(address, head - depth)
            except RpcError as error:
                said = str(error)
        _log.warning(
            "state_forgotten", chain_id=self.chain_id, signer=address, block=head - depth, error=said
        )
        return known

    async def receipt(self, tx_hash: str) -> dict[str, Any] | None:
        """None proves nothing: an endpoint that lags behind has no receipt either."""
        found: dict[str, Any] | None = await self.call("eth_getTransactionReceipt", tx_hash, wanted=True)
        return found

    async def block(self, number: int, *, full: bool = False) -> Block | None:
        """The block at this number; `full` with its transactions. None when no endpoint returns it."""
        return read_block(await self.call("eth_getBlockByNumber", hex(number), full, wanted=True))

    async def block_by_hash(self, block_hash: str, *, full: bool = False) -> Block | None:
        return read_block(await self.call("eth_getBlockByHash", block_hash, full, wanted=True))

    async def is_in_pool(self, tx_hash: str) -> bool:
        return await self.call("eth_getTransactionByHash", tx_hash) is not None

    async def market(self) -> Market:
        """The fees that a block requires now. A chain without a base fee (EIP-1559) has a gas price."""
        block = await self.call("eth_getBlockByNumber", "latest", False, wanted=True)
        if block is None:
            raise ContradictingAnswers(f"No endpoint of chain {self.chain_id} shows its newest block.")
        base_fee = block.get("baseFeePerGas")
        if base_fee is None:
            return Market(None, int(await self.call("eth_gasPrice"), 16))
        return Market(int(base_fee, 16), await self._priority_fee())

    async def _priority_fee(self) -> int:
        try:
            return int(await self.call("eth_maxPriorityFeePerGas"), 16)
        except RpcError:
            return GWEI  # Not every node suggests a priority fee.

    async def paid_tips(self) -> Mapping[Speed, int]:
        """The priority fees that were paid lately, by speed; empty when the node does not say."""
        try:
            history = await self.call(
                "eth_feeHistory", hex(HISTORY_BLOCKS), "latest", list(PERCENTILES.values())
            )
        except RpcError:
            return {}
        return tips_of(history)

    async def simulate(self, sender: str, order: TransactionRequest) -> Simulation:
        """Run the transaction on the newest block, without sending it."""
        fields: dict[str, object] = {
            "from": sender,
            "value": hex(order.value),
            "data": "0x" + order.data.hex(),
        }
        if order.to is not None:
            fields["to"] = order.to

        block = await self._newest_block()
        has_code = order.to is None or await self._state_at(block, "eth_getCode", order.to) != "0x"
        try:
            gas = int(await self._state_at(block, "eth_estimateGas", fields), 16)
        except ContradictingAnswers as error:
            raise ContradictingAnswers(f"{error} With `gas` it is not simulated.") from None
        except RpcError as error:
            failed = simulation_of(error)
            assert failed is not None
            return replace(failed, to_has_code=has_code)
        return Simulation(gas, to_has_code=has_code)

    async def balance(self, address: str) -> int:
        """In wei, at the newest block."""
        return int(await self._state_at(await self._newest_block(), "eth_getBalance", address), 16)

    async def _newest_block(self) -> int:
        """A number that is not below one that was seen before: a backend may lag behind."""
        for _ in range(TRIES):
            head = await self.block_number()
            if head >= self._highest_head:
                return head
        raise ContradictingAnswers(
            f"The endpoints of chain {self.chain_id} contradict each other: block {self._highest_head} was "
            "seen before, and none of them has it. Ask again."
        )

    async def _state_at(self, block: int, method: str, about: object) -> Any:
        """A read of the state at a named block. A backend that does not have the block answers with an error:
        then the next answer may come from another backend. An error of a simulation is an answer."""
        said = ""
        for _ in range(TRIES):
            try:
                found = await self.call(method, about, hex(block))
            except RpcError as error:
                if simulation_of(error) is not None:
                    raise
                said = str(error)
            else:
                # Only now: a number whose block no endpoint has must not block every later read.
                self._highest_head = max(block, self._highest_head)
                return found
        raise ContradictingAnswers(
            f"No endpoint of chain {self.chain_id} answers for its block {block}: {said}. Ask again."
        )

    async def send(self, raw: bytes) -> Meaning | None:
        """Send the bytes. None: accepted; otherwise the meaning of the node's error."""
        try:
            await self.call("eth_sendRawTransaction", "0x" + raw.hex())
        except RpcError as error:
            return error.meaning
        return None

    async def _check(self, endpoint: Endpoint) -> None:
        try:
            served = int(await self._ask(endpoint, "eth_chainId", ()), 16)
        except RpcError as error:
            # This error is not the answer to the caller's request, and must not be taken for one.
            raise WrongChain from error
        if served != self.chain_id:
            raise WrongChain
        endpoint.checked = True

    async def _ask(self, endpoint: Endpoint, method: str, params: Sequence[Any]) -> Any:
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": list(params)}
        reply = await self._client.exchange(Request.post_json(endpoint.url, body))
        if reply.status == TOO_MANY_REQUESTS:
            raise Overloaded
        # Some nodes send an error with 400 or 500 and a valid body; without a valid body it is no answer.
        return read_answer(method, reply.body)


def read_answer(method: str, text: bytes) -> Any:
    """The result, checked for the method's shape. RpcError is the node's error; Unreadable is no answer."""
    try:
        read: Any = json.loads(text)
        reply = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
        error: Any = reply.get("error")
        said = json.dumps(error)
    except (ValueError, RecursionError) as unread:
        raise Unreadable(method) from unread
    if isinstance(error, dict) and cast("dict[str, Any]", error).get("code") == LIMIT_EXCEEDED:
        raise Overloaded
    if isinstance(error, dict):
        fields = cast("dict[str, Any]", error)
        raise RpcError(method, said, code=fields.get("code"), data=fields.get("data"))
    if error is not None:
        raise RpcError(method, said)
    has_shape = _SHAPES.get(method)
    if "result" not in reply or (has_shape is not None and not has_shape(reply["result"])):
        raise Unreadable(method)
    return reply["result"]


def read_block(found: Mapping[str, Any] | None) -> Block | None:
    """A block from an answer; None for one without a position in the chain, or one that cannot be read."""
    if found is None or not _is_placed(found):
        return None
    return Block(
        int(found["number"], 16),
        str(found["hash"]).lower(),
        str(found["parentHash"]).lower(),
        tuple(
            _read_mined(cast("Mapping[str, Any]", tx))
            for tx in found["transactions"]
            if isinstance(tx, Mapping)
        ),
    )


def _read_mined(found: Mapping[str, Any]) -> Mined:
    to = found.get("to")
    return Mined(
        str(found["hash"]).lower(),
        str(found["from"]).lower(),
        int(found["nonce"], 16),
        TransactionRequest(
            None if to is None else str(to).lower(),
            int(found["value"], 16),
            bytes.fromhex(str(found["input"])[2:]),
            int(found["gas"], 16),
        ),
    )


def _is_number(result: object) -> bool:
    """A quantity that fits a PostgreSQL column: a chain id, a block number, a count."""
    return _is_quantity(result) and int(cast("str", result), 16) < 1 << 63


def _is_quantity(result: object) -> bool:
    """Up to 256 bits, as in EIP-1474; leading zeros are allowed."""
    return isinstance(result, str) and _QUANTITY.fullmatch(result) is not None


def _is_hash(result: object) -> bool:
    return isinstance(result, str) and _HASH.fullmatch(result) is not None


def _is_receipt(result: object) -> bool:
    """None, or a receipt with a block. Other fields may be missing: before Byzantium there is no status."""
    if not isinstance(result, dict):
        return result is None
    fields = cast("dict[str, Any]", result)
    return (
        _is_hash(fields.get("transactionHash"))
        and _is_hash(fields.get("blockHash"))
        and _is_number(fields.get("blockNumber"))
        and all(fields.get(name) is None or _is_number(fields[name]) for name in ("status", "gasUsed"))
    )


def _is_block(result: object) -> bool:
    """None, or a block. Fields other than its fee are checked where they are used."""
    if not isinstance(result, dict):
        return result is None
    base_fee = cast("dict[str, Any]", result).get("baseFeePerGas")
    return base_fee is None or _is_quantity(base_fee)


def _is_placed(fields: Mapping[str, Any]) -> bool:
    """Whether it contains its position in the chain, and its transactions."""
    transactions = fields.get("transactions")
    return (
        _is_number(fields.get("number"))
        and _is_hash(fields.get("hash"))
        and _is_hash(fields.get("parentHash"))
        and isinstance(transactions, list)
        and all(_is_hash(tx) or _is_mined(tx) for tx in cast("list[object]", transactions))
    )


def _is_mined(result: object) -> bool:
    if not isinstance(result, dict):
        return False
    fields = cast("dict[str, Any]", result)
    return (
        _is_hash(fields.get("hash"))
        and _is_address(fields.get("from"))
        and (fields.get("to") is None or _is_address(fields["to"]))
        and all(_is_quantity(fields.get(name)) for name in ("nonce", "value", "gas"))
        and isinstance(fields.get("input"), str)
        and _DATA.fullmatch(fields["input"]) is not None
    )


def _is_history(result: object) -> bool:
    """The fees of some blocks. A node may leave the rewards out."""
    if not isinstance(result, dict):
        return False
    fields = cast("dict[str, Any]", result)
    ratios, rewards = fields.get("gasUsedRatio"), fields.get("reward")
    if not isinstance(ratios, list) or not all(
        isinstance(one, int | float) for one in cast("list[object]", ratios)
    ):
        return False
    return rewards is None or (
        isinstance(rewards, list)
        and all(
            isinstance(row, list)
            and len(cast("list[object]", row)) == len(PERCENTILES)
            and all(map(_is_quantity, cast("list[object]", row)))
            for row in cast("list[object]", rewards)
        )
    )


def _is_address(result: object) -> bool:
    return isinstance(result, str) and _ADDRESS.fullmatch(result) is not None


_QUANTITY = re.compile(r"0x[0-9a-fA-F]{1,64}")
_HASH = re.compile(r"0x[0-9a-fA-F]{64}")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_DATA = re.compile(r"0x([0-9a-fA-F]{2})*")
# The shape of each result. A result of another shape is no answer, and the next endpoint is asked.
_SHAPES: Mapping[str, Callable[[object], bool]] = {
    "eth_chainId": _is_number,
    "eth_blockNumber": _is_number,
    "eth_getTransactionCount": _is_number,
    "eth_gasPrice": _is_quantity,
    "eth_maxPriorityFeePerGas": _is_quantity,
    "eth_getBlockByNumber": _is_block,
    "eth_getBlockByHash": _is_block,
    "eth_getTransactionReceipt": _is_receipt,
    "eth_getTransactionByHash": lambda result: result is None or isinstance(result, dict),
    "eth_sendRawTransaction": lambda result: isinstance(result, str),
    "eth_estimateGas": _is_number,
    "eth_getBalance": _is_quantity,
    "eth_getCode": lambda result: isinstance(result, str) and _DATA.fullmatch(result) is not None,
    "eth_feeHistory": _is_history,
}


class Chains:
    """Every chain that was configured."""

    def __init__(self, endpoints: dict[int, tuple[str, ...]]) -> None:
        self._chains = {chain_id: Chain(chain_id, urls) for chain_id, urls in endpoints.items()}

    def get(self, chain_id: int) -> Chain | None:
        return self._chains.get(chain_id)

    @property
    def ids(self) -> list[int]:
        return sorted(self._chains)

    async def close(self) -> None:
        await asyncio.gather(*(chain.close() for chain in self._chains.values()))
