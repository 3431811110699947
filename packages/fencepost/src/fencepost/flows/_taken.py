"""What key groups of before had taken of a sender, where their number was changed. No I/O.

Each group of before committed alone, so each had read the sender up to a place of its own. A new group has
keys of several of them. It begins at the lowest place, and passes over the records of a key up to the place
that the key's group of before had committed.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.flows._record import Offset, Record, is_after, order, under
from fencepost.flows._value_codec import flat


def group_of(key: Any, groups: int) -> int:
    """The key group of a key. Stable across processes and releases, which Python's own hash is not."""
    return zlib.crc32(key.encode() if isinstance(key, str) else flat(key)) % groups


@dataclass(frozen=True, slots=True)
class Taken:
    """For each group of before: the last offset, and the floor if the sender was silent there."""

    at: Sequence[Offset | None]
    floors: Sequence[float | None]

    def left(self, records: Sequence[Record], offsets: Sequence[Offset], clock: str | None) -> list[Record]:
        """The records that the groups of before had not taken."""
        groups, found = len(self.at), list[Record]()
        for record in records:
            offset = offsets[record[3]]
            group = group_of(record[1] if record[1] is not None else str(offset), groups)
            if is_after(offset, self.at[group]):
                floor = self.floors[group]
                found.append(record if floor is None or clock is None else under(record, floor, clock))
        return found

    def is_passed(self, at: Offset | None, watermark: float | None) -> bool:
        """Whether no record can come that a group of before had taken, or that lies below its floor."""
        places = [order(place) for place in self.at if place is not None]
        floors = [floor for floor in self.floors if floor is not None]
        is_behind = not places or (at is not None and order(at) >= max(places))
        return is_behind and (not floors or (watermark is not None and watermark >= max(floors)))

    def as_json(self) -> dict[str, Any]:
        return {"at": list(self.at), "floors": list(self.floors)}
