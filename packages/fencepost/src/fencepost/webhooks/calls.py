"""The calls of registered webhooks. The functions that return a secret return it once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fencepost.kernel.call import Call, duration, each, nothing, optional_text, scalar, text


@dataclass(frozen=True, slots=True)
class WebhookStatus:
    """What may be shown of a webhook: of its URL only the host, and of its secrets only their number."""

    name: str
    host: str | None
    topics: list[str]
    paused_at: datetime | None
    made_at: datetime
    made_by: str
    secrets: int
    rotation_ends_at: datetime | None
    dead: int


@dataclass(frozen=True, slots=True)
class Deliverable:
    """What a relay needs; without a URL nothing is delivered. Neither the URL nor a secret is in its repr."""

    name: str
    url: str | None = field(repr=False)
    secrets: list[str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A message that a webhook did not get."""

    id: int
    key: str | None
    settled_at: datetime
    attempts: int
    last_error: str | None


def add(name: str, url: str | None, topics: Sequence[str], actor: str) -> Call[str | None]:
    """Register a webhook; answers its secret."""
    return Call(
        "select fencepost.webhook_add(%s::text, %s::text, %s::text[], %s::text)",
        (text("name", name), optional_text("url", url), _topics(topics), text("actor", actor)),
        scalar,
    )


def change(
    name: str, actor: str, *, url: str | None = None, topics: Sequence[str] | None = None
) -> Call[str | None]:
    """Change the URL or the topics; answers the secret of a webhook that had no URL before."""
    return Call(
        "select fencepost.webhook_change(%s::text, %s::text, %s::text[], %s::text)",
        (
            text("name", name),
            optional_text("url", url),
            None if topics is None else _topics(topics),
            text("actor", actor),
        ),
        scalar,
    )


def rotate(name: str, overlap_seconds: float, actor: str) -> Call[str]:
    """A new secret; the old ones sign beside it for the overlap."""
    return Call(
        "select fencepost.webhook_rotate(%s::text, %s::interval, %s::text)",
        (text("name", name), duration("overlap", overlap_seconds), text("actor", actor)),
        scalar,
    )


def pause(name: str, actor: str, *, is_paused: bool = True) -> Call[None]:
    """Pause deliveries to a webhook, or resume them with `is_paused=False`."""
    return Call(
        "select fencepost.webhook_pause(%s::text, %s::boolean, %s::text)",
        (text("name", name), is_paused, text("actor", actor)),
        nothing,
    )


def remove(name: str, actor: str) -> Call[int]:
    """Remove a webhook; answers how many waiting messages ended as dead."""
    return Call(
        "select fencepost.webhook_remove(%s::text, %s::text)",
        (text("name", name), text("actor", actor)),
        scalar,
    )


def redeliver(message_id: int, actor: str) -> Call[int]:
    """Deliver a dead message again; answers the id of the new one."""
    return Call(
        "select fencepost.webhook_redeliver(%s::bigint, %s::text)", (message_id, text("actor", actor)), scalar
    )


def listing() -> Call[list[WebhookStatus]]:
    """Every webhook, by name."""
    return Call(
        "select name, host, topics, paused_at, made_at, made_by, secrets, rotation_ends_at, dead"
        " from fencepost.webhooks order by name",
        (),
        each(WebhookStatus),
    )


def dead_messages(name: str, limit: int) -> Call[list[DeadMessage]]:
    """The newest dead messages of a webhook."""
    return Call(
        "select id, key, settled_at, attempts, left(last_error, 300) from fencepost.outbox_messages"
        " where channel = %s::text and state = 'dead' order by id desc limit %s::integer",
        (text("name", name), limit),
        each(DeadMessage),
    )


def deliverable() -> Call[list[Deliverable]]:
    """Every webhook with the secrets that sign now; a paused one has no URL here."""
    return Call("select name, url, secrets from fencepost.webhook_deliverable()", (), each(Deliverable))


def _topics(topics: Sequence[str]) -> list[Any]:
    return [text("topics", topic) for topic in topics]
