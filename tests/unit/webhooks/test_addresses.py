"""Where a registered webhook may lead."""

import pytest

from fencepost.errors import InvalidInput
from fencepost.http_client import peer_refusal
from fencepost.webhooks.addresses import checked_url

FORBIDDEN = [
    "127.0.0.1",
    "127.8.9.1",
    "::1",
    "0.0.0.0",  # noqa: S104 - Not bound to.
    "::",
    "169.254.169.254",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "100.100.100.200",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "2002:7f00:1::",
    "64:ff9b::a9fe:a9fe",
    "224.0.0.1",
    "ff02::1",
    "255.255.255.255",
]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_this_machine_and_metadata_services_are_not_reached(address: str) -> None:
    assert peer_refusal("a", address, "never") is not None


@pytest.mark.parametrize(
    "address", ["10.0.0.7", "192.168.1.1", "93.184.216.34", "2606:4700::1111", "fd12::1"]
)
def test_other_machines_are(address: str) -> None:
    assert peer_refusal("a", address, "never") is None


def test_loopback_only_where_it_is_allowed() -> None:
    assert peer_refusal("a", "127.0.0.1") is None
    assert peer_refusal("a", "::ffff:127.0.0.1") is None
    assert peer_refusal("a", "169.254.169.254") is not None


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a/in",
        "https://",
        "https://a b/",
        "//a/in",
        "http://localhost/in",
        "http://LOCALHOST.:80/",
        "http://x.localhost/",
        "http://127.0.0.1:8642/console",
        "http://[::1]/",
        "http://169.254.169.254/latest/meta-data",
    ],
)
def test_a_url_that_cannot_be_registered(url: str) -> None:
    with pytest.raises(InvalidInput, match="url"):
        checked_url(url)


def test_a_url_that_can() -> None:
    for url in ("https://audit.internal/in?key=1", "http://10.0.0.7:8080/"):
        assert checked_url(url) == url
    assert checked_url("http://127.0.0.1:1/", loopback=True) == "http://127.0.0.1:1/"
