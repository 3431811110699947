"""`fencepost orders`: inspect orders, and act on those that need an operator."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, cast
from uuid import uuid4

import typer

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.terminal import JsonOption, answer, answer_json

Status = Literal["queued", "sending", "sent", "failed", "dead", "unknown", "parked"]
Resolution = Literal["sent", "dead", "unknown", "queued"]
OrderId = Annotated[int, typer.Argument(metavar="ID", help="The order's id.")]
ActorOption = Annotated[
    str | None,
    typer.Option(
        "--actor", help="The actor to record in the audit.", show_default="your login and this machine"
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", help="The reason, for the audit.", prompt="Reason")]
AccountOption = Annotated[
    str | None, typer.Option("--account", help="Only this account of the broker.", show_default=False)
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", help="A key that makes the change once.", show_default="a new one"),
]
BrokerArgument = Annotated[str, typer.Argument(metavar="BROKER", help="The broker's name.")]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Inspect orders, and decide on those that need attention.

    \b
    Look:
      fencepost orders list --status parked       orders that need attention
      fencepost orders show 7                     one order, its result and its whole history
      fencepost orders brokers                    throttles, breakers and kill switches

    \b
    Decide:
      fencepost orders resolve 7 sent             the broker has it: you checked
      fencepost orders resend 7                   a new order to replace a dead or parked one
      fencepost orders cancel 7 --at-broker       cancel what the broker has; `replace` changes its terms
      fencepost orders halt acme                  the kill switch; `resume` turns it off
      fencepost orders limit acme main            what the orders of an account may have; `limits` shows it

    Every decision requires a reason and is recorded with your name.
    """,
)


@app.command("list")
def list_orders(
    status: Annotated[
        Status | None, typer.Option("--status", help="In this state.", show_default=False)
    ] = None,
    broker: Annotated[
        str | None, typer.Option("--broker", help="At this broker.", show_default=False)
    ] = None,
    account: AccountOption = None,
    before: Annotated[
        int | None,
        typer.Option("--before", metavar="ID", help="Only entries with a lower id.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number of results.")] = 50,
    json_output: JsonOption = False,
) -> None:
    """List orders, newest first, one page at a time.

    \b
    Examples:
      fencepost orders list --status parked
      fencepost orders list --status dead --json | jq -r '.[].last_error'
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - Loads psycopg, not needed by --help.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_orders import _order_calls as order_calls  # noqa: PLC0415

    with job_commands.looking() as connection:
        call = order_calls.listing(status=status, broker=broker, account=account, before=before, limit=limit)
        found = run(connection, call)
    if json_output:
        answer_json(found)
        return
    answer("\n".join(_line(row) for row in found) or "No orders.")
    if len(found) == limit:
        answer(f"More: --before {found[-1]['id']}")


@app.command()
def show(order_id: OrderId, json_output: JsonOption = False) -> None:
    """Show one order: the request, the broker's answer, and every transition.

    Exits with 4 when there is no such order.
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_orders import _order_calls as order_calls  # noqa: PLC0415

    with job_commands.looking() as connection:
        found = _there(run(connection, order_calls.get(order_id=order_id)), order_id)
        history = run(connection, order_calls.history(order_id))
    if json_output:
        answer_json({**found, "history": history})
        return
    changes = [_change_line(row) for row in found["changes"]]
    told = ["", "Changes at the broker:", *changes] if changes else []
    answer("\n".join([*_facts(found), *told, "", "History:", *(_step(row) for row in history)]))


@app.command()
def resolve(
    order_id: OrderId,
    outcome: Annotated[
        Resolution,
        typer.Argument(help="sent: it is there. dead: it is not. unknown: ask again. queued: send."),
    ],
    reason: ReasonOption,
    expected: Annotated[
        Literal["queued", "failed", "unknown", "parked"],
        typer.Option("--expected", help="The state that you expect; any other is refused."),
    ] = "parked",
    broker_order_id: Annotated[
        str | None, typer.Option("--broker-order-id", help="Its id at the broker.", show_default=False)
    ] = None,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Set the outcome of an order that only a person can find out.

    \b
    Examples:
      fencepost orders resolve 7 sent --broker-order-id 61e69015 --reason "seen in the broker's blotter"
      fencepost orders resolve 7 dead --reason "the broker's desk confirms that it never arrived"
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_orders import operator_calls  # noqa: PLC0415

    who = job_commands.actor_name(actor)
    result = operator_calls.result_by_hand(who, broker_order_id) if outcome == "sent" else None
    with job_commands.acting() as connection:
        run(connection, operator_calls.resolve(order_id, expected, outcome, who, reason, result=result))
    _tell({"id": order_id, "status": outcome}, f"order {order_id}: {outcome}", json_output=json_output)


@app.command()
def resend(
    order_id: OrderId,
    reason: ReasonOption,
    expected: Annotated[
        Literal["dead", "parked"],
        typer.Option("--expected", help="The state that you expect; any other is refused."),
    ] = "dead",
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Send a dead or parked order again: a new order with a new key, linked to the old one.

    A parked order may be live at the broker. Look there first: this places another one. With --json the
    output has the new order's id as `resent_as`.
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_orders import _order_calls as order_calls  # noqa: PLC0415
    from fencepost_orders import operator_calls  # noqa: PLC0415
    from fencepost_orders._settings import OrdersSettings  # noqa: PLC0415

    key_of = OrdersSettings.load().key_of()
    with job_commands.acting() as connection:
        old = _there(run(connection, order_calls.get(order_id=order_id)), order_id)
        call = operator_calls.resend_of(old, expected, key_of, job_commands.actor_name(actor), reason)
        new_id = run(connection, call)
    told = {"id": order_id, "resent_as": new_id}
    _tell(told, f"order {order_id}: resent as {new_id}", json_output=json_output)


@app.command()
def cancel(
    order_id: OrderId,
    reason: ReasonOption,
    at_broker: Annotated[
        bool, typer.Option("--at-broker", help="Also at the broker, if it was sent; `show` has the outcome.")
    ] = False,
    key: KeyOption = None,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Cancel an order that has not been sent; with --at-broker also one that the broker has."""
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_orders import _change_source as change_source  # noqa: PLC0415
    from fencepost_orders import operator_calls  # noqa: PLC0415

    who, said = job_commands.actor_name(actor), "dead"
    with job_commands.acting() as connection:
        if at_broker:
            said = run(connection, change_source.cancel(order_id, key or _new_key(), who, reason))
        else:
            run(connection, operator_calls.cancel(order_id, who, reason))
    if said == "dead":
        _tell({"id": order_id, "status": "dead"}, f"order {order_id}: cancelled", json_output=json_output)
    else:
        line = f"order {order_id}: the broker is asked to cancel it; `orders show {order_id}` has the outcome"
        _tell({"id": order_id, "change": said}, line, json_output=json_output)


@app.command()
def replace(
    order_id: OrderId,
    reason: ReasonOption,
    qty: Annotated[str | None, typer.Option(help="The new quantity.", show_default=False)] = None,
    limit_price: Annotated[str | None, typer.Option(help="The new limit price.", show_default=False)] = None,
    stop_price: Annotated[str | None, typer.Option(help="The new stop price.", show_default=False)] = None,
    time_in_force: Annotated[
        str | None, typer.Option(help="The new time in force.", show_default=False)
    ] = None,
    key: KeyOption = None,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Replace an order at the broker by one with other terms; `show` has the outcome.

    \b
    Example:
      fencepost orders replace 7 --limit-price 144.5 --reason "cheaper"
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_orders import _change_source as change_source  # noqa: PLC0415
    from fencepost_orders import _order_calls as order_calls  # noqa: PLC0415
    from fencepost_orders.request import OrderRequest  # noqa: PLC0415

    given = {"qty": qty, "limit_price": limit_price, "stop_price": stop_price, "time_in_force": time_in_force}
    wanted = {name: value for name, value in given.items() if value is not None}
    with job_commands.acting() as connection:
        old = _there(run(connection, order_calls.get(order_id=order_id)), order_id)
        terms = OrderRequest.of({**(old["terms"] or old["request_json"]), **wanted}).document()
        changes = {name: terms[name] for name in wanted}
        who = job_commands.actor_name(actor)
        call = change_source.replace_order(order_id, key or _new_key(), changes, who, reason)
        made = run(connection, call)
    line = f"order {order_id}: the broker is asked to replace it; `orders show {order_id}` has the outcome"
    _tell({"id": order_id, "change_id": made.change_id}, line, json_output=json_output)


def _new_key() -> str:
    return f"cli-{uuid4()}"


@app.command()
def brokers(json_output: JsonOption = False) -> None:
    """Show the throttle, breaker and kill switches of every broker."""
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_orders import operator_calls  # noqa: PLC0415

    with job_commands.looking() as connection:
        found = run(connection, operator_calls.brokers())
    if json_output:
        answer_json(found)
    else:
        answer("\n".join(_broker_line(row) for row in found) or "No brokers.")


@app.command()
def halt(
    broker: BrokerArgument,
    reason: ReasonOption,
    account: AccountOption = None,
    cancel_open: Annotated[
        bool, typer.Option("--cancel-open", help="Also cancel what has not ended, at the broker too.")
    ] = False,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Turn the kill switch on: nothing more is sent. A request in flight cannot be called back.

    Exits with 4 when there is no such broker, or no order for such an account.
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_orders import _change_source as change_source  # noqa: PLC0415
    from fencepost_orders import operator_calls  # noqa: PLC0415

    who = job_commands.actor_name(actor)
    with job_commands.acting() as connection, _not_found():
        run(connection, operator_calls.halt(broker, account, who, reason))
        call = change_source.cancel_open(broker, account, _new_key(), who, reason)
        done = run(connection, call) if cancel_open else None
    facts: dict[str, Any] = {"broker": broker, "account": account, "halted": True}
    line = f"{broker} {account}: halted" if account else f"{broker}: halted"
    if done is not None:
        facts["cancelled"] = asdict(done)
        line += f"; {done.dead} cancelled here, {done.requested} asked for at the broker"
        line += f", {done.left_open} left: its adapter cannot cancel" if done.left_open else ""
    _tell(facts, line, json_output=json_output)


@app.command()
def resume(
    broker: BrokerArgument,
    reason: ReasonOption,
    account: AccountOption = None,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Turn the kill switch off: waiting orders are sent, except expired ones.

    It also lifts a pause that the broker asked for (Retry-After) and closes the breaker. Exits with 4 when
    there is no such broker, or no order for such an account.
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_orders import operator_calls  # noqa: PLC0415

    with job_commands.acting() as connection, _not_found():
        run(connection, operator_calls.resume(broker, account, job_commands.actor_name(actor), reason))
    facts = {"broker": broker, "account": account, "halted": False}
    _tell(facts, f"{broker} {account}: resumed" if account else f"{broker}: resumed", json_output=json_output)


@app.command()
def limits(
    broker: Annotated[str | None, typer.Argument(metavar="BROKER", show_default=False)] = None,
    json_output: JsonOption = False,
) -> None:
    """Show the limits of accounts, and what each has placed today."""
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_orders import limits as account_limits  # noqa: PLC0415

    with job_commands.looking() as connection:
        found = run(connection, account_limits.listing(broker))
    if json_output:
        answer_json(found)
    else:
        answer("\n".join(_limit_line(row) for row in found) or "No limits.")


@app.command()
def limit(
    broker: BrokerArgument,
    account: Annotated[str, typer.Argument(metavar="ACCOUNT", help="The account; * for all without limits.")],
    reason: ReasonOption,
    qty_max: Annotated[str | None, typer.Option(help="Largest quantity of an order.")] = None,
    notional_max: Annotated[str | None, typer.Option(help="Largest quantity times price.")] = None,
    collar: Annotated[
        str | None, typer.Option(help="Largest distance from the reference price: 0.05 is 5 %.")
    ] = None,
    day_orders_max: Annotated[int | None, typer.Option(min=1, help="Orders a day.")] = None,
    day_notional_max: Annotated[str | None, typer.Option(help="Quantity times price a day.")] = None,
    day_zone: Annotated[str, typer.Option(help="The time zone of the account's day.")] = "UTC",
    price_age_max: Annotated[
        float, typer.Option(min=0.001, help="How old a reference price may be, in seconds.")
    ] = 60.0,
    actor: ActorOption = None,
    json_output: JsonOption = False,
) -> None:
    """Set the limits of an account: those that are not named do not apply. Without any it has none.

    \b
    Example:
      fencepost orders limit acme main --qty-max 500 --day-notional-max 1000000 --reason "desk rules"
    """
    from fencepost.cli import job_commands  # noqa: PLC0415 - As above.
    from fencepost.kernel.drivers import run  # noqa: PLC0415
    from fencepost_orders import limits as account_limits  # noqa: PLC0415

    amounts = {"qty_max": qty_max, "notional_max": notional_max, "collar": collar}
    amounts["day_notional_max"] = day_notional_max
    wanted = account_limits.AccountLimits(
        **{name: _amount(name, value) for name, value in amounts.items()},
        day_orders_max=day_orders_max,
        day_zone=day_zone,
        price_age_max_seconds=price_age_max,
    )
    who = job_commands.actor_name(actor)
    with job_commands.acting() as connection, _not_found():
        run(connection, account_limits.set_limits(broker, account, wanted, who, reason))
        found = run(connection, account_limits.listing(broker))
    mine = [row for row in found if row["account"] == account]
    line = "".join(_limit_line(row) for row in mine) or f"{broker} {account}: no limits"
    _tell(mine[0] if mine else {"broker": broker, "account": account}, line, json_output=json_output)


def _amount(name: str, value: str | None) -> Decimal | None:
    try:
        number = None if value is None else Decimal(value)
    except InvalidOperation:
        number = Decimal(0)
    if number is not None and not (number.is_finite() and number > 0):
        raise UserError(f"--{name.replace('_', '-')} must be a number above 0, such as 500 or 0.05.")
    return number


@contextmanager
def _not_found() -> Generator[None]:
    """Turns NotFound into an error that lists the known names, with exit code 4."""
    from fencepost.errors import NotFound  # noqa: PLC0415 - As above.

    try:
        yield
    except NotFound as error:
        known = ", ".join(error.seen.get("known", ())) or "none"
        raise UserError(
            f"Unknown {error.noun} '{error.subject}'. Known: {known}.", ExitCode.NOT_FOUND
        ) from error


def _tell(facts: dict[str, Any], line: str, *, json_output: bool) -> None:
    if json_output:
        answer_json(facts)
    else:
        answer(line)


def _there(found: dict[str, Any] | None, order_id: int) -> dict[str, Any]:
    if found is None:
        raise UserError(f"There is no order {order_id}.", ExitCode.NOT_FOUND)
    return found


def _line(row: dict[str, Any]) -> str:
    wanted = cast("dict[str, Any]", row["request_json"])
    price = f" @ {wanted['limit_price']}" if "limit_price" in wanted else ""
    price += f" stop {wanted['stop_price']}" if "stop_price" in wanted else ""
    said = f"  {row['last_error']}" if row["last_error"] else ""
    return (
        f"{row['id']:>8}  {row['status']:<8} {row['broker']}/{row['account']}  "
        f"{wanted['intent']} {wanted['qty']} {row['symbol']}{price}  {row['idempotency_key']}{said}"
    )


_SHOWN = (
    *("id", "status", "last_error", "idempotency_key", "broker", "account", "broker_order_id", "trace_id"),
    *("created_at", "updated_at", "expires_at", "next_attempt_at", "retry_count", "requests", "asks"),
    "open_since",
    *("resend_of", "resent_as", "last_answer", "request_json", "terms", "result"),
)


def _facts(found: dict[str, Any]) -> list[str]:
    return [f"{name + ':':<17} {found[name]}" for name in _SHOWN if found.get(name) is not None]


def _change_line(row: dict[str, Any]) -> str:
    changes = cast("dict[str, Any]", row["changes"] or {})
    terms = " ".join(f"{name} {value}" for name, value in changes.items())
    said = " ".join(str(row[name]) for name in ("last_error", "detail") if row[name])
    who = f"by {row['actor']}: {row['reason']}"
    return f"  {row['created_at']}  {row['kind']} {terms} {row['state']}  {said}  {who}"


def _step(row: dict[str, Any]) -> str:
    said = " ".join(str(row[name]) for name in ("last_error", "detail") if row[name])
    who = f"  by {row['actor']}" if row["actor"] else ""
    return f"  {row['at']}  {row['status_from'] or '-'} -> {row['status_to']}  {said}{who}"


def _limit_line(row: dict[str, Any]) -> str:
    named = ("qty_max", "notional_max", "collar", "day_orders_max", "day_notional_max")
    held = "  ".join(f"{name} {row[name]}" for name in named if row[name] is not None)
    today = "".join(
        f"  today {one['account']}: {one['orders']} orders, {one['notional']}" for one in row["today"]
    )
    return f"{row['broker']}/{row['account']}  {held}  day {row['day_zone']}{today}  by {row['set_by']}"


def _broker_line(row: dict[str, Any]) -> str:
    halted = f"  HALTED by {row['halted_by']}: {row['halted_reason']}" if row["halted_at"] else ""
    accounts = "".join(f"  {one['account']} halted: {one['reason']}" for one in row["halted_accounts"])
    return (
        f"{row['broker']}  {row['rate']:g} of {row['rate_max']:g}/s  breaker {row['breaker']}"
        f" ({row['failures']} of {row['failures_max']} failures)"
        f"{_pauses(row)}{halted}{_probed(row)}{accounts}"
    )


def _pauses(row: dict[str, Any]) -> str:
    sending = f"  sending paused until {row['paused_until']} (Retry-After)" if row["paused_until"] else ""
    asking = row["ask_paused_until"]
    return sending + (f"  questions paused until {asking} (Retry-After)" if asking else "")


def _probed(row: dict[str, Any]) -> str:
    """Whether a broker that was halted by its own answer answers lookups again."""
    if not row["halted_code"] or not row["can_ask"]:
        return ""
    since = row["answered_at"]
    return f"  answers questions since {since}: resume it" if since else "  has not answered a query since"
