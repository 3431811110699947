"""Loads eth-account when it is needed, without its side effect on the process.

It takes longer to load than all of Fencepost, and a process that signs nothing does not need it. One of its
dependencies raises the recursion limit a hundredfold, for computations that are not used here. With that
limit a deeply nested document in a request no longer raises an error: it crashes the process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from eth_account import Account
    from eth_account.typed_transactions.typed_transaction import TypedTransaction

Fields = Mapping[str, Any]
# EIP-155: v carries the chain, and EIP-2718: a typed transaction has the parity alone.
V_OF_CHAIN = 35
P = ParamSpec("P")
T = TypeVar("T")


def _harmless(load: Callable[P, T]) -> Callable[P, T]:
    """Restores the recursion limit after loading."""

    @wraps(load)
    def loaded(*args: P.args, **kwargs: P.kwargs) -> T:
        limit = sys.getrecursionlimit()
        try:
            return load(*args, **kwargs)
        finally:
            sys.setrecursionlimit(limit)

    return loaded


@_harmless
def accounts() -> type[Account]:
    from eth_account import Account  # noqa: PLC0415 - See above.

    return Account


@_harmless
def typed_transactions() -> type[TypedTransaction]:
    from eth_account.typed_transactions.typed_transaction import TypedTransaction  # noqa: PLC0415 - See above.

    return TypedTransaction


@_harmless
def decode_list(raw: bytes) -> Sequence[bytes]:
    """The items of a list in RLP."""
    import rlp  # type: ignore[import-untyped]  # noqa: PLC0415 - It has no types, and see above.

    return cast("Sequence[bytes]", rlp.decode(raw))  # pyright: ignore[reportUnknownMemberType]


@_harmless
def signing_digest(fields: Fields) -> bytes:
    """What is signed of a transaction."""
    from eth_account._utils.legacy_transactions import (  # noqa: PLC0415 - See above.
        serializable_unsigned_transaction_from_dict,
    )

    return bytes(serializable_unsigned_transaction_from_dict(cast("Any", dict(fields))).hash())


@_harmless
def encoded(fields: Fields, parity: int, r: int, s: int) -> bytes:
    """The bytes of a transaction with its signature."""
    from eth_account._utils.legacy_transactions import (  # noqa: PLC0415 - See above.
        encode_transaction,
        serializable_unsigned_transaction_from_dict,
    )

    unsigned = serializable_unsigned_transaction_from_dict(cast("Any", dict(fields)))
    v = parity if "type" in fields else 2 * int(fields["chainId"]) + V_OF_CHAIN + parity
    return bytes(encode_transaction(unsigned, vrs=(v, r, s)))
