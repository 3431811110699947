"""A real chain: anvil, from its npm package, installed once into .fencepost and run on a free port."""

import fcntl
import re
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Generator
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
_LISTENING = re.compile(r"Listening on 127\.0\.0\.1:(\d+)")


def anvil_program() -> Path:
    """The binary, installed when it is missing. Without npm what needs it is skipped, with the reason."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed, and anvil comes from it")
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        # Two test processes must not install at once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _installed()
        if found is None:
            subprocess.run(
                [
                    npm,
                    "install",
                    "--no-save",
                    "--no-audit",
                    "--no-fund",
                    "--ignore-scripts",
                    "--prefix",
                    str(HOME),
                    PACKAGE,
                ],
                check=True,
                capture_output=True,
                timeout=100,
            )
            found = _installed()
    assert found is not None, f"{PACKAGE} brought no binary for this machine"
    return found


def _installed() -> Path | None:
    return next(iter(sorted(HOME.glob("node_modules/@foundry-rs/anvil-*/bin/anvil"))), None)


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

    def fund(self, address: str, wei: int = 100 * ETHER) -> None:
        self.rpc("anvil_setBalance", address, hex(wei))

    def balance(self, address: str) -> int:
        return int(self.rpc("eth_getBalance", address, "latest"), 16)

    def count(self, address: str) -> int:
        return int(self.rpc("eth_getTransactionCount", address, "latest"), 16)

    def transactions(self) -> list[dict[str, Any]]:
        """Every mined transaction, read from the blocks themselves."""
        head = int(self.rpc("eth_blockNumber"), 16)
        blocks = (self.rpc("eth_getBlockByNumber", hex(number), True) for number in range(head + 1))
        return [tx for block in blocks for tx in block["transactions"]]


@contextmanager
def running_anvil(*options: str) -> Generator[Anvil]:
    program = anvil_program()
    arguments = ["--port", "0", "--no-mining", "--order", "fifo", "--accounts", "1", *options]
    with subprocess.Popen(
        [program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            with httpx.Client(timeout=20) as client:
                port = _port_of(process)
                # It goes on talking, and would stand still when nobody reads.
                threading.Thread(target=deque, args=(process.stdout, 0), daemon=True).start()
                yield Anvil(f"http://127.0.0.1:{port}", client)
        finally:
            process.kill()


def _port_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    began = time.monotonic()
    for line in process.stdout:
        found = _LISTENING.search(line)
        if found:
            return int(found[1])
        assert time.monotonic() - began < 30, "anvil does not begin to listen"
    raise AssertionError("anvil ended before it listened")
