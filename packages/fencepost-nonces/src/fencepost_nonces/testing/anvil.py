"""A real chain: anvil, from the PATH or from its npm package, on a free port while the block runs."""

from __future__ import annotations

import fcntl
import http.client
import json
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fencepost.embedded._deadline import Deadline
from fencepost.embedded._errors import BinaryMissingError, ServerStartError
from fencepost.embedded._identity import ourselves
from fencepost.embedded._process import KeptProcess, StartPlan
from fencepost_nonces.sending._ethereum import accounts

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

PACKAGE = "@foundry-rs/anvil@1.7.1"
PROGRAM = "node_modules/@foundry-rs/anvil-*/bin/anvil"
CHAIN_ID = 31337
ETHER = 10**18
FUNDS = 100 * ETHER
INSTALL_SECONDS = 100.0
START_SECONDS = 60.0
REPLY_SECONDS = 60.0
CALLS_AT_ONCE = 200
"""The number of calls in one request where many blocks are read."""
_LISTENING = re.compile(r"Listening on 127\.0\.0\.1:(\d+)")


def new_account(number: int) -> LocalAccount:
    """The nth account of such a chain. Its key is not secret: it is derived from this line."""
    account: LocalAccount = accounts().from_key((0xFE0CE0 + number).to_bytes(32, "big"))
    return account


def recipient(number: int) -> str:
    """An unused address: its balance is what was sent to it."""
    return "0x" + (0xAA << 120 | number).to_bytes(20, "big").hex()


def installed(package: str, pattern: str, home: Path) -> Path:
    """The path of a file of an npm package, which is installed below `home` when it is missing."""
    place = home.absolute() / package.rpartition("@")[0].strip("@").replace("/", "-")
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        # Two processes must not install at once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(place.glob(pattern)):
            _install(package, place)
    found = sorted(place.glob(pattern))
    if not found:
        raise BinaryMissingError(f"{package} has no program for this machine.")
    return found[0]


def found_anvil(home: Path) -> Path | None:
    """The program, from the PATH or from an npm package that is installed below `home` already."""
    on_path = shutil.which("anvil")
    kept = sorted(home.absolute().glob(f"*/{PROGRAM}"))
    return Path(on_path) if on_path else next(iter(kept), None)


def _install(package: str, place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise BinaryMissingError(
            f"There is no chain: neither anvil nor npm, which would bring it as {package}, is on the PATH. "
            "Install Node.js with npm, or Foundry (https://getfoundry.sh)."
        )
    options = ("--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(place))
    done = subprocess.run(
        [npm, "install", *options, package], check=False, capture_output=True, timeout=INSTALL_SECONDS
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-500:]
        raise BinaryMissingError(f"npm could not install {package}: {said}")


@dataclass(frozen=True)
class Anvil:
    """The RPC client of a running chain."""

    url: str

    def rpc(self, method: str, *params: Any) -> Any:
        """Call one method and return its result."""
        [result] = self.rpcs([(method, params)])
        return result

    def rpcs(self, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Several calls in one request; results are in the order of the calls."""
        bodies = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": list(params)}
            for number, (method, params) in enumerate(calls)
        ]
        replies = [self._post(bodies[0])] if len(bodies) == 1 else self._post(bodies)
        assert all("error" not in reply for reply in replies), replies
        results = {reply["id"]: reply["result"] for reply in replies}
        return [results[number] for number in range(len(calls))]

    def mine(self, blocks: int = 1) -> None:
        """Mine this many blocks."""
        self.rpc("anvil_mine", hex(blocks))

    def fund(self, address: str, wei: int = FUNDS) -> None:
        """Set the balance of an address."""
        self.rpc("anvil_setBalance", address, hex(wei))

    def balance(self, address: str) -> int:
        """The balance of an address, in wei."""
        return int(self.rpc("eth_getBalance", address, "latest"), 16)

    def count(self, address: str) -> int:
        """How many transactions of an address are mined."""
        return int(self.rpc("eth_getTransactionCount", address, "latest"), 16)

    def pooled(self) -> int:
        """The number of transactions that are in no block."""
        status = self.rpc("txpool_status")
        return int(status["pending"], 16) + int(status["queued"], 16)

    def transactions(self) -> list[dict[str, Any]]:
        """Every mined transaction, read from the blocks themselves."""
        blocks = self._of_all_blocks("eth_getBlockByNumber", True)
        return [tx for block in blocks for tx in block["transactions"]]

    def fees_paid(self) -> Counter[str]:
        """What each sender has paid for gas, from the receipts of all blocks."""
        paid: Counter[str] = Counter()
        for receipts in self._of_all_blocks("eth_getBlockReceipts"):
            for receipt in receipts:
                paid[receipt["from"]] += int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
        return paid

    def _of_all_blocks(self, method: str, *more: Any) -> Iterator[Any]:
        numbers = range(int(self.rpc("eth_blockNumber"), 16) + 1)
        for first in numbers[::CALLS_AT_ONCE]:
            some = numbers[first : first + CALLS_AT_ONCE]
            yield from self.rpcs([(method, (hex(number), *more)) for number in some])

    def _post(self, body: Any) -> Any:
        # A connection for each request: a node closes one that was idle for a while.
        with closing(http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=REPLY_SECONDS)) as wire:
            wire.request("POST", "/", json.dumps(body), {"content-type": "application/json"})
            return json.loads(wire.getresponse().read())


@contextmanager
def running_anvil(*options: str, home: Path) -> Generator[Anvil]:
    """Runs anvil while the block runs. It mines only when told to, unless `options` say otherwise."""
    program = found_anvil(home) or installed(PACKAGE, PROGRAM, home)
    when = () if "--block-time" in options else ("--no-mining",)
    command = [program, "--port", "0", *when, "--order", "fifo", "--accounts", "1", *options]
    with tempfile.TemporaryDirectory(prefix="fencepost-chain-") as directory:
        log = Path(directory) / "anvil.log"
        # It dies with this process, however that ends.
        process = KeptProcess(
            StartPlan(command, ourselves(), log, farewell=(signal.SIGKILL,), sweep=(Path(directory),))
        )
        try:
            anvil = Anvil(f"http://127.0.0.1:{_port_of(process, log)}")
            # Otherwise every call adds a line to a log that is never read.
            anvil.rpc("anvil_setLoggingEnabled", False)
            yield anvil
        finally:
            process.kill()


def _port_of(process: KeptProcess, log: Path) -> int:
    def told() -> bool:
        return _LISTENING.search(log.read_text()) is not None or not process.is_alive()

    Deadline(START_SECONDS, "the chain listens").wait(told)
    found = _LISTENING.search(log.read_text())
    if found is None:
        raise ServerStartError(f"The chain ended before it listened: {log.read_text()[-500:]}")
    return int(found[1])
