"""What was found wrong in a stream: written down before it is acknowledged."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.kernel.call import Call, document, nothing, text


def poison(stream: str, entry_id: str, reason: str, fields: Mapping[str, str]) -> Call[None]:
    """An entry that names no job, or names it wrongly."""
    clean = {name.replace("\0", ""): value.replace("\0", "") for name, value in fields.items()}
    return Call(
        "select fencepost.stream_poison(%s::text, %s::text, %s::text, %s::jsonb)",
        (
            text("stream", stream),
            text("entry_id", entry_id),
            text("reason", reason),
            document("fields", clean),
        ),
        nothing,
    )
