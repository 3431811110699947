"""Which addresses a registered webhook may be delivered to.

A webhook is registered over the network, so its address must not lead to what only this machine may reach:
its own services, and the metadata service of a cloud, which hands out credentials. Private networks are
allowed: receivers often are there.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from fencepost.errors import InvalidInput
from fencepost.http_client import peer_refusal
from fencepost.settings import is_http_url


def checked_url(url: str, *, loopback: bool = False) -> str:
    """The URL, if webhooks may be registered with it; raises InvalidInput. A name is checked again at each
    connection."""
    if not is_http_url(url) or any(letter.isspace() for letter in url):
        raise InvalidInput("url must be an http or https URL.", field="url")
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        refused = peer_refusal(host, host, "any" if loopback else "never") is not None
    except ValueError:
        refused = not loopback and (host == "localhost" or host.endswith(".localhost"))
    if refused:
        raise InvalidInput(
            "url names an address that webhooks must not reach: this machine's own, a link-local one or a"
            " metadata service. OUTBOX_WEBHOOK_LOOPBACK=on allows this machine's own.",
            field="url",
        )
    return url
