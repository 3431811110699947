"""The settings of a node, and what is said of wrong ones."""

import pytest

from fencepost.errors import SettingsError
from fencepost_nonces._settings import NoncesSettings


def test_the_chains_are_read_with_their_endpoints() -> None:
    settings = NoncesSettings.load({"NONCES_CHAINS": "1=https://a|https://b; 31337=http://localhost:8545"})

    assert settings.endpoints == {1: ("https://a", "https://b"), 31337: ("http://localhost:8545",)}


@pytest.mark.parametrize(
    "wrong", ["1", "x=http://a", "0=http://a", "1=ftp://a", "1=http://a;1=http://b", "1="]
)
def test_chains_that_cannot_be_read_are_refused(wrong: str) -> None:
    with pytest.raises(SettingsError, match="NONCES_CHAINS"):
        NoncesSettings.load({"NONCES_CHAINS": wrong})


def test_forwarding_needs_the_nodes_own_address() -> None:
    with pytest.raises(SettingsError, match="NONCES_NODE_ADDRESS"):
        NoncesSettings.load({"NONCES_ROUTING": "forward"})


def test_forwarding_is_for_queue_mode_alone() -> None:
    """In basic mode no node is the wrong one: it would be accepted and do nothing."""
    forward = {"NONCES_ROUTING": "forward", "NONCES_NODE_ADDRESS": "http://a:1"}
    with pytest.raises(SettingsError, match="NONCES_MODE"):
        NoncesSettings.load(forward)
    assert NoncesSettings.load({**forward, "NONCES_MODE": "queue"}).routing == "forward"


def test_an_address_that_cannot_be_reached_is_refused() -> None:
    with pytest.raises(SettingsError, match="NONCES_NODE_ADDRESS"):
        NoncesSettings.load({"NONCES_NODE_ADDRESS": "node-1:8080"})


def test_secrets_are_not_shown() -> None:
    settings = NoncesSettings.load(
        {"NONCES_KEYSTORE_PASSWORD": "hunter2hunter2", "NONCES_CHAINS": "1=https://u:hunter2hunter2@a"}
    )

    assert "hunter2hunter2" not in repr(settings)


def test_a_lease_is_renewed_at_a_third_of_it() -> None:
    assert NoncesSettings.load({"NONCES_LEASE_SEC": "30"}).renew_seconds == 10
