"""Nothing listens beyond loopback unasked."""

import pytest

from fencepost.errors import SettingsError
from fencepost_server.web.settings import WebSettings


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_token(address: str) -> None:
    assert WebSettings.load({"HTTP_ADDRESS": address}).is_loopback


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.7", "shop.example"])  # noqa: S104
def test_elsewhere_needs_one(address: str) -> None:
    with pytest.raises(SettingsError, match="there is no HTTP_TOKEN"):
        WebSettings.load({"HTTP_ADDRESS": address})
    assert WebSettings.load({"HTTP_ADDRESS": address, "HTTP_TOKEN": "0123456789abcdef"}).token


def test_a_short_token_is_refused_and_not_shown() -> None:
    with pytest.raises(SettingsError, match="HTTP_TOKEN") as caught:
        WebSettings.load({"HTTP_TOKEN": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert "0123456789abcdef" not in repr(WebSettings(token="0123456789abcdef"))


def test_an_address_that_is_no_text_is_refused_like_any_other() -> None:
    """What the environment holds may be bytes that no text has."""
    with pytest.raises(SettingsError, match="HTTP_ADDRESS"):
        WebSettings.load({"HTTP_ADDRESS": "\udcff"})
