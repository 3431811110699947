"""A chain that keeps the rule of a tenth: hardhat refuses a replacement that offers less. anvil does not."""

import os
import re
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from fencepost_nonces.sending._classification import Meaning
from fencepost_nonces.sending._fees import Fees, Market, raised
from fencepost_nonces.sending._keys import Keystore
from fencepost_nonces.sending._rpc import Chain
from tests.acceptance.nonces.anvil import CHAIN_ID, Anvil, installed
from tests.acceptance.nonces.exchange import new_account, opened, recipient

PACKAGE = "hardhat@2.26.3"
CONFIG = """module.exports = {
  solidity: "0.8.28",
  networks: { hardhat: { chainId: 31337, mining: { auto: false, interval: 0 } } },
};
"""
LISTENING = re.compile(r"server at http://[^:]+:(\d+)")
pytestmark = [pytest.mark.full, pytest.mark.timeout(240)]


@pytest.fixture
def hardhat() -> Iterator[Anvil]:
    program = installed(PACKAGE, "node_modules/hardhat/internal/cli/cli.js")
    node = shutil.which("node")
    assert node is not None, "npm comes with node"
    home = program.parents[4]
    (home / "hardhat.config.js").write_text(CONFIG)
    arguments: list[str | Path] = [node, program, "node", "--hostname", "127.0.0.1", "--port", "0"]
    quietly = {**os.environ, "HARDHAT_DISABLE_TELEMETRY_PROMPT": "true"}
    with listening(arguments, cwd=home, env=quietly) as port:
        yield Hardhat(f"http://127.0.0.1:{port}")


@contextmanager
def listening(arguments: Sequence[str | Path], **options: Any) -> Generator[int]:
    """A server until the end of the block, and the port that it says it listens on."""
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    ) as process:
        assert process.stdout is not None
        # It goes on writing, and would stop when its output is not read.
        drain = threading.Thread(target=deque, args=(process.stdout, 0), daemon=True)
        try:
            told = next(filter(None, map(LISTENING.search, process.stdout)), None)
            assert told is not None, "the chain ended before it listened"
            drain.start()
            yield int(told[1])
        finally:
            process.kill()
            if drain.ident is not None:
                drain.join()


class Hardhat(Anvil):
    """anvil's own methods under hardhat's names."""

    def rpc(self, method: str, *params: object) -> object:
        return super().rpc(method.replace("anvil_", "hardhat_"), *params)


async def test_a_replacement_of_ours_is_taken_and_a_smaller_one_is_not(hardhat: Anvil) -> None:
    account = new_account(3)
    hardhat.fund(account.address)
    chain, keys = Chain(CHAIN_ID, [hardhat.url]), Keystore({account.address.lower(): account})

    async def send(fees: Fees) -> Meaning | None:
        fields = {
            "type": 2, "chainId": CHAIN_ID, "nonce": 0, "maxFeePerGas": fees.max_fee, "gas": 21_000,
            "value": 1,
            "maxPriorityFeePerGas": fees.max_priority, "data": "0x", "to": account.address,
        }  # fmt: skip
        return await chain.send((await keys.sign(account.address.lower(), fields)).raw)

    try:
        first = Fees(10**10, 10**9)
        assert await send(first) is None
        assert await send(Fees(first.max_fee * 105 // 100, 10**9 * 105 // 100)) is Meaning.UNDERPRICED
        ours = raised(first, Market(0, 0), 10**18)
        assert ours is not None
        assert await send(ours) is None
    finally:
        await chain.close()


async def test_a_stuck_transaction_is_replaced_and_mined_once(
    database: Database, clock: Clock, hardhat: Anvil
) -> None:
    async with opened(database, hardhat, stuck_seconds=60.0) as exchange:
        paid = await exchange.pay("pay-1", recipient(1), 5)
        await exchange.turn()
        first = (await exchange.acceptance.show(paid))["tx_hash"]
        clock.advance(61)
        await exchange.turn()
        assert (await exchange.acceptance.show(paid))["tx_hash"] != first

        await exchange.mine_and_turn(4)

        assert (await exchange.state(paid))[0] == "CONFIRMED"
        assert hardhat.balance(recipient(1)) == 5
