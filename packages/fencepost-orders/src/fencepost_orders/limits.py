"""Limits of accounts that an order must not pass: the calls that set and read them, and the refusal.

The database decides, in the transaction that accepts the order (`functions/orders_limits.sql`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from fencepost.errors import InvalidInput, Refusal
from fencepost.kernel.call import Call, Json, duration, nothing, optional_text, parsed, text

EVERY_ACCOUNT = "*"
"""Stands for every account of a broker that has no limits of its own."""


class OverLimit(Refusal):
    """The order passes a limit of its account. It was not accepted."""

    reason: ClassVar[str] = "over_limit"

    @classmethod
    def of(cls, key: str, passed: Mapping[str, Json]) -> OverLimit:
        """The refusal with the limit, its maximum, and what the order has."""
        return cls(_said(passed), noun="order", subject=key, seen=passed)


def _said(passed: Mapping[str, Json]) -> str:
    limit, most, got = passed["limit"], passed.get("max"), passed.get("got")
    match limit:
        case "reference_price":
            age = "there is none" if got is None else f"the last one is {float(got):g} s old"
            return (
                f"A limit of this account needs a reference price of {passed['symbol']} that is at most"
                f" {float(str(most)):g} s old, and {age}. Nothing was accepted."
            )
        case "collar":
            return (
                f"The price is {Decimal(str(got)) * 100:.2f} % away from the reference price"
                f" {passed['reference']}; the collar of this account is {Decimal(str(most)) * 100:.2f} %."
                " Nothing was accepted."
            )
        case "qty":
            return "The quantity cannot be read, and this account has limits. Nothing was accepted."
        case _:
            day = f" on {passed['day']}" if "day" in passed else ""
            return (
                f"The order would make {got}{day}; the limit {limit} of this account is {most}."
                " Nothing was accepted."
            )


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """What the orders of an account may have. None does not limit."""

    qty_max: Decimal | None = None
    notional_max: Decimal | None = None
    """Of one order: quantity times limit price, else stop price, else reference price."""
    collar: Decimal | None = None
    """How far a limit or stop price may be from the reference price: `0.05` is five percent."""
    day_orders_max: int | None = None
    day_notional_max: Decimal | None = None
    day_zone: str = "UTC"
    """The time zone of the account's day."""
    price_age_max_seconds: float = 60.0


def set_limits(broker: str, account: str, limits: AccountLimits, actor: str, reason: str) -> Call[None]:
    """Set the limits of an account, or of every account without its own (`*`). Without any limit it has
    none."""
    return Call(
        "select fencepost.orders_limits_set(%s::text, %s::text, %s::numeric, %s::numeric, %s::numeric,"
        " %s::integer, %s::numeric, %s::text, %s::interval, %s::text, %s::text)",
        (
            text("broker", broker),
            text("account", account),
            limits.qty_max,
            limits.notional_max,
            limits.collar,
            limits.day_orders_max,
            limits.day_notional_max,
            text("day_zone", limits.day_zone),
            duration("price_age", limits.price_age_max_seconds),
            text("actor", actor),
            text("reason", reason),
        ),
        nothing,
    )


def set_prices(broker: str, prices: Mapping[str, Decimal], source: str) -> Call[None]:
    """The reference prices of symbols, as the caller's source of prices says them now."""
    if not prices:
        raise InvalidInput("prices: give at least one.", field="prices")
    return Call(
        "select fencepost.orders_price_set(%s::text, %s::text[], %s::numeric[], %s::text)",
        (text("broker", broker), list(prices), list(prices.values()), text("source", source)),
        nothing,
    )


def listing(broker: str | None = None) -> Call[list[dict[str, Json]]]:
    """The limits of each account, with what it has placed today."""
    return Call(
        "select to_jsonb(l)::text from fencepost.orders_limits l"
        " where %s::text is null or l.broker = %s::text order by l.broker, l.account",
        (optional_text("broker", broker), optional_text("broker", broker)),
        lambda rows: [parsed(row[0]) for row in rows],
    )
