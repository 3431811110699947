"""Loads eth-account when it is needed, without its side effect on the process.

It takes longer to load than all of Fencepost, and a process that signs nothing does not need it. One of its
dependencies raises the recursion limit a hundredfold, for computations that are not used here. With that
limit a deeply nested document in a request no longer raises an error: it crashes the process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from eth_account import Account
    from eth_account.typed_transactions.typed_transaction import TypedTransaction

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
