"""Parts of a large state: bytes that are named by their hash. No I/O.

A checkpoint names its parts, and what is read is compared with its name: bytes that were damaged on their way
or on a disk are never taken for state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from fencepost.flows._errors import StateDamaged

PART_BYTES = 8 * 1024 * 1024
INLINE_BYTES_MAX = 16 * 1024 * 1024
"""A state up to this size is stored in the row of its checkpoint."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part with its name."""

    hash: bytes
    content: bytes

    @classmethod
    def of(cls, content: bytes) -> Part:
        return cls(sha256(content).digest(), content)


def cut(state: bytes) -> list[Part]:
    """A state as parts, in order."""
    view = memoryview(state)
    return [Part.of(bytes(view[at : at + PART_BYTES])) for at in range(0, len(state), PART_BYTES)]


def checked(content: bytes | None, digest: bytes) -> bytes:
    """The content of a part. Raises StateDamaged if it is gone or is not what its name says."""
    if content is None:
        raise StateDamaged(
            f"A part of the state is gone: {digest.hex()}. Another worker may hold this task by now; if it "
            "does not, restore a savepoint (fencepost flows restore)."
        )
    if sha256(content).digest() != digest:
        raise StateDamaged(
            f"A part of the state is damaged: its bytes are not those of {digest.hex()}. Restore a savepoint "
            "(fencepost flows restore), and have the disk of the database checked."
        )
    return content


def packed_together(blobs: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The blobs in order, as many in a list as make a part; a larger one is alone."""
    some: list[bytes] = []
    size = 0
    for blob in blobs:
        if some and size + len(blob) > PART_BYTES:
            yield some
            some, size = [], 0
        some.append(blob)
        size += len(blob)
    if some:
        yield some
