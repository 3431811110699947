"""eth-account, loaded when it is needed, without what importing it does to the whole process.

It takes longer to load than all of ours, and who signs nothing here does without it. A package below it
raises the recursion limit a hundredfold, for computations that nobody makes here. With that a deeply nested
document in a request does not raise an error any more: it ends the process.
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
    """Puts the recursion limit back."""

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
