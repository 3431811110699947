"""A real chain: anvil, from its npm package, installed once into .fencepost and run on a free port."""

import fcntl
import re
import shutil
import subprocess
import threading
from collections import Counter, deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[3]
HOME = ROOT / ".fencepost" / "npm"
PACKAGE = "@foundry-rs/anvil@1.7.1"
CHAIN_ID = 31337
ETHER = 10**18
FUNDS = 100 * ETHER
_LISTENING = re.compile(r"Listening on 127\.0\.0\.1:(\d+)")


def installed(package: str, pattern: str) -> Path:
    """A file of an npm package, which is installed when it is missing. Without npm the test is skipped."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed, and the chain comes from it")
    home = HOME / package.rpartition("@")[0].strip("@").replace("/", "-")
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        # Two test processes must not install at once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(home.glob(pattern)):
            options = ("--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(home))
            subprocess.run([npm, "install", *options, package], check=True, capture_output=True, timeout=100)
    found = sorted(home.glob(pattern))
    assert found, f"{package} brought no program for this machine"
    return found[0]


@dataclass(frozen=True)
class Anvil:
    """A running chain, which mines when it is told to."""

    url: str
    client: httpx.Client

    def rpc(self, method: str, *params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}
        reply = self.client.post(self.url, json=body).json()
        assert "error" not in reply, reply
        return reply["result"]

    def mine(self, blocks: int = 1) -> None:
        self.rpc("anvil_mine", hex(blocks))

    def fund(self, address: str, wei: int = FUNDS) -> None:
        self.rpc("anvil_setBalance", address, hex(wei))

    def balance(self, address: str) -> int:
        return int(self.rpc("eth_getBalance", address, "latest"), 16)

    def count(self, address: str) -> int:
        return int(self.rpc("eth_getTransactionCount", address, "latest"), 16)

    def transactions(self) -> list[dict[str, Any]]:
        """Every mined transaction, read from the blocks themselves."""
        blocks = (self.rpc("eth_getBlockByNumber", hex(number), True) for number in self._numbers())
        return [tx for block in blocks for tx in block["transactions"]]

    def fees_paid(self) -> Counter[str]:
        """What each sender has paid for gas, by the receipts of all blocks."""
        paid: Counter[str] = Counter()
        for number in self._numbers():
            for receipt in self.rpc("eth_getBlockReceipts", hex(number)):
                paid[receipt["from"]] += int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
        return paid

    def _numbers(self) -> range:
        return range(int(self.rpc("eth_blockNumber"), 16) + 1)


@contextmanager
def listening(arguments: Sequence[str | Path], told: re.Pattern[str], **options: Any) -> Generator[int]:
    """A server until the end of the block, and the port that it says it listens on."""
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    ) as process:
        # It goes on talking, and would stand still when nobody reads.
        drain = threading.Thread(target=deque, args=(process.stdout, 0), daemon=True)
        try:
            port = _port_of(process, told)
            drain.start()
            yield port
        finally:
            process.kill()
            if drain.ident is not None:
                drain.join()


@contextmanager
def running_anvil(*options: str) -> Generator[Anvil]:
    program = installed(PACKAGE, "node_modules/@foundry-rs/anvil-*/bin/anvil")
    arguments: list[str | Path] = [
        program,
        "--port",
        "0",
        "--no-mining",
        "--order",
        "fifo",
        "--accounts",
        "1",
        *options,
    ]
    with listening(arguments, _LISTENING) as port, httpx.Client(timeout=20) as client:
        yield Anvil(f"http://127.0.0.1:{port}", client)


def _port_of(process: subprocess.Popen[str], told: re.Pattern[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        found = told.search(line)
        if found:
            return int(found[1])
    raise AssertionError("the chain ended before it listened")
