"""Hides what must never be shown: passwords in URLs, and values whose names suggest a secret.

Fencing tokens are integers and not secret; readers of a log look for them. So a number under the name
`token` stays, and a text is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"passw(or)?d|passphrase|secret|api_?key|private_?key|credential|authorization", re.IGNORECASE
)
_TOKEN_NAME = re.compile(r"token", re.IGNORECASE)

# Greedy up to the last @ of the word: a password may hold a bare @ or /, and hiding too much is safe.
_URL_PASSWORD = re.compile(r"(://[^/\s:@\"'<>]*:)[^\s\"'<>]*@")
_NAMED_SECRET = re.compile(
    r"((?:passw(?:or)?d|secret|api_?key)[\"']?\s*[=:]\s*|token[\"']?\s*[=:]\s*(?!\d+\b))[\"']?[^\s&\"',;)}\]]+",
    re.IGNORECASE,
)

_DEPTH_MAX = 8


def redact_text(text: str) -> str:
    """The text with passwords of URLs and `password=…` pairs hidden; everything else as it was."""
    if "://" in text:
        text = _URL_PASSWORD.sub(rf"\g<1>{HIDDEN}@", text)
    return _NAMED_SECRET.sub(rf"\g<1>{HIDDEN}", text)


def redact_words(text: str, secrets: Iterable[str | None]) -> str:
    """The text without these secrets: a server that was sent a secret may repeat it, under any name."""
    # The longest first: one secret may be a part of another.
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def redact_url(url: str) -> str:
    """One URL without its password, or nothing of it if it cannot be parsed as a URL.

    A malformed URL may show its password where a port or a host is expected, so it is hidden whole.
    """
    try:
        hosts = [urlsplit(one) for one in each_host(url)]
        place = ",".join(map(_place, hosts))
    except ValueError:
        return HIDDEN
    parts = hosts[0]
    if not parts.scheme or not (parts.hostname or parts.path.startswith("/") or parts.query):
        return HIDDEN
    if parts.password is not None:
        place = f"{parts.username or ''}:{HIDDEN}@{place}"
    elif parts.username is not None:
        place = f"{parts.username}@{place}"
    options = [(name, redact_named(name, value)) for name, value in parse_qsl(parts.query)]
    query = f"?{urlencode(options, safe='*/', errors='replace')}" if options else ""
    return f"{parts.scheme}://{place}{parts.path}{query}"


def _place(parts: SplitResult) -> str:
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname or ""
    return host if parts.port is None else f"{host}:{parts.port}"


def each_host(url: str) -> list[str]:
    """The URL once for each of the hosts that it names, separated by commas."""
    scheme, separator, rest = url.partition("://")
    end = min((rest.find(mark) for mark in "/?#" if mark in rest), default=len(rest))
    login, at, hosts = rest[:end].rpartition("@")
    return [f"{scheme}{separator}{login}{at}{host}{rest[end:]}" for host in hosts.split(",")]


def redact_named(name: str, value: Any) -> Any:
    """The value as it may be shown under this name, through dictionaries, lists and tuples."""
    return _redacted(name, value, _DEPTH_MAX)


def _redacted(name: str, value: Any, depth: int) -> Any:
    if isinstance(value, str | bytes) and value and _speaks_of_a_secret(name, value):
        return HIDDEN
    if isinstance(value, str):
        return redact_text(value)
    if depth and _is_mapping(value):
        return {key: _redacted(str(key), inner, depth - 1) for key, inner in value.items()}
    if depth and _is_sequence(value):
        return [_redacted(name, inner, depth - 1) for inner in value]
    return value


def _is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def _is_sequence(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    return isinstance(value, list | tuple)


def _speaks_of_a_secret(name: str, value: str | bytes) -> bool:
    if _SECRET_NAME.search(name):
        return True
    return bool(_TOKEN_NAME.search(name)) and not value.isdigit()
