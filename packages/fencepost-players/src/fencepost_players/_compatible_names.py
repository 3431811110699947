"""Names that game servers used, for the scripts of their operators."""

from __future__ import annotations

from fencepost.compatible_names import CompatibleNames

NAMES = CompatibleNames(
    views={
        "players": ("user_id", "data_version"),
        "player_mutation_idempotency": ("user_id", "request_id", "created_at"),
    },
)
