"""The chain of the tests: installed once for all of them, and without npm they are skipped."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost_nonces.testing import anvil as chain
from fencepost_nonces.testing.anvil import CHAIN_ID, ETHER, FUNDS, Anvil

ROOT = Path(__file__).parents[3]
HOME = ROOT / ".fencepost" / "npm"

__all__ = ["CHAIN_ID", "ETHER", "FUNDS", "Anvil", "installed", "running_anvil"]


def installed(package: str, pattern: str) -> Path:
    """A file of an npm package."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed, and the chain comes from it")
    return chain.installed(package, pattern, HOME)


@contextmanager
def running_anvil(*options: str) -> Generator[Anvil]:
    if shutil.which("anvil") is None and shutil.which("npm") is None:
        pytest.skip("neither anvil nor npm is installed")
    with chain.running_anvil(*options, home=HOME) as anvil:
        yield anvil
