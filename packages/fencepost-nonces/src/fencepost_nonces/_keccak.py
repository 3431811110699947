"""Keccak-256 as Ethereum uses it: its padding differs from that of SHA3-256, which Python's hashlib has.

Only for checksums of addresses, so that reserving nonces needs no package beside the kernel's. The signing
library does its own hashing.
"""

from __future__ import annotations

_LANES = 25
_RATE_BYTES = 136
_MASK = (1 << 64) - 1
_ROUNDS = (
    0x0000000000000001, 0x0000000000008082, 0x800000000000808A, 0x8000000080008000, 0x000000000000808B,
    0x0000000080000001, 0x8000000080008081, 0x8000000000008009, 0x000000000000008A, 0x0000000000000088,
    0x0000000080008009, 0x000000008000000A, 0x000000008000808B, 0x800000000000008B, 0x8000000000008089,
    0x8000000000008003, 0x8000000000008002, 0x8000000000000080, 0x000000000000800A, 0x800000008000000A,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
)  # fmt: skip
_ROTATIONS = (0, 1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14)


def keccak256(message: bytes) -> bytes:
    state = [0] * _LANES
    padded = message + b"\x01" + b"\x00" * (-(len(message) + 1) % _RATE_BYTES)
    padded = padded[:-1] + bytes([padded[-1] | 0x80])
    for start in range(0, len(padded), _RATE_BYTES):
        for lane in range(_RATE_BYTES // 8):
            offset = start + 8 * lane
            state[lane] ^= int.from_bytes(padded[offset : offset + 8], "little")
        state = _permute(state)
    return b"".join(lane.to_bytes(8, "little") for lane in state[:4])


def _permute(lanes: list[int]) -> list[int]:
    for constant in _ROUNDS:
        parity = [lanes[x] ^ lanes[x + 5] ^ lanes[x + 10] ^ lanes[x + 15] ^ lanes[x + 20] for x in range(5)]
        mixed = [parity[(x + 4) % 5] ^ _rotate(parity[(x + 1) % 5], 1) for x in range(5)]
        moved = [0] * _LANES
        for place, lane in enumerate(lanes):
            x, y = place % 5, place // 5
            moved[y + 5 * ((2 * x + 3 * y) % 5)] = _rotate(lane ^ mixed[x], _ROTATIONS[place])
        lanes = [
            moved[place] ^ (~moved[_beside(place, 1)] & _MASK & moved[_beside(place, 2)])
            for place in range(_LANES)
        ]
        lanes[0] ^= constant
    return lanes


def _beside(place: int, steps: int) -> int:
    """The index of the lane that is `steps` further in the same row."""
    return place // 5 * 5 + (place % 5 + steps) % 5


def _rotate(lane: int, bits: int) -> int:
    return ((lane << bits) | (lane >> (64 - bits))) & _MASK
