"""Opens the key store that the settings name."""

from __future__ import annotations

import asyncio

from fencepost.errors import SettingsError
from fencepost.logs import get_logger
from fencepost_nonces._errors import SigningFailed
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.sending._aws_signature import AwsCredentials
from fencepost_nonces.sending._keys import Keys, Keystore, NoKeys, RemoteSigner

_log = get_logger(__name__)


async def keys_of(settings: NoncesSettings) -> Keys:
    """The keys that the settings name: a remote signer, a key service, the keystore, or none."""
    if settings.remote_signer is not None:
        return RemoteSigner(settings.remote_signer)
    if settings.kms_keys.strip() or settings.vault_keys.strip():
        return await _hosted(settings)
    if settings.keystore is None:
        return NoKeys()
    if settings.keystore_password is None:
        raise SettingsError("NONCES_KEYSTORE is set and NONCES_KEYSTORE_PASSWORD is not.")
    # Key derivation is slow on purpose: not on the event loop.
    return await asyncio.to_thread(Keystore.read, settings.keystore, settings.keystore_password)


async def _hosted(settings: NoncesSettings) -> Keys:
    """A key of another kind, or with another address than the settings say, is refused at the start. A
    service that is away at the start is asked again."""
    # Slow to load, and most processes have no such key.
    from fencepost_nonces.sending._hosted_keys import HostedKeys, named_keys  # noqa: PLC0415
    from fencepost_nonces.sending._kms import AwsKms  # noqa: PLC0415
    from fencepost_nonces.sending._vault import VaultTransit  # noqa: PLC0415

    if settings.kms_keys.strip():
        assert settings.kms_region
        credentials = AwsCredentials(
            settings.kms_access_key_id or "", settings.kms_secret_access_key or "", settings.kms_session_token
        )
        kms = AwsKms(settings.kms_region, credentials, url=settings.kms_url)
        keys = HostedKeys(kms, named_keys(kms.setting, settings.kms_keys))
    else:
        vault = VaultTransit(
            settings.vault_url or "",
            mount=settings.vault_mount,
            token=settings.vault_token,
            token_file=settings.vault_token_file,
            namespace=settings.vault_namespace,
        )
        keys = HostedKeys(vault, named_keys(vault.setting, settings.vault_keys))
    try:
        await keys.addresses()
    except SigningFailed as error:
        _log.warning("keys_not_read", error=str(error))
    except SettingsError:
        await keys.close()
        raise
    return keys
