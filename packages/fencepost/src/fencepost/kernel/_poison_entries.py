"""Invalid stream entries: recorded before they are acknowledged."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.kernel.call import Call, document, nothing, text


def poison(stream: str, entry_id: str, reason: str, fields: Mapping[str, str]) -> Call[None]:
    """Record an entry that names no job, or an invalid one."""
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
