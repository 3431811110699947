"""The calls of the coupons' functions: values, without I/O."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from fencepost.kernel.call import Call, nothing, text


def issue(code: str) -> Call[None]:
    return Call("select fencepost.coupon_issue(%s::text)", (text("code", code),), nothing)


def redeem(code: str, customer: str) -> Call[datetime]:
    """Raises NotFound, or AlreadyFinished with the row that was seen."""

    def moment(rows: Sequence[Sequence[Any]]) -> datetime:
        redeemed_at: datetime = rows[0][0]
        return redeemed_at

    return Call(
        "select fencepost.coupon_redeem(%s::text, %s::text)",
        (text("code", code), text("customer", customer)),
        moment,
    )
