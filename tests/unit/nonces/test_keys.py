"""Signing: the keystore's files, and a remote signer that is not believed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.errors import SettingsError
from fencepost_nonces._errors import SigningFailed
from fencepost_nonces.sending._decoding import fees_of
from fencepost_nonces.sending._ethereum import accounts
from fencepost_nonces.sending._fees import Fees
from fencepost_nonces.sending._keys import Keystore, verified
from fencepost_nonces.signer import checksummed

KEY = bytes.fromhex("11" * 32)
PASSWORD = "correct horse"
FIELDS = {
    "type": 2,
    "chainId": 31337,
    "nonce": 7,
    "maxFeePerGas": 10,
    "maxPriorityFeePerGas": 1,
    "gas": 21_000,
    "value": 5,
    "data": "0x",
    "to": checksummed("0x" + "ab" * 20),
}
LEGACY = {
    name: value
    for name, value in {**FIELDS, "gasPrice": 9}.items()
    if name not in ("type", "maxFeePerGas", "maxPriorityFeePerGas")
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    encrypted = accounts().encrypt(KEY, PASSWORD, kdf="pbkdf2", iterations=10)
    (tmp_path / "key.json").write_text(json.dumps(encrypted))
    (tmp_path / ".hidden").write_text("not a key")
    return tmp_path


@pytest.mark.parametrize(
    ("fields", "fees"), [(FIELDS, Fees(10, 1)), (LEGACY, Fees(9, None))], ids=["EIP-1559", "gas price"]
)
async def test_a_key_is_read_and_signs_what_was_asked(
    directory: Path, fields: dict[str, object], fees: Fees
) -> None:
    keys = Keystore.read(directory, PASSWORD)
    (address,) = await keys.addresses()

    signed = await keys.sign(address, fields)

    assert accounts().recover_transaction(signed.raw).lower() == address
    assert fees_of(signed.raw) == fees
    assert verified(address, fields, signed.raw) == signed


def test_a_wrong_password_is_said_without_the_key_or_the_password(directory: Path) -> None:
    with pytest.raises(SettingsError, match="NONCES_KEYSTORE") as caught:
        Keystore.read(directory, "wrong battery")
    assert "wrong battery" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_keystore_shows_addresses_and_no_key(directory: Path) -> None:
    shown = repr(Keystore.read(directory, PASSWORD))

    assert "0x" in shown
    assert "11" * 8 not in shown


async def test_an_unknown_address_is_not_signed_for(directory: Path) -> None:
    with pytest.raises(SigningFailed):
        await Keystore.read(directory, PASSWORD).sign("0x" + "cd" * 20, FIELDS)


@pytest.mark.parametrize("asked", [FIELDS, LEGACY], ids=["EIP-1559", "gas price"])
@pytest.mark.parametrize(
    "changed",
    [{"nonce": 8}, {"value": 6}, {"to": checksummed("0x" + "ac" * 20)}, {"chainId": 1}, {"data": "0x00"}],
    ids=lambda changed: next(iter(changed)),
)
async def test_a_remote_signer_that_signed_something_else_is_found_out(
    directory: Path, changed: dict[str, object], asked: dict[str, object]
) -> None:
    keys = Keystore.read(directory, PASSWORD)
    (address,) = await keys.addresses()
    other = await keys.sign(address, {**asked, **changed})

    with pytest.raises(SigningFailed, match=next(iter(changed))):
        verified(address, asked, other.raw)


async def test_bytes_of_another_sender_or_no_transaction_at_all_are_found_out(directory: Path) -> None:
    keys = Keystore.read(directory, PASSWORD)
    (address,) = await keys.addresses()
    signed = await keys.sign(address, FIELDS)

    with pytest.raises(SigningFailed, match="another sender"):
        verified("0x" + "cd" * 20, FIELDS, signed.raw)
    with pytest.raises(SigningFailed, match="not a signed transaction"):
        verified(address, FIELDS, b"\x02nonsense")


LOADING = """
import sys
from fencepost_nonces import _http_service as http_service
from fencepost_nonces.sending import _ethereum as ethereum
from fencepost_nonces.sending import _keys as keys
before = sys.getrecursionlimit()
assert "eth_account" not in sys.modules, "the library is loaded, and nothing is signed"
ethereum.decode_list(bytes([0xC0]))
ethereum.typed_transactions()
ethereum.accounts()
assert "eth_account" in sys.modules
assert sys.getrecursionlimit() == before
"""


def test_the_library_is_loaded_when_needed_and_leaves_the_recursion_limit_alone() -> None:
    """A part of it raises it, and then a deeply nested document ends the process instead of raising."""
    assert subprocess.run([sys.executable, "-c", LOADING], check=False).returncode == 0
