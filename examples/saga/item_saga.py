"""A saga over the services: reserve an item, buy its cover at a broker, pay its maker on a chain, and give it
to the player. If anything fails, what was done is undone, once, newest first.

    create table stock (item text primary key, left_over int not null check (left_over >= 0));
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from fencepost import Fencepost, Job, PermanentError, Snooze, Transaction, Workflow, WorkflowHandler, digest
from fencepost.kernel import outbox
from fencepost.kernel.outbox import Settlement
from fencepost_orders.request import OrderRequest
from fencepost_orders.service import Orders
from fencepost_players.mutations.errors import NoSuchThing
from fencepost_players.requests import GrantItems, ItemGrant
from fencepost_players.service import Players

PAYMENTS = "payments"
SUBMIT = """select transaction_id from fencepost.nonce_tx_submit(
    %s, %s, %s, %s, %s, %s, '', 21000, %s)"""


@dataclass(frozen=True)
class Terms:
    """Where the cover is bought, and who is paid from which signer."""

    broker: str
    symbol: str
    chain_id: int
    signer: str
    maker: str
    wei: int


async def reserve(tx: Transaction, item: str) -> None:
    cursor = await tx.execute(
        "update stock set left_over = left_over - 1 where item = %s and left_over > 0", (item,)
    )
    if cursor.rowcount == 0:
        raise PermanentError(f"{item} is sold out")


def declare(
    fp: Fencepost, orders: Orders, players: Players, terms: Terms
) -> WorkflowHandler[[str, str], dict[str, Any]]:
    """Declare the saga and what undoes its steps."""

    def order(key: str, intent: str, meta: dict[str, str]) -> OrderRequest:
        return OrderRequest.of(
            {
                "idempotency_key": key,
                "broker": terms.broker,
                "symbol": terms.symbol,
                "intent": intent,
                "qty": "1",
                "time_in_force": "FOK",
                "meta": meta,
            }
        )

    async def buy(tx: Transaction, key: str) -> int | None:
        # The settlement of the order emits this event, in its own transaction.
        accepted = await orders.accept(tx, order(key, "BUY", {"workflow_event": f"order:{key}"}))
        return accepted.order_id

    async def pay(tx: Transaction, key: str) -> int:
        asked = (terms.chain_id, terms.signer, key, digest("pay", [terms.maker, terms.wei]))
        cursor = await tx.execute(SUBMIT, (*asked, terms.maker, terms.wei, PAYMENTS))
        [(transaction_id,)] = await cursor.fetchall()
        return int(transaction_id)

    async def grant(tx: Transaction, player: str, item: str, key: str) -> None:
        gift = GrantItems(player_id=player, items=(ItemGrant(item=item, count=1),), source="saga")
        try:
            await players.join(tx, gift, request_id=key)
        except NoSuchThing as error:
            raise PermanentError(str(error)) from error

    @fp.job("undo")
    async def unreserve(job: Job, item: str) -> None:
        async with job.finish() as tx:
            await tx.execute("update stock set left_over = left_over + 1 where item = %s", (item,))

    @fp.job("undo")
    async def unbuy(job: Job, order_id: int, key: str) -> None:
        bought = await orders.get(order_id=order_id)
        if bought["status"] in ("queued", "failed"):
            await orders.cancel(order_id, "saga", "undone")
        elif bought["status"] not in ("sent", "dead"):
            raise Snooze(5)  # It is on its way: whether there is anything to sell is not known yet.
        elif bought["status"] == "sent" and bought["result"]["fills"]:
            async with job.finish() as tx:
                await orders.accept(tx, order(f"{key}:undo", "SELL", {}))

    @fp.job("undo")
    async def unpay(job: Job, transaction_id: int) -> None:
        async with job.finish() as tx:
            found = await tx.execute(
                "select state from fencepost.managed_transaction where transaction_id = %s", (transaction_id,)
            )
            row = await found.fetchone()
            if row is not None and row[0] in ("CONFIRMED", "REJECTED"):
                # A confirmed payment is never taken back: a person asks the maker for it.
                await fp.outbox.put(tx, "refunds", {"transaction_id": transaction_id}, key=terms.maker)
            else:
                await tx.execute("select fencepost.nonce_tx_cancel(%s)", (transaction_id,))

    @fp.workflow("saga")
    async def sell_item(wf: Workflow, player: str, item: str) -> dict[str, Any]:
        key = wf.idempotency_key("item")
        await wf.options(undo=unreserve.submission(item=item)).transaction(reserve, item)

        undo_order = wf.options(undo=lambda order_id: unbuy.submission(order_id=order_id, key=key))
        order_id = await undo_order.transaction(buy, key)
        bought = await wf.event(f"order:{key}", timeout=timedelta(days=1))
        if bought["end"] != "filled":
            raise PermanentError(f"the order {order_id} is {bought['end']}")

        undo_payment = wf.options(undo=lambda sent: unpay.submission(transaction_id=sent))
        transaction_id = await undo_payment.transaction(pay, key)
        paid = await wf.event(f"payment:{key}", timeout=timedelta(days=1))
        if paid["state"] != "CONFIRMED":
            raise PermanentError(f"the transaction {transaction_id} is {paid['state']}")

        await wf.transaction(grant, player, item, key)
        return {"order": order_id, "transaction": transaction_id}

    return sell_item


async def relay_payments(fp: Fencepost) -> int:
    """Make events of what became of transactions: the message and its event are settled by one commit."""
    async with fp.transaction() as tx:
        told = await tx.run(outbox.hold(PAYMENTS, limit=100))
        for message in told:
            await fp.events.emit(tx, f"payment:{message.payload['idempotency_key']}", message.payload)
        settled = [Settlement(message.id, message.take, "sent") for message in told]
        await tx.run(outbox.settle_many(settled, owner=None))
        return len(told)
