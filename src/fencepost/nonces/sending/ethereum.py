"""eth-account, without what importing it does to the whole process.

A package below it raises the recursion limit a hundredfold, for computations that nobody makes here. With
that a deeply nested document in a request does not raise an error any more: it ends the process.
"""

import sys
from collections.abc import Sequence
from typing import cast

_limit = sys.getrecursionlimit()

import rlp  # type: ignore[import-untyped]  # noqa: E402 - It has no types.
from eth_account import Account  # noqa: E402 - The limit is read before.
from eth_account.signers.local import LocalAccount  # noqa: E402
from eth_account.typed_transactions.typed_transaction import TypedTransaction  # noqa: E402

sys.setrecursionlimit(_limit)


def decode_list(raw: bytes) -> Sequence[bytes]:
    """The items of a list in RLP."""
    return cast("Sequence[bytes]", rlp.decode(raw))  # pyright: ignore[reportUnknownMemberType]


__all__ = ["Account", "LocalAccount", "TypedTransaction", "decode_list"]
