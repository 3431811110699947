"""An endpoint of a chain gives an answer, its refusal, or none, and then the next is asked. So do signers."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from hypothesis import strategies as st

from fencepost_nonces._errors import ChainUnavailable, ContradictingAnswers, SigningFailed
from fencepost_nonces.sending._keys import addresses_of, bytes_of, result_of, verified
from fencepost_nonces.sending._next_step import ChainView, StuckPolicy, after_sending
from fencepost_nonces.sending._rpc import Chain, Overloaded, RpcError, Unreadable, read_answer, read_block
from tests.unit.fuzz.feeding import LONG, QUICK, Parser, feed
from tests.unit.fuzz.hostile import DEEP, bodies
from tests.unit.nonces.test_next_step import tx

HASH = "0x" + "ab" * 32
ADDRESS = "0x" + "cd" * 20
RECEIPT = {
    "transactionHash": HASH,
    "blockHash": HASH,
    "blockNumber": "0x5",
    "status": "0x1",
    "gasUsed": "0x5208",
    "from": ADDRESS,
}
BLOCK: dict[str, Any] = {
    "number": "0x5",
    "hash": HASH,
    "parentHash": HASH,
    "transactions": [
        {
            "hash": HASH,
            "from": ADDRESS,
            "to": ADDRESS,
            "nonce": "0x7",
            "value": "0x1",
            "gas": "0x5208",
            "input": "0x",
        }
    ],
}
RESULTS: Mapping[str, Any] = {
    "eth_chainId": "0x1",
    "eth_blockNumber": "0x7",
    "eth_getTransactionCount": "0x3",
    "eth_gasPrice": "0x3b9aca00",
    "eth_maxPriorityFeePerGas": "0x3b9aca00",
    "eth_getBlockByNumber": {"baseFeePerGas": "0x7"},
    "eth_getBlockByHash": BLOCK,
    "eth_getTransactionReceipt": RECEIPT,
    "eth_getTransactionByHash": {"hash": HASH},
    "eth_sendRawTransaction": HASH,
}
NO = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "nonce too low"}}
BROADCAST = tx()


def reader(method: str) -> Callable[[bytes], None]:
    def read(body: bytes) -> None:
        """What passes for an answer can be worked with."""
        answer: Any = read_answer(method, body)
        if method == "eth_getTransactionReceipt":
            after_sending(BROADCAST, ChainView(10, 9, 9, receipt=answer), StuckPolicy(2, 60.0))
        elif method == "eth_getBlockByHash":
            read_block(answer)
        elif isinstance(answer, str) and method != "eth_sendRawTransaction":
            assert int(answer, 16) >= 0

    return read


def signed_by(body: bytes) -> None:
    verified(ADDRESS, {"nonce": 7}, bytes_of(result_of(body)))


def answers(result: Any) -> st.SearchStrategy[bytes]:
    return st.one_of(bodies({"jsonrpc": "2.0", "id": 1, "result": result}), bodies(NO))


PARSERS = {
    method: Parser(reader(method), answers(right), (RpcError, Overloaded, Unreadable))
    for method, right in RESULTS.items()
} | {
    "a signer's addresses": Parser(
        lambda body: addresses_of(result_of(body)), answers([ADDRESS]), (SigningFailed,)
    ),
    "a signer's bytes": Parser(signed_by, answers({"raw": "0x02" + "ab" * 90}), (SigningFailed,)),
}


@pytest.mark.parametrize("name", PARSERS)
def test_any_answer_is_read_or_refused(name: str) -> None:
    feed(PARSERS[name], QUICK)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PARSERS)
def test_any_answer_is_read_or_refused_at_length(name: str) -> None:
    feed(PARSERS[name], LONG)


def result(value: Any) -> str:
    return json.dumps({"result": value})


WRONG = [
    ("eth_chainId", result(None)),
    ("eth_chainId", result({"id": 1})),
    ("eth_chainId", json.dumps({"error": {"message": "invalid chain id"}})),
    ("eth_blockNumber", result(None)),
    ("eth_blockNumber", result(7)),
    ("eth_blockNumber", result("-0x7")),
    ("eth_blockNumber", result(hex(1 << 63))),
    ("eth_blockNumber", json.dumps({"error": None})),
    ("eth_blockNumber", DEEP[0]),
    ("eth_blockNumber", '{"result":' + DEEP[2] * 3 + "}"),
    ("eth_getBlockByNumber", result("latest")),
    ("eth_getBlockByNumber", result({"baseFeePerGas": 7})),
    ("eth_getTransactionReceipt", result("0x1")),
    ("eth_getTransactionReceipt", result({})),
    ("eth_getTransactionReceipt", result(RECEIPT | {"blockNumber": None})),
    ("eth_getTransactionReceipt", result(RECEIPT | {"blockHash": "\0"})),
    ("eth_getTransactionReceipt", result(RECEIPT | {"status": "yes"})),
    ("eth_sendRawTransaction", result(None)),
]


@asynccontextmanager
async def endpoints(*wrong: Mapping[str, str]) -> AsyncGenerator[list[str]]:
    """Nodes that answer as they should, but for the methods given for each."""

    def node(own: Mapping[str, str]) -> web.Application:
        async def answer(request: web.Request) -> web.Response:
            method = (await request.json())["method"]
            text = own.get(method) or result(RESULTS[method])
            return web.Response(text=text, content_type="application/json")

        app = web.Application()
        app.router.add_post("/", answer)
        return app

    runners: list[web.AppRunner] = []
    try:
        urls: list[str] = []
        for own in wrong:
            runners.append(web.AppRunner(node(own)))
            await runners[-1].setup()
            site = web.TCPSite(runners[-1], "127.0.0.1", 0)
            await site.start()
            urls.append(f"http://127.0.0.1:{runners[-1].addresses[0][1]}/")
        yield urls
    finally:
        for runner in runners:
            await runner.cleanup()


async def asked(chain: Chain, method: str) -> object:
    match method:
        case "eth_chainId" | "eth_blockNumber":
            return await chain.block_number()
        case "eth_getBlockByNumber":
            return await chain.market()
        case "eth_getTransactionReceipt":
            return await chain.receipt(HASH)
        case _:
            return await chain.send(b"x")


@pytest.mark.parametrize(("method", "text"), WRONG)
async def test_an_endpoint_whose_answer_cannot_be_read_is_passed_over(method: str, text: str) -> None:
    async with endpoints({}) as urls:
        right = Chain(1, urls)
        expected = await asked(right, method)
        await right.close()
    async with endpoints({method: text}, {}) as urls:
        chain = Chain(1, urls)
        try:
            assert await asked(chain, method) == expected
        finally:
            await chain.close()


@pytest.mark.parametrize(("method", "text"), WRONG)
async def test_where_no_answer_can_be_read_the_chain_is_unavailable(method: str, text: str) -> None:
    async with endpoints({method: text}) as urls:
        chain = Chain(1, urls)
        try:
            with pytest.raises(
                ChainUnavailable, match=r"No endpoint of chain 1 answers: .*Unreadable|WrongChain"
            ):
                await asked(chain, method)
        finally:
            await chain.close()


async def test_a_newest_block_that_one_endpoint_does_not_show_is_asked_of_the_next() -> None:
    async with endpoints({"eth_getBlockByNumber": result(None)}, {}) as urls:
        chain = Chain(1, urls)
        try:
            assert (await chain.market()).base_fee == 7
        finally:
            await chain.close()
    async with endpoints({"eth_getBlockByNumber": result(None)}) as urls:
        chain = Chain(1, urls)
        try:
            with pytest.raises(ContradictingAnswers, match="newest block"):
                await chain.market()
        finally:
            await chain.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": None},
        {"hash": "0x1"},
        {"parentHash": None},
        {"transactions": None},
        {"transactions": [{"hash": HASH}]},
        {"transactions": [BLOCK["transactions"][0] | {"nonce": 7}]},
        {"transactions": [BLOCK["transactions"][0] | {"input": "0x1"}]},
    ],
)
def test_a_block_that_does_not_say_where_it_is_or_what_is_in_it_is_none(wrong: dict[str, Any]) -> None:
    read = read_block(BLOCK)
    assert read is not None
    assert (read.number, read.transactions[0].nonce) == (5, 7)
    assert read_block(BLOCK | wrong) is None


async def test_a_receipt_without_a_status_is_one() -> None:
    """As before Byzantium; some nodes say null."""
    old = {name: value for name, value in RECEIPT.items() if name != "gasUsed"} | {"status": None}
    async with endpoints({"eth_getTransactionReceipt": result(old)}) as urls:
        chain = Chain(1, urls)
        try:
            assert await chain.receipt(HASH) == old
        finally:
            await chain.close()


@pytest.mark.parametrize("text", [DEEP[0], result(7), result("0x" + "ab" * 20), result({"a": 1})])
def test_a_remote_signer_without_addresses_counts_as_unavailable(text: str) -> None:
    with pytest.raises(SigningFailed, match="remote signer"):
        addresses_of(result_of(text.encode()))


@pytest.mark.parametrize("raw", [10**400, -1, True, [1], "0xabc", "0xzz", {"raw": {}}])
def test_what_a_signer_calls_bytes_and_is_none_is_refused(raw: Any) -> None:
    with pytest.raises(SigningFailed, match="not a signed transaction"):
        signed_by(result(raw).encode())
