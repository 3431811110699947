"""Keys in AWS KMS and behind Vault's Transit protocol: payments are signed there and mined here."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiohttp import web
from coincurve import PrivateKey

from fencepost.embedded import Database
from fencepost.errors import SettingsError
from fencepost.testing import Clock
from fencepost_nonces._errors import SigningFailed
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.sending._key_store import keys_of
from fencepost_nonces.sending._keys import Keys
from fencepost_nonces.sending._kms import AwsKms
from tests.acceptance.nonces.anvil import Anvil
from tests.acceptance.nonces.exchange import new_account, opened, recipient
from tests.acceptance.nonces.key_services import (
    ACCESS_KEY,
    P256_HEAD,
    SECRET_KEY,
    SESSION_TOKEN,
    VAULT_TOKEN,
    KmsDouble,
    VaultDouble,
    listening,
    refusal,
)

ACCOUNT = new_account(0)
KEY = PrivateKey(bytes(ACCOUNT.key))
OTHER = PrivateKey(bytes(new_account(1).key))
FIELDS: dict[str, Any] = {
    "chainId": 1,
    "nonce": 7,
    "gas": 21_000,
    "value": 5,
    "data": "0x",
    "to": "0x" + "11" * 20,
}
FEES: list[dict[str, Any]] = [
    {"type": 2, "maxFeePerGas": 9, "maxPriorityFeePerGas": 1},
    {"gasPrice": 9},
]


def kms_settings(url: str, **more: Any) -> NoncesSettings:
    return NoncesSettings.model_validate(
        {
            "kms_keys": "alias/payments",
            "kms_region": "eu-central-1",
            "kms_url": url,
            "kms_access_key_id": ACCESS_KEY,
            "kms_secret_access_key": SECRET_KEY,
            "kms_session_token": SESSION_TOKEN,
            **more,
        }
    )


def vault_settings(url: str, **more: Any) -> NoncesSettings:
    return NoncesSettings.model_validate(
        {"vault_url": url, "vault_keys": "payments", "vault_token": VAULT_TOKEN, **more}
    )


@asynccontextmanager
async def kms(double: KmsDouble | None = None, **more: Any) -> AsyncGenerator[tuple[Keys, KmsDouble]]:
    double = double or KmsDouble(KEY)
    async with listening(double) as url:
        keys = await keys_of(kms_settings(url, **more))
        try:
            yield keys, double
        finally:
            await keys.close()


@asynccontextmanager
async def vault(double: VaultDouble | None = None, **more: Any) -> AsyncGenerator[tuple[Keys, VaultDouble]]:
    double = double or VaultDouble([KEY])
    async with listening(double) as url:
        keys = await keys_of(vault_settings(url, **more))
        try:
            yield keys, double
        finally:
            await keys.close()


@pytest.mark.parametrize("opened_keys", [kms, vault])
async def test_a_payment_is_signed_there_and_mined_here(
    database: Database, clock: Clock, anvil: Anvil, opened_keys: Any
) -> None:
    async with opened_keys() as (keys, _), opened(database, anvil, account=ACCOUNT, keys=keys) as exchange:
        paid = [await exchange.pay(f"pay-{number}", recipient(number), 5) for number in range(4)]
        await exchange.turn()
        await exchange.mine_until_confirmed(paid[-1])

        assert [await exchange.state(one) for one in paid] == [("CONFIRMED", "CONSUMED")] * 4
        assert [anvil.balance(recipient(number)) for number in range(4)] == [5] * 4


@pytest.mark.parametrize("opened_keys", [kms, vault])
@pytest.mark.parametrize("fees", FEES, ids=["typed", "gas price"])
async def test_the_bytes_are_those_of_the_account_with_the_lower_s(
    opened_keys: Any, fees: dict[str, Any]
) -> None:
    from fencepost_nonces.sending._decoding import fields_of
    from fencepost_nonces.sending._keys import verified

    async with opened_keys() as (keys, _):
        assert await keys.addresses() == {ACCOUNT.address.lower()}
        for nonce in range(8):
            asked = {**FIELDS, **fees, "nonce": nonce}
            signed = await keys.sign(ACCOUNT.address.lower(), asked)
            assert verified(ACCOUNT.address.lower(), asked, signed.raw) == signed
            assert int(fields_of(signed.raw)["s"]) <= 2**255


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda: refusal(400, "ThrottlingException"), "HTTP 400, ThrottlingException. It is asked again"),
        (lambda: refusal(400, "com.amazonaws.kms#AccessDeniedException"), "AccessDeniedException. Check the"),
        (lambda: refusal(403, "x" * 900), "HTTP 403, an unknown kind. Check"),
        (lambda: web.Response(status=500, text=SECRET_KEY), "HTTP 500"),
        (lambda: web.Response(text="{}"), "no signature in DER"),
        (lambda: web.json_response({"Signature": "MAA="}), "no signature in DER"),
        (lambda: web.json_response({"Signature": "no base64"}), "no signature in DER"),
        (lambda: web.Response(text="[" * 100_000), "no signature in DER"),
    ],
)
async def test_whatever_kms_says_instead_the_reason_is_told_without_a_secret(answer: Any, said: str) -> None:
    async with kms() as (keys, double):
        await keys.addresses()
        double.instead = [answer]
        with structlog.testing.capture_logs() as logged, pytest.raises(SigningFailed, match=said) as failure:
            await keys.sign(ACCOUNT.address.lower(), {**FIELDS, **FEES[0]})
        assert not [
            one for one in (SECRET_KEY, SESSION_TOKEN) if one in f"{failure.value!r} {logged} {keys!r}"
        ]
        assert (await keys.sign(ACCOUNT.address.lower(), {**FIELDS, **FEES[0]})).raw, "it is asked again"


async def test_a_signature_of_another_key_is_refused() -> None:
    async with kms(KmsDouble(KEY, signs_with=OTHER)) as (keys, _):
        await keys.addresses()
        with pytest.raises(SigningFailed, match="another key"):
            await keys.sign(ACCOUNT.address.lower(), {**FIELDS, **FEES[0]})
        with pytest.raises(SigningFailed, match="There is no key"):
            await keys.sign("0x" + "22" * 20, {**FIELDS, **FEES[0]})


async def test_wrong_credentials_are_refused_by_the_service_and_said() -> None:
    async with kms(kms_secret_access_key="not it") as (keys, _):
        with pytest.raises(
            SigningFailed, match=r"InvalidSignatureException\. Check the credentials"
        ) as failure:
            await keys.addresses()
        assert SECRET_KEY not in str(failure.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"kms_keys": "alias/other"}, None),
        ({"kms_keys": f"{new_account(1).address}=alias/payments"}, "signs for .* and not for"),
        ({"kms_keys": "0x12=alias/payments"}, "40 hexadecimal digits"),
    ],
)
async def test_a_key_that_is_not_there_waits_and_one_with_another_address_is_refused_at_the_start(
    more: dict[str, Any], said: str | None
) -> None:
    if said is None:
        async with kms(**more) as (keys, _):
            with pytest.raises(SigningFailed, match="NotFoundException"):
                await keys.addresses()
        return
    with pytest.raises(SettingsError, match=said):
        async with kms(**more):
            pass


async def test_a_kms_key_of_another_kind_is_refused_at_the_start() -> None:
    with pytest.raises(SettingsError, match="ECC_NIST_P256 for SIGN_VERIFY; allowed: ECC_SECG_P256K1"):
        async with kms(KmsDouble(KEY, spec="ECC_NIST_P256")):
            pass


async def test_the_vault_key_of_a_stock_transit_engine_is_refused_at_the_start() -> None:
    with pytest.raises(SettingsError, match="of type ecdsa-p256, and a chain accepts only keys on secp256k1"):
        async with vault(VaultDouble([KEY], kind="ecdsa-p256", head=P256_HEAD)):
            pass


async def test_a_rotated_vault_key_signs_for_the_address_that_the_settings_name() -> None:
    rotated = VaultDouble([KEY, OTHER])
    async with vault(rotated) as (keys, _):
        assert await keys.addresses() == {new_account(1).address.lower()}, "the newest version"
    async with vault(rotated, vault_keys=f"{ACCOUNT.address}=payments") as (keys, _):
        assert await keys.addresses() == {ACCOUNT.address.lower()}
        rotated.keys.append(new_private())
        assert (await keys.sign(ACCOUNT.address.lower(), {**FIELDS, **FEES[0]})).raw


def new_private() -> PrivateKey:
    return PrivateKey(bytes(new_account(2).key))


async def test_a_vault_token_is_read_again_from_its_file_and_is_in_no_error(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("expired\n")
    async with vault(vault_token=None, vault_token_file=file) as (keys, _):
        with pytest.raises(SigningFailed, match=r"HTTP 403\. The token has expired") as failure:
            await keys.addresses()
        assert VAULT_TOKEN not in str(failure.value)
        file.write_text(VAULT_TOKEN + "\n")
        assert await keys.addresses() == {ACCOUNT.address.lower()}
        file.unlink()
        with pytest.raises(SigningFailed, match="NONCES_VAULT_TOKEN_FILE cannot be read"):
            await keys.sign(ACCOUNT.address.lower(), {**FIELDS, **FEES[0]})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda: web.Response(status=429), "HTTP 429. It is asked again"),
        (lambda: web.Response(status=503, text=VAULT_TOKEN), "HTTP 503. Its own log"),
        (lambda: web.Response(text="[]"), "cannot be read"),
        (lambda: web.json_response({"data": {"signature": "vault:v1:AAAA"}}), "no signature in DER"),
        (lambda: web.json_response({"data": {"signature": 7}}), "no signature in DER"),
    ],
)
async def test_whatever_vault_says_instead_the_reason_is_told(answer: Any, said: str) -> None:
    async with vault() as (keys, double):
        await keys.addresses()
        double.instead = [answer]
        with pytest.raises(SigningFailed, match=said) as failure:
            await keys.sign(ACCOUNT.address.lower(), {**FIELDS, **FEES[0]})
        assert VAULT_TOKEN not in str(failure.value)


async def test_a_namespace_and_a_mount_are_named(tmp_path: Path) -> None:
    double = VaultDouble([KEY], mount="eth/keys", namespace="team-a")
    async with vault(double, vault_mount="eth/keys", vault_namespace="team-a") as (keys, _):
        assert await keys.addresses() == {ACCOUNT.address.lower()}


async def test_while_kms_is_away_what_was_signed_is_followed_and_what_was_not_waits(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    away = lambda: web.Response(status=500)  # noqa: E731 - One answer among others.
    async with kms() as (keys, double), opened(database, anvil, account=ACCOUNT, keys=keys) as exchange:
        first = await exchange.pay("pay-1", recipient(1), 5)
        await exchange.turn()
        double.instead = [away]
        second = await exchange.pay("pay-2", recipient(2), 6)
        await exchange.turn()
        assert await exchange.state(second) == ("BOUND", "SIGNING")

        await exchange.turn()
        await exchange.mine_until_confirmed(second)

        assert [(await exchange.state(one))[0] for one in (first, second)] == ["CONFIRMED"] * 2


async def test_a_service_that_does_not_answer_in_time_is_said(tmp_path: Path) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    class Silent(KmsDouble):
        async def serve(self, request: web.Request) -> web.Response:
            begun.set()
            await release.wait()
            return await super().serve(request)

    from fencepost_nonces.sending._aws_signature import AwsCredentials

    async with listening(Silent(KEY)) as url:
        service = AwsKms("eu-central-1", AwsCredentials(ACCESS_KEY, SECRET_KEY), url=url, seconds=0.2)
        with pytest.raises(SigningFailed, match="AWS KMS does not answer GetPublicKey: TimeoutError"):
            await service.public_keys("alias/payments")
        assert begun.is_set()
        release.set()
        await service.close()
